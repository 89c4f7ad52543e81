"""Skeletons of solutions: what lies between markers is left to the reader.

A solution is a program that runs. In it ``# solution: HINT`` begins what a reader is to write, and
``# end`` ends it; both stand alone in their lines, as deep as the statements between them. A
skeleton is made from the solution, so that the two cannot drift apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from warploom.errors import WarploomError

_BEGIN = re.compile(r"^(?P<indent> *)# solution: (?P<hint>.+)$")
_MORE = re.compile(r"^ *#   (?P<hint>\S.*)$")
_END = re.compile(r"^ *# end$")
#: How the line begins that a skeleton has instead of a solution.
TODO = "# TODO"
_TODO = re.compile(r"^ *# TODO (\d+): (.*)$")


@dataclass(frozen=True)
class Todo:
    """A part that is left to the reader.

    Attributes
    ----------
    line : int
        Of the skeleton, from 1.
    hint : str
    """

    line: int
    hint: str


def skeleton(source: str, name: str = "the solution") -> str:
    """A solution without the parts between its markers.

    Parameters
    ----------
    source : str
    name : str
        Of the file, for errors.

    Raises
    ------
    WarploomError
        If a marker has no partner.

    Examples
    --------
    >>> print(skeleton("x = 1\\n# solution: add them\\ny = x + x\\n# end\\n"), end="")
    x = 1
    # TODO 1: add them
    pass
    """
    lines: list[str] = []
    opened, count, in_hint = 0, 0, False
    for number, line in enumerate(source.splitlines(), 1):
        begin = _BEGIN.match(line)
        if begin:
            if opened:
                raise WarploomError(f"{name}:{number}: a solution begins in that of line {opened}.")
            opened, in_hint = number, True
            count += 1
            indent = begin["indent"]
            lines += [f"{indent}{TODO} {count}: {begin['hint']}", f"{indent}pass"]
        elif opened and _END.match(line):
            opened = 0
        elif opened:
            more = _MORE.match(line) if in_hint else None
            in_hint = more is not None
            if more:  # the hint goes on
                lines.insert(-1, f"{indent}#   {more['hint']}")
        else:
            lines.append(line)
    if opened:
        raise WarploomError(f"{name}:{opened}: the solution has no end.")
    return "\n".join(lines) + "\n"


def without_markers(source: str) -> str:
    """A solution as it would be written without markers."""
    kept: list[str] = []
    in_hint = False
    for line in source.splitlines():
        if _BEGIN.match(line):
            in_hint = True
            continue
        if in_hint and _MORE.match(line):
            continue
        in_hint = False
        if not _END.match(line):
            kept.append(line)
    return "\n".join(kept) + "\n"


def todos(source: str) -> list[Todo]:
    """What is left to do in a file.

    Examples
    --------
    >>> todos("x = 1\\n# TODO 1: add them\\npass\\n")
    [Todo(line=2, hint='add them')]
    """
    found = ((number, _TODO.match(line)) for number, line in enumerate(source.splitlines(), 1))
    return [Todo(number, match[2]) for number, match in found if match]

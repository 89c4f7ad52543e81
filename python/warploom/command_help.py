"""The lists of commands: a sentence and an example for each word, as wide as the terminal.

Colours are for terminals only; ``NO_COLOR`` turns them off, ``FORCE_COLOR`` on.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

#: Widest text that is easy to read, and the least that is written.
_WIDEST, _NARROWEST = 100, 40
_BOLD, _DIM, _CYAN, _END = "\033[1m", "\033[2m", "\033[36m", "\033[0m"


@dataclass(frozen=True)
class Entry:
    """A word of a command.

    Attributes
    ----------
    words : str
    sentence : str
        What it does.
    example : str
        A command line.
    """

    words: str
    sentence: str
    example: str

    def __post_init__(self) -> None:
        assert self.words and self.example.startswith("warploom "), self
        assert self.sentence.endswith("."), self


def listing(
    groups: Mapping[str, Sequence[Entry]], width: int | None = None, colour: bool | None = None
) -> str:
    """Groups of words as text.

    Parameters
    ----------
    groups : mapping of str to sequence of Entry
        Headings and the words below them.
    width : int, optional
        Columns; by default those of the terminal.
    colour : bool, optional
        By default whether standard output is a terminal.
    """
    width = terminal_width() if width is None else width
    bold, dim, cyan, end = (
        (_BOLD, _DIM, _CYAN, _END) if (wants_colour() if colour is None else colour)
        else ("",) * 4
    )  # fmt: skip
    column = 4 + max(len(entry.words) for entries in groups.values() for entry in entries)
    lines: list[str] = []
    for heading, entries in groups.items():
        lines += ["", f"{bold}{heading}{end}"]
        for entry in entries:
            first, *rest = _wrapped(entry.sentence, width - column)
            gap = " " * (column - 2 - len(entry.words))
            lines.append(f"  {cyan}{entry.words}{end}{gap}{first}")
            lines += [f"{'':{column}}{line}" for line in rest]
            lines.append(f"{'':{column}}{dim}$ {entry.example}{end}")
    return "\n".join(lines).lstrip("\n")


def wants_colour(stream: IO[str] | None = None, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether text for a stream, by default standard output, has colours."""
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    stream = sys.stdout if stream is None else stream
    return stream.isatty() and environ.get("TERM") != "dumb"


def terminal_width() -> int:
    """Columns of the terminal, or of ``COLUMNS``; a line is never longer than is easy to read."""
    return max(_NARROWEST, min(shutil.get_terminal_size().columns, _WIDEST))


def _wrapped(sentence: str, width: int) -> Iterable[str]:
    return textwrap.wrap(sentence, max(width, 20)) or [""]

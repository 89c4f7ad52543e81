"""The state of a tile program between passes, as an attribute of its function.

The attribute ``warploom.state`` is a map of strings and numbers, so that a program that passes have
begun to lower is printed and parsed like any other, and a pass finds there the notes that the
passes before it have left:

- ``arch``: the architecture it is lowered for;
- ``by_hand``: whether its author has orchestrated all of it;
- ``decisions``: choices of passes, a sentence each;
- ``ignored``: hints that no pass follows, each ``[hint, reason, file, line]``; line 0 if not known;
- ``in_place``: names of the buffers that a CTA reads where it stores them, and only before;
- ``roles``: the roles that execute the statements, each ``[name, count, one_thread]``;
- ``threads``: the grid of threads that tiles in registers are spread over; empty if an MMA or
  nothing says where their elements lie.

Two facts stand in the body itself, as they are about its variables: how large a scalar can be
(``T.assume``), and the tiles of a loop over tiles (its annotation ``warploom.tiles``).
"""

from __future__ import annotations

from typing import Any

from tvm.ir import SourceName, Span
from tvm.tirx import PrimFunc

from warploom.spans import file_of, flat
from warploom.tile.hints import PREFIX
from warploom.tile.roles import ThreadRole

STATE = PREFIX + "state"


def state_of(
    arch: str, by_hand: bool, decisions: tuple[str, ...],
    ignored: tuple[tuple[str, str, Any], ...], roles: tuple[ThreadRole, ...],
    threads: tuple[int, int, int] | None,
    in_place: tuple[str, ...],
) -> dict[str, Any]:  # fmt: skip
    """The value of the attribute."""
    return {
        "arch": arch,
        "by_hand": by_hand,
        "decisions": [_printable(decision) for decision in decisions],
        "ignored": [[hint, _printable(why), *_place(span)] for hint, why, span in ignored],
        "roles": [[role.name, role.count, role.one_thread] for role in roles],
        "threads": list(threads or ()),
        "in_place": list(in_place),
    }


def read_state(func: PrimFunc) -> dict[str, Any] | None:
    """The parts of a program that the attribute has, by name; None before the first pass."""
    state = (func.attrs or {}).get(STATE)
    if state is None:
        return None
    return {
        "passes": True,
        "arch": str(state["arch"]),
        "by_hand": bool(state["by_hand"]),
        "decisions": tuple(_text(decision) for decision in state["decisions"]),
        "ignored": tuple(
            (str(hint), _text(why), _span(str(file), int(line)))
            for hint, why, file, line in state["ignored"]
        ),
        "roles": tuple(
            ThreadRole(str(name), int(count), bool(one_thread))
            for name, count, one_thread in state["roles"]
        ),
        "threads": tuple(map(int, state["threads"])) or None,
        "in_place": tuple(map(str, state["in_place"])),
    }


def _printable(text: str) -> str:
    """A text that TVM's printer writes as one literal: it does so for a line of ASCII alone."""
    return text.encode("unicode_escape").decode("ascii")


def _text(printable: Any) -> str:
    return str(printable).encode("ascii").decode("unicode_escape")


def _place(span: Any) -> tuple[str, int]:
    outermost = next(flat(span), None)
    return ("", 0) if outermost is None else (_printable(file_of(outermost)), int(outermost.line))


def _span(file: str, line: int) -> Any:
    return Span(SourceName(_text(file)), line, line, 0, 0) if line else None

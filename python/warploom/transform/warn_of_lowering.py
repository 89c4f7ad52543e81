"""Warnings of a lowering: another one declined, or hints that no pass followed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.tirx import PrimFunc

from warploom.errors import LoweringWarning
from warploom.tile.hints import HINT_KEYS, PREFIX
from warploom.tile.program import TileProgram
from warploom.warn import warn


def warn_of_lowering(program: TileProgram, lowering: str, declined: Mapping[str, str]) -> None:
    """Issue a warning for each lowering that declined, and for each hint that is not followed.

    Parameters
    ----------
    program : TileProgram
        After the last pass.
    lowering : str
        The one that took it.
    declined : mapping
        Lowerings that were tried before -> the reason.
    """
    for other, reason in declined.items():
        warn(
            f"{_name(program)} is lowered by {lowering}, for {other} declines: "
            f"{reason.splitlines()[0].rstrip('.:')}. "
            "If that is meant, write wl.hints(specialise=False).",
            LoweringWarning,
            first_span(program.func),
        )
    for hint, reason, span in program.ignored:
        where = _span(program, hint) if span is None else span
        warn(f"The hint {hint} is not followed: {reason}.", LoweringWarning, where)


def _name(program: TileProgram) -> str:
    return str((program.func.attrs or {}).get("global_symbol", "The program"))


def _span(program: TileProgram, hint: str) -> Any:
    """The author's line of a hint; of the program, for a hint that a pass has set."""
    found: list[Any] = []
    keys = {f"{PREFIX}{hint}{which}" for which in ("", "_0", "_1")} & HINT_KEYS

    def visit(one: tirx.AttrStmt) -> None:
        if str(one.attr_key) in keys and one.span is not None:
            found.append(one.span)

    tvm_ffi.structural_walk(program.func.body, (tirx.AttrStmt, visit))
    return found[0] if found else first_span(program.func)


def first_span(func: PrimFunc) -> Any:
    """The line of the first statement of a function that has one; None if none has."""
    found: list[Any] = []

    def note(one: Any) -> None:
        if one.span is not None:
            found.append(one.span)

    kinds = (tirx.AttrStmt, tirx.AllocBuffer, tirx.For, tirx.Evaluate)
    tvm_ffi.structural_walk(func.body, [(kind, note) for kind in kinds], order="pre")
    return found[0] if found else None

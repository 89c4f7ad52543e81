"""Warnings of a lowering: another one declined, or hints that no pass followed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.tirx import PrimFunc

from warploom.errors import LoweringWarning
from warploom.tile.hints import HINT_KEYS, PREFIX
from warploom.warn import warn


def warn_of_lowering(
    func: PrimFunc,
    ignored: Iterable[tuple[str, str, Any]],
    lowering: str,
    declined: Mapping[str, str],
    advice: str = "",
) -> None:
    """Issue a warning for each lowering that declined, and for each hint that is not followed.

    Parameters
    ----------
    func : PrimFunc
        The program, as its author has written it.
    ignored : iterable of (str, str, Span or None)
        Hints that no pass follows, why, and where they are if that is known.
    lowering : str
        The one that took it.
    declined : mapping
        Lowerings that were tried before -> the reason.
    advice : str
        What the author may write if that is meant: a sentence.
    """
    for other, reason in declined.items():
        warn(
            f"{_name(func)} is lowered by {lowering}, for {other} declines: "
            f"{reason.splitlines()[0].rstrip('.:')}. {advice}".rstrip(),
            LoweringWarning,
            first_span(func),
        )
    for hint, reason, span in ignored:
        where = _span(func, hint) if span is None else span
        warn(f"The hint {hint} is not followed: {reason}.", LoweringWarning, where)


def _name(func: PrimFunc) -> str:
    return str((func.attrs or {}).get("global_symbol", "The program"))


def _span(func: PrimFunc, hint: str) -> Any:
    """The author's line of a hint; of the program, for a hint that a pass has set."""
    spans: list[Any] = []
    keys = {f"{PREFIX}{hint}{which}" for which in ("", "_0", "_1")} & HINT_KEYS

    def visit(attribute: tirx.AttrStmt) -> None:
        if str(attribute.attr_key) in keys and attribute.span is not None:
            spans.append(attribute.span)

    tvm_ffi.structural_walk(func.body, (tirx.AttrStmt, visit))
    return spans[0] if spans else first_span(func)


def first_span(func: PrimFunc) -> Any:
    """The line of the first statement of a function that has one; None if none has."""
    spans: list[Any] = []

    def note(node: Any) -> None:
        if node.span is not None:
            spans.append(node.span)

    kinds = (tirx.AttrStmt, tirx.AllocBuffer, tirx.For, tirx.Evaluate)
    tvm_ffi.structural_walk(func.body, [(kind, note) for kind in kinds], order="pre")
    return spans[0] if spans else None

"""Kernels for rows of any length, where only the launch knows whether TMA can describe them.

The host compares: if all rows are multiples of 16 bytes, it launches the kernel whose loads and
stores go by TMA; else one whose threads copy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm.script import tirx as T
from tvm.tirx import PrimFunc, Var

from warploom.errors import Decline, LoweringWarning
from warploom.lower.passes.by_threads import of_any_rows, rows_of_launch
from warploom.lower.warn_of_lowering import first_span
from warploom.messages.blame import without_place
from warploom.tile import ir
from warploom.warn import warn


def for_any_rows(
    func: PrimFunc, lower: Callable[[PrimFunc, bool], PrimFunc], of_host: int, quiet: bool
) -> PrimFunc:
    """The lowered function, with a second kernel if its rows need one.

    Parameters
    ----------
    func : PrimFunc
        A program that has passed its check.
    lower : callable
        Lowers it, with warnings or quietly, or raises :class:`~warploom.errors.Decline`.
    of_host : int
        Statements of the author before the kernel.
    quiet : bool
        Whether the warning is off that there is no second kernel.
    """
    by_tma = lower(func, quiet)
    conditions = _conditions(func)
    if not conditions:
        return by_tma
    try:
        by_threads = lower(of_any_rows(func), True)
    except Decline as reason:
        if not quiet:
            warn(
                "The kernel takes rows of multiples of 16 bytes alone: "
                f"{without_place(str(reason)).splitlines()[0]}",
                LoweringWarning,
                first_span(func),
            )
        return by_tma
    before, one = _parts(by_tma, of_host)
    _, other = _parts(by_threads, of_host)
    chosen = ir.when(functools.reduce(T.And, conditions), one, ir.renewed(other))
    return by_tma.with_body(ir.seq([*before, chosen]))


def _parts(func: PrimFunc, of_host: int) -> tuple[list[Any], list[Any]]:
    statements = ir.flatten(func.body)
    return statements[:of_host], statements[of_host:]


def _conditions(func: PrimFunc) -> list[Any]:
    """Different conditions of the host, if it knows their variables from the arguments alone."""
    found: list[Any] = []
    for condition in rows_of_launch(func):
        if not any(tvm_ffi.structural_equal(condition, other) for other in found):
            found.append(condition)
    known = _of_arguments(func)
    return found if all(ir.uses(condition) <= known for condition in found) else []


def _of_arguments(func: PrimFunc) -> set[Var]:
    known: set[Var] = {param for param in func.params if not ir.is_buffer(param)}
    buffers = [param for param in func.params if ir.is_buffer(param)]
    buffers += list((getattr(func, "buffer_map", None) or {}).values())
    for buffer in buffers:
        for extent in buffer.shape:
            known |= ir.uses(extent)
    return known

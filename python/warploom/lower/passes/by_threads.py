"""Marks the copies that threads do, as TMA cannot describe the tensor.

What only the launch knows is decided there: such a function has two kernels, one of which takes
any rows (:mod:`warploom.lower.any_rows`).
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

import tvm
import tvm_ffi
from tvm.tirx import Buffer, PrimFunc
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.lower.analysis.layouts import has_layout
from warploom.lower.analysis.tma_boxes import why_no_boxes
from warploom.lower.analysis.tma_regions import at_launch, why_not_tma
from warploom.ops.copy_strided import STEPS
from warploom.tile import ir
from warploom.tile.annotations import BY_THREADS, MBAR
from warploom.tile.primitives import op_name, tile_call
from warploom.tile.scopes import is_global, is_shared
from warploom.tile_primitives import GATHER, SCATTER

_COPIES = ("copy", "copy_async", GATHER, SCATTER)


def by_threads(call: TilePrimitiveCall, operands: Container[Buffer]) -> TilePrimitiveCall:
    """A copy, marked if it is known that TMA cannot do it and threads can.

    ``operands`` are the tiles that MMAs read, whose swizzle makes boxes of chunks of rows.
    """
    if not _is_by_tma(call):
        return call
    region, use, stored = _tensor(call)
    reason = why_not_tma(region, use, stored)
    tile = next(each for each in call.args[:2] if not each.same_as(region))
    if reason is None and tile.source not in operands and not has_layout(tile.source):
        reason = why_no_boxes(tile, region)
    return call if reason is None else tile_call(call, *call.args, **{BY_THREADS: reason})


def of_any_rows(func: PrimFunc) -> PrimFunc:
    """A program whose threads do all copies of rows that only the launch knows."""

    def mark(call: TilePrimitiveCall) -> TilePrimitiveCall:
        if not _is_by_tma(call) or _at_launch(call) is None:
            return call
        region, use, _ = _tensor(call)
        reason = (
            f"Rows of {region.source.name}, {use}, have a number of bytes that is known at the "
            "launch, and may be no multiple of what TMA wants."
        )
        return tile_call(call, *call.args, **{BY_THREADS: reason})

    return func.with_body(ir.map_nodes(func.body, {TilePrimitiveCall: mark}, {}))


def rows_of_launch(func: PrimFunc) -> Iterator[Any]:
    """Conditions of the host under which TMA can do all copies of a program."""
    found: list[TilePrimitiveCall] = []
    tvm_ffi.structural_walk(func.body, (TilePrimitiveCall, found.append))
    for call in found:
        if _is_by_tma(call) and (fits := _at_launch(call)) is not None:
            yield fits


def _is_by_tma(call: TilePrimitiveCall) -> bool:
    """Whether passes leave a copy to TMA, and threads could do it in its place."""
    if op_name(call) not in _COPIES or call.scope.name != "cta" or {MBAR, STEPS} & set(call.config):
        return False
    to, source = (region.source for region in call.args[:2])
    if is_global(to) == is_global(source):
        return False
    tile, tensor = (source, to) if is_global(to) else (to, source)
    whole_bytes = tvm.DataType(str(tensor.dtype)).bits % 8 == 0
    return is_shared(tile) and whole_bytes and not len(tensor.strides)


def _at_launch(call: TilePrimitiveCall) -> Any:
    """Whether TMA can do a copy, as a condition of the host; None if it is known before."""
    region, _, stored = _tensor(call)
    return at_launch(region, stored)


def _tensor(call: TilePrimitiveCall) -> tuple[Any, str, bool]:
    """The region of global memory of a copy, how the tile uses it, and whether it is stored."""
    to, source = call.args[:2]
    if is_global(to.source):
        return to, f"which {source.source.name} is stored to", True
    return source, f"which {to.source.name} is loaded from", False

"""Statements on a part of a tile in registers, as nests over all of it with a guard.

Threads hold a tile by its own rows and columns, which loops over a part of it do not count.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, TensorRegion
from tvm.script import tirx as T
from tvm.tirx import Stmt, Var
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.lower.analysis.tma_regions import at_launch, tma_updates, why_not_tma
from warploom.lower.stores.shared_store import in_boxes
from warploom.tile import ir
from warploom.tile.primitives import op_name, primitive, tile_call
from warploom.tile.scopes import TILE_SCOPES, is_shared
from warploom.tile.updates import REDUCE, update_value

#: Reduction -> the value of a dtype that does not change its result.
NEUTRAL: dict[str, Callable[[str], Any]] = {
    "sum": lambda dtype: 0,
    "max": lambda dtype: -math.inf if "float" in dtype else int(tirx.min_value(dtype)),
    "min": lambda dtype: math.inf if "float" in dtype else int(tirx.max_value(dtype)),
}
#: Reduction -> two values in one.
COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b,
    "max": T.max,
    "min": T.min,
}
#: Elements of a tile with which TMA updates global memory: two for each thread of a warpgroup.
_MANY = 256
#: A reduction takes multiples of so many columns of a fragment, from a multiple on.
REDUCED_COLUMNS = 8


def flag(accumulate: Any) -> Any:
    """Whether the old value of a result takes part, as a bool where that is known."""
    return bool(int(accumulate)) if isinstance(accumulate, tirx.IntImm) else accumulate


def accumulated(call: TilePrimitiveCall, old: Any, value: Any, accumulate: Any) -> Any:
    """A result, with the old value where that takes part in the reduction."""
    accumulate = flag(accumulate)
    if accumulate is False:
        return value
    combined = COMBINE[op_name(call)](old, value)
    return combined if accumulate is True else T.if_then_else(accumulate, combined, value)


def is_whole(region: TensorRegion) -> bool:
    """Whether a region is all of its tile."""
    places = zip(ir.ranges(region), region.source.shape, strict=True)
    return all(_spans(start, extent, size) for (start, extent), size in places)


def _spans(start: Any, extent: Any, size: Any) -> bool:
    return ir.is_constant(start, 0) and ir.is_constant(extent, int(size))


def inside(region: TensorRegion, counters: list[Var]) -> Any:
    """Whether an element of a tile is in a region of it."""
    bounds = [
        T.And(counter >= first, counter < first + extent)
        for counter, (first, extent), size in zip(
            counters, ir.ranges(region), region.source.shape, strict=True
        )
        if not _spans(first, extent, size)
    ]
    return functools.reduce(T.And, bounds) if bounds else True


def place(start: Any, counter: Var, first: Any) -> Any:
    """An index, where ``counter`` begins at ``first``; passes look for the bare counter."""
    if tvm_ffi.structural_equal(ir.as_expr(start, "int32"), ir.as_expr(first, "int32")):
        return counter
    return start + counter if ir.is_constant(first, 0) else start + (counter - first)


def or_zero(element: TensorLoad) -> Any:
    """An element of a tensor, or 0 beyond its end, where copies read zeros."""
    there = [
        T.And(index >= 0, index < size)
        for index, size in zip(element.indices, element.source.shape, strict=True)
    ]
    return T.if_then_else(
        functools.reduce(T.And, there), element, tirx.const(0, str(element.ty.dtype))
    )


def store_of_part(call: TilePrimitiveCall) -> Stmt:
    """A store of a part of a tile: each element in turn is stored if it is in that part."""
    if REDUCE in call.config:
        return _each_of_part(call, functools.partial(update_value, f"atomic_{call.config[REDUCE]}"))
    return _each_of_part(call, lambda element, value: value)


def atomic_of_part(call: TilePrimitiveCall) -> Stmt:
    """An update of global memory with a tile: a copy that combines, or element by element.

    Of a whole tile in registers it is a copy, which TMA may do; of a whole shared tile, if TMA does
    it, and threads would have several elements each.
    """
    to, source = call.args
    name = op_name(call).removeprefix("atomic_")
    extents = [extent for region in (to, source) for _, extent in ir.ranges(region)]
    known = all(isinstance(extent, tirx.IntImm) for extent in extents)
    tile = source.source
    in_registers = tile.scope() in TILE_SCOPES and len(tile.shape) <= 2
    takes_copy = in_registers or (is_shared(tile) and known and _pays_by_tma(name, to, source))
    if is_whole(source) and known and takes_copy:
        return primitive("copy", to, source, scope="cta", **{REDUCE: name})
    return _each_of_part(call, functools.partial(update_value, op_name(call)))


def _pays_by_tma(name: str, to: TensorRegion, source: TensorRegion) -> bool:
    """Whether one thread updates a region by TMA, and all threads would take several rounds."""
    if not tma_updates(name, to.source) or why_not_tma(to, "which is updated", True) is not None:
        return False
    elements = math.prod(int(extent) for extent in source.source.shape)
    return at_launch(to, True) is None and in_boxes(to) and elements >= _MANY


def _each_of_part(call: TilePrimitiveCall, value: Callable[[Any, Any], Any]) -> Stmt:
    to, source = call.args[:2]
    tile = source.source
    counters = ir.counters(len(tile.shape))
    drop = len(ir.ranges(to)) - len(counters)
    indices, free = [], list(zip(counters, ir.ranges(source), strict=True))
    for start, extent in ir.ranges(to):
        if drop > 0 and ir.is_constant(extent, 1):
            drop -= 1
            indices.append(start)
            continue
        while drop < 0 and ir.is_constant(free[0][1][1], 1):
            free.pop(0)  # a dimension of one element that the region does not have
            drop += 1
        counter, (first, _) = free.pop(0)
        indices.append(start + counter - first)
    guard = inside(source, counters)
    new = value(to.source[tuple(indices)], tile[tuple(counters)])
    store = tirx.BufferStore(to.source, new, indices, call.span)
    return ir.nest(counters, map(int, tile.shape), [ir.when(guard, [store])])


def reduction_of_part(call: TilePrimitiveCall) -> Stmt:
    """A reduction; of columns that no instruction brings together, with a neutral rest of them."""
    region = call.args[1]
    tile = region.source
    aligned = all(
        _spans(first, extent, size) or (_is_multiple(first) and _is_multiple(extent))
        for (first, extent), size in zip(ir.ranges(region)[1:], tile.shape[1:], strict=True)
    )
    if tile.scope() not in TILE_SCOPES or aligned:
        return call
    statements, whole = with_neutral_rest(region, op_name(call))
    to, _, *more = call.args
    return ir.seq([*statements, tile_call(call, to, whole, *more)])


def with_neutral_rest(region: TensorRegion, name: str) -> tuple[list[Stmt], TensorRegion]:
    """A fragment of the values of a region of a tile, and neutral values of a reduction elsewhere.

    Returns
    -------
    tuple of (list of Stmt, TensorRegion)
        The statements that make it, and all of it.
    """
    tile = region.source
    counters = ir.counters(len(tile.shape))
    dtype = str(tile.dtype)
    rest = tirx.const(NEUTRAL[name](dtype), dtype)
    value = T.Select(inside(region, counters), tile[tuple(counters)], rest)
    whole = tirx.decl_buffer(tile.shape, dtype, f"{tile.name}_part", scope="fragment")
    store = tirx.BufferStore(whole, value, counters)
    nest = ir.nest(counters, map(int, tile.shape), [store])
    return [tirx.AllocBuffer(whole), nest], ir.whole(whole)


def _is_multiple(value: Any) -> bool:
    return isinstance(value, tirx.IntImm) and int(value) % REDUCED_COLUMNS == 0

"""Reductions of register tiles whose result every thread that needs it shall hold.

``Tx.wg.sum(row, acc)`` and its like on a wgmma accumulator reduce over registers of a thread and
over the lanes that share a row. Stock TVM declines a destination that several lanes hold copies
of; here that is the point: after the shuffles all of them have the result, ready to be broadcast.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import PrimFunc
from tvm.tirx.layout import S, TileLayout
from tvm.tirx.operator.tile_primitive import fail
from tvm.tirx.tile_primitive import DispatchContext, TilePrimitiveCall

from warploom.ops.elementwise_fragment import on_register_tiles
from warploom.ops.register_tile import LANES, RegisterTile, Threads, read_register_tile
from warploom.ops.schedule import Schedule

REDUCTIONS: dict[str, Callable] = {"sum": operator.add, "max": T.max, "min": T.min}

#: Independent partial results of a thread: hides the latency of dependent instructions.
CHAINS = 4
_FULL_WARP = 0xFFFFFFFF


@dataclass(frozen=True)
class Plan:
    """A reduction, reduced to constants.

    Attributes
    ----------
    combine : callable
        The binary operation.
    src, dst : RegisterTile
        Input and result.
    groups : tuple of tuple of int
        For each register of ``dst``, the registers of ``src`` that a thread combines.
    masks : tuple of int
        Lanes ``l`` and ``l ^ mask`` then shuffle their results, one mask after the other.
    accumulate : bool
        Whether the old value of ``dst`` takes part.
    """

    combine: Callable
    src: RegisterTile
    dst: RegisterTile
    groups: tuple[tuple[int, ...], ...]
    masks: tuple[int, ...]
    accumulate: bool


def _reduced_axes(call: TilePrimitiveCall, rank: int) -> set[int]:
    axes = {int(a) + rank if int(a) < 0 else int(a) for a in call.args[2]}
    if not axes or not all(0 <= a < rank for a in axes):
        fail(f"axes {sorted(axes)} are not dimensions of the source, which has {rank}.")
    return axes


def _destination_index(src: RegisterTile, dst: RegisterTile, axes: set[int]) -> np.ndarray:
    """For each register of each thread, the row-major index of the result it contributes to."""
    kept = [d for d in range(len(src.shape)) if d not in axes]
    expected = tuple(src.shape[d] for d in kept if src.shape[d] > 1)
    if tuple(e for e in dst.shape if e > 1) != expected:
        fail(
            f"the destination has shape {dst.shape}, reducing {src.shape} over axes "
            f"{sorted(axes)} gives {tuple(src.shape[d] for d in kept)}."
        )
    position = np.unravel_index(src.table, src.shape)
    if not kept:
        return np.zeros_like(src.table)
    return np.ravel_multi_index([position[d] for d in kept], [src.shape[d] for d in kept])


def _shuffle_masks(dst: RegisterTile) -> tuple[int, ...]:
    """XOR masks that reach exactly the lanes that hold the same results, or a decline."""
    results = dst.table.reshape(-1, LANES, dst.registers)
    first, last = (np.full(dst.size, value) for value in (len(results), -1))
    for warp, held in enumerate(results):
        first[held] = np.minimum(first[held], warp)
        last[held] = warp
    if (first != last).any():
        fail(
            "elements of one result lie in several warps, which only shared memory can combine; "
            "reduce over columns, or copy the tile to shared memory and reduce there."
        )
    same = results[:, :, None, :] == results[:, None, :, :]
    masks = tuple(mask for mask in (1, 2, 4, 8, 16) if same[0, 0, mask, 0])
    span = {0}
    for mask in masks:
        span |= {value ^ mask for value in span}
    lanes = np.arange(LANES)
    expected = np.isin(lanes[:, None] ^ lanes[None, :], sorted(span))
    if (same != expected[None, :, :, None]).any():
        fail("the lanes that share a result are no XOR group; use a fragment of the tensor core.")
    return masks


def _read_plan(name: str, call: TilePrimitiveCall, context: DispatchContext) -> Plan:
    analyzer = Analyzer()
    for variable, bounds in context.var_range_map.items():
        analyzer.bind(variable, bounds)
    threads = Threads.of(context)
    dst = read_register_tile(call.args[0], "the destination", threads, analyzer)
    src = read_register_tile(call.args[1], "the source", threads, analyzer)
    if dst.dtype not in ("float32", "int32"):
        fail(f"the destination must be float32 or int32, got {dst.dtype}; cast the result after.")
    index = _destination_index(src, dst, _reduced_axes(call, len(src.shape)))
    contributes = index[:, None, :] == dst.table[:, :, None]
    if not contributes.any(axis=(0, 1)).all() or (contributes != contributes[0]).any():
        fail(
            "the destination is distributed over threads otherwise than the reduced source; "
            "allocate it with row_fragment, each thread holding the results of its own elements."
        )
    groups = tuple(tuple(src.offsets[r] for r in np.flatnonzero(row)) for row in contributes[0])
    masks = _shuffle_masks(dst)
    return Plan(REDUCTIONS[name], src, dst, groups, masks, bool(call.args[3]))


def shuffle_xor(value: Any, mask: int) -> Any:
    """The value of lane ``l ^ mask``."""
    return T.tvm_warp_shuffle_xor(tvm.tirx.const(_FULL_WARP, "uint32"), value, mask, 32, 32)


def _emit(plan: Plan, dst: Any, src: Any, partial_results: Any) -> None:
    """Reduce registers in a few chains, then lanes, then the old value, for each result."""
    dtype = plan.dst.dtype
    for register, group in zip(plan.dst.offsets, plan.groups, strict=True):
        chains = min(CHAINS, len(group))
        for i, source in enumerate(group):
            value = T.cast(src[plan.src.start + source], dtype)
            if i >= chains:
                value = plan.combine(partial_results[i % chains], value)
            T.buffer_store(partial_results, value, [i % chains])
        for i in range(1, chains):
            total = plan.combine(partial_results[0], partial_results[i])
            T.buffer_store(partial_results, total, [0])
        for mask in plan.masks:
            own = partial_results[0]
            T.buffer_store(partial_results, plan.combine(own, shuffle_xor(own, mask)), [0])
        at = plan.dst.start + register
        result = partial_results[0]
        result = plan.combine(dst[at], result) if plan.accumulate else result
        T.buffer_store(dst, result, [at])


def reduce_fragment(name: str, call: TilePrimitiveCall, context: DispatchContext) -> PrimFunc:
    """``dst[i] = combine over j of src[i, j]`` (and of the old ``dst[i]`` if ``accum``).

    Parameters
    ----------
    name : str
        Key of :data:`REDUCTIONS`.

    Notes
    -----
    The source may have any dtype that converts to the destination's, float32 or int32. The order
    of a sum is fixed, so equal inputs give equal bits.
    """
    plan = _read_plan(name, call, context)
    src_view, dst_view = plan.src.view, plan.dst.view

    @T.prim_func(check_well_formed=False)
    def impl():
        src = T.meta_var(src_view())
        dst = T.meta_var(dst_view())
        partial_results = T.alloc_buffer(
            (CHAINS,), plan.dst.dtype, scope="local", layout=TileLayout(S[(CHAINS,)])
        )
        _emit(plan, dst, src, partial_results)

    return impl


def schedules(
    variant: str, when: tuple[str, Callable], reduce: Callable[..., PrimFunc], priority: int = 20
) -> tuple[Schedule, ...]:
    """A schedule for each reduction: ``reduce(name, call, context)`` where a predicate holds."""
    return tuple(
        Schedule(
            op=name, variant=variant, priority=priority, when=(when,), impl=partial(reduce, name)
        )
        for name in REDUCTIONS
    )  # fmt: skip


SCHEDULES = schedules("fragment", ("register_tiles", on_register_tiles), reduce_fragment)

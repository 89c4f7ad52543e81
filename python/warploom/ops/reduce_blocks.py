"""Reductions of blocks of rows of a register tile into shared memory.

``Tx.wg.sum(partial, acc, axes=(0,), blocks=4)`` adds up each of 4 blocks of consecutive rows, and
stores row ``p`` of the shared tile ``partial`` for block ``p``. A block lies within a warp, so
registers and shuffles are enough. What several warps have to put together, later statements read
from shared memory.

Shuffles halve the work: of two lanes that share a block, each keeps half of the columns and gives
the other half away, so that all lanes end with columns of their own.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import PrimFunc
from tvm.tirx.layout import S, TileLayout
from tvm.tirx.operator.tile_primitive import fail
from tvm.tirx.tile_primitive import DispatchContext, TilePrimitiveCall

from warploom.ops.reduce_fragment import REDUCTIONS, schedules, shuffle_xor
from warploom.ops.register_tile import LANES, RegisterTile, Threads, read_register_tile
from warploom.tile_primitives import BLOCKS


@dataclass(frozen=True)
class Step:
    """Lanes ``l`` and ``l ^ mask`` combine their results.

    ``halves`` is whether each of them keeps half of them; else both keep all.
    """

    mask: int
    halves: bool


@dataclass(frozen=True)
class Plan:
    """A reduction, reduced to constants.

    Attributes
    ----------
    src : RegisterTile
        Input.
    dst : TensorRegion
        Where results go: a row for each block, in shared memory.
    height : int
        Rows of a block.
    groups : tuple of tuple of int
        For each result of a thread, the registers that it combines.
    steps : tuple of Step
        What lanes combine then, one step after the other.
    """

    name: str
    src: RegisterTile
    dst: TensorRegion
    height: int
    groups: tuple[tuple[int, ...], ...]
    steps: tuple[Step, ...]

    @property
    def dtype(self) -> str:
        """Dtype of the results."""
        return str(self.dst.source.dtype)


def _groups(index: np.ndarray, offsets: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Registers that contribute to one result in every thread."""
    kinds, numbers = np.unique(index.T, axis=0, return_inverse=True)
    first = [int(np.flatnonzero(numbers == kind)[0]) for kind in range(len(kinds))]
    if any(len(set(row)) != len(kinds) for row in kinds.T):
        fail("threads hold blocks of rows in different registers; use a fragment.")
    return [
        tuple(offsets[r] for r in np.flatnonzero(numbers == kind)) for kind in np.argsort(first)
    ]


def _lane_masks(index: np.ndarray, table: np.ndarray) -> list[int]:
    """Bits of the lane that tell apart elements of one block, and no copies of one element."""
    lanes = np.arange(LANES)
    by_warp = [part.reshape(-1, LANES, part.shape[-1]) for part in (index, table)]
    result = []
    for mask in (1, 2, 4, 8, 16):
        same_block, same_element = (
            (part == part[:, lanes ^ mask]).all() for part in by_warp
        )
        if same_block and not same_element:
            result.append(mask)
    return result


def _steps(masks: list[int], first: list[int]) -> tuple[Step, ...]:
    """Steps that halve the results as long as their registers go on in even steps."""
    steps, left = [], np.array(first)
    for mask in masks:
        half = len(left) // 2
        distance = left[half:] - left[:half] if half and len(left) % 2 == 0 else np.array([0, 1])
        halves = bool((distance == distance[0]).all())
        steps.append(Step(mask, halves))
        left = left[:half] if halves else left
    return tuple(steps)


def _read_plan(name: str, call: TilePrimitiveCall, context: DispatchContext) -> Plan:
    analyzer = Analyzer()
    for variable, bounds in context.var_range_map.items():
        analyzer.bind(variable, bounds)
    dst, region = call.args[:2]
    src = read_register_tile(region, "the source", Threads.of(context), analyzer)
    blocks, axes = int(call.config[BLOCKS]), [int(axis) for axis in call.args[2]]
    if axes != [0] or src.shape[0] % blocks:
        fail(f"{blocks} blocks of the {src.shape[0]} rows of the source are reduced over axis 0.")
    if call.args[3]:
        fail("blocks of rows do not accumulate; accumulate where their results are combined.")
    height, columns = src.shape[0] // blocks, math.prod(src.shape[1:])
    extents = [int(analyzer.simplify(r.extent)) for r in dst.region]
    if extents != [blocks, *src.shape[1:]]:
        fail(f"the destination has extents {extents}; it has to have {[blocks, *src.shape[1:]]}.")
    if str(dst.source.dtype) not in ("float32", "int32"):
        fail(f"the destination must be float32 or int32, got {dst.source.dtype}.")
    row, column = src.table // columns, src.table % columns
    index = row // height * columns + column
    groups = _groups(index, src.offsets)
    masks = _lane_masks(index, src.table)
    if len(groups[0]) << len(masks) != height or len({len(group) for group in groups}) != 1:
        fail(
            f"the {height} rows of a block lie in several warps; reduce blocks of rows that one "
            "warp holds."
        )
    steps = _steps(masks, [group[0] for group in groups])
    return Plan(name, src, dst, height, tuple(groups), steps)


def _emit(plan: Plan, axes: dict[str, Any], src: Any, results: Any) -> None:
    combine, lane = REDUCTIONS[plan.name], axes["laneid"]
    for number, group in enumerate(plan.groups):
        values = (T.cast(src[plan.src.start + register], plan.dtype) for register in group)
        T.buffer_store(results, functools.reduce(combine, values), [number])
    count, place = len(plan.groups), 0
    first = [group[0] for group in plan.groups]
    alone: list[Any] = []
    for step in plan.steps:
        upper = T.bitwise_and(lane, step.mask) != 0
        half = count // 2
        for k in range(half if step.halves else count):
            mine = theirs = results[k]
            if step.halves:
                mine = T.Select(upper, results[k + half], results[k])
                theirs = T.Select(upper, results[k], results[k + half])
            T.buffer_store(results, combine(mine, shuffle_xor(theirs, step.mask)), [k])
        if step.halves:
            place = place + T.Select(upper, first[half] - first[0], 0)
            count = half
        else:
            alone.append(T.Not(upper))
    once = plan.src.is_first_copy(axes)
    guards = alone if once is None else [*alone, once]
    for k in range(count):
        row, *column = plan.src.coordinates(axes, place + first[k])
        starts = [r.min for r in plan.dst.region]
        at = [
            start + position
            for start, position in zip(starts, [T.truncdiv(row, plan.height), *column], strict=True)
        ]
        if guards:
            with T.If(tvm.tirx.all(*guards)), T.Then():
                T.buffer_store(plan.dst.source, results[k], at)
        else:
            T.buffer_store(plan.dst.source, results[k], at)


def reduce_blocks(name: str, call: TilePrimitiveCall, context: DispatchContext) -> PrimFunc:
    """``dst[p, j] = combine over the rows i of block p of src[i, j]``.

    Parameters
    ----------
    name : str
        ``"sum"``, ``"max"`` or ``"min"``.

    Notes
    -----
    The source is a tile in registers of any dtype that converts to that of the destination,
    float32 or int32. The order of a sum is fixed, so equal inputs give equal bits.
    """
    plan = _read_plan(name, call, context)
    declare, view = plan.src.threads.declare, plan.src.view
    count = len(plan.groups)

    @T.prim_func(check_well_formed=False)
    def impl():
        axes = T.meta_var(declare())
        src = T.meta_var(view())
        results = T.alloc_buffer(
            (count,), plan.dtype, scope="local", layout=TileLayout(S[(count,)])
        )
        _emit(plan, axes, src, results)

    return impl


def has_blocks(call: TilePrimitiveCall, context: DispatchContext) -> tuple[bool, str]:
    """Predicate: blocks of rows in registers are reduced into shared memory."""
    to, source = (region.source.scope() for region in call.args[:2])
    if BLOCKS not in call.config:
        return False, "the option blocks says how many blocks of rows there are."
    if source != "local" or not to.startswith("shared"):
        return False, f"blocks of rows go from registers to shared memory, not {source} to {to}."
    Threads.of(context)
    return True, ""


SCHEDULES = schedules("blocks", ("has_blocks", has_blocks), reduce_blocks, priority=21)

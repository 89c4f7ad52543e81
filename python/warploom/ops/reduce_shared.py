"""Reductions of shared tiles into registers: each thread reads all that its own results need."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import PrimFunc
from tvm.tirx.layout import S, TileLayout
from tvm.tirx.operator.tile_primitive import fail
from tvm.tirx.tile_primitive import DispatchContext, TilePrimitiveCall

from warploom.ops.reduce_fragment import CHAINS, REDUCTIONS, schedules
from warploom.ops.register_tile import RegisterTile, Threads, read_register_tile

#: Elements of a result that are added up without a loop.
_UNROLLED = 16


@dataclass(frozen=True)
class Plan:
    """A reduction, reduced to constants.

    Attributes
    ----------
    dst : RegisterTile
        Results.
    src : TensorRegion
        Input, in shared memory.
    kept : tuple of (int, int)
        Dimensions of the source, each with the one of the destination that counts along it.
    reduced : tuple of (int, int)
        The other dimensions of the source, with their extents.
    accumulate : bool
        Whether the old value of a result takes part.
    """

    name: str
    dst: RegisterTile
    src: TensorRegion
    kept: tuple[tuple[int, int], ...]
    reduced: tuple[tuple[int, int], ...]
    accumulate: bool

    @property
    def count(self) -> int:
        """Elements of one result."""
        return math.prod(extent for _, extent in self.reduced)


def _read_plan(name: str, call: TilePrimitiveCall, context: DispatchContext) -> Plan:
    analyzer = Analyzer()
    for variable, bounds in context.var_range_map.items():
        analyzer.bind(variable, bounds)
    dst = read_register_tile(call.args[0], "the destination", Threads.of(context), analyzer)
    src = call.args[1]
    extents = [int(analyzer.simplify(r.extent)) for r in src.region]
    axes = {int(axis) % len(extents) for axis in call.args[2]}
    kept = [d for d, extent in enumerate(extents) if d not in axes and extent > 1]
    of_dst = [d for d, extent in enumerate(dst.shape) if extent > 1]
    if [extents[d] for d in kept] != [dst.shape[d] for d in of_dst]:
        fail(f"the destination has shape {dst.shape}; {extents} is reduced over {sorted(axes)}.")
    if dst.dtype not in ("float32", "int32"):
        fail(f"the destination must be float32 or int32, got {dst.dtype}; cast the result after.")
    reduced = tuple((d, extents[d]) for d in sorted(axes))
    pairs = tuple(zip(kept, of_dst, strict=True))
    return Plan(name, dst, src, pairs, reduced, bool(call.args[3]))


def _element(plan: Plan, position: tuple[Any, ...], number: Any) -> Any:
    """One of the elements of a result, in the dtype of results."""
    indices = [r.min for r in plan.src.region]
    for dimension, of_dst in plan.kept:
        indices[dimension] = indices[dimension] + position[of_dst]
    extents = [extent for _, extent in plan.reduced]
    if isinstance(number, int):
        places = [int(place) for place in np.unravel_index(number, extents)]
    else:
        places, rest = [], number
        for extent in reversed(extents[1:]):
            places.insert(0, T.truncmod(rest, extent))
            rest = T.truncdiv(rest, extent)
        places.insert(0, rest)
    for (dimension, _), place in zip(plan.reduced, places, strict=True):
        indices[dimension] = indices[dimension] + place
    return T.cast(plan.src.source[tuple(indices)], plan.dst.dtype)


def _emit(plan: Plan, axes: dict[str, Any], dst: Any, results: Any) -> None:
    """Each result in a few chains, so that loads do not wait for sums."""
    combine = REDUCTIONS[plan.name]
    for register in plan.dst.offsets:
        position = plan.dst.coordinates(axes, register)
        element = partial(_element, plan, position)
        chains = math.gcd(CHAINS, plan.count) if plan.count > _UNROLLED else min(CHAINS, plan.count)
        for chain in range(chains):
            T.buffer_store(results, element(chain), [chain])

        def add(number: Any, chain: int, element: Any = element) -> None:
            T.buffer_store(results, combine(results[chain], element(number)), [chain])

        if plan.count > _UNROLLED:
            with T.serial(1, plan.count // chains) as step:
                for chain in range(chains):
                    add(step * chains + chain, chain)
        else:
            for number in range(chains, plan.count):
                add(number, number % chains)
        total = results[0]
        for chain in range(1, chains):
            total = combine(total, results[chain])
        at = plan.dst.start + register
        T.buffer_store(dst, combine(dst[at], total) if plan.accumulate else total, [at])


def reduce_shared(name: str, call: TilePrimitiveCall, context: DispatchContext) -> PrimFunc:
    """``dst[i] = combine over j of src[i, j]``, where ``src`` is a shared tile of any rank.

    Parameters
    ----------
    name : str
        ``"sum"``, ``"max"`` or ``"min"``.

    Notes
    -----
    Threads that hold copies of a result compute it alike, in one order: their bits are equal.
    """
    plan = _read_plan(name, call, context)
    declare, view = plan.dst.threads.declare, plan.dst.view

    @T.prim_func(check_well_formed=False)
    def impl():
        axes = T.meta_var(declare())
        dst = T.meta_var(view())
        results = T.alloc_buffer(
            (CHAINS,), plan.dst.dtype, scope="local", layout=TileLayout(S[(CHAINS,)])
        )
        _emit(plan, axes, dst, results)

    return impl


def is_shared_source(call: TilePrimitiveCall, context: DispatchContext) -> tuple[bool, str]:
    """Predicate: a shared tile is reduced into registers."""
    to, source = (region.source.scope() for region in call.args[:2])
    if to != "local" or not source.startswith("shared"):
        return False, f"shared memory is reduced into registers here, not {source} into {to}."
    Threads.of(context)
    return True, ""


SCHEDULES = schedules(
    "shared_source", ("is_shared_source", is_shared_source), reduce_shared, priority=21
)

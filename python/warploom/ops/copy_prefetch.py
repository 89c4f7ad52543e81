"""``copy_async`` into the L2 cache alone: the loads of TMA, without the tile that they fill.

A prefetch changes no memory and nothing waits for it, so a kernel may issue it while its
predecessor still writes the data (PTX ISA, "cp.async.bulk.prefetch.tensor"). Each variant does what
the load of its name does, by the same tensor map.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tvm_ffi
from tvm.backend.cuda.tile_primitive.copy_async.tma import copy_tma_auto_impl
from tvm.ir import Call, Op, StringImm
from tvm.script import tirx as T
from tvm.tirx import PrimFunc
from tvm.tirx.tile_primitive import DispatchContext, TilePrimitiveCall

from warploom.ops.copy_strided import copy_strided, single_thread
from warploom.ops.schedule import Schedule

if TYPE_CHECKING:
    from warploom.ops.schedule import Implementation

#: Names of the variants of loads that fill the L2 cache alone.
PREFETCHES = {"tma_auto": "l2_auto", "tma_strided": "l2_strided"}
_LOAD = "tirx.ptx.cp_async_bulk_tensor_g2s"


def _into_l2(load: Implementation) -> Implementation:
    """The op schedule of a load with a prefetch in the place of each of its instructions."""

    def schedule(call: TilePrimitiveCall, context: DispatchContext) -> PrimFunc:
        made = load(call, context)
        return made.with_body(tvm_ffi.structural_map(made.body, (Call, _prefetch), order="post"))

    return schedule


def _prefetch(call: Call) -> Any:
    if not (isinstance(call.op, Op) and call.op.name.startswith(_LOAD)):
        return call
    words = [str(option.value) for option in call.args if isinstance(option, StringImm)]
    rank = next(int(word[0]) for word in words if word in ("1d", "2d", "3d", "4d", "5d"))
    _, tensor_map, *coordinates = call.args
    return T.ptx[f"cp.async.bulk.prefetch.tensor.{rank}d.L2.global"](
        tensor_map, *coordinates[:rank]
    )


def _named(call: TilePrimitiveCall, _: DispatchContext) -> tuple[bool, str]:
    # A copy that says nothing must never become one that copies nothing.
    return call.dispatch in PREFETCHES.values(), "only a call that names a prefetch gets one"


SCHEDULES = tuple(
    Schedule(
        op="copy_async",
        variant=PREFETCHES[name],
        priority=0,
        when=(("named", _named), ("single_thread", single_thread)),
        impl=_into_l2(load),
    )
    for name, load in (("tma_auto", copy_tma_auto_impl), ("tma_strided", copy_strided))
)

"""``copy_async`` by TMA of one box, as it is: with steps, and dynamic strides.

TVM's ``tma_auto`` looks for the best box itself. For that it must know all strides but the
outermost one, and it takes all elements. A convolution that goes on by several pixels reads every
few: a tensor map has an element stride for each dimension ("traversal stride", CUDA Driver API,
``cuTensorMapEncodeTiled``); the box then says from which stretch of the tensor elements are taken,
and elements outside of the tensor are zero as ever.
"""

from __future__ import annotations

from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.backend.cuda.op import _resolve_cache_policy
from tvm.backend.cuda.tile_primitive.tma_utils import get_swizzle_mode_from_layout
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.tirx import Buffer, PrimFunc
from tvm.tirx.operator.tile_primitive import fail
from tvm.tirx.tile_primitive import DispatchContext, TilePrimitiveCall

from warploom.ops.schedule import Schedule
from warploom.target import Swizzle
from warploom.target.tma import box_error

#: Option of a copy: the distance of elements along each dimension of its source.
STEPS = "steps"
#: Option of a load, of TVM's own copies too: "evict_first", "evict_normal" or "evict_last".
CACHE_HINT = "cache_hint"
_OF_LOADS = {STEPS, CACHE_HINT, "mbar", "cta_mask", "cta_group"}
#: By the mode's number in a tensor map.
_SWIZZLES = (Swizzle.NONE, Swizzle.B32, Swizzle.B64, Swizzle.B128)


def knows_strides(buffer: Buffer) -> bool:
    """Whether all strides but the outermost one are numbers, as ``tma_auto`` needs them."""
    wide = [extent for extent in buffer.shape if not _is_one(extent)]
    return all(isinstance(extent, tirx.IntImm) for extent in wide[1:])


def _is_one(extent: Any) -> bool:
    return isinstance(extent, tirx.IntImm) and int(extent) == 1


def _is_shared(buffer: Buffer) -> bool:
    return buffer.scope().startswith("shared")


def _is_global(buffer: Buffer) -> bool:
    return buffer.scope() in ("", "global")


def by_tma(call: TilePrimitiveCall, _: DispatchContext) -> tuple[bool, str]:
    to, source = (region.source for region in call.args[:2])
    holds = (_is_shared(to) and _is_global(source)) or (_is_global(to) and _is_shared(source))
    return holds, "only copies between global and shared memory go by TMA"


def single_thread(_: TilePrimitiveCall, context: DispatchContext) -> tuple[bool, str]:
    return context.is_thread, f"one thread issues it, not {context.exec_scope}"


def copy_strided(call: TilePrimitiveCall, context: DispatchContext) -> PrimFunc:
    """The op schedule: one instruction, and a tensor map on the host."""
    return _load(call, context) if _is_shared(call.args[0].source) else _store(call, context)


def _store(call: TilePrimitiveCall, context: DispatchContext) -> PrimFunc:
    to, source = call.args[:2]
    if call.config:
        fail(f"options {sorted(call.config)}: stores have none.")
    steps = [1] * len(to.region)
    box = box_of(source, to, steps)
    described = tensor_map(to.source, source.source, box, steps, context)
    chain = f"cp.async.bulk.tensor.{len(box)}d.global.shared::cta.tile.bulk_group"
    coordinates = [T.cast(dimension.min, "int32") for dimension in reversed(to.region)]
    start = [dimension.min for dimension in source.region]

    @T.prim_func(check_well_formed=False)
    def impl():
        T.evaluate(
            T.ptx[chain](T.address_of(described), *coordinates, source.source.ptr_to(start))
        )

    return impl


def _load(call: TilePrimitiveCall, context: DispatchContext) -> PrimFunc:
    to, source = call.args[:2]
    unknown = sorted(set(call.config) - _OF_LOADS)
    if unknown or "mbar" not in call.config:
        fail(f"options {unknown}: allowed are {sorted(_OF_LOADS)}, and mbar must be there.")
    steps = [int(step) for step in call.config.get(STEPS, [1] * len(source.region))]
    box = box_of(to, source, steps)
    described = tensor_map(source.source, to.source, box, steps, context)
    rank = len(box)
    mask, pair = call.config.get("cta_mask"), int(call.config.get("cta_group", 1))
    policy, has_policy = _resolve_cache_policy(call.config.get(CACHE_HINT, ""), None)
    blackwell = str(context.target.arch).removeprefix("sm_")[:3] == "100"
    chain = (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
        f"{'' if mask is None else '.multicast::cluster'}"
        f"{f'.cta_group::{pair}' if blackwell else ''}"
        f"{'.L2::cache_hint' if has_policy else ''}"
    )
    coordinates = [T.cast(dimension.min, "int32") for dimension in reversed(source.region)]
    start = [dimension.min for dimension in to.region]
    last = [] if mask is None else [T.cast(mask, "uint16")]
    last += [policy] if has_policy else []
    mbar = call.config["mbar"]
    if pair > 1:
        mbar = T.cuda.cvta_generic_to_shared(mbar)

    @T.prim_func(check_well_formed=False)
    def impl():
        T.evaluate(
            T.ptx[chain](
                to.source.ptr_to(start), T.address_of(described), *coordinates, mbar, *last
            )
        )

    return impl


def box_of(to: TensorRegion, source: TensorRegion, steps: list[int]) -> list[int]:
    """Elements of the tensor that the box spans along each dimension; ``to`` is the tile."""
    buffer = source.source
    extents = [dimension.extent for dimension in source.region]
    if not all(isinstance(extent, tirx.IntImm) for extent in extents):
        fail(f"the extents {extents} of the region of {buffer.name} must be known.")
    if len(steps) != len(extents) or steps[-1] != 1:
        fail(
            f"steps = {steps} for {len(extents)} dimensions of {buffer.name}: one for each, and 1 "
            "for the last."
        )
    plain = tirx.decl_buffer(buffer.shape, str(buffer.dtype))
    if buffer.layout is not None and not tvm_ffi.structural_equal(buffer.layout, plain.layout):
        fail(f"{buffer.name} has a layout of its own; it must be row-major.")
    rows, columns = prod(map(int, extents[:-1])), int(extents[-1])
    wide = [int(dimension.extent) for dimension in to.region if int(dimension.extent) != 1]
    if prod(wide) != rows * columns or (wide and wide[-1] not in (columns, rows * columns)):
        fail(f"the tile has extents {wide}, the region {rows} rows of {columns} elements.")
    box = [int(extent) * step for extent, step in zip(extents, steps, strict=True)]
    swizzle = swizzle_of(to.source)
    reason = box_error(str(buffer.dtype), box, swizzle, steps)
    if reason is not None:
        fail(reason)
    return box


def swizzle_of(tile: Buffer) -> Swizzle:
    """The swizzle of a tile."""
    return _SWIZZLES[_swizzle(tile)]


def _swizzle(tile: Buffer) -> int:
    """The number of its swizzle in a tensor map."""
    try:
        mode = get_swizzle_mode_from_layout(tile.layout)
    except ValueError as error:
        fail(str(error))
    if mode is None:
        fail(f"{tile.name} has a layout that no swizzle of TMA is.")
    return int(mode.value)


def tensor_map(
    buffer: Buffer, tile: Buffer, box: list[int], steps: list[int], context: DispatchContext
) -> Any:
    """The tensor map of a copy; copies of a kernel that need the same one share it."""
    swizzle = _swizzle(tile)
    key = f"warploom.tensormap:{hash(buffer)}:{swizzle}:{box}:{steps}"
    if (made := context.cache_get(key)) is not None:
        return made
    size = tvm.DataType(str(buffer.dtype)).bits // 8
    extents = list(reversed(buffer.shape))
    strides, stride = [], size
    for extent in extents[:-1]:
        known_extent = isinstance(extent, tirx.IntImm)
        stride = stride * (int(extent) if known_extent else T.cast(extent, "int64"))
        strides.append(stride)
    operands = [*extents, *strides, *reversed(box), *reversed(steps)]
    rank = len(box)
    described = T.Var(f"{buffer.name}_strided_tensormap", ty=T.handle("tensormap").ty)

    @T.prim_func(check_well_formed=False)
    def encode():
        T.Bind(T.tvm_stack_alloca("tensormap", 1), var=described)
        T.tensormap_encode_tiled(
            described, buffer.data, *operands, descriptor_dtype=str(buffer.dtype), rank=rank,
            swizzle=swizzle, l2_promotion=2,
        )  # fmt: skip
        T.tvm_kernel_replace_point()

    context.add_init_stmt(encode.body, host=True)
    context.cache_set(key, described)
    return described


SCHEDULES = (
    Schedule(
        op="copy_async",
        variant="tma_strided",
        priority=5,
        when=(("by_tma", by_tma), ("single_thread", single_thread)),
        impl=copy_strided,
    ),
)

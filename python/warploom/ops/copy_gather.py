"""``copy_async`` of four rows that have an index each, by one instruction of TMA on Blackwell.

The tensor map is that of a matrix whose boxes have one row; the instruction gives the column, and
four rows, which come one below the other. Rows outside of the matrix are zero.

Source: PTX ISA, "cp.async.bulk.tensor", ".tile::gather4", "Tiled::gather4 mode".
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.backend.cuda.op import _resolve_cache_policy
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.tirx import PrimFunc
from tvm.tirx.operator.tile_primitive import fail
from tvm.tirx.tile_primitive import DispatchContext, TilePrimitiveCall

from warploom.layout.smem_matrix import ATOM_ROWS
from warploom.ops.copy_strided import (
    CACHE_HINT,
    box_of,
    by_tma,
    single_thread,
    swizzle_of,
    tensor_map,
)
from warploom.ops.schedule import Schedule
from warploom.target import TMA

#: Option of a load: the indices of the rows after the first, which the region of the source names.
ROWS = "rows"
#: Rows that one instruction copies.
GATHERED = 4
_OPTIONS = {ROWS, CACHE_HINT, "mbar", "cta_group"}


def gathers(call: TilePrimitiveCall, context: DispatchContext) -> tuple[bool, str]:
    """Predicate: the call names four rows, and the target has the instruction."""
    if ROWS not in call.config:
        return False, f"the option {ROWS} names the rows that tma_gather4 copies"
    arch = str(context.target.attrs.get("arch", ""))
    return arch.startswith("sm_100"), f"tile::gather4 needs arch sm_100a, the target says '{arch}'"


def copy_gather(call: TilePrimitiveCall, context: DispatchContext) -> PrimFunc:
    """The op schedule: one instruction, and a tensor map on the host."""
    to, source = call.args[:2]
    unknown = sorted(set(call.config) - _OPTIONS)
    if unknown or "mbar" not in call.config:
        fail(f"options {unknown}: allowed are {sorted(_OPTIONS)}, and mbar must be there.")
    others = list(call.config[ROWS])
    if len(others) != GATHERED - 1 or len(source.region) != 2:
        fail(
            f"{len(others) + 1} rows of {source.source.name} with {len(source.region)} dimensions; "
            f"an instruction copies {GATHERED} rows of a matrix."
        )
    row, columns = source.region
    wide = [int(part.extent) for part in to.region if int(part.extent) != 1]
    if not tvm_ffi.structural_equal(row.extent, tirx.IntImm("int32", 1)) or wide != [
        GATHERED, int(columns.extent)
    ]:  # fmt: skip
        fail(f"the tile has extents {wide}; it takes {GATHERED} rows of {columns.extent} elements.")
    row_of_tile = to.source[tuple(
        slice(part.min, part.min + (1 if int(part.extent) == GATHERED else part.extent))
        for part in to.region
    )]  # fmt: skip
    box = box_of(row_of_tile, source, [1, 1])
    described = tensor_map(source.source, to.source, box, [1, 1], context)
    policy, has_policy = _resolve_cache_policy(call.config.get(CACHE_HINT, ""), None)
    pair = int(call.config.get("cta_group", 1))
    chain = (
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes"
        f".cta_group::{pair}{'.L2::cache_hint' if has_policy else ''}"
    )
    coordinates = [T.cast(value, "int32") for value in (columns.min, row.min, *others)]
    address = _address(to)
    last: list[Any] = [policy] if has_policy else []
    mbar = call.config["mbar"]
    if pair > 1:
        mbar = T.cuda.cvta_generic_to_shared(mbar)

    @T.prim_func(check_well_formed=False)
    def impl():
        T.evaluate(
            T.ptx[chain](
                address, T.address_of(described), *coordinates, mbar, *last
            )
        )

    return impl


def _address(to: TensorRegion) -> Any:
    """Where the rows begin, before the swizzle: TMA permutes chunks by the bits of addresses.

    An index of the tile has the swizzle in it, so the address is that of the first row of an atom,
    and rows further.
    """
    number = next(n for n, part in enumerate(to.region) if int(part.extent) == GATHERED)
    row, swizzle = to.region[number].min, swizzle_of(to.source)
    if not isinstance(row, tirx.IntImm) or int(row) % GATHERED:
        fail(f"the rows begin at {row}; the first must be a multiple of {GATHERED}.")
    if GATHERED * swizzle.row_bytes % TMA.shared_align:
        fail(f"{GATHERED} rows of {swizzle.row_bytes} bytes; TMA wants {TMA.shared_align} bytes.")
    within = int(row) % ATOM_ROWS
    start = [part.min for part in to.region]
    start[number] = row - within
    first = to.source.ptr_to(start)
    if not within:
        return first
    return T.ptr_byte_offset(first, within * swizzle.row_bytes, str(to.source.dtype))


SCHEDULES = (
    Schedule(
        op="copy_async",
        variant="tma_gather4",
        priority=6,
        when=(("by_tma", by_tma), ("single_thread", single_thread), ("gathers", gathers)),
        impl=copy_gather,
    ),
)

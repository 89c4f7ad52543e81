"""``copy_async`` of four rows that have an index each, by one instruction of TMA on Blackwell.

The tensor map is that of a matrix whose boxes have one row; the instruction gives the column, and
four rows, which lie one below the other in shared memory. Rows outside of the matrix are zero, and
are not stored.

Source: PTX ISA, "cp.async.bulk.tensor", ".tile::gather4" and ".tile::scatter4", "Tiled::gather4 /
tiled::scatter4 mode".
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.backend.cuda.op import _resolve_cache_policy
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
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

#: Option: the indices of the rows after the first. The region of the matrix, which has as many rows
#: as the tile's, begins at the first.
ROWS = "rows"
#: Rows that one instruction copies.
GATHERED = 4
_OPTIONS = {ROWS, CACHE_HINT, "mbar", "cta_group"}


def gathers(call: TilePrimitiveCall, context: DispatchContext) -> tuple[bool, str]:
    """Predicate: the call names four rows, and the target has the instruction."""
    if ROWS not in call.config:
        return False, f"the option {ROWS} names the rows that tma_gather4 and tma_scatter4 copy"
    arch = str(context.target.attrs.get("arch", ""))
    return arch.startswith("sm_100"), (
        f"tile::gather4 and tile::scatter4 need arch sm_100a, the target says '{arch}'"
    )


def copy_gather(call: TilePrimitiveCall, context: DispatchContext) -> PrimFunc:
    """The op schedule: one instruction, and a tensor map on the host."""
    to, source = call.args[:2]
    unknown = sorted(set(call.config) - _OPTIONS)
    if unknown or "mbar" not in call.config:
        fail(f"options {unknown}: allowed are {sorted(_OPTIONS)}, and mbar must be there.")
    described, coordinates = _four_rows(to, source, call, context)
    policy, has_policy = _resolve_cache_policy(call.config.get(CACHE_HINT, ""), None)
    pair = int(call.config.get("cta_group", 1))
    chain = (
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes"
        f".cta_group::{pair}{'.L2::cache_hint' if has_policy else ''}"
    )
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


def copy_scatter(call: TilePrimitiveCall, context: DispatchContext) -> PrimFunc:
    """The op schedule of a store: one instruction, and a tensor map on the host."""
    to, source = call.args[:2]
    if set(call.config) != {ROWS}:
        fail(f"options {sorted(call.config)}: a store has {ROWS} alone.")
    described, coordinates = _four_rows(source, to, call, context)
    chain = "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group"
    address = _address(source)

    @T.prim_func(check_well_formed=False)
    def impl():
        T.evaluate(T.ptx[chain](T.address_of(described), *coordinates, address))

    return impl


def _four_rows(
    tile: TensorRegion, matrix: TensorRegion, call: TilePrimitiveCall, context: DispatchContext
) -> tuple[Any, list[Any]]:
    """The tensor map of a copy, and its coordinates: a column and four rows."""
    others = list(call.config[ROWS])
    if len(others) != GATHERED - 1 or len(matrix.region) != 2:
        fail(
            f"{len(others) + 1} rows of {matrix.source.name} with {len(matrix.region)} dimensions; "
            f"an instruction copies {GATHERED} rows of a matrix."
        )
    row, columns = matrix.region
    wide = [int(part.extent) for part in tile.region if int(part.extent) != 1]
    if not tvm_ffi.structural_equal(row.extent, tirx.IntImm("int32", GATHERED)) or wide != [
        GATHERED, int(columns.extent)
    ]:  # fmt: skip
        fail(f"the tile has extents {wide}; it takes {GATHERED} rows of {columns.extent} elements.")
    row_of_matrix = matrix.source[
        row.min : row.min + 1, columns.min : columns.min + columns.extent
    ]
    row_of_tile = tile.source[tuple(
        slice(part.min, part.min + (1 if int(part.extent) == GATHERED else part.extent))
        for part in tile.region
    )]  # fmt: skip
    box = box_of(row_of_tile, row_of_matrix, [1, 1])
    described = tensor_map(matrix.source, tile.source, box, [1, 1], context)
    return described, [T.cast(value, "int32") for value in (columns.min, row.min, *others)]


def _address(to: TensorRegion) -> Any:
    """Where the rows begin, before the swizzle: TMA permutes chunks by the bits of addresses.

    An index of the tile has the swizzle in it, so the address is that of the first row of an atom,
    and rows further.
    """
    number = next(n for n, part in enumerate(to.region) if int(part.extent) == GATHERED)
    row, swizzle = to.region[number].min, swizzle_of(to.source)
    analyzer = Analyzer()
    if not analyzer.can_prove(T.floormod(row, GATHERED) == 0):
        fail(f"the rows begin at {row}; the first must be known to be a multiple of {GATHERED}.")
    if GATHERED * swizzle.row_bytes % TMA.shared_align:
        fail(f"{GATHERED} rows of {swizzle.row_bytes} bytes; TMA wants {TMA.shared_align} bytes.")
    within = analyzer.simplify(T.floormod(row, ATOM_ROWS))
    start = [part.min for part in to.region]
    start[number] = row - within
    first = to.source.ptr_to(start)
    if isinstance(within, tirx.IntImm) and not int(within):
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
    Schedule(
        op="copy_async",
        variant="tma_scatter4",
        priority=6,
        when=(("by_tma", by_tma), ("single_thread", single_thread), ("gathers", gathers)),
        impl=copy_scatter,
    ),
)

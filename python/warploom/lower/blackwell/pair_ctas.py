"""Lets the two CTAs of a cluster compute their MMAs together, as pairs of Blackwell do.

The tensor cores of two CTAs multiply the rows of both with one instruction (``cta_group::2``), and
each reads half of B from the shared memory of the other. A CTA of a pair then loads half of B only.
This pass decides whether a program allows that, halves the tiles that are operand B and marks the
MMAs; later passes let one thread of the first CTA issue them for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.tirx import Buffer
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import IllegalCombination
from warploom.lower.analysis.clusters import cluster_shape, dependence, depends_on
from warploom.lower.analysis.layouts import has_layout
from warploom.lower.analysis.plan_pipeline import blocks
from warploom.lower.emit.wide_dimensions import wide_dimensions
from warploom.target import SM100A, Swizzle
from warploom.target.tcgen05 import PAIR, tcgen05_kinds
from warploom.tile import ir
from warploom.tile.leaves import CTA_GROUP
from warploom.tile.primitives import tile_call
from warploom.tile.program import TileProgram
from warploom.tile.statement import Allocation, Load, Mma, Statement, view, walk

#: The dimension of a cluster along which two CTAs are a pair: ranks count it first.
_ALONG = 0


@dataclass(frozen=True)
class _Half:
    """The part of operand B that a CTA of a pair loads: a part along one dimension."""

    along: int
    tile: Buffer

    @property
    def extent(self) -> int:
        """Rows, or columns, of this half."""
        return int(self.tile.shape[self.along])


def pair_ctas(program: TileProgram) -> TileProgram:
    """Make pairs of the CTAs of clusters (2, n), where all MMAs of a program allow it.

    Otherwise the program stays as it is, each CTA multiplies for itself, and the record of
    decisions says why.
    """
    shape, wanted = cluster_shape(program), program.hints.cluster
    # Clusters may also come from other hints, and have dimensions of 1 left out.
    if not shape or wanted is None or not shape[_ALONG] == wanted[_ALONG] == PAIR:
        return program
    obstacle = _obstacle(program)
    if obstacle is not None:
        return program.decided(f"pairs: none, for {obstacle}")
    halves = {
        mma.operands[1].source: _half(mma.operands[1].source, mma.transposed[1])
        for mma in _mmas(program)
    }
    rank = program.var("cta_in_cluster")
    number = rank if shape == (PAIR,) else T.truncmod(rank, PAIR)

    def change(call: TilePrimitiveCall) -> TilePrimitiveCall:
        if isinstance(view(call), Mma):
            whole = ir.whole(call.args[2].source)
            args = [*call.args[:2], whole, *call.args[3:]]
            return tile_call(call, *args, **{CTA_GROUP: PAIR})
        half = loaded.get(call.args[0].source) if isinstance(view(call), Load) else None
        return call if half is None else _load_half(call, half, number)

    table = {tile: half.tile for tile, half in halves.items()}
    loaded = {half.tile: half for half in halves.values()}
    body = tuple(
        ir.map_nodes(statement, {TilePrimitiveCall: change}, table) for statement in program.body
    )
    names = ", ".join(tile.name for tile in halves)
    return program.replace(body=body).decided(
        f"pairs: two CTAs multiply together, each loads half of {names}"
    )


def _half(tile: Buffer, transposed: bool) -> _Half:
    along = 1 if transposed else 0
    shape = [int(extent) for extent in tile.shape]
    shape[along] //= PAIR
    return _Half(along, tirx.decl_buffer(shape, str(tile.dtype), tile.name, scope=tile.scope()))


def _load_half(call: TilePrimitiveCall, half: _Half, number: Any) -> TilePrimitiveCall:
    source = call.args[1]
    ranges = ir.ranges(source)
    wide = wide_dimensions(ranges, len(half.tile.shape))[half.along]
    ranges[wide] = (ranges[wide][0] + number * half.extent, half.extent)
    part = ir.region(source.source, *ranges)
    return tile_call(call, ir.whole(half.tile), part, *call.args[2:])


def _mmas(program: TileProgram) -> list[Mma]:
    return [mma for place in blocks(program) for mma in place.statements if isinstance(mma, Mma)]


def _obstacle(program: TileProgram) -> str | None:
    """Why the CTAs of a cluster cannot multiply together; None if they can."""
    if program.arch != SM100A.name:
        return f"{program.arch} has no MMAs of two CTAs"
    mmas = _mmas(program)
    if not mmas:
        return "there is no MMA"
    known = dependence(program)
    for place in blocks(program):
        for statement in place.statements:
            if not isinstance(statement, Mma):
                continue
            adds = statement.accumulates
            decides = frozenset() if isinstance(adds, bool) else depends_on(adds, known)
            if _ALONG in place.differs | decides:
                return f"the CTAs of a cluster differ in whether they compute {statement.d.name}"
            if reason := _shape_obstacle(statement, program.hints.consumers):
                return reason
    second = {mma.operands[1].source: mma.transposed[1] for mma in mmas}
    every = [load for load in walk(program.block) if isinstance(load, Load)]
    for tile, transposed in second.items():
        loads = [load for load in every if load.tile.same_as(tile)]
        if not loads:
            return f"{tile.name} is computed, not loaded"
        if not all(_is_whole(load.to) for load in loads):
            return f"{tile.name} is loaded in parts"
        if any(_ALONG in depends_on(load.source, known) for load in loads):
            return f"the CTAs of a cluster load different {tile.name}"
        if reason := _half_obstacle(tile, transposed):
            return reason
    first = {mma.operands[0].source for mma in mmas}
    first |= {mma.metadata.source for mma in mmas if mma.metadata is not None}
    return _reader_obstacle(program, set(second), first)


def _shape_obstacle(mma: Mma, consumers: int | None) -> str | None:
    """Why no instruction of a pair computes an MMA."""
    d, (a, b) = mma.raw.args[0], mma.operands
    name = d.source.name
    if any(not _is_whole(region) for region in (d, b)):
        return f"the MMA into {name} takes a part of a tile"
    if mma.scales:
        return f"the MMA into {name} has scales, which lie in the tensor memory of one CTA"
    rows, columns = (int(extent) for extent in d.source.shape)
    shape = SM100A.warpgroup
    if rows % shape or consumers not in (None, rows // shape):
        return f"{name} does not have {shape} rows for each consumer warpgroup"
    dtypes = [str(region.source.dtype) for region in (a, b, d)]
    try:
        tcgen05_kinds(*dtypes)[0].check_shape(PAIR * shape, columns, PAIR)
    except IllegalCombination as error:
        return f"the MMA into {name} has no instruction: {str(error).rstrip('.')}"
    return None


def _is_whole(region: TensorRegion) -> bool:
    return len(region.source.shape) == 2 and all(
        ir.is_constant(start, 0) and ir.is_constant(extent, int(whole))
        for (start, extent), whole in zip(ir.ranges(region), region.source.shape, strict=True)
    )


def _half_obstacle(tile: Buffer, transposed: bool) -> str | None:
    """Why half of a tile cannot be loaded: TMA copies whole atoms of swizzles."""
    if has_layout(tile):
        return f"{tile.name} has a layout of its own"
    columns = int(tile.shape[1]) // (PAIR if transposed else 1)
    size = columns * tvm.DataType(str(tile.dtype)).bits // 8
    if transposed and size % Swizzle.B32.row_bytes:
        return f"half of {tile.name} has rows of {size} bytes"
    return None


def _reader_obstacle(program: TileProgram, second: set[Buffer], first: set[Buffer]) -> str | None:
    """Whether threads wait for loads that only the first CTA of a pair hears of."""
    if both := second & first:
        return f"{next(iter(both)).name} is operand A and operand B"
    for place in blocks(program):
        loaded = {load.tile for load in place.statements if isinstance(load, Load)}
        readers = (statement for statement in walk(place.statements) if _is_for_threads(statement))
        read = {tile for statement in readers for tile in statement.effects.touched} & loaded
        if read & (first | second):
            name = next(iter(read & (first | second))).name
            return f"threads read {name}, which is loaded for MMAs"
    return None


def _is_for_threads(statement: Statement) -> bool:
    """Whether threads execute a statement itself, and not only what is in it."""
    return not (statement.blocks or isinstance(statement, (Load, Mma, Allocation)))

"""Operands that threads compute go to the tensor core of Blackwell through memory that it reads.

``wgmma`` reads A from registers; ``tcgen05.mma`` reads it from shared or tensor memory. A fragment
that is operand A therefore becomes a tile of tensor memory where its threads hold whole rows and
there is room beside the accumulators, else a shared tile; the nests that compute it stay as they
are.
"""

from __future__ import annotations

from tvm import tirx
from tvm.ir import TensorRegion
from tvm.tirx import Buffer

from warploom.errors import Decline, IllegalCombination
from warploom.layout.tensor_memory import columns_of
from warploom.lower.analysis.budget import ctas_per_sm
from warploom.lower.analysis.layouts import has_layout
from warploom.target import SM100A
from warploom.target.dtypes import bits_of
from warploom.tile import ir
from warploom.tile.program import TileProgram, allocations
from warploom.tile.statement import Allocation, Mma, Nest, walk

#: Bits of an operand's elements that threads write to tensor memory.
_BITS = 16
#: Columns of an operand that one MMA takes at least, as its K.
_COLUMNS = 16


def share_operands(program: TileProgram) -> TileProgram:
    """Move the fragments that MMAs read to tensor memory or shared memory.

    Raises
    ------
    Decline
        If an accumulator has elements that no column holds, or an operand a layout of its own.
    """
    mmas = [mma for mma in walk(program.block) if isinstance(mma, Mma)]
    operands = {
        region.source: None
        for mma in mmas for region in mma.operands
        if isinstance(region, TensorRegion) and region.source.scope() == "fragment"
    }  # fmt: skip
    if not operands:
        return program
    table: dict[Buffer, Buffer] = {}
    decided: list[str] = []
    used = sum(
        _columns(t) for t in allocations(program.body)
        if t.scope() == "accumulator" and len(t.shape) == 2
    )  # fmt: skip
    room = SM100A.tensor_memory.columns // ctas_per_sm(program)
    for tile in operands:
        if has_layout(tile):
            raise Decline(
                f"The tile {tile.name} has a layout of its own, and operands that threads compute "
                "do not stay in registers on Blackwell; leave layout= out."
            )
        why = _why_shared(program, mmas, tile)
        if why is None and used + _columns(tile) > room:
            why = f"tensor memory has {room} columns, and accumulators take {used}"
        used += 0 if why else _columns(tile)
        scope = "shared" if why else "accumulator"
        table[tile] = tirx.decl_buffer(tile.shape, str(tile.dtype), tile.name, scope=scope)
        place = f"shared memory, for {why}" if why else "tensor memory"
        decided.append(f"operand {tile.name}: through {place}")
    body = tuple(ir.substitute(statement, table) for statement in program.body)
    return program.replace(body=body).decided(*decided)


def _columns(tile: Buffer) -> int:
    """Columns of tensor memory that a tile takes, of all its warpgroups."""
    rows, columns = (int(extent) for extent in tile.shape)
    try:
        return -(-rows // SM100A.warpgroup) * columns_of(str(tile.dtype), columns)
    except IllegalCombination as error:
        raise Decline(f"The tile {tile.name}: {error}") from error


def _why_shared(program: TileProgram, mmas: list[Mma], tile: Buffer) -> str | None:
    """Why an operand cannot lie in tensor memory; None if it can."""
    rows, columns = (int(extent) for extent in tile.shape)
    height = SM100A.warpgroup
    if rows % height or program.hints.consumers not in (None, rows // height):
        return f"its threads do not hold whole rows, as they do of {height} for each warpgroup"
    if bits_of(str(tile.dtype)) != _BITS or columns % _COLUMNS:
        return f"only {_BITS}-bit elements in multiples of {_COLUMNS} go there"
    for mma in mmas:
        a, b = (region.source for region in mma.operands)
        if b.same_as(tile):
            return "it is operand B"
        if a.same_as(tile) and mma.transposed[0]:
            return "it is transposed"
    if not _only_stored(program, tile):
        return "not only nests write it and MMAs read it"
    return None


def _only_stored(program: TileProgram, tile: Buffer) -> bool:
    """Whether all that is done to a tile are MMAs, and nests that store to all of it."""
    return all(
        tile not in ir.uses(statement.raw)
        or (isinstance(statement, Nest) and _stores_all(statement, tile))
        for statement in walk(program.block)
        if not (statement.blocks or isinstance(statement, (Allocation, Mma)))
    )


def _stores_all(nest: Nest, tile: Buffer) -> bool:
    stores = [store for store in nest.stores if store.buffer.same_as(tile)]
    if len(stores) != 1 or stores[0] not in nest.parts:
        return False
    counters = {loop.loop_var: int(loop.extent) for loop in nest.loops}
    extents = [counters.get(index) for index in stores[0].indices]
    reads = any(tile in ir.uses(store.value) for store in nest.stores)
    return not reads and extents == [int(extent) for extent in tile.shape]

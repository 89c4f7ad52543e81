"""Threads meet accumulators in registers: loads and stores of tensor memory, chunk by chunk.

Only ``tcgen05.ld`` and ``tcgen05.st`` reach tensor memory. A nest or a reduction on an accumulator
becomes, for every few columns: load them into registers, compute there, and store them back if
they have changed. Few, since a thread that holds a row cannot hold all of it.
"""

from __future__ import annotations

import tvm
from tvm.ir import TensorRegion
from tvm.tirx import Buffer, Stmt
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import Decline
from warploom.lower.blackwell.tensor_memory_chunks import (
    chunk_of,
    chunk_width,
    is_accumulator,
    load_chunk,
    wait_for,
)
from warploom.lower.blackwell.tensor_memory_nests import nest_by_chunks
from warploom.tile import ir
from warploom.tile.effects import REDUCTIONS
from warploom.tile.primitives import op_name, tile_call
from warploom.tile.program import TileProgram, allocations
from warploom.tile.statement import Block, Mma, Nest, walk
from warploom.tile_primitives import BLOCKS


def resolve_tensor_memory(program: TileProgram) -> TileProgram:
    """Give every access of threads to an accumulator its loads and stores.

    Raises
    ------
    Decline
        If a nest indexes an accumulator by other than its own loop variables, or changes it where
        it may read it as well, or an accumulator has elements of other than 32 bits.
    """
    operands = _operands(program)
    for tile in allocations(program.body):
        narrow = is_accumulator(tile) and tvm.DataType(str(tile.dtype)).bits != 32
        if narrow and tile not in operands:
            raise Decline(
                f"The accumulator {tile.name} is {tile.dtype}; tensor memory is read in 32-bit "
                "elements here, so accumulate in float32 or int32."
            )
    return program.replace(body=tuple(_block(program.block, program.arch)))


def _operands(program: TileProgram) -> set[Buffer]:
    """Tiles that MMAs read as operand A."""
    return {mma.operands[0].source for mma in walk(program.block) if isinstance(mma, Mma)}


def _block(statements: Block, arch: str) -> list[Stmt]:
    result: list[Stmt] = []
    for statement in statements:
        raw = statement.raw
        tiles = [b for b in ir.uses(raw) if is_accumulator(b)]
        if not tiles or statement.allocates or isinstance(statement, Mma):
            result.append(raw)
        elif isinstance(statement, Nest):
            span = statement.stores[0].raw.span
            result += [ir.written_at(part, span) for part in nest_by_chunks(statement, arch)]
        elif isinstance(raw, TilePrimitiveCall):
            result += _reduction(raw, arch)
        else:
            result.append(
                statement.with_blocks(*(_block(block, arch) for block in statement.blocks))
            )
    return result


def _reduction(call: TilePrimitiveCall, arch: str) -> list[Stmt]:
    """A reduction along rows, or by blocks of rows, one chunk after the other."""
    to, source = call.args[:2]
    tile = source.source
    if op_name(call) not in REDUCTIONS or not isinstance(source, TensorRegion):
        raise Decline(
            f"{op_name(call)} does not read the accumulator {tile.name} from tensor memory; "
            "copy it to a fragment before."
        )
    in_blocks = BLOCKS in call.config
    if not in_blocks and (
        is_accumulator(to.source) or [int(axis) % 2 for axis in call.args[2]] != [1]
    ):
        raise Decline(
            f"{op_name(call)} of the accumulator {tile.name} must reduce its columns into a "
            "fragment; copy it to a fragment before."
        )
    (_, (first, extent)) = ir.ranges(source)
    width = chunk_width(int(tile.shape[0]), int(extent), arch, tile.name)
    result: list[Stmt] = []
    for start in range(0, int(extent), width):
        chunk = chunk_of(tile, width, arch)
        accumulate = call.args[-1] if start == 0 or in_blocks else True
        own = to
        if in_blocks:
            rows, (column, _) = ir.ranges(to)
            own = ir.region(to.source, rows, (column + start, width))
        args = [own, ir.whole(chunk), *call.args[2:-1]]
        result += load_chunk(chunk, tile, int(first) + start)
        result.append(wait_for("ld"))
        result.append(tile_call(call, *args, accumulate))
    return result

"""Computes accumulators of few rows as their transpose: D^T = B A^T.

The tensor core takes 64 rows at a time, and columns in eights. A result of 8, 16 or 32 rows has its
columns for rows then: B, which has many, becomes the first operand. Nests index the accumulator the
other way round, and so do threads: what they make of it is its transpose again (``transposed``).

Warpgroups share accumulators by rows, so the accumulator with the fewest rows says how many there
are. Where an accumulator has more columns than rows, and its transpose leaves work for more
warpgroups, it is turned as well: attention backward has results of 64 queries x 128 elements of a
head beside those of 128 keys.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, TensorRegion
from tvm.tirx import Buffer, Stmt, Var

from warploom.lower.analysis.consumers import MOST_WARPGROUPS, wanted_consumers
from warploom.lower.analysis.layouts import has_layout
from warploom.lower.passes.parts_of_tiles import is_whole, or_zero
from warploom.target.wgmma import WGMMA_M
from warploom.tile import ir
from warploom.tile.primitives import tile_call
from warploom.tile.program import TileProgram, allocations
from warploom.tile.scopes import TILE_SCOPES, is_global, is_shared, is_single
from warploom.tile.statement import Allocation, Copy, Mma, Nest, Statement, Store, walk

#: Columns of an accumulator come in multiples of so many.
_COLUMNS = 8
#: Options of MMAs that change places with the operands.
_NEGATED = ("negate_a", "negate_b")


def swap_operands(program: TileProgram) -> TileProgram:
    """Turn the accumulators that have too few rows, if all of them can be turned."""
    few = [
        tile for tile in allocations(program.body)
        if tile.scope() == "accumulator" and len(tile.shape) == 2
        and int(tile.shape[0]) % WGMMA_M
    ]  # fmt: skip
    turned = [tile for tile in few if _can_turn(tile, program)]
    if len(turned) < len(few):
        return program
    reason = f"MMAs have multiples of {WGMMA_M} rows"
    if not few:
        turned, reason = _for_more_warpgroups(program), "more warpgroups then share its rows"
    if not turned:
        return program
    table = {
        tile: tirx.decl_buffer(
            tile.shape[::-1], str(tile.dtype), tile.name, scope=tile.scope()
        )
        for tile in turned
    }  # fmt: skip
    body = tuple(_statement(statement, table) for statement in program.block)
    return program.replace(body=body).decided(*(
        f"accumulator {new.name}: computed as {new.shape[0]} x {new.shape[1]}, with its operands "
        f"swapped, for {reason}"
        for new in table.values()
    ))  # fmt: skip


def _for_more_warpgroups(program: TileProgram) -> list[Buffer]:
    """The accumulators whose transpose leaves work for more warpgroups; they are stored alone."""
    tiles = [
        tile for tile in allocations(program.body)
        if tile.scope() in TILE_SCOPES and len(tile.shape) == 2 and not is_single(tile)
    ]  # fmt: skip
    rows = {tile: int(tile.shape[0]) for tile in tiles}
    if any(count % WGMMA_M for count in rows.values()):
        return []
    wanted = wanted_consumers(program.hints)
    for count in [wanted] if wanted else range(MOST_WARPGROUPS, 1, -1):
        small = [tile for tile in tiles if rows[tile] % (WGMMA_M * count)]
        if not small:
            return []
        if all(_gains(tile, count, program) for tile in small):
            return small
    return []


def _gains(tile: Buffer, count: int, program: TileProgram) -> bool:
    """Whether so many warpgroups share the columns of an accumulator that no nest reads."""
    if tile.scope() != "accumulator" or int(tile.shape[1]) % (WGMMA_M * count):
        return False
    read = any(
        isinstance(statement, Nest) and tile in ir.uses(statement.raw)
        for statement in walk(program.block)
        if not statement.blocks
    )
    return not read and _can_turn(tile, program)


def _can_turn(tile: Buffer, program: TileProgram) -> bool:
    """Whether an accumulator's columns can be rows, and all its uses allow it."""
    rows, columns = map(int, tile.shape)
    if columns % WGMMA_M or rows % _COLUMNS or has_layout(tile):
        return False
    return all(
        _allows(statement, tile)
        for statement in walk(program.block)
        if not statement.blocks and tile in ir.uses(statement.raw)
    )


def _allows(statement: Statement, tile: Buffer) -> bool:
    match statement:
        case Allocation():
            return statement.allocates
        case Mma(d=d, operands=operands):
            shared = all(is_shared(operand.source) for operand in operands)
            whole = d.same_as(tile) and is_whole(statement.raw.args[0])
            return shared and whole and statement.metadata is None
        case Store(source=source):
            return is_whole(source)
        case Nest():
            return True
    return False


def _statement(statement: Statement, table: dict[Buffer, Buffer]) -> Stmt:
    if statement.blocks:
        return statement.with_each(lambda inner: _statement(inner, table))
    if isinstance(statement, Copy) and _loads_vector(statement):
        return _element_by_element(statement)
    if not ir.uses(statement.raw) & set(table):
        return statement.raw
    match statement:
        case Allocation(buffer=buffer):
            return ir.allocation(table[buffer], statement.raw.span)
        case Mma(d=d):
            return _swapped(statement, table[d])
        case Store(source=source):
            return _stored(statement, table[source.source])
    return _turned(statement.raw, table)


def _loads_vector(copy: Copy) -> bool:
    """Whether a copy brings a vector from global memory into registers."""
    tile = copy.to.source
    long = [size for size in tile.shape if not ir.is_constant(size, 1)]
    in_registers = tile.scope() in TILE_SCOPES and is_global(copy.source.source)
    return in_registers and len(long) == 1 and is_whole(copy.to)


def _element_by_element(copy: Copy) -> Stmt:
    """A nest in place of a copy: each thread has the elements of a vector along its columns."""
    i = Var("i", "int32")
    to, source = (
        [start if ir.is_constant(extent, 1) else start + i for start, extent in ir.ranges(region)]
        for region in (copy.to, copy.source)
    )
    to = [i if ir.uses(ir.as_expr(index, "int32")) & {i} else index for index in to]
    value = or_zero(copy.source.source[tuple(source)])
    store = tirx.BufferStore(copy.to.source, value, to, copy.raw.span)
    return ir.loop(i, max(int(size) for size in copy.to.source.shape), [store])


def _swapped(mma: Mma, to: Buffer) -> Stmt:
    """The MMA of the same operands, the other first."""
    a, b = mma.operands
    first, second = mma.transposed
    config = {name: mma.raw.config[other] for name, other in
              zip(_NEGATED, _NEGATED[::-1], strict=True) if other in mma.raw.config}  # fmt: skip
    args = [_whole(to), b, a, tirx.const(second, "bool"), tirx.const(first, "bool")]
    return tile_call(mma.raw, *args, mma.raw.args[-1], **config)


def _stored(store: Store, tile: Buffer) -> Stmt:
    """A store of an accumulator: of a tile of registers that has the rows of the result."""
    shape = tile.shape[::-1]
    made = tirx.decl_buffer(shape, str(tile.dtype), f"{tile.name}_rows", scope="fragment")
    i, j = Var("i", "int32"), Var("j", "int32")
    element = tirx.BufferStore(made, tile[j, i], [i, j], store.raw.span)
    nest = ir.nest([i, j], map(int, shape), [element])
    copy = tile_call(store.raw, store.to, _whole(made), *store.raw.args[2:])
    return ir.seq([tirx.AllocBuffer(made), nest, copy])


def _whole(tile: Buffer) -> TensorRegion:
    return ir.region(tile, *((0, int(extent)) for extent in tile.shape))


def _turned(statement: Stmt, table: dict[Buffer, Buffer]) -> Stmt:
    """A nest with the indices of these accumulators exchanged."""

    def load(node: TensorLoad) -> TensorLoad:
        if node.source not in table:
            return node
        return table[node.source][tuple(node.indices[::-1])]

    def store(node: tirx.BufferStore) -> Stmt:
        if node.buffer not in table:
            return node
        return tirx.BufferStore(table[node.buffer], node.value, node.indices[::-1], node.span)

    callbacks = [(TensorLoad, load), (tirx.BufferStore, store)]
    return tvm_ffi.structural_map(statement, callbacks, order="post")

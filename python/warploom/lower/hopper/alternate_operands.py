"""Two copies of the shared operands that threads compute, which iterations of a loop alternate.

``wgmma`` reads an operand in shared memory after the warpgroup has gone on. Threads that compute
the operand of the next iteration would have to wait for that, and the tensor core would then wait
for them. With a copy for even and a copy for odd iterations, threads compute an operand while the
MMA before reads the other (:mod:`warploom.lower.hopper.mma_waits` sees that they are two).
"""

from __future__ import annotations

from tvm import tirx
from tvm.ir import TensorRegion
from tvm.tirx import Buffer, Stmt, Var

from warploom.lower.analysis.alternating import COPIES, copy_in
from warploom.lower.analysis.layouts import has_layout
from warploom.lower.analysis.room_for_stages import fits_beside
from warploom.tile import ir
from warploom.tile.primitives import tile_call
from warploom.tile.program import TileProgram
from warploom.tile.scopes import is_shared
from warploom.tile.statement import Allocation, Block, Loop, Mma, Nest, Statement, walk


def alternate_operands(program: TileProgram) -> TileProgram:
    """Give each such operand two copies, if shared memory has room for them.

    CTAs or warpgroups that share the iterations of a tile have passes of their own, which take
    operands that stay where they are.
    """
    hints = program.hints
    if hints.ping_pong or hints.stream_k or max(hints.slice_k or 1, hints.split_k or 1) > 1:
        return program
    table: dict[Buffer, tuple[Buffer, Loop]] = {}
    decided: list[str] = []
    for tile, loop in _computed_in_loops(program).items():
        if not fits_beside(program, [*table, tile]):
            continue
        shape = (COPIES, *tile.shape)
        table[tile] = (
            tirx.decl_buffer(shape, str(tile.dtype), tile.name, scope=tile.scope()), loop
        )  # fmt: skip
        decided.append(
            f"operand {tile.name}: {COPIES} copies, which iterations over {loop.var.name} alternate"
        )
    if not table:
        return program
    body = tuple(_with_copies(statement, table) for statement in program.block)
    return program.replace(body=body).decided(*decided)


def _computed_in_loops(program: TileProgram) -> dict[Buffer, Loop]:
    """Shared tiles that nests of a loop compute anew in each iteration, for MMAs of the loop."""
    operands = {
        operand.source
        for mma in walk(program.block) if isinstance(mma, Mma)
        for operand in mma.operands
        if is_shared(operand.source) and len(operand.source.shape) == 2
        and not has_layout(operand.source)
    }  # fmt: skip
    places: dict[Buffer, list[Loop | None]] = {}

    def visit(statements: Block, loop: Loop | None) -> None:
        for statement in statements:
            if isinstance(statement, Loop):
                visit(statement.body, statement)
                continue
            for tile in ir.uses(statement.raw) & operands:
                if not isinstance(statement, Allocation):
                    places.setdefault(tile, []).append(loop)

    visit(program.block, None)
    found: dict[Buffer, Loop] = {}
    for tile, loops in places.items():
        loop = loops[0]
        alike = loop is not None and all(one is loop for one in loops)
        if alike and _is_anew(tile, loop) and not ir.is_constant(loop.extent, 1):
            found[tile] = loop
    return found


def _is_anew(tile: Buffer, loop: Loop) -> bool:
    """Whether the first nest that touches a tile writes all of it, and else MMAs read it."""
    users = [one for one in loop.body if tile in ir.uses(one.raw)]
    users = [one for one in users if not isinstance(one, Allocation)]
    return (
        len(users) > 1
        and isinstance(users[0], Nest)
        and _stores_all(users[0], tile)
        and all(isinstance(one, Mma) for one in users[1:])
    )


def _stores_all(nest: Nest, tile: Buffer) -> bool:
    stores = [store for store in nest.stores if store.buffer.same_as(tile)]
    if len(stores) != 1 or stores[0] not in nest.parts:
        return False
    extents: dict[Var, int] = {}
    for loop in nest.loops:
        if not isinstance(loop.extent, tirx.IntImm) or not ir.is_constant(loop.min, 0):
            return False
        extents[loop.loop_var] = int(loop.extent)
    covered = [extents.pop(index, None) for index in stores[0].indices]
    reads = any(tile in ir.uses(part.value) for part in nest.stores)
    return not reads and not extents and covered == [int(extent) for extent in tile.shape]


def _with_copies(statement: Statement, table: dict[Buffer, tuple[Buffer, Loop]]) -> Stmt:
    """A statement with the copy of its iteration in place of each tile."""
    if statement.blocks:
        return statement.with_each(lambda inner: _with_copies(inner, table))
    raw = statement.raw
    if not ir.uses(raw) & set(table):
        return raw
    if isinstance(statement, Allocation):
        return ir.allocation(table[statement.buffer][0], raw.span)

    def store(node: tirx.BufferStore) -> Stmt:
        if node.buffer not in table:
            return node
        copies, loop = table[node.buffer]
        return tirx.BufferStore(copies, node.value, [copy_in(loop), *node.indices], node.span)

    if isinstance(statement, Mma):
        regions = [
            _in_copy(arg, table) if isinstance(arg, TensorRegion) else arg for arg in raw.args
        ]
        return tile_call(raw, *regions)
    return ir.map_nodes(raw, {tirx.BufferStore: store}, {})


def _in_copy(region: TensorRegion, table: dict[Buffer, tuple[Buffer, Loop]]) -> TensorRegion:
    if region.source not in table:
        return region
    copies, loop = table[region.source]
    return ir.region(copies, (copy_in(loop), 1), *ir.ranges(region))

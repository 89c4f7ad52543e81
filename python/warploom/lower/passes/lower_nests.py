"""Turns nests of element-wise stores into loops over each thread's own registers.

A nest says what happens to element (i, j) of a tile; the layout of the tile says which thread
holds it in which register. Here the loops over (i, j) become one loop over registers, in which i
and j are expressions of warp, lane and register, and other tiles are read from the register that
holds the element they are indexed with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Range, TensorLoad
from tvm.script import tirx as T
from tvm.tirx import Buffer, ForKind, Stmt, Var
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import Decline, IllegalCombination
from warploom.layout.fragment import wgmma_accumulator
from warploom.layout.thread_grid import ThreadGrid
from warploom.lower.emit.may_write import may_write
from warploom.lower.emit.named_barriers import all_consumers
from warploom.lower.nests.byte_fragments import ordered_bytes
from warploom.lower.nests.elements import (
    WARPGROUP,
    Element,
    NestContext,
    in_pairs,
    narrows,
    together,
)
from warploom.lower.nests.fragment_order import ANY_ORDER, in_fragment_order
from warploom.lower.nests.global_words import word_copy
from warploom.lower.nests.grid_nests import on_grid
from warploom.lower.nests.grid_reductions import GridReduction
from warploom.lower.nests.matrix_stores import matrix_store
from warploom.lower.nests.pairs import in_words, paired_store
from warploom.lower.nests.register_numbers import RegisterNumbers
from warploom.lower.nests.shared_rows import in_shared_rows
from warploom.lower.nests.transposed_bytes import transposed_bytes
from warploom.lower.nests.wide_accesses import for_neighbours
from warploom.lower.nests.word_loads import in_shared_words
from warploom.lower.passes.parts_of_tiles import NEUTRAL
from warploom.lower.stores.scattered_store import scatter_chunk
from warploom.ops.register_tile import LANES, Threads
from warploom.tile import ir
from warploom.tile.assumption import read_assumption
from warploom.tile.nest import AtomicUpdate
from warploom.tile.primitives import op_name
from warploom.tile.program import TileProgram
from warploom.tile.scalar import bound_of
from warploom.tile.scopes import is_global, is_shared, is_single, is_tile
from warploom.tile.statement import (
    Block,
    Loop,
    Nest,
    Reduction,
    Scatter,
    Statement,
    While,
    view,
)

#: Bytes that one thread writes to shared memory at a time.
_VECTOR_BYTES = 16


def lower_nests(program: TileProgram) -> TileProgram:
    """Lower every nest of a program whose tiles have layouts.

    Raises
    ------
    Decline
        If an element that a thread needs lies with another thread.
    """
    warp, lane = program.var("warp_in_warpgroup"), program.var("lane")
    loops = _id_ranges(program)
    threads, number = WARPGROUP, warp
    if program.threads is not None:
        warpgroups = int(program.id("warpgroup").extents[0])
        threads = Threads("cta", 0, WARPGROUP.warps * warpgroups)
        if warpgroups > 1:
            number = program.var("warpgroup") * WARPGROUP.warps + warp
            loops[program.var("warpgroup")] = ir.whole_range(warpgroups)
    axes, thread = threads.axes(lane, number), number * LANES + lane
    context = _Context(warp, lane, axes, thread, threads, {}, {}, loops, {}, program)
    body = _block(program.block, context)
    if context.flat:
        body = [_declare(statement, context.flat) for statement in body]
    body = [_scattered(statement, program) for statement in body]
    return program.replace(body=(*may_write(program), *body))


def _scattered(statement: Stmt, program: TileProgram) -> Stmt:
    """A statement in which threads store the chunks whose rows have an index each."""

    def call(primitive: TilePrimitiveCall) -> Stmt:
        one = view(primitive)
        return scatter_chunk(one, program) if isinstance(one, Scatter) else primitive

    return tvm_ffi.structural_map(statement, (TilePrimitiveCall, call), order="post")


@dataclass
class _Context(NestContext):
    """The context of a program's nests and of its reductions on a grid of threads.

    Attributes
    ----------
    program : TileProgram
    repeats : int
        Loops around the current statement.
    """

    program: TileProgram
    repeats: int = 0

    @property
    def grid(self) -> ThreadGrid | None:
        """The grid of threads that tiles in registers are spread over, if they are."""
        return ThreadGrid(*self.program.threads) if self.program.threads else None


def _id_ranges(program: TileProgram) -> dict[Var, Range]:
    """Values of the ids in nests; of the warpgroups, the last are those that compute."""
    ranges: dict[Var, Range] = {}
    for scope_id in program.ids:
        if scope_id.kind in ("cta", "cta_in_cluster"):
            for var, extent in zip(scope_id.vars, scope_id.extents, strict=True):
                ranges[var] = ir.whole_range(extent)
        elif scope_id.kind == "warpgroup" and program.hints.consumers is not None:
            consumers = program.hints.consumers
            first = int(scope_id.extents[0]) - consumers
            ranges[scope_id.vars[0]] = Range.from_min_extent(first, consumers)
    return ranges


def _declare(statement: Stmt, flat: dict[Buffer, dict[str, Buffer]]) -> Stmt:
    def alloc(allocation: tirx.AllocBuffer) -> Stmt:
        views = flat.get(allocation.buffer, {}).values()
        return ir.seq(
            [allocation, *(tirx.DeclBuffer(view, data=allocation.buffer.data) for view in views)]
        )

    return tvm_ffi.structural_map(statement, (tirx.AllocBuffer, alloc), order="post")


def _block(statements: Block, context: _Context) -> list[Stmt]:
    """The statements of a block; this pass uses the assumptions in it, and drops them."""
    lowered: list[Stmt] = []
    for statement in statements:
        if read_assumption(statement.raw) is None:
            lowered.append(_statement(statement, context))
        elif (fact := bound_of(statement.raw)) is not None:
            scalar, extent = fact
            context.bounded[scalar] = Var(scalar.name, "int32")
            context.loops[context.bounded[scalar]] = ir.whole_range(extent)
    return lowered


def _statement(statement: Statement, context: _Context) -> Stmt:
    if isinstance(statement, Nest):
        return ir.written_at(_nest(statement, context), statement.stores[0].raw.span)
    if isinstance(statement, Reduction) and context.grid is not None:
        return ir.written_at(_reduction(statement, context), statement.raw.span)
    if isinstance(statement, Loop) and ir.is_constant(statement.start, 0):
        context.loops[statement.var] = ir.whole_range(statement.extent)
    repeats = isinstance(statement, (Loop, While))
    context.repeats += repeats
    blocks = [_block(inner, context) for inner in statement.blocks]
    context.repeats -= repeats
    return statement.with_blocks(*blocks)


def _reduction(reduction: Reduction, context: _Context) -> Stmt:
    dtype = str(reduction.raw.args[0].source.dtype)
    neutral = NEUTRAL[op_name(reduction.raw)](dtype)
    meet = all_consumers(context.program)
    on_threads = GridReduction(
        reduction, context.grid, context, context.thread, neutral, meet, context.repeats > 0
    )
    return ir.seq(on_threads.lowered())


def _nest(nest: Nest, context: _Context) -> Stmt:
    if nest.loops and ANY_ORDER in nest.loops[0].annotations:
        return in_fragment_order(nest, context)
    moved = ordered_bytes(nest, context) or transposed_bytes(nest, context)
    if moved is not None:
        return moved
    matrices = matrix_store(nest, context) if context.grid is None else None
    if matrices is not None:
        return matrices.lowered(context)
    accesses = [
        (store.buffer, store.indices) for store in nest.stores if store.buffer.scope() == "local"
    ]
    accesses += [(load.source, load.indices) for load in _register_loads(nest)]
    # Of a tile of one element all threads have a copy: it tells none of them what to do.
    accesses = [access for access in accesses if not is_single(access[0])]
    if not accesses and any(store.buffer.scope() == "local" for store in nest.stores):
        return _by_every_thread(nest, context)
    if not accesses:
        return _over_threads(nest, context)
    if context.grid is not None:
        return on_grid(nest, accesses, context.grid, context)
    # A tile that the nest covers tells the elements of each thread.
    covered = [access for access in accesses if _covers(nest.loops, *access)]
    buffer, indices = [*covered, *_accumulator_of(nest.loops), *accesses][0]
    return _over_registers(buffer, indices, nest, context)


def _covers(loops: Sequence[tirx.For], buffer: Buffer, indices: Any) -> bool:
    """Whether the loops of a nest count all elements of a buffer, each once."""
    extents = {loop.loop_var: int(loop.extent) for loop in loops}
    return len(extents) == len(indices) and all(
        extents.get(index) == int(extent)
        for index, extent in zip(indices, buffer.shape, strict=True)
    )


def _accumulator_of(loops: Sequence[tirx.For]) -> list[tuple[Buffer, list[Var]]]:
    """An accumulator of the extents of a nest, as parts of larger ones are; none for others.

    Threads share it as they do the larger one; nothing is stored in it.
    """
    extents = [int(access.extent) for access in loops]
    try:
        layout = wgmma_accumulator(*extents) if len(extents) == 2 else None
    except IllegalCombination:
        layout = None
    if layout is None:
        return []
    made = tirx.decl_buffer(extents, "float32", "part", scope="local", layout=layout)
    return [(made, [loop.loop_var for loop in loops])]


def _register_loads(nest: Nest) -> list[TensorLoad]:
    loads: list[TensorLoad] = []

    def visit(load: TensorLoad) -> None:
        if ir.is_buffer(load.source) and is_tile(load.source) and not is_shared(load.source):
            loads.append(load)

    for part in nest.parts:
        tvm_ffi.structural_walk(part.raw, (TensorLoad, visit))
    return sorted(loads, key=lambda load: -len(load.indices))


def _over_registers(buffer: Buffer, indices: Any, nest: Nest, context: NestContext) -> Stmt:
    """Return a loop with an iteration for each register that a thread holds of ``buffer``."""
    tile = context.tile(buffer)
    extents = {loop.loop_var: int(loop.extent) for loop in nest.loops}
    for index, extent in zip(indices, tile.shape, strict=True):
        if extents.get(index) != extent:
            raise Decline(
                f"A nest indexes {buffer.name} by {index} where it has {extent} elements; use a "
                f"loop variable that counts all of them."
            )
    if len(extents) != len(tile.shape):
        raise Decline(
            f"A nest of {len(extents)} loops stores {buffer.name}, which has {len(tile.shape)} "
            "dimensions; use a loop for each."
        )
    once = _one_copy(tile, nest, context) if _stores_to_memory(nest) else True
    numbers = np.unravel_index(tile.table, tile.shape)
    registers = RegisterNumbers(tile, dict(zip(indices, numbers, strict=True)))

    def element(at: Any) -> Element:
        places = tile.coordinates(context.axes, at)
        table = {i: analyzer.simplify(place) for i, place in zip(indices, places, strict=True)}

        def number(buffer: Buffer, indices: Any) -> Any:
            return registers.of(context.tile(buffer), indices, at)

        return Element(table, number, context, analyzer, once)

    register = Var("r", "int32")
    store = paired_store(nest.parts, tile)
    if store is not None:
        analyzer = context.analyzer(register, 1)
        return ir.seq(in_words(store, [element(at) for at in range(tile.registers)], analyzer))
    words = word_copy(nest, buffer, tile) if once is True else None
    if words is not None:
        word = Var("word", "int32")
        analyzer = context.analyzer(word, tile.registers // 2)
        return words.lowered(word, tile.registers // 2, element(word * 2))
    analyzer = context.analyzer(register, 1)
    narrow = in_shared_words(nest, tile, element, analyzer)
    if narrow is not None:
        return ir.seq(narrow)
    step = 2 if in_pairs(tile) and any(narrows(part.raw) for part in nest.parts) else 1
    analyzer = context.analyzer(register, tile.registers // step)
    if tile.registers == 1:
        only = element(0)
        return ir.seq(map(only.statement, nest.parts))
    elements = [element(register * step + part if step > 1 else register) for part in range(step)]
    lowered = [s for part in nest.parts for s in together(part, elements)]
    return ir.loop(register, tile.registers // step, lowered, kind=ForKind.UNROLLED)


def _stores_to_memory(nest: Nest) -> bool:
    return any(is_shared(store.buffer) or is_global(store.buffer) for store in nest.stores)


def _one_copy(tile: Any, nest: Nest, context: NestContext) -> Any:
    """Which of the threads that hold copies of an element stores it to memory; True for all.

    Lanes of one warp may all do it: they store one value in one instruction. One updates it.
    """
    updates = any(isinstance(store, AtomicUpdate) for store in nest.stores)
    if not updates and all(digit.axis == "laneid" for digit in tile.replica):
        return True
    first = tile.is_first_copy(context.axes)
    return True if first is None else first


def _by_every_thread(nest: Nest, context: NestContext) -> Stmt:
    """A nest that stores tiles of one element, of which each thread computes its copy."""
    if any(not ir.is_constant(loop.extent, 1) for loop in nest.loops):
        names = ", ".join(store.buffer.name for store in nest.stores)
        raise Decline(f"A nest of several iterations stores {names}; use two nests.")
    first = {loop.loop_var: tirx.const(0, str(loop.loop_var.ty.dtype)) for loop in nest.loops}
    element = Element(
        first, lambda *_: 0, context, context.analyzer(Var("r", "int32"), 1),
        T.EQ(context.thread, 0),
    )  # fmt: skip
    return ir.seq(map(element.statement, nest.parts))


def _over_threads(nest: Nest, context: _Context) -> Stmt:
    """A nest without tiles in registers: 16 bytes of a row for each thread at a time."""
    loops, store = nest.loops, nest.stores[0]
    threads = context.threads.warps * LANES
    bits = tvm.DataType(str(store.buffer.dtype)).bits
    extents = [int(loop.extent) for loop in loops]
    vector = max(1, min(_VECTOR_BYTES * 8 // bits, extents[-1]))
    while extents[-1] % vector:
        vector //= 2
    total = int(np.prod(extents)) // vector
    round_, part = Var("round", "int32"), Var("v", "int32")
    chunk = round_ * threads + context.thread
    table: dict[Var, Any] = {}
    rest = chunk
    inner = extents[-1] // vector
    table[loops[-1].loop_var] = T.truncmod(rest, inner) * vector + part
    rest = T.truncdiv(rest, inner)
    for node, extent in zip(reversed(loops[:-1]), reversed(extents[:-1]), strict=True):
        table[node.loop_var] = T.truncmod(rest, extent)
        rest = T.truncdiv(rest, extent)

    def no_registers(buffer: Buffer, places: Any) -> Any:
        if is_single(buffer):
            return 0
        raise Decline(f"A nest stores both {buffer.name} and shared memory; use two nests.")

    rounds = -(-total // threads)
    analyzer = context.analyzer(part, vector)
    analyzer.bind(round_, ir.whole_range(rounds))
    def neighbour(number: int) -> Element:
        at = {part: tirx.const(number)}
        places = {var: ir.substitute(place, at) for var, place in table.items()}
        return Element(places, no_registers, context, analyzer)

    if context.grid is not None:
        elements = list(map(neighbour, range(vector)))
        vectorised = ir.seq(for_neighbours(nest.parts, elements))
    elif (chunk_of_row := in_shared_rows(nest, vector, neighbour, analyzer)) is not None:
        vectorised = ir.seq(chunk_of_row)
    else:
        element = Element(table, no_registers, context, analyzer)
        lowered = map(element.statement, nest.parts)
        vectorised = ir.loop(part, vector, lowered, kind=ForKind.UNROLLED)
    if total % threads:
        vectorised = ir.when(chunk < total, [vectorised])
    kind = ForKind.UNROLLED if rounds <= 8 else ForKind.SERIAL
    return ir.loop(round_, rounds, [vectorised], kind=kind)

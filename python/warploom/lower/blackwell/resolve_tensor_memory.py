"""Threads meet accumulators in registers: loads and stores of tensor memory, chunk by chunk.

Only ``tcgen05.ld`` and ``tcgen05.st`` reach tensor memory. A nest or a reduction on an accumulator
becomes, for every few columns: load them into registers, compute there, and store them back if
they have changed. Few, since a thread that holds a row cannot hold all of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op, TensorLoad, TensorRegion
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, Stmt, Var
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import Decline
from warploom.lower.analysis.fragments import fragments
from warploom.tile import ir
from warploom.tile.effects import REDUCTIONS
from warploom.tile.program import TileProgram, allocations
from warploom.tile.statement import Block, Mma, Nest, raws, walk

#: Registers of a thread that hold a chunk.
_CHUNK_REGISTERS = 16
#: Columns that a load of 64 rows comes in multiples of; a row a thread comes in any power of 2.
_STEP_64 = 8
_WAIT = Op.get("tirx.ptx.tcgen05_wait")


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
    """Tiles that products read as operand A."""
    return {mma.operands[0].source for mma in walk(program.block) if isinstance(mma, Mma)}


def is_accumulator(buffer: Any) -> bool:
    """Whether a buffer is a tile of tensor memory."""
    return ir.is_buffer(buffer) and buffer.scope() == "accumulator"


def is_wait(statement: Stmt) -> bool:
    """Whether a statement waits for loads or stores of tensor memory."""
    call = statement.value if isinstance(statement, tirx.Evaluate) else None
    return isinstance(call, Call) and call.op.same_as(_WAIT)


def _wait(direction: str) -> Stmt:
    return ir.evaluate(getattr(T.ptx.tcgen05, f"wait__{direction}").sync.aligned())


def _block(statements: Block, arch: str) -> list[Stmt]:
    result: list[Stmt] = []
    for statement in statements:
        raw = statement.raw
        tiles = [b for b in ir.uses(raw) if is_accumulator(b)]
        if not tiles or statement.allocates or isinstance(statement, Mma):
            result.append(raw)
        elif isinstance(statement, Nest):
            span = statement.stores[0].raw.span
            result += [ir.written_at(part, span) for part in _nest(statement, arch)]
        elif isinstance(raw, TilePrimitiveCall):
            result += _reduction(raw, arch)
        else:
            result.append(
                statement.with_blocks(*(_block(block, arch) for block in statement.blocks))
            )
    return result


#: An accumulator, and the first of its columns that a nest uses with the same indices.
_Part = tuple[Buffer, int]


@dataclass
class _Use:
    """How a nest uses one part of an accumulator."""

    row: Var
    column: Var
    loaded: bool = False
    stored: bool = False


def _width(rows: int, columns: int, arch: str, name: str) -> int:
    """Columns of a chunk: a power of two, as many as fit into the registers meant for it."""
    kinds = fragments(arch, rows)
    step = 1 if kinds.row_a_thread else _STEP_64
    width = _CHUNK_REGISTERS * kinds.rows // rows if kinds.row_a_thread else 2 * _CHUNK_REGISTERS
    while width >= step and columns % width:
        width //= 2
    if width < step:
        raise Decline(
            f"{columns} columns of the accumulator {name} are no multiple of {step}, which is what "
            "a load from tensor memory brings; use such a number."
        )
    return width


def _chunk(tile: Buffer, width: int, arch: str) -> Buffer:
    rows = int(tile.shape[0])
    layout = fragments(arch, rows).matrix(rows, width)
    return tirx.decl_buffer(
        (rows, width), str(tile.dtype), f"{tile.name}_chunk", scope="local", layout=layout
    )


def _load(chunk: Buffer, tile: Buffer, start: int) -> list[Stmt]:
    rows, width = (int(extent) for extent in chunk.shape)
    part = ir.region(tile, (0, rows), (start, width))
    return [
        tirx.AllocBuffer(chunk),
        ir.primitive("copy_async", ir.whole(chunk), part, scope="warpgroup"),
    ]


def _store(chunk: Buffer, tile: Buffer, start: int) -> Stmt:
    rows, width = (int(extent) for extent in chunk.shape)
    part = ir.region(tile, (0, rows), (start, width))
    return ir.primitive("copy_async", part, ir.whole(chunk), scope="warpgroup")


def _nest(nest: Nest, arch: str) -> list[Stmt]:
    uses = _uses(nest)
    columns = {use.column for use in uses.values()}
    if len(columns) != 1:
        names = ", ".join(tile.name for tile, _ in uses)
        raise Decline(
            f"A nest counts the columns of {names} by different loops; use a nest for each."
        )
    (column,) = columns
    extent = next(int(loop.extent) for loop in nest.loops if loop.loop_var.same_as(column))
    _require_apart(uses, extent)
    width = min(
        _width(int(tile.shape[0]), _common(extent, _columns(tile, first)), arch, tile.name)
        for tile, first in uses
    )
    changed = [part for part, use in uses.items() if use.stored]
    result: list[Stmt] = []
    for start in range(0, extent, width):
        chunks = {(tile, first): _chunk(tile, width, arch) for tile, first in uses}
        for (tile, first), use in uses.items():
            load = _load(chunks[tile, first], tile, first + start)
            result += load if use.loaded and start < _columns(tile, first) else load[:1]
        if any(use.loaded for use in uses.values()):
            result.append(_wait("ld"))
        result += ir.renewed([_on_chunks(nest, column, start, width, uses, chunks)])
        result += [
            _store(chunks[part], part[0], part[1] + start)
            for part in changed if start < _columns(*part)
        ]  # fmt: skip
    # Stores of one chunk are under way while the next is computed.
    return [*result, _wait("st")] if changed else result


def _common(extent: int, columns: int) -> int:
    """Columns that chunks of a nest have to divide: its own, and those of a tile that has fewer."""
    return math.gcd(extent, columns) if columns < extent else extent


def _columns(tile: Buffer, first: int) -> int:
    """Columns of a tile from one of them on; a nest that counts more has a guard around its use."""
    return int(tile.shape[1]) - first


def _require_apart(uses: dict[_Part, _Use], extent: int) -> None:
    """Decline a nest that changes one part of a tile and uses the next: chunks hold both."""
    for changed in {tile for (tile, _), use in uses.items() if use.stored}:
        starts = sorted(first for tile, first in uses if tile.same_as(changed))
        for start, end in pairwise(starts):
            if end - start < extent:
                raise Decline(
                    f"A nest changes the accumulator {changed.name} and uses {extent} columns of "
                    f"it from {start} and from {end} on; copy them to a fragment before."
                )


def _on_chunks(
    nest: Nest, column: Var, start: int, width: int, uses: dict[_Part, _Use],
    chunks: dict[_Part, Buffer],
) -> Stmt:  # fmt: skip
    """The nest on the columns from ``start`` on; chunks take the place of accumulators."""
    counter = Var(column.name, "int32")

    def load(node: TensorLoad) -> Any:
        if not is_accumulator(node.source):
            return node
        part = _part(node.source, node.indices)
        return chunks[part][uses[part].row, counter]

    def store(node: tirx.BufferStore) -> Any:
        if not is_accumulator(node.buffer):
            return node
        part = _part(node.buffer, node.indices)
        return tirx.BufferStore(chunks[part], node.value, [uses[part].row, counter], node.span)

    callbacks = [(TensorLoad, load), (tirx.BufferStore, store)]
    parts = raws(nest.parts)
    inner = [tvm_ffi.structural_map(part, callbacks, order="post") for part in parts]
    inner = [ir.substitute(statement, {column: counter + start}) for statement in inner]
    for loop in reversed(nest.loops):
        if loop.loop_var.same_as(column):
            inner = [ir.loop(counter, width, inner, loop.annotations)]
        else:
            inner = [ir.with_body(loop, inner)]
    return inner[0]


def _uses(nest: Nest) -> dict[_Part, _Use]:
    """The parts of accumulators in a nest, with the loops that count their rows and columns."""
    extents = {loop.loop_var: int(loop.extent) for loop in nest.loops}
    uses: dict[_Part, _Use] = {}

    def add(node: Any) -> None:
        tile = node.buffer if isinstance(node, tirx.BufferStore) else node.source
        if not is_accumulator(tile):
            return
        row, place = node.indices
        column, _ = _split(place)
        if extents.get(row) != int(tile.shape[0]) or column not in extents:
            raise Decline(
                f"A nest indexes the accumulator {tile.name} by {row}, {place}; a thread reaches "
                "tensor memory by whole rows, so index it by a loop over all rows and a loop over "
                "columns."
            )
        use = uses.setdefault(_part(tile, node.indices), _Use(row, column))
        if not use.row.same_as(row):
            raise Decline(
                f"A nest uses rows {use.row} and {row} of the accumulator {tile.name} at once; "
                "copy one of them to a fragment before."
            )
        use.stored |= isinstance(node, tirx.BufferStore)
        use.loaded |= not isinstance(node, tirx.BufferStore)

    tvm_ffi.structural_walk(nest.raw, [((tirx.BufferStore, TensorLoad), add)])
    for store in nest.stores:
        # What is not stored everywhere keeps its value elsewhere.
        if is_accumulator(store.buffer) and store not in nest.parts:
            uses[_part(store.buffer, store.indices)].loaded = True
    return uses


def _part(tile: Buffer, indices: Any) -> _Part:
    """Which part of an accumulator an access of a nest belongs to."""
    return tile, _split(indices[1])[1]


def _split(place: Any) -> tuple[Any, int]:
    """Loop variable and constant of a column index."""
    place = Analyzer().simplify(place)
    if isinstance(place, tirx.Add) and isinstance(place.b, tirx.IntImm):
        return place.a, int(place.b)
    return place, 0


def _reduction(call: TilePrimitiveCall, arch: str) -> list[Stmt]:
    """A reduction along rows, one chunk after the other."""
    to, source = call.args[:2]
    tile = source.source
    if ir.op_name(call) not in REDUCTIONS or not isinstance(source, TensorRegion):
        raise Decline(
            f"{ir.op_name(call)} does not read the accumulator {tile.name} from tensor memory; "
            "copy it to a fragment before."
        )
    if is_accumulator(to.source) or [int(axis) % 2 for axis in call.args[2]] != [1]:
        raise Decline(
            f"{ir.op_name(call)} of the accumulator {tile.name} must reduce its columns into a "
            "fragment; copy it to a fragment before."
        )
    (_, (first, extent)) = ir.ranges(source)
    width = _width(int(tile.shape[0]), int(extent), arch, tile.name)
    result: list[Stmt] = []
    for start in range(0, int(extent), width):
        chunk = _chunk(tile, width, arch)
        args = [to, ir.whole(chunk), *call.args[2:-1]]
        accumulate = call.args[-1] if start == 0 else True
        result += _load(chunk, tile, int(first) + start)
        result.append(_wait("ld"))
        result.append(ir.tile_call(call, *args, accumulate))
    return result

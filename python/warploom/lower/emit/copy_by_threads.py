"""Loads that TMA cannot do: computing threads copy them into the stages of a ring.

Rows of elements whose places are multiples of 4, 8 or 16 bytes come by ``cp.async``, which is under
way like TMA; others through registers, while the MMAs of steps before are computed. Each thread
arrives at the stage's barrier ``full``, by ``cp.async.mbarrier.arrive.noinc``, which waits for its
copies. Threads that wait there for the stage execute a proxy fence: the tensor core reads through
the async proxy what was written through the generic one.
"""

from __future__ import annotations

import functools
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import ForKind, Stmt, Var
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.lower.analysis.consumers import consumers
from warploom.lower.analysis.rings import Ring
from warploom.lower.emit.gather_rows import Copiers, RowCopy
from warploom.lower.emit.threads import thread_in_warpgroup
from warploom.lower.emit.wide_dimensions import wide_dimensions
from warploom.target import SM90A
from warploom.tile import ir
from warploom.tile.annotations import BY_THREADS
from warploom.tile.primitives import op_name
from warploom.tile.program import TileProgram
from warploom.tile.statement import view
from warploom.tile_primitives import GATHER

#: Bytes that ``cp.async`` copies (PTX ISA, "cp.async").
_COPIED_BYTES = (16, 8, 4)
#: Copies of a thread that its code has one after the other.
_UNROLLED = 8


def is_by_threads(load: TilePrimitiveCall) -> bool:
    """Whether threads copy what a load asks for."""
    return BY_THREADS in load.config or op_name(load) == GATHER


def arrivals(ring: Ring, threads: int) -> int:
    """Arrivals at ``full`` for each stage: of the threads that copy, and of one that asks TMA."""
    by_threads = [load for load in ring.loads if is_by_threads(load)]
    one = len(by_threads) < len(ring.loads)
    return one + (threads if by_threads else 0)


def arrive_copied(ring: Ring, stage: Any) -> list[Stmt]:
    """Each thread: arrive at ``full`` when its copies are complete, stores included."""
    return [see_copied(), arrive_gathered(ring, stage)]


def arrive_gathered(ring: Ring, stage: Any) -> Stmt:
    """Each thread: arrive at ``full`` when its ``cp.async`` are complete."""
    arrive = T.ptx["cp.async.mbarrier.arrive.noinc.shared::cta.b64"](ir.address(ring.full, stage))
    return ir.evaluate(arrive)


def computing_copiers(program: TileProgram) -> Copiers:
    """All threads that compute."""
    thread = program.var("warpgroup") * SM90A.warpgroup + thread_in_warpgroup(program)
    return Copiers(thread, consumers(program) * SM90A.warpgroup)


def see_copied() -> Stmt:
    """Let the tensor core see what threads have written to shared memory."""
    return ir.evaluate(T.ptx.fence.proxy.async_.shared__cta())


def copied_elements(to: TensorRegion, source: TensorRegion, rows_fit: bool = False) -> int:
    """Elements that a thread copies by one ``cp.async``; 0 where none can.

    ``rows_fit`` says that rows of the tensor are known to have multiples of 16 bytes.
    """
    buffer = source.source
    bits = tvm.DataType(str(buffer.dtype)).bits
    plain = not len(buffer.strides) and ir.is_constant(buffer.elem_offset, 0)
    first, extent = ir.ranges(source)[-1]
    columns, into = ir.ranges(to)[-1][1], ir.ranges(to)[-1][0]
    along = ir.is_constant(extent, int(columns))  # rows of the tile are rows of the tensor
    analyzer = Analyzer()
    for size in _COPIED_BYTES if plain and along else ():
        unit = size * 8 // bits
        places = [first, extent, into, *([] if rows_fit else buffer.shape[-1:])]
        if unit and all(
            analyzer.can_prove(T.floormod(ir.as_expr(place, "int32"), unit) == 0)
            for place in places
        ):
            return unit
    return 0


def copies_by_threads(
    load: TilePrimitiveCall, ring: Ring, stage: Any, program: TileProgram
) -> list[Stmt]:
    """Copies of one load into a stage, for all computing threads together."""
    if op_name(load) == GATHER:
        rows = RowCopy(view(load), computing_copiers(program))
        held, found = rows.find()
        return [*found, *rows.copy(ring, stage, held)]
    to, source = load.args[:2]
    unit = copied_elements(to, source)
    made = (
        _asynchronously(to, source, unit, ring, stage, program) if unit
        else _through_registers(to, source, ring, stage, program)
    )  # fmt: skip
    return [ir.written_at(statement, load.span) for statement in made]


def _through_registers(
    to: TensorRegion, source: TensorRegion, ring: Ring, stage: Any, program: TileProgram
) -> list[Stmt]:
    """A nest for each warpgroup, over its part of the rows; on a grid of threads, one for all."""
    count = consumers(program) if program.threads is None else 1
    extents = [int(extent) for _, extent in ir.ranges(to)]
    counters = ir.counters(len(extents))
    shared_out = count > 1 and extents[0] % count == 0
    places: list[Any] = [*counters]
    if shared_out:
        extents[0] //= count
        places[0] = counters[0] + program.var("warpgroup") * extents[0]
    at = _in_source(to, source, places)
    zero = tirx.const(0, str(source.source.dtype))
    element = T.if_then_else(_is_inside(source, at), source.source[tuple(at)], zero)
    indices = [start + at for (start, _), at in zip(ir.ranges(to), places, strict=True)]
    store = tirx.BufferStore(ring.tiles[to.source], element, [stage, *indices])
    nest = ir.nest(counters, extents, [store])
    if count > 1 and not shared_out:
        return [ir.when(T.EQ(program.var("warpgroup"), 0), [nest])]
    return [nest]


def _asynchronously(
    to: TensorRegion, source: TensorRegion, unit: int, ring: Ring, stage: Any, program: TileProgram
) -> list[Stmt]:
    """Rounds of ``cp.async``, of which each thread has one; 0 comes from outside of the tensor."""
    buffer = source.source
    size = unit * tvm.DataType(str(buffer.dtype)).bits // 8
    extents = [int(extent) for _, extent in ir.ranges(to)]
    extents[-1] //= unit
    total = functools.reduce(lambda a, b: a * b, extents)
    copiers = computing_copiers(program)
    threads = copiers.count
    round_ = Var("round", "int32")
    rest: Any = round_ * threads + copiers.thread
    inside_tile = rest < total
    places: list[Any] = []
    for number, extent in reversed(list(enumerate(extents))):
        at = T.truncmod(rest, extent) if number else rest
        places.append(at * unit if number == len(extents) - 1 else at)
        rest = T.truncdiv(rest, extent)
    places.reverse()
    indices = _in_source(to, source, places)
    own = [start + at for (start, _), at in zip(ir.ranges(to), places, strict=True)]
    form = "cg" if size == _COPIED_BYTES[0] else "ca"
    copy = T.ptx[f"cp.async.{form}.shared::cta.global"](
        ir.address(ring.tiles[to.source], stage, *own), ir.address(buffer, *indices), size,
        T.if_then_else(_is_inside(source, indices), T.uint32(size), T.uint32(0)),
    )  # fmt: skip
    body = ir.evaluate(copy)
    rounds = -(-total // threads)
    if total % threads:
        body = ir.when(inside_tile, [body])
    kind = ForKind.UNROLLED if rounds <= _UNROLLED else ForKind.SERIAL
    return [ir.loop(round_, rounds, [body], kind=kind)]


def _in_source(to: TensorRegion, source: TensorRegion, places: list[Any]) -> list[Any]:
    """The indices of an element of the source, at places of the tile's dimensions."""
    ranges = ir.ranges(source)
    wide = wide_dimensions(ranges, len(places))
    free = iter(places)
    return [
        start + next(free) if dimension in wide else start
        for dimension, (start, _) in enumerate(ranges)
    ]


def _is_inside(source: TensorRegion, indices: list[Any]) -> Any:
    """Whether a tensor has an element of these indices."""
    return tirx.all(*(
        T.And(index >= 0, index < extent)
        for index, extent in zip(indices, source.source.shape, strict=True)
    ))  # fmt: skip

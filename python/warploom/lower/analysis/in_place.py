"""Buffers that a CTA reads where it stores, before it stores: ``C = A B + beta C``.

Loads run ahead and stores complete late, so a buffer that is both loaded and stored is declined in
general. A CTA that reads only elements which it stores afterwards, once, needs no order with
anything else: no other CTA touches them, and what it reads is complete before it stores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm.ir import TensorLoad, TensorRegion
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, IntImm
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.tile import ir
from warploom.tile.nest import AtomicUpdate
from warploom.tile.program import TileProgram
from warploom.tile.scopes import is_global
from warploom.tile.statement import Block, Branch, Nest, Statement
from warploom.tile.updates import REDUCE


@dataclass(frozen=True)
class _Access:
    """A box of elements of a buffer that a statement reads or writes; None if it is none."""

    buffer: Buffer
    writes: bool
    box: tuple[tuple[Any, int], ...] | None
    statement: Statement


def in_place(program: TileProgram) -> tuple[str, ...]:
    """Names of the buffers that are read where they are stored, and only before.

    Split-K reductions, whose CTAs share the elements of a tile, have none.
    """
    if program.hints.split_k or program.hints.stream_k:
        return ()
    accesses = list(_accesses(program.block, inside=False))
    written = {access.buffer for access in accesses if access.writes}
    return tuple(buffer.name for buffer in written if _reads_before(buffer, accesses))


def _reads_before(buffer: Buffer, accesses: list[_Access]) -> bool:
    own = [access for access in accesses if access.buffer.same_as(buffer)]
    (*reads, last) = own
    if not reads or not last.writes or any(access.box is None for access in own):
        return False
    # The statement that stores may read, too: each element where it stores it.
    return all(
        not read.writes and _is_part(read.box, last.box, Analyzer()) for read in reads
    )


def _is_part(inner: tuple, outer: tuple, analyzer: Analyzer) -> bool:
    """Whether a box begins where another does, and is no larger."""
    return all(
        extent <= most and analyzer.can_prove_equal(start, first)
        for (start, extent), (first, most) in zip(inner, outer, strict=True)
    )


def _accesses(statements: Block, inside: bool) -> Iterator[_Access]:
    """What statements do with global memory, in their order; in loops boxes are not known."""
    for statement in statements:
        if statement.blocks:
            for block in statement.blocks:
                yield from _accesses(block, inside or not isinstance(statement, Branch))
        elif isinstance(statement, Nest):
            yield from _of_nest(statement, inside)
        elif isinstance(statement.raw, TilePrimitiveCall):
            yield from _of_call(statement, inside)
        else:
            for buffer in filter(is_global, statement.effects.touched):
                yield _Access(buffer, buffer in statement.effects.writes, None, statement)


def _of_call(statement: Statement, inside: bool) -> Iterator[_Access]:
    named: set[Buffer] = set()
    regions = [arg for arg in statement.raw.args if isinstance(arg, TensorRegion)]
    for region in reversed(regions):
        if is_global(region.source):
            named.add(region.source)
            constant = all(isinstance(extent, IntImm) for _, extent in ir.ranges(region))
            box = tuple((start, int(extent)) for start, extent in ir.ranges(region)) if (
                constant and not inside and not {"steps", REDUCE} & set(statement.raw.config)
            ) else None  # fmt: skip
            writes = region.source in statement.effects.writes
            yield _Access(region.source, writes, box, statement)
    for buffer in filter(is_global, statement.effects.reads - named):  # in an index
        yield _Access(buffer, False, None, statement)


def _of_nest(nest: Nest, inside: bool) -> Iterator[_Access]:
    loads: list[TensorLoad] = []

    def visit(load: TensorLoad) -> None:
        if ir.is_buffer(load.source) and is_global(load.source):
            loads.append(load)

    tvm_ffi.structural_walk(nest.raw, (TensorLoad, visit))
    for load in loads:
        yield _Access(load.source, False, _box(nest, load.indices, inside), nest)
    for store in nest.stores:
        if is_global(store.buffer):
            # Other CTAs may update the same elements.
            shared = inside or isinstance(store, AtomicUpdate)
            yield _Access(store.buffer, True, _box(nest, store.indices, shared), nest)


def _box(nest: Nest, indices: Any, inside: bool) -> tuple[tuple[Any, int], ...] | None:
    """The box of indices that are each a term of its own, plus at most one loop variable."""
    if inside:
        return None
    extents = {loop.loop_var: int(loop.extent) for loop in nest.loops}
    used: set[Any] = set()
    box = []
    for index in indices:
        own = ir.uses(index) & extents.keys()
        if len(own) > 1 or own & used:
            return None
        used |= own
        start, extent = index, 1
        for var in own:
            extent = extents[var]
            start = ir.substitute(index, {var: ir.as_expr(0, "int32")})
            step = Analyzer().simplify(index - start - var)
            if not ir.is_constant(step, 0):
                return None
        box.append((start, extent))
    return tuple(box)

"""Nests on tiles that are spread over a grid of threads, as code of each thread.

An iteration is for the neighbours of a row that a thread holds. Tiles may have more elements than
the nest counts, as threads hold whole rounds; a condition then leaves the others out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import tirx
from tvm.tirx import Buffer, ForKind, Stmt, Var

from warploom.errors import Decline
from warploom.layout.thread_grid import ThreadGrid
from warploom.lower.nests.elements import Element, NestContext
from warploom.lower.nests.neighbours import is_common
from warploom.lower.nests.pairs import in_words, paired_store
from warploom.lower.nests.register_numbers import RegisterNumbers
from warploom.lower.nests.wide_accesses import for_neighbours
from warploom.ops.register_tile import RegisterTile
from warploom.tile import ir
from warploom.tile.nest import parts_of
from warploom.tile.scopes import is_global
from warploom.tile.statement import Nest

_Access = tuple[Buffer, Sequence[Any]]


def on_grid(
    nest: Nest, accesses: list[_Access], grid: ThreadGrid, context: NestContext
) -> Stmt:
    """The code of a thread for a nest with ``accesses`` to tiles in registers.

    Raises
    ------
    Decline
        If an element that a thread needs lies with another thread.
    """
    places = {index for _, indices in accesses for index in indices if isinstance(index, Var)}
    # A loop of one iteration counts, where a tile has more elements than the author's.
    counted = {
        loop.loop_var: int(loop.extent) for loop in nest.loops
        if int(loop.extent) > 1 or loop.loop_var in places
    }  # fmt: skip
    single = {
        loop.loop_var: tirx.const(0, "int32") for loop in nest.loops
        if loop.loop_var not in counted
    }  # fmt: skip
    parts = parts_of(ir.seq(ir.substitute(part.raw, single) for part in nest.parts))
    accesses = [
        (buffer, [ir.as_expr(ir.substitute(index, single)) for index in indices])
        for buffer, indices in accesses
    ]
    buffer, indices = _governing(accesses, counted, nest, grid)
    tile = context.tile(buffer)
    numbers = np.unravel_index(tile.table, tile.shape)
    counts = {
        index: number for index, number in zip(indices, numbers, strict=True)
        if isinstance(index, Var)
    }  # fmt: skip
    numbered = RegisterNumbers(tile, counts)
    width = _neighbours(tile, numbers[-1], grid)
    round_ = Var("round", "int32")
    rounds = tile.registers // width
    analyzer = context.analyzer(round_, rounds)
    once = tile.is_first_copy(context.axes)

    def element(at: Any) -> Element:
        places = tile.coordinates(context.axes, at)
        table = {
            index: analyzer.simplify(place)
            for index, place in zip(indices, places, strict=True) if isinstance(index, Var)
        }  # fmt: skip

        def number(other: Buffer, places: Any) -> Any:
            return numbered.of(context.tile(other), places, at)

        return Element(table, number, context, analyzer, True if once is None else once)

    store = paired_store(parts, tile)
    if store is not None and not _reads_global(store.raw) and _is_counted(tile, indices, counted):
        return ir.seq(in_words(store, [element(at) for at in range(tile.registers)], analyzer))
    first = 0 if rounds == 1 else round_ * width
    elements = [element(first + number) for number in range(width)]
    lowered = _inside(parts, tile, indices, counted, elements)
    if rounds == 1:
        return ir.seq(lowered)
    return ir.loop(round_, rounds, lowered, kind=ForKind.UNROLLED)


def _governing(
    accesses: list[_Access], counted: dict[Var, int], nest: Nest, grid: ThreadGrid
) -> tuple[Buffer, Sequence[Any]]:
    """The smallest tile whose elements the nest counts; a tile of its extents, if none does."""
    loops = [each.loop_var for each in nest.loops]
    stored = {store.buffer for store in nest.stores}
    bare = [
        access for access in accesses
        if {index for index in access[1] if isinstance(index, Var)} == set(counted)
        and all(
            ir.is_constant(index, 0) if index not in counted else counted[index] <= int(extent)
            for index, extent in zip(access[1], access[0].shape, strict=True)
        )
    ]  # fmt: skip
    if bare:
        # Who holds an element of a result computes it; vectors have copies of theirs.
        return min(
            bare,
            key=lambda access: (
                access[0] not in stored, -len(access[1]), np.prod([int(e) for e in access[0].shape])
            ),
        )  # fmt: skip
    if len(loops) != 2 or not counted:
        raise Decline(
            f"A nest of {len(loops)} loops uses parts of tiles in registers; index the tiles by "
            "loop variables alone."
        )
    shape = grid.padded(*(counted.get(var, 1) for var in loops))
    if len(counted) == 2:
        layout = grid.matrix(*shape)
    elif loops[1] in counted:
        shape, layout = shape[1:], grid.along_columns(shape[1])
    else:
        shape, layout = shape[:1], grid.along_rows(shape[0])
    tile = tirx.decl_buffer(shape, "float32", "part", scope="local", layout=layout)
    return tile, list(counted)


def _reads_global(raw: Stmt) -> bool:
    return any(ir.is_buffer(var) and is_global(var) for var in ir.uses(raw))


def _is_counted(tile: RegisterTile, indices: Sequence[Any], counted: dict[Var, int]) -> bool:
    """Whether a nest counts all elements that threads hold of a tile."""
    return all(
        counted.get(index, 1) == extent for index, extent in zip(indices, tile.shape, strict=True)
    )


def _neighbours(tile: RegisterTile, columns: np.ndarray, grid: ThreadGrid) -> int:
    """Registers that hold neighbours of a row: those of the grid; 1 in a vector along rows."""
    if tile.registers % grid.vector:
        return 1
    runs = columns.reshape(len(columns), -1, grid.vector)
    steps = np.arange(grid.vector)
    in_order = (runs == runs[..., :1] + steps).all() and not (runs[..., 0] % grid.vector).any()
    return grid.vector if in_order else 1


def _inside(
    parts: Any, tile: RegisterTile, indices: Sequence[Any], counted: dict[Var, int],
    elements: list[Element],
) -> list[Stmt]:  # fmt: skip
    """The statements for neighbours, without elements that the nest does not count."""
    tests = [
        index < counted[index]
        for index, extent in zip(indices, tile.shape, strict=True)
        if index in counted and counted[index] < extent
    ]
    analyzer = elements[0].analyzer
    tests = [
        test for test in tests
        if not all(analyzer.can_prove(element.expression(test)) for element in elements)
    ]  # fmt: skip
    if not tests:
        return for_neighbours(parts, elements)
    if all(is_common(test, elements) for test in tests):
        inside = tirx.all(*map(elements[0].expression, tests))
        return [ir.when(inside, for_neighbours(parts, elements))]
    return [
        ir.when(tirx.all(*map(element.expression, tests)), for_neighbours(parts, [element]))
        for element in elements
    ]

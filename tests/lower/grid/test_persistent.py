"""A persistent grid visits every tile once, in the order that it is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from hypothesis import given
from hypothesis import settings as limit
from hypothesis import strategies as st
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared import tile_programs
from tests.shared.lowered_programs import hinted
from warploom import language as wl
from warploom.errors import Decline
from warploom.lower.grid.persistent import (
    Grid,
    persistent_grid,
    snake_schedule,
    static_schedule,
)
from warploom.lower.lowerings import lower
from warploom.schedulers.raster import grouped_tile
from warploom.tile.read import read


def counting(*shape: int) -> Any:
    """A program whose CTAs add their number to the count of their tile."""
    size = int(np.prod(shape))
    names = "xyz"[: len(shape)]
    number = " + ".join(
        f"{name} * {int(np.prod(shape[d + 1 :]))}" for d, name in enumerate(names)
    )
    return tvm.script.from_source(
        f"""
@T.prim_func
def program(Count: T.Buffer(({size}, 1), "int32")):
    T.device_entry()
    {", ".join(names)} = T.cta_id({list(shape)})
    at: T.int32 = {number}
    tile = T.alloc_buffer((1, 1), "int32", scope="shared")
    Tx.cta.copy(tile, Count[at : at + 1, 0:1])
    for i, j in T.grid(1, 1):
        tile[i, j] = tile[i, j] + at
    Tx.cta.copy(Count[at : at + 1, 0:1], tile)
""",
        {"T": T, "Tx": Tx},
    )


@pytest.mark.parametrize("group", [None, 1, 2])
@pytest.mark.parametrize("shape", [(5,), (1,), (3, 4), (5, 1), (2, 3, 4), (3, 2, 1)])
@pytest.mark.parametrize("ctas", [1, 3, 32])
@pytest.mark.parametrize("schedule", [static_schedule, snake_schedule])
@pytest.mark.some(22)
def test_a_loop_over_tiles_is_the_grid(shape, ctas, group, schedule):
    program = persistent_grid(read(counting(*shape)), ctas, group, schedule=schedule)
    size = int(np.prod(shape))
    count = np.full((size, 1), 1000, "int32")
    wl.interpret(program.to_func(), [count])
    np.testing.assert_array_equal(count[:, 0], 1000 + np.arange(size))
    assert int(program.id("cta").extents[0]) == ctas and len(program.id("cta").vars) == 1


@pytest.mark.parametrize("ctas", [1, 4])
def test_ctas_must_fill_clusters(ctas):
    program = read(tile_programs.gemm().func)
    with pytest.raises(Decline, match=f"{ctas} CTAs are no multiple of the 8 of a cluster"):
        persistent_grid(program, ctas, cluster=(4, 2))


def order(rows: int, columns: int, ctas: int, group: int | None, cta: int) -> list[tuple[int, int]]:
    """Tiles that one CTA visits, computed with integers in place of expressions."""
    return [
        tuple(int(x) for x in grouped_tile(index, rows, columns, group or rows))
        for index in range(cta, rows * columns, ctas)
    ]


@limit(max_examples=50)
@given(
    st.integers(1, 7), st.integers(1, 7), st.integers(1, 9),
    st.sampled_from([None, 1, 2, 3]),
)  # fmt: skip
def test_every_tile_is_visited_once(rows, columns, ctas, group):
    visited = [tile for cta in range(ctas) for tile in order(rows, columns, ctas, group, cta)]
    assert sorted(visited) == [(i, j) for i in range(rows) for j in range(columns)]
    alone = order(rows, columns, 1, group, 0)
    if group is None:
        assert alone == [(i, j) for j in range(columns) for i in range(rows)]
    if group == 1:
        assert alone == [(i, j) for i in range(rows) for j in range(columns)]


def taken(schedule: Any, tiles: int, ctas: int, cta: int) -> list[int]:
    """The tiles of a CTA by a schedule, computed with integers in place of expressions."""
    plan = schedule(Grid(tvm.tirx.const(cta), tvm.tirx.const(0), 1, ctas, tiles))
    number = tvm.tirx.Var("i", "int32")
    place = plan.tile_of(number)[1]
    analyzer = tvm.sym.Analyzer()

    def value(expression: Any) -> int:
        return int(analyzer.simplify(expression))

    return [
        value(tvm_ffi.structural_map(place, (tvm.tirx.Var, lambda _, i=i: tvm.tirx.const(i))))
        for i in range(value(plan.iterations))
    ]


@limit(max_examples=40)
@given(st.integers(0, 40), st.integers(1, 9))
def test_a_snake_gives_out_every_tile_and_equal_shares_of_sorted_work(tiles, ctas):
    shares = [taken(snake_schedule, tiles, ctas, cta) for cta in range(ctas)]
    assert sorted(tile for share in shares for tile in share) == list(range(tiles))
    # Tile t has as much work as there are tiles behind it, and itself.
    work = [sum(tiles - t for t in share) for share in shares]
    assert max(work) - min(work) <= max(tiles - tiles // (2 * ctas) * 2 * ctas, 0)


def test_a_snake_of_parts_of_tiles_declines():
    func = hinted(tile_programs.gemm(256, 256, 512).func, scheduler="snake", split_k=2)
    with pytest.raises(Decline, match="scheduler='snake' gives out whole tiles"):
        lower(func)

"""Rings: which loads travel together, through how many stages; what has no place in one."""

from __future__ import annotations

from typing import Any

import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared import tile_programs
from tests.shared.control_programs import CONTROL
from tests.shared.lowered_programs import after_passes, hinted
from warploom import language as wl
from warploom.errors import Decline
from warploom.lower.analysis.plan_pipeline import plan_pipeline
from warploom.lower.analysis.rings import with_stages
from warploom.lower.analysis.shared_tiles import tile_bytes
from warploom.lower.grid.persistent import persistent_grid
from warploom.lower.lowerings import lower
from warploom.lower.passes.canonicalize import canonicalize
from warploom.lower.passes.infer_layouts import infer_layouts
from warploom.lower.passes.plan_stages import plan_stages
from warploom.tile.read import read


def rings(func: Any, **options: Any) -> list[tuple[list[str], int]]:
    program = after_passes(func, canonicalize, infer_layouts, plan_stages)
    plan = plan_pipeline(program, **options)
    return [([tile.name for tile in ring.tiles], ring.stages) for ring in plan.rings]


def test_loads_of_a_loop_travel_together():
    assert rings(tile_programs.gemm(stages=3).func) == [(["A_s", "B_s"], 3)]
    assert rings(tile_programs.swiglu(stages=2).func)[0][1] == 2


def test_loads_outside_of_loops_have_one_stage():
    assert rings(tile_programs.attention(stages=2).func) == [(["Q_s"], 1), (["K_s", "V_s"], 2)]


def test_loads_of_a_branch_are_a_ring_of_their_own():
    assert rings(CONTROL["branches"](3).func) == [(["A_s", "B_s"], 3), (["A_t", "B_t"], 3)]


@pytest.mark.parametrize("wanted", [1, 6])
def test_stages_come_from_the_loop_or_the_hint(wanted):
    plain = tile_programs.gemm().func
    assert rings(hinted(plain, stages=wanted)) == [(["A_s", "B_s"], wanted)]
    assert rings(hinted(tile_programs.gemm(stages=2).func, stages=wanted)) == [(["A_s", "B_s"], 2)]


def test_a_ring_has_copies_of_its_tiles():
    func = tile_programs.gemm(stages=3).func
    (use,) = plan_pipeline(after_passes(func, canonicalize, infer_layouts, plan_stages)).uses
    for stages, each in ((3, use), (1, with_stages(use, 1)), (5, with_stages(use, 5))):
        for tile, buffer in each.ring.tiles.items():
            assert [int(e) for e in buffer.shape] == [stages, *(int(e) for e in tile.shape)]
            assert tile_bytes(buffer) == stages * tile_bytes(tile)
        assert int(each.ring.full.shape[0]) == int(each.ring.empty.shape[0]) == stages


@pytest.mark.parametrize(
    ("cluster", "shared_by"), [((2, 1), 2), ((1, 2), 2), ((1, 1), 1), ((2, 2), 3)]
)
def test_what_ctas_of_a_cluster_load_alike_is_multicast(cluster, shared_by):
    # With 2 x 2 CTAs two other ones write into a stage.
    func = tile_programs.gemm(256, 256, 64, (128, 64, 64)).func
    program = after_passes(func, canonicalize)
    program = infer_layouts(persistent_grid(program, 8, cluster=cluster))
    for multicast in (True, False):
        (ring,) = plan_pipeline(program, multicast).rings
        assert ring.shared_by == (shared_by if multicast else 1)


@pytest.mark.parametrize("columns", [8, 24])
def test_what_does_not_divide_into_atoms_is_not_multicast(columns):
    func = tile_programs.gemm(256, 48, 64, (128, columns, 64)).func
    program = infer_layouts(persistent_grid(after_passes(func, canonicalize), 8, cluster=(2, 1)))
    (ring,) = plan_pipeline(program).rings
    assert ring.shared_by == 1


def faulty(fault: str) -> Any:
    """A program with one fault."""

    @T.prim_func
    def program(A: T.Buffer((64, 64), "float16"), C: T.Buffer((64, 64), "float16")):
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        B_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        Tx.cta.copy_async(A_s, A[0:64, 0:64])
        if fault == "twice":
            for i, j in T.grid(64, 64):
                C[i, j] = A_s[i, j]
            for _ in wl.pipelined(2):
                Tx.cta.copy_async(A_s, A[0:64, 0:64])
                for i, j in T.grid(64, 64):
                    C[i, j] = A_s[i, j]
        if fault == "outside":
            for _ in wl.pipelined(2):
                Tx.cta.copy_async(B_s, A[0:64, 0:64])
                for i, j in T.grid(64, 64):
                    A_s[i, j] = B_s[i, j]
            for i, j in T.grid(64, 64):
                C[i, j] = A_s[i, j] + B_s[i, j]
        if fault == "stored":
            for i, j in T.grid(64, 64):
                C[i, j] = A_s[i, j]
            for i, j in T.grid(63, 64):  # the last row is read, and not stored
                A[i, j] = T.float16(0)

    return program


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("unused", "Nothing in the block that loads A_s uses it; load a tile in the same loop"),
        ("twice", "The tile A_s is loaded in two places; use one tile for each"),
        ("outside", "The tile B_s is used outside the block that loads it"),
        ("stored", "The buffer A is stored and also read by another statement, which is not known"),
    ],
)
def test_declines(fault, message):
    program = read(faulty(fault))
    with pytest.raises(Decline, match=message):
        plan_pipeline(program)
    if fault == "unused":  # and no other statement uses it: the load is left out
        assert "A_s" not in lower(faulty(fault)).script()
        return
    with pytest.raises(Decline, match=message):
        lower(faulty(fault))


def loads_of_parts(*parts: tuple[int, int, int, int]) -> Any:
    """A tile of 64 x 32, and loads of rows and columns of it, each from the first to the last."""
    found = list(parts)

    @T.prim_func
    def program(A: T.Buffer((64, 32), "float16"), C: T.Buffer((64, 64), "float32")):
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((64, 32), "float16", scope="shared")
        acc = T.alloc_buffer((64, 64), "float32", scope="accumulator")
        for _ in wl.pipelined(1, 2):
            _load_parts(A_s, A, found)
            Tx.cta.gemm_async(acc, A_s, A_s)
        Tx.cta.copy(C, acc)

    return program


def _load_parts(shared: Any, source: Any, parts: list[tuple[int, int, int, int]]) -> None:
    for y, end, x, last in parts:
        Tx.cta.copy_async(shared[y:end, x:last], source[y:end, x:last])


@pytest.mark.parametrize("parts", [[(0, 64, 0, 32)], [(0, 40, 0, 32), (40, 64, 0, 32)],
                                   [(56, 64, 0, 32), (0, 8, 0, 32), (8, 56, 0, 32)]])  # fmt: skip
def test_loads_may_fill_a_tile_together(parts):
    assert rings(loads_of_parts(*parts)) == [(["A_s"], 2)]


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([(0, 56, 0, 32)], "fills a part of the tile A_s"),
        ([(0, 32, 0, 32), (24, 64, 0, 32)], "each must be filled once"),
        ([(0, 24, 0, 32), (32, 64, 0, 32)], "each must be filled once"),
        ([(0, 36, 0, 32), (36, 64, 0, 32)], "in multiples of 8"),
        ([(0, 64, 0, 16), (0, 64, 16, 32)], "fills a part of the rows of the tile A_s"),
    ],
)
def test_loads_that_do_not_fill_a_tile_are_declined(parts, reason):
    with pytest.raises(Decline, match=reason):
        lower(loads_of_parts(*parts))

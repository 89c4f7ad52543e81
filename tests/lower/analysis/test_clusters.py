"""CTAs of clusters share what they load alike: masks, and programs under the race checker."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np
import pytest
from tvm import tirx
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared import tile_programs
from tests.shared.lowered_programs import after_passes, check, hinted
from tests.shared.sampling import sampled
from tests.shared.tile_programs.case import Case, poisoned, precision, random_values, wide
from warploom import language as wl
from warploom.language.interpreter.running import Running
from warploom.lower.analysis.clusters import Peers, dependence, is_in, writers
from warploom.lower.analysis.plan_pipeline import plan_pipeline
from warploom.lower.grid.persistent import persistent_grid
from warploom.lower.lowerings import lower
from warploom.lower.passes import choose_grid
from warploom.lower.passes.canonicalize import canonicalize
from warploom.lower.passes.infer_layouts import infer_layouts
from warploom.lower.trace import lower_trace
from warploom.target import SM90A
from warploom.tile import ir

SHAPES = [(2,), (4,), (2, 2), (4, 2), (2, 4), (2, 2, 2)]
GROUPS = [
    Peers(shape, frozenset(along))
    for shape in SHAPES
    for count in range(1, len(shape) + 1)
    for along in itertools.combinations(range(len(shape)), count)
]


def value(expression, **variables) -> int:
    """The value of an expression of variables with these names."""
    if isinstance(expression, int):
        return expression
    table = {v: np.asarray(variables[v.name], str(v.ty.dtype)) for v in ir.uses(expression)}
    return int(Running(table)(expression))


@pytest.mark.parametrize("peers", GROUPS, ids=str)
def test_peers_are_mutual_and_share_out_their_work(peers):
    rank = tirx.Var("rank", "int32")
    for own in range(math.prod(peers.shape)):
        ranks = peers.ranks(own)
        assert own in ranks and len(ranks) == peers.count
        assert all(peers.ranks(other) == ranks for other in ranks)
        assert value(peers.mask(rank), rank=own) == sum(1 << other for other in ranks)
        numbers = {value(peers.number(rank), rank=other) for other in ranks}
        assert numbers == set(range(peers.count))


@pytest.mark.parametrize("shape", SHAPES)
def test_all_who_write_into_a_stage_are_told(shape):
    groups = [one for one in GROUPS if one.shape == shape]
    rank, lane = tirx.Var("rank", "int32"), tirx.Var("lane", "int32")
    for count in (1, 2):
        for chosen in itertools.combinations(groups, count):
            number, mask = writers(chosen, rank)
            told = is_in(lane, mask)
            for own in range(math.prod(shape)):
                expected = set().union(*(one.ranks(own) for one in chosen))
                assert number == len(expected)
                found = {i for i in range(32) if value(told, rank=own, lane=i)}
                assert found == expected
    assert writers([], rank) == (1, None)


def test_what_depends_on_the_place_in_a_cluster():
    @T.prim_func
    def program(A: T.Buffer((64, 64), "float32"), n: T.Buffer((64,), "int32")):
        T.device_entry()
        i, j = T.cta_id([4, 4])
        tile = T.alloc_buffer((64, 64), "float32", scope="fragment")
        same: T.int32 = 7
        row: T.int32 = i * 2
        loaded: T.int32 = n[row]
        both: T.int32 = row + j
        branch: T.int32 = 0
        if j > 1:
            branch = 1
        turns: T.int32 = 0
        for _ in T.serial(loaded):
            turns = turns + 1
        tile[0, 0] = T.cast(same + both + branch + turns, "float32")
        Tx.cta.copy(A[:, :], tile)

    changed = persistent_grid(after_passes(program), 8, cluster=(2, 2))
    found = {var.name: set(dims) for var, dims in dependence(changed).items()}
    assert found == {
        "rank": {0, 1}, "i": {0}, "j": {1}, "row": {0}, "loaded": {0}, "both": {0, 1},
        "branch": {1}, "turns": {0}, "tile": {0, 1},
    }  # fmt: skip


def rings(case, cluster):
    program = after_passes(case.func, canonicalize)
    program = infer_layouts(persistent_grid(program, 8, cluster=cluster))
    return plan_pipeline(program).rings


@pytest.mark.parametrize(
    ("cluster", "peers", "told"),
    [
        ((1, 1), (1, 1), 1), ((2, 1), (1, 2), 2), ((1, 2), (2, 1), 2), ((2, 2), (2, 2), 3),
        ((4, 2), (2, 4), 5), ((1, 8), (8, 1), 8), ((8, 1), (1, 8), 8),
    ],
)  # fmt: skip
def test_operands_are_shared_as_they_are_accessed(cluster, peers, told):
    (ring,) = rings(tile_programs.gemm(1024, 1024, 64, (128, 64, 64)), cluster)
    assert tuple(one.count if one else 1 for one in ring.peers) == peers
    assert ring.shared_by == told


def triangular(m: int = 256, n: int = 128, bm: int = 64, bn: int = 64) -> Case:
    """C[i] = A[i] B^T over as many columns as the number of the tile of rows says."""
    k = m

    @T.prim_func
    def product(
        A: T.Buffer((m, k), "float16"), B: T.Buffer((n, k), "float16"),
        C: T.Buffer((m, n), "float32"),
    ):  # fmt: skip
        T.device_entry()
        i, j = T.cta_id([m // bm, n // bn])
        A_s = T.alloc_buffer((bm, 64), "float16", scope="shared")
        B_s = T.alloc_buffer((bn, 64), "float16", scope="shared")
        acc = T.alloc_buffer((bm, bn), "float32", scope="accumulator")
        Tx.cta.fill(acc, T.float32(0))
        for step in wl.pipelined(i, stages=2):
            Tx.cta.copy_async(A_s, A[i * bm : i * bm + bm, step * 64 : step * 64 + 64])
            Tx.cta.copy_async(B_s, B[j * bn : j * bn + bn, step * 64 : step * 64 + 64])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=True)
        Tx.cta.copy(C[i * bm : i * bm + bm, j * bn : j * bn + bn], acc)

    def arguments(rng):
        return [random_values(rng, (m, k), "float16"), random_values(rng, (n, k), "float16"),
                poisoned((m, n), "float32")]  # fmt: skip

    def expected(args):
        a = wide(args[0]) * (np.arange(k) // 64 < np.arange(m)[:, None] // bm)
        return {2: a @ wide(args[1]).T}

    return Case(product, arguments, expected, 0.0)


@pytest.mark.parametrize("cluster", [(2, 1), (1, 2), (2, 2), (4, 2)])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.some(3)
def test_who_does_not_turn_as_often_shares_nothing(cluster, arch, rng, grid_of):
    case = triangular()
    (ring,) = rings(case, cluster)
    assert [one and set(one.along) for one in ring.peers] == [
        {len(ring.peers[0].shape) - 1} if cluster[1] > 1 else None, None
    ]  # fmt: skip
    grid_of(1)
    check(case, rng, arch, cluster=cluster)


PROGRAMS = {
    "gemm NT": partial(tile_programs.gemm, 500, 264, 192, (128, 64, 64), out_dtype="float16"),
    "gemm TN": partial(tile_programs.gemm, 304, 200, 96, (64, 64, 32), layout="TN"),
    "gemm ragged": partial(
        tile_programs.gemm, 130, 72, 72, (64, 32, 64), symbolic=True, out_dtype="float16"
    ),
    "gemm narrow": partial(tile_programs.gemm, 128, 48, 64, (64, 24, 64)),
    "residual": partial(tile_programs.epilogue, "residual", tile=(128, 64, 64)),
    "dequantised": partial(tile_programs.dequantised, 8, tile=(128, 64, 64)),
    "swiglu": partial(tile_programs.swiglu, 200, 136, tile=(128, 64, 32)),
    "swiglu side by side": partial(tile_programs.side_by_side, 200, 136, tile=(128, 64, 32)),
    "grouped": partial(tile_programs.grouped, (200, 0, 128, 1), tile=(128, 64, 32)),
    "causal": partial(
        tile_programs.attention, 200, 64, heads=4, kv_heads=2, tile=(64, 64), causal=True
    ),
}
CLUSTERS = [(2, 2), (1, 2), (2, 2), (4, 2), (2, 4)]
ARCHS = ["sm_90a", "sm_100a"]
#: Clusters of the grid: each computes several tiles; None is a grid of all SMs.
GRIDS = [1, 2, None]
PAIRS = list(itertools.product(PROGRAMS, ARCHS))
CASES = [
    (name, cluster, arch, stages, grid)
    for name, arch in PAIRS
    for cluster, stages, grid in itertools.product(CLUSTERS[1:], (1, 2, 4), GRIDS)
]


def run(name, cluster, arch, stages, grid, rng, grid_of):
    grid_of(grid)
    check(PROGRAMS[name](stages=stages), rng, arch, cluster=cluster)


@pytest.mark.parametrize("number", sampled(range(len(PAIRS)), 2))
@pytest.mark.some(3)
def test_programs_in_clusters_are_right_and_free_of_races(number, rng, grid_of):
    name, arch = PAIRS[number]
    turn = number // 2 + number
    run(name, CLUSTERS[turn % 5], arch, 1 + turn % 3, GRIDS[turn % 3], rng, grid_of)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.some(4)
def test_programs_in_all_clusters(case, rng, grid_of):
    run(*case, rng, grid_of)


@pytest.mark.parametrize("trips", [1, 2, 3, 4, 7])
def test_trip_counts(trips, rng, grid_of):
    grid_of(1)
    case = tile_programs.gemm(300, 136, 32 * trips, (64, 32, 32), stages=3, out_dtype="float16")
    check(case, rng, cluster=(2, 2))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.some(3)
def test_random_programs(seed, grid_of):
    grid_of(GRIDS[seed % 3])
    rng = np.random.default_rng(seed + 100)
    case = tile_programs.random_program(rng)
    check(case, rng, ARCHS[seed % 2], cluster=(2, 2))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(300))
@pytest.mark.some(3)
def test_many_random_programs(seed, grid_of):
    grid_of(GRIDS[seed % 3])
    rng = np.random.default_rng(seed + 1000)
    check(tile_programs.random_program(rng), rng, ARCHS[seed % 2], cluster=CLUSTERS[seed % 5])


def test_the_record_says_what_is_shared():
    case = tile_programs.gemm(256, 256, 64, (128, 64, 64))
    steps = lower_trace(hinted(case.func, cluster=(2, 2)))
    (line,) = [one for step in steps for one in step.decisions if one.startswith("ring of")]
    assert "A_s multicast to 2 CTAs, B_s multicast to 2 CTAs" in line


@pytest.mark.parametrize("out_dtype", ["float16", "float32"])
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.some(3)
def test_who_lies_over_the_edge_of_the_grid_stores_nothing(out_dtype, arch, symbolic, rng, grid_of):
    # Tile 3 of 3 would be tile 0 again.
    tiles, bm, bn = 3, 64, 64

    @T.prim_func
    def product(a: T.handle, b: T.handle, c: T.handle):
        count = T.int32() if symbolic else T.meta_var(tiles)
        A = T.match_buffer(a, (count, bm, 64), "float16")
        B = T.match_buffer(b, (bn, 64), "float16")
        C = T.match_buffer(c, (tiles, bm, bn), out_dtype)
        T.device_entry()
        i, j = T.cta_id([count, 1])
        A_s = T.alloc_buffer((bm, 64), "float16", scope="shared")
        B_s = T.alloc_buffer((bn, 64), "float16", scope="shared")
        acc = T.alloc_buffer((bm, bn), "float32", scope="accumulator")
        out = T.alloc_buffer((bm, bn), out_dtype, scope="fragment")
        place: T.int32 = T.truncmod(i, tiles) + j
        Tx.cta.copy_async(A_s, A[place, :, :])
        Tx.cta.copy_async(B_s, B[:, :])
        Tx.cta.gemm_async(acc, A_s, B_s)
        Tx.cta.cast(out, acc)
        Tx.cta.copy(C[place, :, :], out)

    def arguments(rng):
        a, b = (random_values(rng, shape, "float16") for shape in ((tiles, bm, 64), (bn, 64)))
        return [a, b, poisoned((tiles, bm, bn), out_dtype)]

    def expected(args):
        return {2: wide(args[0]) @ wide(args[1]).T}

    grid_of(2)
    check(Case(product, arguments, expected, precision(out_dtype)), rng, arch, cluster=(2, 2))


@pytest.mark.parametrize("cluster", [(2, 1), (1, 2), (4, 1), (1, 4), (4, 2)])
def test_a_persistent_grid_has_the_ctas_that_a_gpu_holds_at_once(cluster, monkeypatch):
    """CTAs that share tiles would wait for ever for a cluster that has no place."""
    asked = []

    def noted(program, ctas, *others):
        asked.append(ctas)
        return persistent_grid(program, ctas, *others)

    monkeypatch.setattr(choose_grid, "persistent_grid", noted)
    func = tile_programs.gemm(1024, 1024, 64, (128, 64, 64)).func
    lower(hinted(func, cluster=cluster), "sm_90a")
    (resident,) = asked
    assert (resident.arch, resident.size, resident.per_sm) == (SM90A, math.prod(cluster), 1)

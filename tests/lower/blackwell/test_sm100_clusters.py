"""Clusters on Blackwell: pairs of CTAs that multiply together, and loads that CTAs share."""

from __future__ import annotations

import dataclasses
import itertools
from functools import partial

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared import tile_programs
from tests.shared.lowered_programs import check, hinted, local_memory
from tests.shared.sampling import sampled
from warploom import language as wl
from warploom.layout.smem_matrix import SharedMatrix
from warploom.lower.trace import lower_trace
from warploom.target import SM100A, Major, Swizzle
from warploom.tile import ir
from warploom.tile.program import allocations
from warploom.tile.read import read

ARCH = SM100A.name
#: Name -> a program whose MMAs pairs of CTAs compute, for a number of stages.
PAIRED = {
    **{
        f"gemm {layout}": partial(
            tile_programs.gemm, 384, 200, 192, (128, 64, 64), layout=layout, out_dtype="float16"
        )
        for layout in ("NT", "NN", "TN", "TT")
    },
    "gemm ragged": partial(
        tile_programs.gemm, 300, 136, 72, (128, 96, 32), out_dtype="float16", symbolic=True
    ),
    "gemm 256 rows": partial(tile_programs.gemm, 800, 64, 96, (256, 64, 32), "bfloat16"),
    "gemm 256 columns": partial(tile_programs.gemm, 256, 256, 64, (128, 256, 32)),
    "gemm float8": partial(
        tile_programs.gemm, 256, 128, 256, (128, 64, 128), "float8_e4m3fn", "bfloat16"
    ),
    "gemm int8": partial(tile_programs.gemm, 512, 128, 256, (128, 64, 128), "int8"),
    "residual": partial(tile_programs.epilogue, "residual", tile=(128, 64, 64)),
    "row sums": lambda stages: tile_programs.row_sums(tile=(128, 64, 32)),
    "block scaled": partial(tile_programs.block_scaled, 200, tile=(128, 128, 128)),
    "swiglu": partial(tile_programs.swiglu, 200, 136, tile=(128, 64, 32)),
    "sparse": partial(tile_programs.sparse_gemm, 300, 136, 384, (128, 64, 128)),
    "sparse int8": partial(tile_programs.sparse_gemm, 512, 64, 384, (256, 64, 128), "int8"),
    "sparse words": partial(tile_programs.sparse_gemm, 300, 72, 384, (128, 64, 128), words=True),
    "computed": lambda stages: clipped(stages, "shared"),
    "computed, tensor memory": lambda stages: clipped(stages, "fragment"),
    "attention": partial(tile_programs.attention, 300, tile=(128, 64)),
    "attention, 256 rows": partial(tile_programs.attention, 600, tile=(256, 64)),
}
#: Name -> a program of which each CTA multiplies for itself, and the cluster.
SHARING = {
    "gemm 1 x 2": (partial(tile_programs.gemm, 256, 200, 192, (128, 64, 64)), (1, 2)),
    "gemm 4 x 1": (partial(tile_programs.gemm, 600, 128, 192, (128, 64, 64)), (4, 1)),
    "gemm 64 rows": (partial(tile_programs.gemm, 256, 64, 96, (64, 64, 32)), (2, 1)),
    "residual": (partial(tile_programs.epilogue, "residual", tile=(128, 64, 64)), (1, 2)),
    "dequantised": (partial(tile_programs.dequantised, 8, tile=(128, 64, 64)), (2, 1)),
    "dequantised int4": (partial(tile_programs.dequantised, 4, tile=(64, 64, 64)), (1, 2)),
    "grouped": (partial(tile_programs.grouped, (200, 0, 128, 1), tile=(128, 64, 32)), (2, 1)),
    "causal": (partial(tile_programs.attention, 300, tile=(128, 64), causal=True), (2, 1)),
}
STAGES = (1, 2, 3)
#: Clusters of the grid; None is a grid of all SMs.
GRIDS = (1, 2, None)
#: Random programs in every run, and where asked for.
SAMPLE, ALL = (0, 2, 3, 5), 600
CLUSTERS = ((2, 1), (2, 2), (1, 2), (4, 1))
#: Clusters of one pair, and of several that share operand A.
PAIRS = ((2, 1), (2, 2), (2, 4))


def clipped(stages: int, scope: str, both: bool = False) -> tile_programs.Case:
    """C = max(A, 0) B, of tiles that threads compute; plus A B if MMAs read A, too."""
    m, n, k = 512, 64, 256

    @T.prim_func
    def func(A: T.Buffer((m, k), "float16"), B: T.Buffer((n, k), "float16"),
             C: T.Buffer((m, n), "float32")):  # fmt: skip
        T.device_entry()
        i, j = T.cta_id([4, 2])
        A_c = T.alloc_buffer((128, 64), "float16", scope=scope)
        acc = wl.alloc_accumulator((128, 32))
        for step in wl.pipelined(4, stages):
            A_s, B_s = wl.load(A, (i, step), (128, 64)), wl.load(B, (j, step), (32, 64))
            for row, column in T.grid(128, 64):
                A_c[row, column] = T.max(A_s[row, column], T.float16(0))
            Tx.cta.gemm_async(acc, A_c, B_s, accum=step > 0)
            if both:
                Tx.cta.gemm_async(acc, A_s, B_s, accum=True)
        wl.store(C, (i, j), acc)

    def expected(arguments):
        a, b = (one.astype(np.float64) for one in arguments[:2])
        return {2: (np.maximum(a, 0) + both * a) @ b.T}

    case = tile_programs.gemm(m, n, k, (128, 32, 64))
    return dataclasses.replace(case, func=func, expected=expected)


def decisions(func: tvm.tirx.PrimFunc, word: str, **hints: object) -> list[str]:
    """What passes say about something."""
    steps = lower_trace(hinted(func, **hints), ARCH)
    return [line for step in steps for line in step.decisions if word in line]


def check_pairs(rng, name: str, stages: int, cluster: tuple[int, int]) -> None:
    case = PAIRED[name](stages=stages)
    (line,) = decisions(case.func, "pairs:", cluster=cluster)
    assert "two CTAs multiply together" in line
    check(case, rng, arch=ARCH, cluster=cluster)


@pytest.mark.parametrize("number, name", sampled(enumerate(PAIRED), 2))
@pytest.mark.some(3)
def test_pairs_are_right_and_free_of_races(rng, grid_of, number, name):
    grid_of(GRIDS[number % len(GRIDS)])
    cluster = PAIRS[number // 2 % 2] if GRIDS[number % len(GRIDS)] else PAIRS[0]
    check_pairs(rng, name, STAGES[number // len(GRIDS) % len(STAGES)], cluster)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, stages, grid, cluster", list(itertools.product(PAIRED, STAGES, GRIDS, PAIRS))
)
@pytest.mark.some(3)
def test_pairs_in_every_configuration(rng, grid_of, name, stages, grid, cluster):
    grid_of(grid)
    check_pairs(rng, name, stages, cluster)


@pytest.mark.parametrize("cluster", PAIRS[1:])
def test_pairs_share_operand_a(rng, grid_of, cluster):
    """Rows of A come to the CTAs of a row of pairs; a stage is free when all pairs have read it."""
    grid_of(1)
    case = tile_programs.gemm(384, 520, 224, (128, 64, 32), out_dtype="float16", stages=3)
    (line,) = decisions(case.func, "ring of", cluster=cluster)
    assert f"A_s multicast to {cluster[1]} CTAs" in line
    check(case, rng, arch=ARCH, cluster=cluster)


@pytest.mark.parametrize("number, name", sampled(enumerate(SHARING), 2))
@pytest.mark.some(3)
def test_clusters_share_loads(rng, grid_of, number, name):
    make, cluster = SHARING[name]
    case = make(stages=1 + number % 3)
    grid_of(1 + number % 2)
    if name not in ("grouped", "causal"):  # whose CTAs differ in what they reach
        assert decisions(case.func, "multicast", cluster=cluster)
    check(case, rng, arch=ARCH, cluster=cluster)


@pytest.mark.parametrize("trips", [1, 2, 3, 4, 7])
def test_trip_counts_around_the_number_of_stages(rng, grid_of, trips):
    """Phases carry over from tile to tile in both CTAs; the last releases arrive in both."""
    grid_of(1)
    case = tile_programs.gemm(600, 72, 32 * trips, (128, 32, 32), stages=3, out_dtype="float16")
    check(case, rng, arch=ARCH, cluster=(2, 1))


def test_clusters_without_tiles(rng, grid_of):
    """The grid has more clusters than tiles, and the last tile of a cluster does not exist."""
    grid_of(3)
    case = tile_programs.gemm(100, 64, 64, (128, 64, 32), stages=2, symbolic=True)
    check(case, rng, arch=ARCH, cluster=(2, 1))
    check(case, rng, arch=ARCH, cluster=(1, 2))


def check_random(seed: int) -> None:
    rng = np.random.default_rng(seed)
    check(tile_programs.random_program(rng), rng, arch=ARCH, cluster=CLUSTERS[seed % 4])


@pytest.mark.parametrize("seed", SAMPLE)
@pytest.mark.some(1)
def test_random_programs(grid_of, seed):
    grid_of(1 + seed % 3)
    check_random(seed)


@pytest.mark.long
@pytest.mark.parametrize("start", range(0, ALL, ALL // 20))
def test_many_random_programs(grid_of, start):
    for seed in range(20_000 + start, 20_000 + start + ALL // 20):
        grid_of(1 + seed % 3)
        check_random(seed)


@pytest.mark.parametrize("name", ["gemm 256 columns", "attention, 256 rows"])
@pytest.mark.some(1)
def test_nothing_spills(machine_code, name):
    func = hinted(PAIRED[name](stages=2).func, cluster=(2, 1))
    assert local_memory(func, ARCH) == (0, 0, 0)


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda: tile_programs.gemm(tile=(64, 64, 32)), "acc does not have 128 rows"),
        (lambda: tile_programs.gemm(tile=(128, 48, 32)), "N = 48 is not legal"),
        (lambda: tile_programs.dequantised(8, tile=(128, 64, 64)), "W_f is computed, not loaded"),
        (lambda: tile_programs.side_by_side(tile=(128, 64, 32)), "W_s is loaded in parts"),
        (lambda: clipped(2, "shared", both=True), "threads read A_s, which is loaded for MMAs"),
        (
            lambda: tile_programs.attention(tile=(128, 64), causal=True),
            "the CTAs of a cluster differ in whether they compute S",
        ),
    ],
)
def test_why_there_are_no_pairs(make, sentence):
    (line,) = decisions(make().func, "pairs:", cluster=(2, 1))
    assert line.startswith("pairs: none, for ") and sentence in line


def test_an_own_layout_of_operand_b_stays(rng, grid_of):
    case = tile_programs.gemm(256, 64, 64, (128, 64, 32), stages=2)
    program = read(case.func)
    (tile,) = (one for one in allocations(program.body) if one.name == "B_s")
    layout = SharedMatrix("float16", Major.K, Swizzle.B32, 64, 32).layout()
    own = tirx.decl_buffer(tile.shape, "float16", "B_s", scope="shared", layout=layout)
    body = tuple(ir.substitute(one, {tile: own}) for one in program.body)
    case = dataclasses.replace(case, func=program.replace(body=body).to_func())
    (line,) = decisions(case.func, "pairs:", cluster=(2, 1))
    assert line == "pairs: none, for B_s has a layout of its own"
    grid_of(1)
    check(case, rng, arch=ARCH, cluster=(2, 1))


def transposed_grid(m: int, n: int, k: int, tile: tuple[int, int, int]) -> tile_programs.Case:
    """A GEMM whose grid counts columns of tiles first."""
    bm, bn, bk = tile
    case = tile_programs.gemm(m, n, k, tile)

    @T.prim_func
    def func(A: T.Buffer((m, k), "float16"), B: T.Buffer((n, k), "float16"),
             C: T.Buffer((m, n), "float32")):  # fmt: skip
        T.device_entry()
        j, i = T.cta_id([n // bn, m // bm])
        A_s = T.alloc_buffer((bm, bk), "float16", scope="shared")
        B_s = T.alloc_buffer((bn, bk), "float16", scope="shared")
        acc = T.alloc_buffer((bm, bn), "float32", scope="accumulator")
        for step in wl.pipelined(k // bk, 2):
            Tx.cta.copy_async(A_s, A[i * bm : i * bm + bm, step * bk : step * bk + bk])
            Tx.cta.copy_async(B_s, B[j * bn : j * bn + bn, step * bk : step * bk + bk])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=step > 0)
        Tx.cta.copy(C[i * bm : i * bm + bm, j * bn : j * bn + bn], acc)

    return dataclasses.replace(case, func=func)


def test_ctas_with_columns_of_their_own_share_operand_a(rng, grid_of):
    case = transposed_grid(256, 128, 128, (128, 64, 64))
    (line,) = decisions(case.func, "pairs:", cluster=(2, 1))
    assert line == "pairs: none, for the CTAs of a cluster load different B_s"
    assert decisions(case.func, "multicast to 2 CTAs", cluster=(2, 1))
    grid_of(1)
    check(case, rng, arch=ARCH, cluster=(2, 1))

"""Cluster launch control: clusters take over the tiles of those that have not started."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared import tile_programs
from tests.shared.lowered_programs import check, hinted, local_memory, run
from tests.shared.sampling import either
from warploom import language as wl
from warploom.errors import Decline, IllegalCombination
from warploom.lower.lowerings import lower
from warploom.lower.trace import lower_trace
from warploom.target import SM90A, SM100A
from warploom.tile.hints import Hints

ARCH = SM100A.name
CLC = "clc"
#: Name -> a program for a number of stages, and its cluster.
PROGRAMS = {
    "gemm": (partial(tile_programs.gemm, 300, 200, 160, (128, 64, 32), symbolic=True), None),
    "gemm, pairs": (
        partial(tile_programs.gemm, 700, 96, 96, (128, 32, 32), out_dtype="float16"), (2, 1)
    ),
    "gemm 1 x 2": (partial(tile_programs.gemm, 300, 150, 96, (128, 48, 32)), (1, 2)),
    "gemm 4 x 1": (partial(tile_programs.gemm, 600, 64, 64, (64, 64, 32)), (4, 1)),
    "grouped": (partial(tile_programs.grouped, (200, 0, 128, 1), tile=(128, 64, 32)), None),
    "dequantised": (partial(tile_programs.dequantised, 8, tile=(128, 64, 64)), None),
    "attention, pairs": (partial(tile_programs.attention, 300, tile=(128, 64)), (2, 1)),
    "attention causal": (
        partial(tile_programs.attention, 300, tile=(128, 64), causal=True), None
    ),
}  # fmt: skip
SEEDS, ALL = (0, 2, 4), range(300)


#: Pairs are met in an MMA already, and attention where it is causal.
SLOW = ("attention, pairs",)


@pytest.mark.parametrize("name", either([n for n in PROGRAMS if n not in SLOW], SLOW))
@pytest.mark.some(3)
def test_programs_are_right_and_free_of_races(rng, name):
    make, cluster = PROGRAMS[name]
    stages = 1 + list(PROGRAMS).index(name) % 3
    check(make(stages=stages), rng, arch=ARCH, cluster=cluster, scheduler=CLC)


@pytest.mark.parametrize("cluster", [None, (2, 1)])
def test_more_tiles_than_ctas_at_a_time(rng, cluster):
    case = tile_programs.gemm(128 * 160, 64, 32, (128, 64, 32), out_dtype="float16", stages=2)
    check(case, rng, arch=ARCH, cluster=cluster, scheduler=CLC)


@T.prim_func
def some_tiles(count: T.int32, A: T.Buffer((512, 64), "float16"),
               B: T.Buffer((64, 64), "float16"), C: T.Buffer((512, 64), "float32")):  # fmt: skip
    """The first ``count`` of four tiles of a GEMM."""
    T.device_entry()
    i = T.cta_id([count])
    A_s = T.alloc_buffer((128, 64), "float16", scope="shared")
    B_s = T.alloc_buffer((64, 64), "float16", scope="shared")
    acc = T.alloc_buffer((128, 64), "float32", scope="accumulator")
    for k in wl.pipelined(1, 1):
        Tx.cta.copy_async(A_s, A[i * 128 : i * 128 + 128, k * 64 : k * 64 + 64])
        Tx.cta.copy_async(B_s, B[0:64, k * 64 : k * 64 + 64])
        Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
    Tx.cta.copy(C[i * 128 : i * 128 + 128, 0:64], acc)


@pytest.mark.parametrize(
    "count, cluster", [*((n, None) for n in range(5)), (0, (2, 1)), (2, (2, 1))]
)
@pytest.mark.some(3)
def test_few_tiles_or_none(rng, count, cluster):
    """The grid has at least one cluster, which may find that there is no tile."""
    a, b = (rng.standard_normal(shape).astype("float16") for shape in ((512, 64), (64, 64)))
    before = rng.standard_normal((512, 64)).astype("float32")
    kernel = lower(hinted(some_tiles, cluster=cluster, scheduler=CLC), ARCH)
    *_, result = run(kernel, [count, a, b, before.copy()], ARCH)
    rows = 128 * count
    np.testing.assert_array_equal(result[rows:], before[rows:])
    expected = a[:rows].astype("float64") @ b.astype("float64").T
    np.testing.assert_allclose(result[:rows], expected, rtol=0, atol=1e-4)


def check_random(seed: int) -> None:
    rng = np.random.default_rng(seed)
    case = tile_programs.random_program(rng)
    cluster = (None, (2, 1), (1, 2))[seed % 3]
    check(case, rng, arch=ARCH, cluster=cluster, persistent=None, scheduler=CLC)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.some(1)
def test_random_programs(seed):
    check_random(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", ALL)
@pytest.mark.some(3)
def test_many_random_programs(seed):
    check_random(seed)


def test_nothing_spills(machine_code):
    func = tile_programs.gemm(512, 512, 256, (128, 256, 64), out_dtype="float16").func
    assert local_memory(hinted(func, cluster=(2, 1), scheduler=CLC), ARCH) == (0, 0, 0)


@pytest.mark.parametrize("name", ["gemm", "gemm, pairs", "attention causal"])
def test_answers_are_released_after_a_proxy_fence(name):
    """Each role that reads an answer fences before its arrival lets an engine write the next.

    The manual's example of clusterlaunchcontrol.query_cancel has the fence; no emulator would miss
    it, since the wait for the arrival already orders the read.
    """
    make, cluster = PROGRAMS[name]
    text = lower(hinted(make(stages=2).func, cluster=cluster, scheduler=CLC), ARCH).script()
    reads = text.split("first_cta, answer")[1:]
    assert len(reads) == 4  # of the roles that ask, load, multiply and compute
    for after in reads:
        assert 'T.ptx.fence("proxy", "async"' in after[: after.index('"arrive"')]


def test_the_record_tells_who_hands_out_tiles():
    func = hinted(tile_programs.gemm().func, scheduler=CLC)
    found = [line for step in lower_trace(func, ARCH) for line in step.decisions]
    assert any(line.startswith("grid: CTAs that take over tiles of others") for line in found)
    assert "tiles: asked for by a warp, 3 answers ahead" in found
    static = hinted(tile_programs.gemm().func, scheduler="static")
    assert "clusterlaunchcontrol" not in lower(static, ARCH).script()


def test_hopper_has_no_launch_control():
    func = hinted(tile_programs.gemm().func, scheduler=CLC)
    with pytest.raises(Decline, match="sm_90a has no cluster launch control; leave the hint"):
        lower(func, SM90A.name)


def test_hints_that_contradict_each_other():
    with pytest.raises(IllegalCombination, match="scheduler 'clc' with persistent False"):
        Hints(scheduler=CLC, persistent=False)
    with pytest.raises(IllegalCombination, match="must be one of 'static', 'clc'"):
        Hints(scheduler="dynamic")

"""Warpgroups that compute alternate tiles: right for any count of tiles and steps, or declined."""

from __future__ import annotations

import itertools
import random
import re

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from tests.lower.hopper.test_slice_k import PROGRAMS as ALL_PROGRAMS
from tests.shared import tile_programs
from tests.shared.lowered_programs import check, hinted
from tests.shared.sampling import sampled
from tests.shared.tile_programs.orchestrated import prefetched_residual
from warploom import language as wl
from warploom.errors import Decline, IllegalCombination
from warploom.lower.lowerings import lower
from warploom.lower.trace import lower_trace

#: Those that write through a tile that warpgroups share.
SHARED = ("dequantised",)
PROGRAMS = {name: made for name, made in ALL_PROGRAMS.items() if name not in SHARED}
#: Counts of steps around that of stages; clusters of the grid: fewer than tiles, and more.
STEPS, STAGES, GRIDS = (1, 2, 3, 5), (1, 2, 3, 4), (1, 2, 3, 20)
STRUCTURES = ({}, {"cluster": (2, 1)}, {"cluster": (1, 2)}, {"raster": "rows"},
              {"store_buffers": 4}, {"ctas_per_sm": 2})  # fmt: skip
CONFIGURATIONS = list(itertools.product(STEPS, STAGES, GRIDS, STRUCTURES))


def configured() -> list:
    """A configuration of each program, another for each."""
    order = random.Random(5).sample(CONFIGURATIONS, len(PROGRAMS))
    return list(zip(PROGRAMS, order, strict=True))


def check_alternate(name: str, configuration, grid_of, rng) -> None:
    steps, stages, grid, structure = configuration
    grid_of(grid)
    # Without another lowering to fall back to.
    check(PROGRAMS[name](steps, stages), rng, ping_pong=True, specialise=True, **structure)


@pytest.mark.parametrize(("name", "configuration"), sampled(configured(), 3))
@pytest.mark.some(2)
def test_ping_pong_is_right_and_free_of_races(name, configuration, grid_of, rng):
    check_alternate(name, configuration, grid_of, rng)


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_ping_pong_in_all_configurations(name, grid_of):
    for number, configuration in enumerate(CONFIGURATIONS):
        check_alternate(name, configuration, grid_of, np.random.default_rng(number))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.some(1)
def test_random_programs(seed):
    """Those that warpgroups cannot compute alternately are lowered otherwise."""
    rng = np.random.default_rng(700 + seed)
    # Some have hints that contradict it.
    check(
        tile_programs.random_program(rng), rng, ping_pong=True, persistent=None, consumers=None
    )  # fmt: skip


def test_a_stage_is_released_by_the_warpgroup_of_its_tile():
    func = hinted(tile_programs.gemm(256, 128, 512, (64, 64, 32)).func, ping_pong=True)
    trace = lower_trace(func)
    decided = [sentence for step in trace for sentence in step.decisions]
    assert "ping-pong: each of 2 warpgroups computes every other tile" in decided
    assert any("2 computing warpgroups" in sentence for sentence in decided)
    script = trace[-1].func.script()
    inits = [line for line in script.splitlines() if '"init"' in line]
    assert len(inits) == 2 and all("T.uint32(1)" in line for line in inits), "full and empty"
    shape = re.search(r"staging = T.alloc_\w+\(\((\d+), ", trace[-2].func.script())
    assert shape is None or shape[1] == "2", "each stores through buffers of its own"


@pytest.mark.parametrize(("arch", "hint"), [("sm_90a", {"specialise": False}), ("sm_100a", {})])
def test_other_lowerings_say_that_they_do_not(arch, hint):
    func = hinted(tile_programs.gemm(128, 64, 64, (64, 64, 64)).func, ping_pong=True, **hint)
    sentences = [s for step in lower_trace(func, arch) for s in step.decisions]
    assert any(sentence.startswith("ping_pong: not followed") for sentence in sentences)


def program(fault: str) -> PrimFunc:
    """A program of alternate tiles, but for one thing."""

    @T.prim_func
    def tiles(
        A: T.Buffer((256, 256), "float16"), C: T.Buffer((256, 64), "float32")
    ):  # fmt: skip
        T.device_entry()
        i = T.cta_id([4])
        A_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        other = T.alloc_buffer((64, 64), "float16", scope="shared")
        made = T.alloc_buffer((64, 64), "float16", scope="fragment")
        acc = T.alloc_buffer((64, 64), "float32", scope="accumulator")
        Tx.cta.zero(acc)
        if fault == "shared":
            Tx.cta.zero(other)
        if fault != "no loads":
            for k in wl.pipelined(i + 1 if fault == "steps" else 4, 2):
                Tx.cta.copy_async(A_s, A[i * 64 : i * 64 + 64, k * 64 : k * 64 + 64])
                for y, x in T.grid(64, 64):
                    made[y, x] = A_s[y, x]
                Tx.cta.gemm_async(acc, made, A_s, accum=True)
        Tx.cta.copy(C[i * 64 : i * 64 + 64, 0:64], acc)

    return tiles


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("shared", "A statement of a tile writes other to memory that warpgroups share"),
        ("steps", "How often a tile loads A_s depends on the tile"),
        ("no loads", "The tiles load nothing, so ping_pong hides nothing"),
    ],
)
def test_declines(fault, message):
    with pytest.raises(Decline, match=message):
        lower(hinted(program(fault), ping_pong=True, specialise=True))


def test_what_is_not_declined_is_lowered():
    assert "wg" in lower(hinted(program("none"), ping_pong=True, specialise=True)).script()


@pytest.mark.parametrize("name", SHARED)
def test_shared_tiles_are_declined(name):
    func = hinted(ALL_PROGRAMS[name](2, 2).func, ping_pong=True, specialise=True)
    with pytest.raises(Decline, match="to memory that warpgroups share"):
        lower(func)


def test_rows_of_several_consumers_and_own_mbarriers_are_declined():
    wide = tile_programs.gemm(256, 64, 64, (128, 64, 64)).func
    with pytest.raises(IllegalCombination, match="ping_pong True with consumers 2"):
        lower(hinted(wide, ping_pong=True, consumers=2, specialise=True))
    with pytest.raises(Decline, match="persistent"):
        own = prefetched_residual(tile=(64, 64, 64)).func
        lower(hinted(own, ping_pong=True, specialise=True))


@pytest.mark.parametrize(
    "other",
    [{"consumers": 2}, {"slice_k": 2}, {"split_k": 2}, {"stream_k": True}, {"persistent": False}],
)
def test_what_excludes_it_is_said(other):
    ((name, value),) = other.items()
    with pytest.raises(IllegalCombination, match=f"ping_pong True with {name} {value}"):
        wl.hints(ping_pong=True, **other)

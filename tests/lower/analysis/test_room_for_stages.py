"""Stages, warpgroups and buffers of stores, where the author leaves them to the passes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.shared import tile_programs
from tests.shared.lowered_programs import check, hinted, program_before
from warploom.errors import Decline
from warploom.lower.analysis.room_for_stages import (
    BYTES_ON_THE_WAY,
    MOST_STAGES,
    stages_by_room,
)
from warploom.lower.lowerings import lower
from warploom.lower.trace import lower_trace
from warploom.target import ARCHS
from warploom.tile.read import read
from warploom.tile.statement import Loop, walk

#: Bytes of a stage and of the rest are whole tiles, so a stage more is never almost in place.
TILES = [(64, 64, 64), (64, 256, 128), (128, 128, 128), (128, 256, 64), (128, 64, 256)]


def chosen(func: Any, arch: str = "sm_90a") -> tuple[int, str]:
    return stages_by_room(program_before("PlanPipeline", func, arch))


def decisions(func: Any, arch: str = "sm_90a") -> list[str]:
    return [decision for step in lower_trace(func, arch) for decision in step.decisions]


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("tile", TILES)
def test_stages_are_as_many_as_fit_or_hide_the_latency(tile, arch):
    func = tile_programs.gemm(512, 512, 4096, tile).func
    stages, why = chosen(func, arch)
    assert f"{stages} stages, {why}" in " ".join(decisions(func, arch))
    if why == "for which shared memory has room":
        with pytest.raises(Decline, match="bytes of shared memory"):
            lower(hinted(func, stages=stages + 1), arch)
    else:
        one = 2 * (tile[0] + tile[1]) * tile[2]
        assert stages == MOST_STAGES or (stages - 1) * one >= BYTES_ON_THE_WAY
        assert (stages - 2) * one < BYTES_ON_THE_WAY


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_a_single_tile_has_no_more_stages_than_iterations(arch):
    func = hinted(tile_programs.gemm(64, 64, 96).func, persistent=False)
    assert chosen(func, arch) == (3, "as many as it has iterations")
    # The stages of a persistent CTA serve one tile after the other.
    assert chosen(tile_programs.gemm(64, 64, 96).func, arch)[0] > 3


def test_loops_whose_author_says_it_take_their_memory_first():
    said = tile_programs.swiglu(stages=2).func
    assert chosen(said) == (1, "as it loads nothing")
    two = hinted(tile_programs.gemm(512, 512, 1024, (128, 128, 64)).func, ctas_per_sm=2)
    stages, why = chosen(two)
    assert (stages, why) == (2, "for which shared memory has room")


@pytest.mark.parametrize(
    ("tile", "hints", "again"),
    [
        ((192, 192, 256), {}, "store_buffers=1"),
        ((128, 128, 64), {"ctas_per_sm": 2}, "consumers=1"),
        ((192, 128, 64), {"ctas_per_sm": 2}, "consumers=1"),
    ],
)
def test_passes_begin_again_with_smaller_choices(tile, hints, again):
    func = hinted(tile_programs.gemm(512, 512, 1024, tile).func, **hints)
    assert any(f"begins again with {again}" in one for one in decisions(func))


def test_choices_of_the_author_stay():
    func = tile_programs.gemm(512, 512, 1024, (128, 128, 64)).func
    with pytest.raises(Decline, match="which need 90 registers of a thread at the launch"):
        lower(hinted(func, ctas_per_sm=2, consumers=2, specialise=True), "sm_90a")
    large = tile_programs.gemm(512, 512, 1024, (192, 192, 256)).func
    with pytest.raises(Decline, match="bytes of shared memory"):
        lower(hinted(large, store_buffers=2, store_columns=64), "sm_90a", quiet=True)


def test_the_first_reason_is_told_where_nothing_fits():
    func = tile_programs.gemm(512, 512, 1024, (256, 192, 256)).func
    capacity = ARCHS["sm_90a"].shared_bytes_per_block
    with pytest.raises(Decline, match=f"a CTA has {capacity}; .* staging: 2 x 2 x"):
        lower(func, "sm_90a", quiet=True)


def test_a_thread_has_255_registers_at_most():
    with pytest.raises(Decline, match="need 256 registers"):
        lower(tile_programs.gemm(512, 512, 64, (256, 256, 16)).func, "sm_90a", quiet=True)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("tile", [(64, 64, 32), (128, 128, 128), (64, 256, 128)])
@pytest.mark.some(3)
def test_kernels_with_chosen_stages_are_right(tile, arch, rng):
    check(tile_programs.gemm(130, 264, 3 * tile[2] + 8, tile), rng, arch)


def test_every_pipelined_loop_has_its_stages_after_the_pass():
    program = program_before("OrderMmas", tile_programs.attention().func, "sm_90a")
    loops = [one for one in walk(program.block) if isinstance(one, Loop) and one.pipelined]
    assert loops and all(loop.stages for loop in loops)
    assert read(program.to_func()).hints.stages is None

"""Several CTAs on an SM: each gets its part, and a program that needs more is declined."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import warploom
from tests.shared import tile_programs
from tests.shared.lowered_programs import check, hinted
from warploom.errors import Decline, IllegalCombination
from warploom.lower.lowerings import lower
from warploom.target import ARCHS


@given(st.sampled_from(sorted(ARCHS)), st.integers(1, 32), st.integers(1, 4))
def test_parts_fit_into_an_sm_and_leave_little(name, blocks, warpgroups):
    arch, threads = ARCHS[name], warpgroups * 128
    each = arch.shared_bytes_of_each(blocks)
    kept = arch.shared_bytes_per_sm - arch.shared_bytes_per_block
    left = arch.shared_bytes_per_sm - blocks * (each + kept)
    assert each % 128 == 0 and 0 <= left < 128 * blocks
    if blocks * threads > arch.threads_per_sm:
        with pytest.raises(IllegalCombination, match=f"it holds 32 blocks and {2048} threads"):
            arch.registers_of_each(blocks, threads)
        return
    registers = arch.registers_of_each(blocks, threads)
    assert registers % 8 == 0 and registers * blocks * threads <= arch.registers_per_sm
    most = (registers + 8) * blocks * threads > arch.registers_per_sm
    assert most or registers > arch.registers_per_thread


@pytest.mark.parametrize("arch", sorted(ARCHS))
@pytest.mark.parametrize("specialise", [True, False])
@pytest.mark.parametrize("ctas", [2, 4])
@pytest.mark.some(3)
def test_programs_stay_right(rng, arch, specialise, ctas):
    case = tile_programs.gemm(300, 136, 200, (64, 64, 64), out_dtype="float16", stages=2)
    check(case, rng, arch, ctas_per_sm=ctas, specialise=specialise)


def decisions(**hints: int) -> list[str]:
    case = tile_programs.gemm(256, 256, 256, (64, 64, 64), out_dtype="float16", stages=2)
    steps = warploom.lower_trace(hinted(case.func, **hints))
    return [one for step in steps for one in step.decisions]


def test_the_grid_and_the_budgets_are_said():
    said = decisions(ctas_per_sm=2)
    assert said[0].startswith("grid: as many persistent CTAs as the device holds (264 on an H200)")
    assert (
        "budget: 2 CTAs an SM, each with 115712 bytes of shared memory and 128 registers for each "
        "of 256 threads"
    ) in said
    assert (
        "roles: one loading warp with 40 registers a thread, 1 computing warpgroups with 216"
        in said
    )
    assert any("of 115712 bytes" in one for one in said)
    assert not any(one.startswith("budget") for one in decisions())


def test_the_compiler_is_told():
    func = lower(hinted(tile_programs.gemm(stages=2).func, ctas_per_sm=3))
    assert '"tirx.launch_bounds_min_blocks_per_sm": 3' in func.script()


@pytest.mark.parametrize(
    ("case", "hints", "reason"),
    [
        (
            tile_programs.gemm(256, 256, 64, (128, 256, 64), stages=4), {"ctas_per_sm": 2},
            "The accumulators acc need 128 registers of a thread, which has 104 where 2 CTAs",
        ),
        (
            tile_programs.gemm(256, 256, 64, (64, 128, 64), stages=5), {"ctas_per_sm": 2},
            "bytes of shared memory and a CTA has 115712; use fewer stages",
        ),
        (
            tile_programs.gemm(256, 256, 64, (64, 64, 64), stages=1), {"ctas_per_sm": 9},
            "9 blocks of 256 threads are not possible on a multiprocessor; .* Lower ctas_per_sm",
        ),
        (
            tile_programs.gemm(256, 256, 64, (64, 64, 64), stages=1),
            {"ctas_per_sm": 2, "registers": (40, 248)},
            r"Registers \(40, 248\) .* are 36864 in all, and a CTA has 32768",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_declined(case, hints, reason):
    with pytest.raises(Decline, match=reason):
        lower(hinted(case.func, **hints, specialise=True))


def test_tensor_memory_is_shared_too():
    case = tile_programs.gemm(256, 256, 64, (128, 256, 64), stages=1)
    lower(hinted(case.func, ctas_per_sm=2), "sm_100a")
    with pytest.raises(Decline, match="256 in each of 3 blocks, a multiprocessor has 512"):
        lower(hinted(case.func, ctas_per_sm=3), "sm_100a")

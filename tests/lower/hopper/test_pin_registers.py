"""Arithmetic on results of MMAs stays behind the wait for them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tvm import tirx

from tests.shared import tile_programs
from tests.shared.lowered_programs import check, hinted
from warploom.layout.fragment import wgmma_accumulator
from warploom.lower.hopper.pin_registers import pin
from warploom.lower.lowerings import lower


@pytest.mark.parametrize("specialise", [True, False])
def test_results_are_pinned_between_the_wait_and_their_use(specialise):
    case = tile_programs.attention(stages=2)
    lines = lower(hinted(case.func, specialise=specialise)).script().splitlines()
    pinned: list[str] = []
    for number, line in enumerate(lines):
        if "wait_group" in line and "wgmma" in line:
            following = "\n".join(lines[number + 1 : number + 6])
            pinned += re.findall(r"(\w+?)_pinned(?:_\d+)? = ", following)
    # Q Kᵀ before its softmax; P V at the end of each iteration, where ptxas wants it.
    assert pinned == ["S", "acc"]


def test_accumulators_that_no_thread_touches_in_the_loop_are_pinned_after_it():
    script = lower(tile_programs.gemm(256, 64, 256, (128, 64, 64), stages=4).func).script()
    loop, after = script.split("T.wg.gemm_async", 1)
    assert "pinned" not in loop and after.count("warploom_pin_float32(float& word)") == 1


@pytest.mark.parametrize("seed", [137, 213])
def test_a_scaled_accumulator_is_waited_for(seed):
    # Branches that scale the accumulator: the compiler had moved the multiplication forward.
    rng = np.random.default_rng(seed)
    check(tile_programs.random_program(rng, by_tma=True), rng, specialise=True)


@pytest.mark.parametrize(
    ("dtype", "words", "word"),
    [("float32", 32, "float32"), ("int32", 32, "int32"), ("float16", 16, "uint32")],
)
def test_every_word_of_a_tile_is_pinned(dtype, words, word):
    tile = tirx.decl_buffer(
        (64, 64), dtype, "acc", scope="local", layout=wgmma_accumulator(64, 64)
    )
    view, loop = pin([tile])
    assert str(view.buffer.dtype) == word and int(view.buffer.shape[0]) == words
    assert int(loop.extent) == words and f"warploom_pin_{word}" in loop.script()

"""The hint ``order_mmas``: who follows it, and who says why not."""

from __future__ import annotations

import pytest

from tests.shared import tile_programs
from tests.shared.lowered_programs import hinted
from warploom.errors import IllegalCombination
from warploom.lower.trace import lower_trace
from warploom.tile.hints import Hints


def decisions(func, arch="sm_90a"):
    return [sentence for step in lower_trace(func, arch) for sentence in step.decisions]


# Both MMAs of a step of two blocks are one run: no result is used before both are issued.
@pytest.mark.parametrize(
    ("tile", "places"), [((128, 64, 128), 1), ((128, 64, 256), 1), ((256, 64, 128), 2)]
)
def test_mmas_without_use_of_a_result_between_them_are_one_run(tile, places):
    steps = lower_trace(hinted(tile_programs.block_scaled(tile=tile).func, order_mmas=True))
    (ordered,) = (step for step in steps if step.name == "OrderMmas")
    decision = f"MMA ordering barrier: 2 warpgroups issue MMAs in order, in {places} places"
    assert ordered.decisions == (decision,)
    # As many arrivals as waits at the ordering barriers, one of each outside the loop.
    script = ordered.func.script()
    assert script.count('"arrive"') == script.count('"sync"') == places + 1


@pytest.mark.parametrize(
    ("options", "arch", "sentence"),
    [
        ({}, "sm_90a", "One warpgroup computes, so there is no other warpgroup to order MMAs with"),
        ({"specialise": False}, "sm_90a", "order_mmas: not followed"),
        ({"tile": (128, 64, 128)}, "sm_100a", "order_mmas: not followed"),
    ],
)
def test_who_cannot_order_mmas_says_why(options, arch, sentence):
    func = tile_programs.block_scaled(order_mmas=True, **options).func
    assert any(sentence in one for one in decisions(func, arch))


def test_the_hint_is_a_bool():
    with pytest.raises(IllegalCombination, match="order_mmas is 1; it must be a bool"):
        Hints(order_mmas=1)

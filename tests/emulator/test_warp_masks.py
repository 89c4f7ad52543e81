"""Lanes of one warp with different member masks: each group of equal masks is one operation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.emulator.golden import corpus, recording, warp_masks
from tests.emulator.golden.case import POISON, Case
from tests.emulator.golden.values import Bits
from tests.emulator.ptx_driver import emulator
from tests.emulator.run_ptx import EmulatorError, kernel, launch
from warploom.runtime.emulator_libraries import find_libraries

LANES = warp_masks.LANES
INSTRUCTIONS = {each.name: each for each in warp_masks.INSTRUCTIONS}
_REDUCTIONS = {
    "add": lambda v: v.sum(),
    "min": np.min,
    "max": np.max,
    "and": np.bitwise_and.reduce,
    "or": np.bitwise_or.reduce,
    "xor": np.bitwise_xor.reduce,
}


def bits(lanes: np.ndarray) -> int:
    return sum(1 << int(lane) for lane in lanes)


def model(
    name: str,
    values: np.ndarray,
    few: np.ndarray,
    votes: np.ndarray,
    amounts: np.ndarray,
    lanes: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """What %r10 and %q1 are, by the words of the PTX ISA, in the lanes of one group."""
    base, mode, *_ = [*name.replace(".sync", "").split("."), ""]
    result, flag = np.zeros(LANES, np.uint64), np.zeros(LANES, bool)
    if base == "shfl":
        step = {"up": lanes - amounts[lanes], "down": lanes + amounts[lanes]}
        step |= {"bfly": lanes ^ amounts[lanes], "idx": amounts[lanes]}
        result[lanes], flag[lanes] = values[step[mode]], True
    elif base == "vote" and mode == "ballot":
        result[lanes] = bits(lanes[~votes[lanes]])
    elif base == "vote":
        of = votes[lanes]
        result[lanes] = {"all": of.all(), "any": of.any(), "uni": of.all() or not of.any()}[mode]
    elif base == "match":
        equal = {lane: lanes[few[lanes] == few[lane]] for lane in lanes}
        same = all(len(group) == len(lanes) for group in equal.values())
        for lane in lanes:
            result[lane] = bits(equal[lane]) if mode == "any" else bits(lanes) * same
        flag[lanes] = same and mode == "all"
    elif base == "redux":
        dtype = np.int32 if "s32" in name else np.uint32
        with np.errstate(over="ignore"):
            value = _REDUCTIONS[mode](values[lanes].view(dtype))
        result[lanes] = int(value) & 0xFFFFFFFF
    elif base == "elect":
        result[lanes], flag[lanes[0]] = lanes[0], True
    return result.astype(np.uint32), flag


def reference(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """The results of a case of :mod:`golden.warp_masks`."""
    name, place, groups = case.name.split(":")
    values, amounts, _, masks, group = case.inputs
    values = values.copy()
    few, votes = values & 1, (values & 6) != 0
    expected, flags = np.zeros(LANES, np.uint32), np.zeros(LANES, bool)
    alive = group != 0 if place == "exited" else np.ones(LANES, bool)
    for turn in range(int(groups) if place == "loop" else 1):
        goes_on = alive & (group >= turn) if place == "loop" else alive
        for mask in np.unique(masks[goes_on]):
            lanes = np.flatnonzero((masks == mask) & goes_on)
            got, flag = model(name, values, few, votes, amounts.astype(np.int64), lanes)
            if name == "bar.warp.sync":
                got[lanes] = mask
            expected[lanes], flags[lanes] = got[lanes], flag[lanes]
        if place == "loop":
            values[goes_on] += expected[goes_on]
    if place == "met":
        expected = np.where(group == 0, expected + np.uint32(1), expected ^ np.uint32(5))
    poison = np.uint32(POISON * 0x01010101)
    return tuple(np.where(alive, one, poison) for one in (expected, flags.astype(np.uint32)))


@pytest.mark.parametrize("family", ["warp_masks", "warp_meetings"])
def test_groups_of_equal_masks_are_operations(family):
    cases = corpus.family(family)
    for case, result in recording.run(emulator(str(find_libraries()[0])), cases):
        assert isinstance(result, bytes), f"{case.name}: {result}"
        got = np.frombuffer(result, np.uint32).reshape(2, LANES)
        for part, (mine, wanted) in enumerate(zip(got, reference(case), strict=True)):
            np.testing.assert_array_equal(mine, wanted, err_msg=f"{case.name}, result {part}")


#: Declarations and places of the kernels below: lane t has word t of the array in %r0.
LOAD = "mul.wide.u32 %d0, %t, 4;\nadd.u64 %d0, %d0, %p0;\nld.global.b32 %r0, [%d0];\n"
STORE = "st.global.b32 [%d0], %r1;"


#: A step of a walk: lanes take the side that their word in %r3 says, and add up at their group.
STEP = """ld.global.b32 %r2, [%d0+{masks}];
ld.global.b32 %r3, [%d0+{sides}];
setp.eq.u32 %q0, %r3, 0;
setp.eq.u32 %q1, %r3, 2;
@%q0 bra A{step};
@%q1 bra B{step};
redux.sync.add.u32 %r1, %r0, %r2;
add.u32 %r0, %r1, %t;
bra C{step};
A{step}:
redux.sync.add.u32 %r4, %r0, %r2;
add.u32 %r0, %r4, %t;
bra C{step};
B{step}:
bar.warp.sync %r2;
mov.u32 %r5, %r0;
redux.sync.add.u32 %r6, %r5, %r2;
add.u32 %r0, %r6, %t;
C{step}:
"""
STEPS = 12


@pytest.mark.parametrize("seed", range(4))
def test_random_walks_of_a_warp_meet(seed):
    """In each step the lanes are divided anew, and each goes one of three ways to its group."""
    random = Bits(f"walk/{seed}")
    groups = [int(count) for count in random.choice(np.array([1, 2, 4, 7]), STEPS)]
    masks = [warp_masks.masks_of(warp_masks.partition(random, count)) for count in groups]
    sides = [random.below(3, LANES).astype(np.uint32) for _ in range(STEPS)]
    values = random.words(LANES).astype(np.uint32)
    expected = values.copy()
    for mask, side in zip(masks, sides, strict=True):
        sums = expected.copy()
        for one in np.unique(mask):
            lanes = mask == one
            sums[lanes] = expected[lanes].sum(dtype=np.uint32)
            if (side[lanes] == 2).any():  # they meet there at bar.warp.sync
                side[lanes] = 2
        expected = sums + np.arange(LANES, dtype=np.uint32)
    row = 4 * LANES
    body = [
        STEP.format(step=step, masks=row * (1 + step), sides=row * (1 + STEPS + step))
        for step in range(STEPS)
    ]
    text = kernel(1, LOAD + "".join(body) + "mov.u32 %r1, %r0;\n" + STORE)
    (got,) = launch(text, [np.concatenate([values, *masks, *sides])], seed=seed + 1)
    np.testing.assert_array_equal(got[:LANES], expected)


def members(mask: str, instruction: str) -> str:
    return LOAD + f"mov.u32 %r1, 0;\nmov.u32 %r2, {mask};\n{instruction}\n{STORE}"


_ALL = (
    "vote.sync.ballot.b32 %r1, 1, %r2;",
    "redux.sync.add.u32 %r1, %r0, %r2;",
    "match.any.sync.b32 %r1, %r0, %r2;",
    "shfl.sync.idx.b32 %r1, %r0, 0, 31, %r2;",
    "elect.sync %r1|%q0, %r2;",
    "bar.warp.sync %r2;",
)


@pytest.mark.parametrize("instruction", _ALL)
def test_a_lane_outside_of_its_mask_is_reported(instruction):
    """Here every lane of the upper half executes with the mask of the lower one."""
    text = kernel(1, members("0xffff", instruction))
    with pytest.raises(EmulatorError, match=r"lanes 0xffff0000 .*member mask 0x0000ffff.*Fix:"):
        launch(text, [np.arange(LANES, dtype=np.uint32)])


@pytest.mark.parametrize("instruction", _ALL)
def test_a_member_that_never_arrives_is_a_deadlock(instruction):
    """Lane 5 goes round the instruction, and to the cluster barrier."""
    body = LOAD + "mov.u32 %r1, 0;\nmov.u32 %r2, 0xff;\nsetp.ge.u32 %q1, %t, 8;\n@%q1 exit;\n"
    body += f"setp.eq.u32 %q2, %t, 5;\n@%q2 bra ROUND;\n{instruction}\nROUND:\nbar.sync 0;\n{STORE}"
    with pytest.raises(
        EmulatorError,
        match=r"deadlock(.|\n)*lanes 0x000000df waits for the lanes "
        r"0x00000020, which its member mask 0x000000ff names",
    ):
        launch(kernel(1, body), [np.arange(LANES, dtype=np.uint32)])


def test_masks_that_differ_never_meet():
    """Lane 0 names lane 1, which names itself alone."""
    body = LOAD + "mov.u32 %r2, 2;\nsetp.eq.u32 %q0, %t, 0;\n@%q0 mov.u32 %r2, 3;\n"
    body += "setp.gt.u32 %q1, %t, 1;\n@%q1 exit;\nvote.sync.ballot.b32 %r1, 1, %r2;\nbar.sync 0;\n"
    body += STORE
    with pytest.raises(EmulatorError, match=r"lanes 0x00000001 waits for the lanes 0x00000002"):
        launch(kernel(1, body), [np.arange(LANES, dtype=np.uint32)])


@pytest.mark.parametrize("first, second", list(itertools.combinations(_ALL[:4], 2)))
def test_different_instructions_never_meet(first, second):
    body = LOAD + "mov.u32 %r1, 0;\nmov.u32 %r2, -1;\nsetp.lt.u32 %q0, %t, 16;\n@%q0 bra OTHER;\n"
    body += f"{first}\nbra END;\nOTHER:\n{second}\nEND:\n{STORE}"
    with pytest.raises(EmulatorError, match="deadlock"):
        launch(kernel(1, body), [np.arange(LANES, dtype=np.uint32)])


def test_lanes_that_are_guarded_off_do_not_wait():
    """Lane 1 is the only one that the first barrier is not for, and the second one is needed."""
    body = LOAD + "setp.ne.u32 %q0, %t, 1;\nmov.u32 %r2, -1;\n"
    body += "@%q0 bar.warp.sync %r2;\n@!%q0 bar.warp.sync %r2;\nmov.u32 %r1, 7;\n" + STORE
    (got,) = launch(kernel(1, body), [np.arange(LANES, dtype=np.uint32)])
    np.testing.assert_array_equal(got, 7)

"""setmaxnreg: registers are counted, and all warps of a warpgroup execute the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.emulator.run_ptx import EmulatorError, kernel, launch

#: Each warpgroup jumps to its own code: %r0 is its number.
BEGIN = "shr.u32 %r0, %t, 7;\n"
STORE = "mul.wide.u32 %d0, %t, 4;\nadd.u64 %d0, %d0, %p0;\nst.global.b32 [%d0], %t;\n"


def split(changes: list[str]) -> str:
    """Warpgroup i executes ``changes[i]``."""
    lines = [BEGIN]
    for group, text in enumerate(changes):
        lines += [f"setp.ne.u32 %q0, %r0, {group};\n@%q0 bra NEXT{group};", text, f"NEXT{group}:"]
    return "\n".join(lines) + "\n" + STORE


def setmaxnreg(direction: str, count: int) -> str:
    return f"setmaxnreg.{direction}.sync.aligned.u32 {count};"


def run(body: str, threads: int, bounds: str | None = None, seed: int = 1) -> None:
    text = kernel(1, body)
    bounds = f".maxntid {threads}" if bounds is None else bounds
    text = text.replace(")\n{", f")\n{bounds}\n{{", 1)
    array = np.full(threads, 0xDEAD, np.uint32)
    (got,) = launch(text, [array], block=(threads, 1, 1), seed=seed)
    np.testing.assert_array_equal(got, np.arange(threads))


def at_launch(groups: int) -> int:
    """Registers of a thread of blocks of so many warpgroups, by their launch bounds."""
    return min(65536 // (128 * groups) // 8 * 8, 256)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("counts", "threads"),
    [((40, 232, 232), 384), ((24, 240, 240), 384), ((40, 232), 256), ((24, 160, 160, 160), 512)],
)
def test_budgets_that_fit_are_granted(counts, threads, seed):
    own = at_launch(len(counts))
    text = [setmaxnreg("inc" if count > own else "dec", count) for count in counts]
    run(split(text), threads, seed=seed)


@pytest.mark.parametrize("counts", [(80, 224, 224), (48, 232, 232), (168, 176, 168)])
def test_more_than_the_launch_has_would_wait_for_ever(counts):
    own = at_launch(3)
    text = [setmaxnreg("dec" if count <= own else "inc", count) for count in counts]
    with pytest.raises(EmulatorError) as caught:
        run(split(text), 384)
    message = str(caught.value)
    assert "deadlock" in message and "setmaxnreg.inc" in message and "at most 2016" in message
    wanted = max(counts)
    assert f"would wait for ever for {wanted} registers a thread" in message
    assert "The launch gave 168 to each of 12 warps" in message


def test_random_budgets_deadlock_if_and_only_if_they_do_not_fit(rng):
    for _ in range(25):
        groups = int(rng.integers(1, 5))
        own = at_launch(groups)
        counts = [int(rng.integers(3, 33)) * 8 for _ in range(groups)]
        text = [setmaxnreg("inc" if count > own else "dec", count) for count in counts]
        fits = sum(counts) <= own * groups
        if fits:
            run(split(text), 128 * groups)
            continue
        with pytest.raises(EmulatorError, match="would wait for ever"):
            run(split(text), 128 * groups)


@pytest.mark.parametrize(
    ("bounds", "count"),
    [
        (".maxntid 256", 256),
        (".maxntid 384", 168),
        (".reqntid 256", 256),
        (".maxntid 256 .minnctapersm 2", 128),
        (".maxnreg 100", 104),
        (".maxntid 256 .maxnreg 64", 64),
        (".maxntid 1024", 64),
        ("", 256),
    ],
)
def test_a_launch_has_what_its_bounds_leave(bounds, count):
    body = split([setmaxnreg("dec", 24), ""]) if count == 256 else ""
    body += "bar.sync 1;\n" + split(["", setmaxnreg("inc", 256)]).replace("NEXT", "AGAIN")
    if count == 256:
        run(body, 256, bounds)
        return
    with pytest.raises(EmulatorError, match=f"The launch gave {count} to each of 8 warps"):
        run(body, 256, bounds)


def test_registers_come_when_others_give_them_back():
    """The second warpgroup asks before the first one has anything to give."""
    wait = "mov.u32 %r1, 0;\nLOOP:\nadd.u32 %r1, %r1, 1;\nsetp.lt.u32 %q1, %r1, 99;\n@%q1 bra LOOP;"
    for seed in range(4):
        run(split([wait + setmaxnreg("dec", 40), setmaxnreg("inc", 232), ""]), 384, seed=seed)


@pytest.mark.parametrize("warp", range(4))
def test_one_warp_alone(warp):
    body = f"shr.u32 %r0, %t, 5;\nsetp.ne.u32 %q0, %r0, {warp};\n@%q0 bra END;\n"
    body += setmaxnreg("dec", 40) + "\nEND:\n" + STORE
    for seed in range(3):
        with pytest.raises(EmulatorError, match=r"exit.* without .*Fix: all four warps"):
            run(body, 128, seed=seed)


@pytest.mark.parametrize("first, second", list(itertools.permutations([("dec", 40), ("dec", 48)])))
def test_different_changes_in_one_warpgroup(first, second):
    body = "setp.lt.u32 %q0, %t, 32;\n@%q0 bra OTHER;\n" + setmaxnreg(*first)
    body += "\nbra END;\nOTHER:\n" + setmaxnreg(*second) + "\nEND:\n" + STORE
    with pytest.raises(EmulatorError, match=r"another warp of warpgroup 0 executes setmaxnreg.dec"):
        run(body, 128)


def test_lanes_that_diverge():
    body = "setp.lt.u32 %q0, %t, 16;\n@%q0 bra END;\n" + setmaxnreg("dec", 40)
    body += "\nEND:\nbar.sync 0;\n" + STORE
    with pytest.raises(EmulatorError, match=r"deadlock(.|\n)*waits for other lanes of the warp"):
        run(body, 128)


def test_two_changes_need_a_barrier_between_them():
    body = (
        "shr.u32 %r0, %t, 5;\nsetp.eq.u32 %q0, %r0, 0;\n@%q0 bra FAST;\nbar.sync 2, 128;\nFAST:\n"
    )
    body += setmaxnreg("dec", 80) + "\n" + setmaxnreg("dec", 40)
    body += "\nsetp.ne.u32 %q1, %r0, 0;\n@%q1 bra END;\nbar.sync 2, 128;\nEND:\n" + STORE
    with pytest.raises(EmulatorError, match=r"has not executed the setmaxnreg.dec 80 before this"):
        run(body, 128)
    body = setmaxnreg("dec", 80) + "\nbar.sync 0;\n" + setmaxnreg("dec", 40) + "\n" + STORE
    run(body, 128)


def test_the_direction_is_checked_where_the_start_is_known():
    with pytest.raises(
        EmulatorError, match=r"setmaxnreg.dec to 200 registers, and the warp has 168"
    ):
        run(setmaxnreg("dec", 200) + STORE, 384)
    run(setmaxnreg("inc", 160) + STORE, 384)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("setmaxnreg.dec.sync.aligned.u32 20;", "a multiple of 8 from 24 to 256"),
        ("setmaxnreg.inc.sync.aligned.u32 264;", "a multiple of 8 from 24 to 256"),
        ("setmaxnreg.sync.aligned.u32 40;", "it needs .inc or .dec"),
    ],
)
def test_forms(text, message):
    with pytest.raises(EmulatorError, match=message):
        run(text + STORE, 128)

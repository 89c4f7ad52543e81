"""Schedules of the emulator: strategies, threads, exploration, and what ends a launch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.emulator.options import STRATEGIES, exploration, launch_reports, options
from tests.emulator.run_ptx import EmulatorError, kernel, launch, library
from tests.shared.paths import python_path

SHARED = ".shared .align 16 .b8 buf[1024];\n"
WARP = "shr.u32 %r30, %t, 5;\nsetp.eq.u32 %q7, %r30, 0;\n"

#: Two warps hand numbers over through an mbarrier, eight times; each CTA has its own output.
TILE_BARRIERS = f"""
{WARP}
mov.u32 %r10, buf;
setp.eq.u32 %q0, %t, 0;
@%q0 mbarrier.init.shared::cta.b64 [%r10], 32;
@%q0 mbarrier.init.shared::cta.b64 [%r10+8], 32;
bar.sync 0;
and.b32 %r11, %t, 31;
mov.u32 %r1, 0;
mov.u32 %r9, 0;
mov.u32 %r28, %ctaid.x;
LOOP:
and.b32 %r12, %r1, 1;
shl.b32 %r13, %r11, 2;
add.u32 %r13, %r13, %r10;
@!%q7 bra CONSUMER;
add.u32 %r14, %r11, %r1;
add.u32 %r14, %r14, %r28;
st.shared.u32 [%r13+64], %r14;
mbarrier.arrive.shared::cta.b64 _, [%r10];
WAIT_EMPTY:
mbarrier.try_wait.parity.shared::cta.b64 %q1, [%r10+8], %r12;
@!%q1 bra WAIT_EMPTY;
bra NEXT;
CONSUMER:
WAIT_FULL:
mbarrier.try_wait.parity.shared::cta.b64 %q1, [%r10], %r12;
@!%q1 bra WAIT_FULL;
ld.shared.u32 %r14, [%r13+64];
add.u32 %r9, %r9, %r14;
mbarrier.arrive.shared::cta.b64 _, [%r10+8];
NEXT:
add.u32 %r1, %r1, 1;
setp.lt.u32 %q2, %r1, 8;
@%q2 bra LOOP;
mad.lo.u32 %r27, %r28, 64, %t;
mul.wide.u32 %d20, %r27, 4;
add.u64 %d20, %d20, %p0;
st.global.u32 [%d20], %r9;
"""


def pair(ctas: int, **keywords) -> np.ndarray:
    """Check the result of :data:`TILE_BARRIERS` and return it."""
    output = np.full((ctas, 2, 32), 0xDEAD, np.uint32)
    (result,) = launch(
        kernel(1, TILE_BARRIERS, SHARED), [output], grid=(ctas, 1, 1), block=(64, 1, 1), **keywords
    )
    lanes = np.arange(32) * 8 + 28
    assert (result[:, 0] == 0).all()
    np.testing.assert_array_equal(result[:, 1], lanes + 8 * np.arange(ctas)[:, None])
    return result


@pytest.mark.parametrize("schedule", STRATEGIES)
def test_every_strategy_gives_the_same_result(schedule):
    with options(schedule=schedule, threads=2):
        for seed in range(1, 6):
            pair(3, seed=seed)


def test_results_and_reports_do_not_depend_on_threads():
    reports = []
    for threads in (1, 2, 5):
        with options(threads=threads, report=True):
            pair(24, seed=7)
            reports += launch_reports()
    assert reports[0] == reports[1] == reports[2]
    assert reports[0]["instructions"]["total"] > 24 * 8


def test_seeds_lead_to_different_schedules():
    waits = set()
    for seed in range(1, 20):
        with options(report=True):
            pair(1, seed=seed)
            waits.add(launch_reports()[0]["waits"]["mbarrier"]["unready"])
    assert len(waits) > 1


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_the_error_of_the_lowest_cta_is_reported(threads):
    body = """
mov.u32 %r1, %ctaid.x;
setp.lt.u32 %q0, %r1, 5;
@%q0 bra END;
ld.global.u32 %r2, [%p0+2];
END:
"""
    with options(threads=threads), pytest.raises(EmulatorError, match=r"CTA \(5, 0, 0\)"):
        launch(kernel(1, body), [np.zeros(4, np.uint32)], grid=(64, 1, 1))


def test_unknown_strategies_are_refused():
    assert library().warploom_emulator_set_schedule(b"fair") != 0


#: The result tells which of two warps came first.
FIRST = f"""
{WARP}
mov.u32 %r10, buf;
setp.eq.u32 %q0, %t, 0;
mov.u32 %r1, 0;
@%q0 st.shared.u32 [%r10], %r1;
bar.sync 0;
and.b32 %r2, %t, 31;
setp.ne.u32 %q1, %r2, 0;
@%q1 bra END;
add.u32 %r3, %r30, 1;
atom.shared.cas.b32 %r4, [%r10], %r1, %r3;
@!%q7 bra END;
ld.relaxed.cta.shared.u32 %r4, [%r10];
st.global.u32 [%p0], %r4;
END:
"""


def run_first(**keywords) -> int:
    output = np.full(1, 0xDEAD, np.uint32)
    return launch(kernel(1, FIRST, SHARED), [output], block=(64, 1, 1), **keywords)[0][0]


def test_exploration_reports_results_that_depend_on_the_schedule():
    with (
        options(explore=50),
        pytest.raises(EmulatorError, match=r"depend on the schedule.*strategy .*, seed"),
    ):
        run_first()
    found = exploration()
    assert 2 <= found["schedules"] < 50 and "depend" in found["problem"]


def test_the_search_reports_it_too():
    with options(exhaustive=1000), pytest.raises(EmulatorError, match="choices"):
        run_first()
    assert exploration()["mode"] == "exhaustive"


@pytest.mark.parametrize("schedules", [2, 20])
def test_exploration_of_a_correct_kernel_leaves_its_result(schedules):
    with options(explore=schedules):
        pair(2)
    found = exploration()
    assert found["schedules"] == schedules and found["problem"] == "" and not found["complete"]


def test_every_schedule_starts_from_the_same_memory():
    """The kernel adds to its argument, so that a second run would show."""
    body = """
mul.wide.u32 %d20, %t, 4;
add.u64 %d20, %d20, %p0;
ld.global.u32 %r1, [%d20];
add.u32 %r1, %r1, 1;
st.global.u32 [%d20], %r1;
"""
    start = np.arange(32, dtype=np.uint32)
    with options(explore=10):
        np.testing.assert_array_equal(launch(kernel(1, body), [start])[0], start + 1)
    with options(exhaustive=10):
        np.testing.assert_array_equal(launch(kernel(1, body), [start])[0], start + 1)
    assert exploration()["complete"] and exploration()["schedules"] == 1


def test_sums_of_floats_are_noted_and_no_error():
    body = """
cvt.rn.f32.u32 %f1, %t;
add.f32 %f1, %f1, 0f4B800000;
and.b32 %r2, %t, 31;
setp.ne.u32 %q1, %r2, 0;
@%q1 bra END;
red.global.add.f32 [%p0], %f1;
END:
"""
    with options(explore=30):
        launch(
            kernel(1, body, ".reg .f32 %f<2>;"), [np.array([1e-3], np.float32)], block=(256, 1, 1)
        )
    found = exploration()
    assert found["problem"] == "" and found["schedules"] == 30
    assert found["note"] == "" or "in any order" in found["note"]


#: The first warp waits for the second, which does not come, if that one was faster.
SOMETIMES_STUCK = f"""
{WARP}
mov.u32 %r10, buf;
mov.u32 %r1, 0;
setp.eq.u32 %q0, %t, 0;
@%q0 st.shared.u32 [%r10], %r1;
bar.sync 0;
mov.u32 %r2, 1;
@%q7 bra FIRST;
atom.shared.exch.b32 %r3, [%r10], %r2;
bra END;
FIRST:
atom.shared.or.b32 %r3, [%r10], %r1;
setp.eq.u32 %q2, %r3, 0;
@%q2 bra END;
bar.sync 1, 64;
END:
"""


def test_the_search_finds_a_rare_deadlock():
    with options(exhaustive=1000), pytest.raises(EmulatorError, match="deadlock"):
        launch(kernel(0, SOMETIMES_STUCK, SHARED), [], block=(64, 1, 1))


@pytest.mark.parametrize("preemptions", [0, 1, 3])
def test_the_search_ends_and_says_whether_it_was_complete(preemptions):
    with options(exhaustive=20_000, preemptions=preemptions):
        output = np.full((1, 2, 32), 0xDEAD, np.uint32)
        short = TILE_BARRIERS.replace("%r1, 8;", "%r1, 1;")
        launch(kernel(1, short, SHARED), [output], block=(64, 1, 1))
    found = exploration()
    assert found["complete"] and found["bounded"] and found["preemptions"] == preemptions
    assert found["schedules"] > preemptions


def test_more_preemptions_give_more_schedules():
    counts = []
    for preemptions in range(4):
        with options(exhaustive=20_000, preemptions=preemptions):
            launch(kernel(1, TILE_BARRIERS.replace("%r1, 8;", "%r1, 1;"), SHARED),
                   [np.zeros((1, 2, 32), np.uint32)], block=(64, 1, 1))  # fmt: skip
        counts.append(exploration()["schedules"])
    assert counts == sorted(set(counts))


def test_a_search_that_is_cut_short_says_so():
    with options(exhaustive=5, preemptions=3):
        pair(1)
    found = exploration()
    assert found["schedules"] == 5 and not found["complete"]


ENDLESS = "LOOP:\nadd.u32 %r1, %r1, 1;\nbra LOOP;"


@pytest.mark.parametrize("threads", [1, 3])
def test_an_endless_kernel_ends_in_time(threads):
    start = time.monotonic()
    with options(seconds=0.2, threads=threads), pytest.raises(EmulatorError, match=r"0\.2 seconds"):
        launch(kernel(0, ENDLESS), [], grid=(4, 1, 1), limit=1 << 60)
    assert time.monotonic() - start < 200


@pytest.mark.parametrize("threads", [1, 3])
def test_the_limit_of_instructions_counts_all_ctas(threads):
    with options(threads=threads):
        launch(kernel(0, "add.u32 %r1, %t, 1;"), [], grid=(200, 1, 1), limit=200 * 20)
        with pytest.raises(EmulatorError, match="limit of instructions"):
            launch(kernel(0, "add.u32 %r1, %t, 1;"), [], grid=(2000, 1, 1), limit=2001)


@pytest.mark.parametrize(
    ("grid", "reason"),
    [
        ((0x7FFFFFFF, 1, 1), "limit of instructions"),
        ((0x7FFFFFFF, 65535, 65535), "limit of instructions"),
        ((0x80000000, 1, 1), "at most 2147483647"),
        ((1, 65536, 1), "at most 65535"),
        ((1, 1, 0), "at least 1"),
    ],
)
def test_grids_that_cannot_end_do_not_start(grid, reason):
    with pytest.raises(EmulatorError, match=reason):
        launch(kernel(0, ""), [], grid=grid)


@pytest.mark.parametrize("block", [(0, 1, 1), (1 << 31, 2, 1), (1 << 16, 1 << 16, 1)])
def test_blocks_of_no_possible_size_are_refused(block):
    with pytest.raises(EmulatorError, match="at least 1 and at most 1024"):
        launch(kernel(0, ""), [], block=block)


def test_shared_memory_beyond_32_bits_is_refused():
    with pytest.raises(EmulatorError, match="bytes of shared memory"):
        launch(kernel(0, ""), [], shared=0xFFFFFFFF)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WARPLOOM_EMULATOR_SCHEDULE", "fair"),
        ("WARPLOOM_EMULATOR_SEED", "-1"),
        ("WARPLOOM_EMULATOR_SECONDS", "soon"),
        ("WARPLOOM_EMULATOR_THREADS", "2x"),
    ],
)
@pytest.mark.some(1)
def test_wrong_variables_of_the_environment_are_named(run_python, name, value):
    code = "from tests.emulator.run_ptx import kernel, launch\nlaunch(kernel(0, ''), [])"
    result = run_python(code, **{name: value, "PYTHONPATH": python_path()})
    assert result.returncode != 0 and f"{name} is '{value}'" in result.stderr


def test_ctrl_c_ends_a_launch(tmp_path):
    script = tmp_path / "endless.py"
    script.write_text(
        "import signal\n"
        "from tests.emulator.run_ptx import kernel, launch\n"
        # A shell starts what runs in its background with the signal ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "print('launching', flush=True)\n"
        "try:\n"
        f"    launch(kernel(0, {ENDLESS!r}), [], limit=1 << 60)\n"
        "except KeyboardInterrupt:\n"
        "    raise SystemExit(42)\n"
    )
    environ = {**os.environ, "PYTHONPATH": python_path()}
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, env=environ
    ) as process:
        assert process.stdout.readline() == b"launching\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(timeout=600) == 42
        finally:
            process.kill()

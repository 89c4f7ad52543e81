"""cp.async.mbarrier.arrive: with .noinc it is one of the phase's arrivals, without it is none."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.checks import changed, run_checked
from tests.emulator.run_ptx import EmulatorError, kernel, launch

THREADS = 64
MEMORY = f".shared .align 16 .b8 tile[{16 * THREADS}];\n.shared .align 8 .b64 full;"
#: Thread t copies 16 bytes, and reads those of thread 63 - t when the phase has completed.
COPY = """mov.u32 %r0, tile;
mov.u32 %r1, full;
setp.eq.u32 %q0, %t, 0;
@%q0 mbarrier.init.shared::cta.b64 [%r1], COUNT;
bar.sync 0;
mul.wide.u32 %d0, %t, 16;
add.u64 %d1, %d0, %p0;
shl.b32 %r2, %t, 4;
add.u32 %r3, %r0, %r2;
mov.u32 %r9, 0;
AGAIN:
cp.async.ca.shared.global [%r3], [%d1], 16;
// arrive
and.b32 %r10, %r9, 1;
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %q1, [%r1], %r10;
@!%q1 bra WAIT;
sub.u32 %r4, 1008, %r2;
add.u32 %r4, %r0, %r4;
ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r4];
add.u64 %d2, %d0, %p1;
st.global.v4.u32 [%d2], {%r5, %r6, %r7, %r8};
add.u32 %r9, %r9, 1;
setp.lt.u32 %q2, %r9, 3;
bar.sync 0;
@%q2 bra AGAIN;
"""
PLAIN = "cp.async.mbarrier.arrive.shared::cta.b64 [%r1];\n"
NOINC = PLAIN.replace("arrive.", "arrive.noinc.")
ARRIVE = "mbarrier.arrive.shared::cta.b64 %d3, [%r1];\n"


def run(arrivals: str, count: int, seed: int, rng: np.random.Generator):
    source = rng.integers(0, 1 << 32, 4 * THREADS, np.uint32)
    body = changed(COPY, "// arrive", arrivals).replace("COUNT", str(count))
    arrays = [source, np.full(4 * THREADS, 0xDEAD, np.uint32)]
    results, reports, message = run_checked(
        body, MEMORY, arrays, block=(THREADS, 1, 1), seed=seed, limit=1 << 18
    )
    expected = source.reshape(THREADS, 4)[::-1].ravel()
    return results, expected, reports, message


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("arrivals", "count"),
    [
        (PLAIN + ARRIVE, THREADS),
        (NOINC, THREADS),
        (2 * PLAIN + ARRIVE, THREADS),
        (PLAIN + NOINC, THREADS),
        (NOINC + ARRIVE, 2 * THREADS),
    ],
)
def test_the_phase_completes_when_the_copies_have(arrivals, count, seed, rng):
    results, expected, reports, message = run(arrivals, count, seed, rng)
    assert reports == [] and message == ""
    np.testing.assert_array_equal(results[1], expected)


@pytest.mark.parametrize("seed", range(4))
def test_without_it_the_copies_may_still_be_going_on(seed, rng):
    _, _, reports, _ = run(ARRIVE, THREADS, seed, rng)
    assert {report["kind"] for report in reports} <= {"data race", "uninitialised read"}
    assert "cp.async.ca.shared.global" in str(reports)


def test_it_is_no_arrival_of_the_phase(rng):
    """Nobody else arrives: the phase never completes."""
    *_, message = run(PLAIN, THREADS, 1, rng)
    assert "deadlock" in message and f"{THREADS} of {THREADS} arrivals" in message


def test_it_needs_an_mbarrier():
    body = "mov.u32 %r1, full;\nst.shared.b64 [%r1], 0;\n" + PLAIN
    with pytest.raises(EmulatorError, match=r"mbarrier.arrive on memory that"):
        launch(kernel(0, body, MEMORY), [])

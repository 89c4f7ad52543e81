"""Pipelines over mbarriers and clusters: each rule kept once and broken once."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.checks import changed, run_checked

SEEDS = (1, 2, 3, 4)
TRIPS = 5

# Warp 0 loads rows of 128 bytes into two slots, warp 1 reads them. %r20: trip, %r21: slot,
# %r22: parity of the slot's phase, %r23, %r24: its barriers, %r25: its data.
PIPELINE = """
mov.u32 %r1, buffer;
mov.u32 %r2, full;
mov.u32 %r3, empty;
mov.u32 %r20, 0;
mov.u32 %r26, 0;
setp.ne.u32 %q0, %t, 0;
setp.ge.u32 %q1, %t, 32;
and.b32 %r9, %t, 31;
@%q0 bra READY;
mbarrier.init.shared::cta.b64 [%r2], 1;
mbarrier.init.shared::cta.b64 [%r2+8], 1;
mbarrier.init.shared::cta.b64 [%r3], 32;
mbarrier.init.shared::cta.b64 [%r3+8], 32;
fence.mbarrier_init.release.cluster;
READY:
bar.sync 0;
@%q1 bra CONSUMER;
@%q0 bra END;
PRODUCE:
and.b32 %r21, %r20, 1;
shr.u32 %r22, %r20, 1;
and.b32 %r22, %r22, 1;
xor.b32 %r27, %r22, 1;
mad.lo.u32 %r23, %r21, 8, %r2;
mad.lo.u32 %r24, %r21, 8, %r3;
mad.lo.u32 %r25, %r21, 128, %r1;
WAIT_EMPTY:
mbarrier.try_wait.parity.shared::cta.b64 %q2, [%r24], %r27;
@!%q2 bra WAIT_EMPTY;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r23], 128;
mad.wide.u32 %d1, %r20, 128, %p0;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r25], [%d1], 128, [%r23];
add.u32 %r20, %r20, 1;
setp.lt.u32 %q3, %r20, 5;
@%q3 bra PRODUCE;
bra END;
CONSUMER:
and.b32 %r21, %r20, 1;
shr.u32 %r22, %r20, 1;
and.b32 %r22, %r22, 1;
mad.lo.u32 %r23, %r21, 8, %r2;
mad.lo.u32 %r24, %r21, 8, %r3;
mad.lo.u32 %r25, %r21, 128, %r1;
mad.lo.u32 %r25, %r9, 4, %r25;
WAIT_FULL:
mbarrier.try_wait.parity.shared::cta.b64 %q2, [%r23], %r22;
@!%q2 bra WAIT_FULL;
ld.shared.u32 %r10, [%r25];
mbarrier.arrive.shared::cta.b64 _, [%r24];
add.u32 %r26, %r26, %r10;
add.u32 %r20, %r20, 1;
setp.lt.u32 %q3, %r20, 5;
@%q3 bra CONSUMER;
mul.wide.u32 %d2, %r9, 4;
add.u64 %d2, %d2, %p1;
st.global.u32 [%d2], %r26;
END:
"""
PIPELINE_MEMORY = """
.shared .align 128 .b8 buffer[256];
.shared .align 128 .b8 full[128];
.shared .align 8 .b8 empty[16];
"""

# Each of two CTAs writes into the other one's memory, which reads it after the cluster barrier.
NEIGHBOURS = """
mov.u32 %r1, value;
mov.u32 %r2, %cluster_ctarank;
xor.b32 %r3, %r2, 1;
mapa.shared::cluster.u32 %r4, %r1, %r3;
mad.lo.u32 %r5, %t, 4, %r4;
mad.lo.u32 %r6, %r2, 100, %t;
barrier.cluster.arrive.relaxed.aligned;
barrier.cluster.wait.aligned;
st.shared::cluster.u32 [%r5], %r6;
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned;
mad.lo.u32 %r7, %t, 4, %r1;
ld.shared.u32 %r8, [%r7];
mad.lo.u32 %r9, %r2, 32, %t;
mul.wide.u32 %d1, %r9, 4;
add.u64 %d1, %d1, %p0;
st.global.u32 [%d1], %r8;
"""
NEIGHBOURS_MEMORY = ".shared .align 16 .b8 value[128];"

# Each of two CTAs reads the other one's memory.
READ_NEIGHBOUR = """
mov.u32 %r1, value;
mov.u32 %r2, %cluster_ctarank;
xor.b32 %r3, %r2, 1;
mad.lo.u32 %r5, %t, 4, %r1;
mad.lo.u32 %r6, %r2, 100, %t;
st.shared.u32 [%r5], %r6;
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned;
mapa.shared::cluster.u32 %r4, %r5, %r3;
ld.shared::cluster.u32 %r8, [%r4];
mad.lo.u32 %r9, %r2, 32, %t;
mul.wide.u32 %d1, %r9, 4;
add.u64 %d1, %d1, %p0;
st.global.u32 [%d1], %r8;
barrier.cluster.arrive.relaxed.aligned;
barrier.cluster.wait.aligned;
"""


def run_pipeline(body: str, seed: int):
    data = np.random.default_rng(seed).integers(0, 1 << 20, (TRIPS, 32), dtype=np.uint32)
    output = np.zeros(32, np.uint32)
    results, found, message = run_checked(
        body, PIPELINE_MEMORY, [data, output], block=(64, 1, 1), seed=seed
    )
    return data, results, found, message


@pytest.mark.parametrize("seed", range(1, 21))
def test_a_correct_pipeline_is_silent(seed):
    data, results, found, message = run_pipeline(PIPELINE, seed)
    assert found == [] and message == ""
    np.testing.assert_array_equal(results[1], data.sum(axis=0, dtype=np.uint32))


RELEASED_EARLY = """mbarrier.arrive.shared::cta.b64 _, [%r24];
ld.shared.u32 %r10, [%r25];
"""
RELEASED = """ld.shared.u32 %r10, [%r25];
mbarrier.arrive.shared::cta.b64 _, [%r24];
"""

OVERWRITTEN = "ld.shared.u32 %r10, [%r25];\nst.shared.u32 [%r25], %r10;"

# What is changed, and what the message says of it: one of these, as the schedule has it.
BROKEN_PIPELINES = [
    ("@!%q2 bra WAIT_EMPTY;", "", ["data race", "of 1 arrivals are pending in the phase"]),
    ("@!%q2 bra WAIT_FULL;", "", ["wait for its completion", "uninitialised read"]),
    (RELEASED, RELEASED_EARLY, ["let the readers arrive", "wait for its completion"]),
    ("fence.mbarrier_init.release.cluster;", "", ["was not published to the async proxy"]),
    ("READY:\nbar.sync 0;", "READY:", ["mbarrier init race", "it was never initialised"]),
    (".b64 _, [%r24];", ".relaxed.cta.b64 _, [%r24];", ["let the readers arrive"]),
    ("[%r25], [%d1], 128", "[%r2], [%d1], 128", ["where a live mbarrier lies"]),
    (RELEASED.split("\n")[0], OVERWRITTEN, ["missing proxy fence"]),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("old", "new", "parts"), BROKEN_PIPELINES)
def test_a_broken_pipeline_is_reported(old, new, parts, seed):
    _, _, found, message = run_pipeline(changed(PIPELINE, old, new), seed)
    texts = message + " ".join(report["text"] for report in found)
    assert any(part in texts for part in parts), texts


def run_cluster(body: str, declarations: str, seed: int):
    return run_checked(
        body,
        declarations,
        [np.zeros(64, np.uint32)],
        grid=(2, 1, 1),
        cluster=(2, 1, 1),
        seed=seed,
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("body", "declarations"),
    [(NEIGHBOURS, NEIGHBOURS_MEMORY), (READ_NEIGHBOUR, NEIGHBOURS_MEMORY)],
)
def test_correct_clusters_are_silent(body, declarations, seed):
    results, found, message = run_cluster(body, declarations, seed)
    assert found == [] and message == ""
    expected = np.concatenate([100 + np.arange(32), np.arange(32)])
    np.testing.assert_array_equal(results[0], expected)


BARRIER = "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"
LAST = "barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;\n"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("body", "old", "new", "kinds"),
    [
        (NEIGHBOURS, LAST, "", {"CTA not started"}),
        (NEIGHBOURS, BARRIER, "", {"data race", "uninitialised read"}),
        (NEIGHBOURS, "arrive.release", "arrive.relaxed", {"data race"}),
        (READ_NEIGHBOUR, "arrive.release", "arrive.relaxed", {"data race"}),
        (READ_NEIGHBOUR, LAST, "", {"early exit"}),
    ],
)
def test_broken_clusters_are_reported(body, old, new, kinds, seed):
    _, found, _ = run_cluster(changed(body, old, new), NEIGHBOURS_MEMORY, seed)
    assert kinds & {report["kind"] for report in found}, found


REUSE = """
mov.u32 %r1, full;
setp.eq.u32 %q0, %t, 0;
@%q0 mbarrier.init.shared::cta.b64 [%r1], 1;
bar.sync 0;
@%q0 mbarrier.arrive.shared::cta.b64 _, [%r1];
bar.sync 1;
@%q0 mbarrier.inval.shared::cta.b64 [%r1];
@%q0 mbarrier.init.shared::cta.b64 [%r1], 2;
st.global.u32 [%p0], 1;
"""


def test_a_live_mbarrier_is_not_initialised_again():
    memory = ".shared .align 8 .b64 full;"
    arrays = [np.zeros(1, np.uint32)]
    silent = changed(REUSE, "st.global.u32 [%p0], 1;", "")
    assert run_checked(silent, memory, arrays)[1] == []
    _, found, _ = run_checked(
        changed(silent, "@%q0 mbarrier.inval.shared::cta.b64 [%r1];", ""), memory, arrays
    )
    assert [report["kind"] for report in found] == ["mbarrier misuse"]
    assert "live" in found[0]["text"]


# Lane 0 of warp 1 waits for phase 0 while warp 0 completes two phases.
LAPPED = """
mov.u32 %r1, full;
setp.eq.u32 %q0, %t, 0;
setp.ge.u32 %q1, %t, 32;
@%q0 mbarrier.init.shared::cta.b64 [%r1], 1;
bar.sync 0;
@%q1 bra WAIT;
@!%q0 bra END;
nanosleep.u32 100;
nanosleep.u32 100;
nanosleep.u32 100;
nanosleep.u32 100;
mbarrier.arrive.shared::cta.b64 _, [%r1];
mbarrier.arrive.shared::cta.b64 _, [%r1];
mbarrier.arrive.shared::cta.b64 _, [%r1];
bra END;
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %q2, [%r1], 0;
@!%q2 bra WAIT;
END:
"""


def test_a_phase_that_passes_unseen_is_reported():
    found = []
    for seed in range(1, 9):
        _, more, _ = run_checked(
            LAPPED, ".shared .align 8 .b64 full;", [], block=(64, 1, 1), seed=seed
        )
        found += more
    assert "mbarrier phase lapped" in {report["kind"] for report in found}

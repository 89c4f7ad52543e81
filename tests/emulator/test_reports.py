"""Barriers that are counted wrongly, and launches that do not end: each is a report of its kind."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.emulator.run_ptx import DEFAULT_LIMIT, HEADER, kernel
from warploom import emulator

DECLARATIONS = ".shared .align 16 .b8 buffer[512];\n.shared .align 8 .b64 barrier;\n"
#: Thread 0 of warp 0 makes a barrier of one arrival.
START = """
mov.u32 %r1, barrier;
mov.u32 %r2, buffer;
setp.eq.u32 %q0, %t, 0;
@%q0 mbarrier.init.shared::cta.b64 [%r1], 1;
fence.mbarrier_init.release.cluster;
bar.sync 0;
"""
COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%p0], 256, [%r1];"
WAIT = """
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %q1, [%r1], 0;
@!%q1 bra WAIT;
"""
MBARRIERS = {
    "more expected than can be counted": (
        "@%q0 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 1048575;\n"
        "@%q0 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 1;",
        "mbarrier.expect_tx of 1 bytes moves the tx-count from 1048575 out of its range",
    ),
    "more complete than can be counted": (
        "@%q0 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 1048575;\n"
        "@%q0 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 16;",
        "mbarrier.complete_tx of 16 bytes moves the tx-count from -1048575 out of its range",
    ),
    "a copy that is one too many": (
        f"@%q0 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 1048575;\n@%q0 {COPY}{WAIT}",
        "mbarrier.complete_tx of 256 bytes moves the tx-count from -1048575 out of its range",
    ),
    "more arrivals at once": (
        "@%q0 mbarrier.arrive.shared::cta.b64 %d1, [%r1], 7;",
        "mbarrier.arrive with count 7, but 1 of 1 arrivals are pending",
    ),
    "more arrivals than are left": (
        "@%q0 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 16;\n"
        "@%q0 mbarrier.arrive.shared::cta.b64 %d1, [%r1];\n"
        "@%q0 mbarrier.arrive.shared::cta.b64 %d1, [%r1];",
        "mbarrier.arrive with count 1, but 0 of 1 arrivals are pending",
    ),
    "a phase completed without": (
        "@%q0 mbarrier.arrive_drop.noComplete.shared::cta.b64 %d1, [%r1], 1;",
        "mbarrier.arrive_drop.noComplete with count 1 would complete the phase",
    ),
    "never initialised": (
        "@%q0 mbarrier.arrive.shared::cta.b64 %d1, [%r2];",
        "mbarrier.arrive on memory that holds no mbarrier",
    ),
    "no arrivals": (
        "mov.u32 %r3, 0;\n@%q0 mbarrier.init.shared::cta.b64 [%r1], %r3;",
        "mbarrier.init with count 0: allowed are 1 to 1048575",
    ),
}
BARRIERS = {
    "other counts": (
        "mov.u32 %r3, 64;\nsetp.lt.u32 %q2, %t, 32;\n@%q2 mov.u32 %r3, 96;\nbar.sync 1, %r3;",
        r"barrier 1 is used with (64|96) threads and with (64|96) threads at the same time",
    ),
    "all, and a count": (
        "setp.lt.u32 %q2, %t, 32;\n@%q2 bra ALL;\nbar.sync 1, 64;\nbra.uni END;\nALL:\n"
        "bar.sync 1;\nEND:",
        r"barrier 1 is used with (all threads of the CTA|64 threads) and with",
    ),
    "no whole warps": ("mov.u32 %r3, 33;\nbar.sync 1, %r3;", "barrier 1 expects 33 threads"),
    "no threads": ("mov.u32 %r3, 0;\nbar.sync 1, %r3;", "barrier 1 is used with 0 threads"),
    "no such barrier": ("mov.u32 %r3, 16;\nbar.sync %r3;", "barrier 16 does not exist"),
    "twice in a cluster": (
        "barrier.cluster.arrive;\nbarrier.cluster.arrive;",
        "a thread arrives twice at the cluster barrier",
    ),
}
DEADLOCKS = {
    "more bytes than expected": (
        f"@%q0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 128;\n@%q0 {COPY}{WAIT}",
        "-128 bytes pending",
    ),
    "fewer bytes than expected": (
        f"@%q0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 512;\n@%q0 {COPY}{WAIT}",
        "256 bytes pending",
    ),
    "more threads than there are": ("bar.sync 1, 96;", "it expects 96 threads"),
}


def run(body: str, checks: bool) -> tuple[str, list[dict[str, str]]]:
    """The error and the reports of a launch of two warps."""
    ptx = HEADER.format(arch="sm_90a") + kernel(1, START + body, DECLARATIONS)
    emulator.clear_reports()
    with pytest.raises(emulator.EmulatorError) as caught:
        emulator.run(ptx, [np.zeros(64, "uint32")], block=64, checks=checks)
    return str(caught.value), emulator.reports()


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize(
    ("kind", "body", "part"),
    [
        *(("mbarrier misuse", *case) for case in MBARRIERS.values()),
        *(("barrier misuse", *case) for case in BARRIERS.values()),
        *(("deadlock", *case) for case in DEADLOCKS.values()),
    ],
    ids=[*MBARRIERS, *BARRIERS, *DEADLOCKS],
)
def test_wrong_counts_end_a_launch_and_are_reported(kind, body, part, checks):
    error, found = run(body, checks)
    assert [report["kind"] for report in found] == [kind]
    assert re.search(part, found[0]["text"]) and re.search(part, error)
    assert "kernel kernel" in found[0]["text"] and "PTX line" in found[0]["text"]


@pytest.mark.parametrize("checks", [True, False])
def test_a_kernel_that_does_not_end(checks):
    """It counts, so that it never repeats itself: nothing but the limit stops it."""
    emulator.set_instruction_limit(20_000)
    try:
        error, found = run("LOOP:\nadd.u32 %r5, %r5, 1;\nbra.uni LOOP;", checks)
    finally:
        emulator.set_instruction_limit(DEFAULT_LIMIT)
    assert [report["kind"] for report in found] == ["instruction limit"]
    assert "did not end within the limit of instructions (20000)" in error
    assert "PTX line" in found[0]["text"]

"""Warps that poll for what can no longer happen end in a report, and others that poll do not."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.emulator.run_ptx import EmulatorError, kernel, launch

#: Many more instructions than a report needs.
LIMIT = 1 << 26


def run(body: str, declarations: str = "", *, grid: int = 1, threads: int = 64, seed: int = 1):
    """The contents of an array of zeros after the kernel."""
    array = np.zeros(64, np.uint32)
    ptx = kernel(1, body, declarations)
    block = (threads, 1, 1)
    return launch(ptx, [array], grid=(grid, 1, 1), block=block, seed=seed, limit=LIMIT)[0]


BARRIER = """.shared .align 8 .b64 barrier;"""
INIT = """
setp.eq.u32 %q0, %t, 0;
@%q0 mbarrier.init.shared::cta.b64 [barrier], 2;
@%q0 fence.mbarrier_init.release.cluster;
bar.sync 0;
@%q0 mbarrier.arrive.shared::cta.b64 _, [barrier];
"""
#: Body, declarations, CTAs, and what the report says.
SPINNING = {
    "a flag of another CTA": (
        """POLL: ld.acquire.gpu.global.b32 %r1, [%p0+8];
        setp.eq.u32 %q1, %r1, 0; @%q1 bra POLL;""",
        "",
        2,
        "it looks at global .*offset 8 of the 256 bytes.*ld.acquire.gpu.global.b32",
    ),
    "a lock that nobody frees": (
        """POLL: atom.cas.b32 %r1, [%p0], 0, 1;
        setp.ne.u32 %q1, %r1, 0; @%q1 bra POLL;""",
        "",
        2,
        "it looks at global .*offset 0 of the 256 bytes.*atom.cas.b32",
    ),
    "sleeping between two looks": (
        """POLL: nanosleep.u32 20; ld.volatile.global.b32 %r1, [%p0];
        setp.eq.u32 %q1, %r1, 0; @%q1 bra POLL;""",
        "",
        1,
        "ld.volatile.global.b32",
    ),
    "a barrier that is tested": (
        INIT
        + """POLL: mbarrier.test_wait.parity.shared::cta.b64 %q1, [barrier], 0;
        @!%q1 bra POLL;""",
        BARRIER,
        1,
        "the mbarrier at shared 0x400 of rank 0 .*1 of 2 arrivals.*mbarrier.test_wait",
    ),
    "one warp that polls and one that waits": (
        INIT
        + """setp.lt.u32 %q2, %t, 32; @%q2 bra WAIT;
        POLL: ld.volatile.shared.b32 %r1, [barrier]; bra POLL;
        WAIT: mbarrier.try_wait.parity.shared::cta.b64 %q1, [barrier], 0; @!%q1 bra WAIT;""",
        BARRIER,
        1,
        "warp 1 repeats itself; it looks at shared(.|\n)*warp 0 lanes 0xffffffff waits for parity",
    ),
    "a loop without any access": ("POLL: bra POLL;", "", 1, "warp 0 repeats itself\n"),
}


@pytest.mark.parametrize("case", SPINNING)
def test_livelock_is_reported(case):
    body, declarations, grid, words = SPINNING[case]
    with pytest.raises(EmulatorError, match="livelock in kernel kernel: no warp can") as error:
        run(body, declarations, grid=grid)
    assert re.search(words, str(error.value)), error.value


#: Kernels that poll for long and end: something that another warp does late, or that a warp counts.
ENDING = {
    "a warp that computes for long": """setp.ge.u32 %q0, %t, 32; @%q0 bra POLL;
        mov.u32 %r2, 0;
        WORK: add.u32 %r2, %r2, 1; setp.lt.u32 %q1, %r2, 400000; @%q1 bra WORK;
        st.release.gpu.global.b32 [%p0], 1; bra DONE;
        POLL: ld.acquire.gpu.global.b32 %r1, [%p0];
        setp.eq.u32 %q2, %r1, 0; @%q2 bra POLL; DONE:""",
    "tries that are counted": """mov.u32 %r2, 0;
        POLL: ld.volatile.global.b32 %r1, [%p0+4]; add.u32 %r2, %r2, 1;
        setp.eq.u32 %q2, %r1, 0; setp.lt.and.u32 %q2, %r2, 100000, %q2; @%q2 bra POLL;
        st.relaxed.gpu.global.b32 [%p0], 1;""",
    "a counter in memory": """
        POLL: atom.add.u32 %r1, [%p0+4], 1; setp.lt.u32 %q2, %r1, 600000; @%q2 bra POLL;
        st.relaxed.gpu.global.b32 [%p0], 1;""",
    "a lock that goes from warp to warp": """mov.u32 %r2, 0; and.b32 %r4, %t, 31;
        setp.ne.u32 %q4, %r4, 0; @%q4 bra DONE;
        AGAIN: atom.acquire.gpu.cas.b32 %r1, [%p0+4], 0, 1;
        setp.ne.u32 %q1, %r1, 0; @%q1 bra AGAIN;
        atom.release.gpu.exch.b32 %r1, [%p0+4], 0; add.u32 %r2, %r2, 1;
        setp.lt.u32 %q2, %r2, 60000; @%q2 bra AGAIN;
        st.relaxed.gpu.global.b32 [%p0], 1; DONE:""",
}


@pytest.mark.parametrize("seed", (1, 2))
@pytest.mark.parametrize("case", ENDING)
def test_kernels_that_poll_and_end_are_not_reported(case, seed):
    assert run(ENDING[case], seed=seed)[0] == 1


def test_a_cluster_that_has_not_started_may_bring_what_others_wait_for():
    body = """mov.u32 %r3, %ctaid.x; setp.eq.u32 %q0, %r3, 9; @%q0 bra LAST;
    POLL: ld.acquire.gpu.global.b32 %r1, [%p0]; setp.eq.u32 %q2, %r1, 0; @%q2 bra POLL;
    bra DONE;
    LAST: st.release.gpu.global.b32 [%p0], 1; DONE:"""
    assert run(body, grid=10, threads=32)[0] == 1

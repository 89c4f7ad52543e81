"""Cooperative launches: all CTAs are live together and synchronise as cooperative groups do."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator import run_ptx
from tests.emulator.run_ptx import EmulatorError, kernel, launch
from warploom import emulator

#: ``cooperative_groups::this_grid().sync()`` as NVRTC compiles it, for CTAs along x.
GRID_SYNC = """
mov.u32 %r1, %envreg2;
mov.u32 %r2, %envreg1;
cvt.u64.u32 %d1, %r1;
cvt.u64.u32 %d2, %r2;
bfi.b64 %d1, %d2, %d1, 32, 32;
setp.ne.s64 %q0, %d1, 0;
@!%q0 trap;
barrier.sync 0;
setp.ne.u32 %q1, %t, 0;
@%q1 bra DONE_{0};
add.s64 %d1, %d1, 4;
mov.u32 %r3, %nctaid.x;
mov.u32 %r4, %ctaid.x;
setp.eq.u32 %q2, %r4, 0;
mov.u32 %r5, -2147483647;
sub.s32 %r5, %r5, %r3;
selp.b32 %r5, %r5, 1, %q2;
atom.add.release.gpu.u32 %r6, [%d1], %r5;
WAIT_{0}:
ld.acquire.gpu.u32 %r7, [%d1];
xor.b32 %r7, %r7, %r6;
setp.gt.s32 %q3, %r7, -1;
@%q3 bra WAIT_{0};
DONE_{0}:
barrier.sync 0;
"""

#: Each CTA publishes a number, then adds those of all others, twice.
SUM = (
    """
.reg .b32 %sum; .reg .b32 %i; .reg .b32 %n;
mov.u32 %r10, %ctaid.x;
mov.u32 %n, %nctaid.x;
mul.wide.u32 %d10, %r10, 4;
add.u64 %d11, %p0, %d10;
add.u64 %d12, %p1, %d10;
add.u32 %r11, %r10, 3;
st.global.u32 [%d11], %r11;
"""
    + GRID_SYNC.format(1)
    + """
mov.u32 %sum, 0;
mov.u32 %i, 0;
LOOP:
mul.wide.u32 %d13, %i, 4;
add.u64 %d13, %p0, %d13;
ld.volatile.global.u32 %r12, [%d13];
add.u32 %sum, %sum, %r12;
add.u32 %i, %i, 1;
setp.lt.u32 %q0, %i, %n;
@%q0 bra LOOP;
"""
    + GRID_SYNC.format(2)
    + """
st.global.u32 [%d11], 0;
st.global.u32 [%d12], %sum;
"""
)


@pytest.mark.parametrize("ctas", [1, 7, 132])
def test_grid_sync(ctas):
    arrays = [np.zeros(ctas, np.uint32), np.full(ctas, 0xDEAD, np.uint32)]
    options = {"grid": (ctas, 1, 1), "cooperative": True, "limit": 1 << 26}
    numbers, sums = launch(kernel(2, SUM), arrays, **options)
    np.testing.assert_array_equal(sums, sum(range(3, ctas + 3)))
    np.testing.assert_array_equal(numbers, 0)


def test_a_grid_that_does_not_fit():
    with pytest.raises(EmulatorError, match="has 9000 clusters and the device holds"):
        launch(kernel(0, ""), [], grid=(9000, 1, 1), cooperative=True)


def test_grid_sync_without_a_cooperative_launch():
    with pytest.raises(EmulatorError, match="executed trap"):
        launch(kernel(0, GRID_SYNC.format(0)), [], grid=(2, 1, 1))


@pytest.mark.parametrize("cooperative", [None, True])
def test_run_launches_what_synchronises_its_grid_cooperatively(cooperative):
    text = run_ptx.HEADER.replace("{arch}", "sm_90a") + kernel(2, SUM)
    arrays = [np.zeros(5, np.uint32), np.full(5, 0xDEAD, np.uint32)]
    _, sums = emulator.run(text, arrays, grid=5, cooperative=cooperative).outputs
    np.testing.assert_array_equal(sums, sum(range(3, 8)))
    with pytest.raises(emulator.EmulatorError, match="executed trap"):
        emulator.run(text, arrays, grid=5, cooperative=False)

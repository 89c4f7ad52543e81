"""wgmma: shared operands and registers, each rule kept once and broken once."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.checks import changed, run_checked

SEEDS = (1, 2)

MULTIPLY = (
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %d5, %d6, %q2, "
    "1, 1, 0, 0;"
)

# Ones times ones, twice: 16, doubled by an ordinary instruction, and 16 more. The first 256 bytes
# are B, 2048 bytes of A follow.
KERNEL = f"""
.reg .f32 %f<8>;
mov.u32 %r1, operands;
mov.u32 %r2, 0x3c003c00;
mad.lo.u32 %r3, %t, 16, %r1;
setp.lt.u32 %q0, %t, 16;
st.shared.v4.u32 [%r3], {{%r2, %r2, %r2, %r2}};
@%q0 st.shared.v4.u32 [%r3+2048], {{%r2, %r2, %r2, %r2}};
fence.proxy.async.shared::cta;
bar.sync 0;
shr.u32 %r4, %r1, 4;
cvt.u64.u32 %d5, %r4;
or.b64 %d6, %d5, 0x1000080000;
add.u64 %d5, %d6, 16;
setp.ne.u32 %q2, %r2, 0;
mov.f32 %f0, 0f00000000;
mov.f32 %f1, 0f00000000;
mov.f32 %f2, 0f00000000;
mov.f32 %f3, 0f00000000;
wgmma.fence.sync.aligned;
{MULTIPLY}
wgmma.commit_group.sync.aligned;
mov.f32 %f4, %f0;
wgmma.wait_group.sync.aligned 0;
add.f32 %f0, %f0, %f4;
add.f32 %f1, %f1, %f1;
add.f32 %f2, %f2, %f2;
add.f32 %f3, %f3, %f3;
// again
wgmma.fence.sync.aligned;
{MULTIPLY}
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
// done
st.shared.v4.u32 [%r3], {{%r2, %r2, %r2, %r2}};
mul.wide.u32 %d7, %t, 16;
add.u64 %d7, %d7, %p0;
st.global.v4.f32 [%d7], {{%f0, %f1, %f2, %f3}};
"""
MEMORY = ".shared .align 128 .b8 operands[2304];"


def run(body: str, seed: int):
    return run_checked(body, MEMORY, [np.zeros((128, 4), np.float32)], block=(128, 1, 1), seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_correct_kernel_is_silent(seed):
    results, found, message = run(KERNEL, seed)
    assert found == [] and message == ""
    np.testing.assert_array_equal(results[0], 48)


FIRST_FENCE = f"mov.f32 %f3, 0f00000000;\nwgmma.fence.sync.aligned;\n{MULTIPLY}"
WAIT = "wgmma.wait_group.sync.aligned 0;\n"

BROKEN = [
    ("fence.proxy.async.shared::cta;", "", ["missing proxy fence", "wgmma.mma_async"]),
    ("bar.sync 0;", "bar.warp.sync 0xffffffff;", ["data race", "wgmma.mma_async"]),
    (FIRST_FENCE, MULTIPLY, ["wgmma register race", "the first wgmma"]),
    ("// again\nwgmma.fence.sync.aligned;", "", ["wgmma register race", "add.f32"]),
    (f"{WAIT}// done\n", "", ["wgmma register race", "st.global.v4.f32"]),
    (f"{WAIT}// done\n", "", ["data race", "its completion"]),
    (f"{WAIT}add.f32", "add.f32", ["wgmma register race", "wgmma.wait_group"]),
    (f"{WAIT}add.f32", f"{WAIT.replace('0;', '1;')}add.f32", ["wgmma register race", "add.f32"]),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("old", "new", "parts"), BROKEN)
def test_a_broken_rule_is_reported(old, new, parts, seed):
    _, found, message = run(changed(KERNEL, old, new), seed)
    assert any(all(part in report["text"] for part in parts) for report in found), (found, message)

"""The report of a launch, against numbers that follow from the kernel by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.emulator.options import launch_reports, options
from tests.emulator.run_ptx import kernel, launch

SHARED = ".shared .align 128 .b8 buf[32768];\n"


def report(body: str, arrays: list[np.ndarray] | None = None, **keywords: Any) -> dict[str, Any]:
    """The report of a kernel with this body."""
    arrays = arrays or []
    with options(report=True):
        launch(kernel(len(arrays), body, SHARED), arrays, **keywords)
    (found,) = launch_reports()
    return found


def bank_conflicts(instruction: str, stride: int) -> tuple[int, int]:
    """Wavefronts, and how many there are too many, if lanes are ``stride`` bytes apart."""
    body = f"""
mov.u32 %r10, buf;
mad.lo.u32 %r11, %t, {stride}, %r10;
{instruction}
"""
    found = report(body)["bank_conflicts"]
    return found["wavefronts"], found["extra"]


@pytest.mark.parametrize("stride", [0, 4, 8, 12, 16, 36, 64, 128, 132])
def test_conflicts_of_words_follow_from_the_stride(stride):
    words = np.arange(32) * stride // 4
    expected = max(np.bincount(np.unique(words) % 32))
    for instruction in ("ld.shared.u32 %r1, [%r11];", "st.shared.u32 [%r11], %r10;"):
        assert bank_conflicts(instruction, stride) == (expected, expected - 1)


@pytest.mark.parametrize(
    ("instruction", "stride", "expected"),
    [
        ("ld.shared.v2.u32 {%r1, %r2}, [%r11];", 8, (2, 0)),
        ("ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%r11];", 16, (4, 0)),
        ("ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%r11];", 128, (32, 28)),
        ("ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%r11];", 144, (4, 0)),
        ("atom.shared.add.u32 %r1, [%r11], 1;", 0, (32, 31)),
        ("atom.shared.add.u32 %r1, [%r11], 1;", 4, (1, 0)),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r11];", 16, (4, 0)),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r11];", 128, (32, 28)),
        ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r11], {%r1};", 32, (2, 1)),
    ],
)
def test_conflicts_of_wider_accesses(instruction, stride, expected):
    assert bank_conflicts(instruction, stride) == expected


def test_the_worst_line_comes_first():
    body = """
mov.u32 %r10, buf;
mad.lo.u32 %r11, %t, 8, %r10;
mad.lo.u32 %r12, %t, 128, %r10;
st.shared.u32 [%r11], %t;
st.shared.u32 [%r12], %t;
"""
    worst = report(body)["bank_conflicts"]["worst"]
    assert [line["extra"] for line in worst] == [31, 1]
    assert "PTX line" in worst[0]["place"] and "st.shared.u32" in worst[0]["place"]


def test_bytes_of_each_space():
    body = """
mov.u32 %r10, buf;
mul.wide.u32 %d20, %t, 16;
add.u64 %d20, %d20, %p0;
ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d20];
st.global.u16 [%d20], %h1;
setp.lt.u32 %q0, %t, 5;
mad.lo.u32 %r11, %t, 8, %r10;
@%q0 st.shared.u64 [%r11], %d20;
cvta.shared.u64 %d1, %d2;
cvt.u64.u32 %d2, %r11;
cvta.shared.u64 %d1, %d2;
ld.u8 %r5, [%d1];
red.global.add.u32 [%p0], 1;
"""
    found = report(body, [np.zeros((64, 4), np.uint32)], block=(64, 1, 1))["bytes"]
    assert found == {
        "global": {"read": 64 * 16 + 64 * 4, "written": 64 * 2 + 64 * 4},
        "shared": {"read": 64, "written": 5 * 8},
    }


def test_bytes_of_copies():
    body = """
mov.u32 %r10, buf;
setp.ne.u32 %q0, %t, 0;
@%q0 bra REST;
mbarrier.init.shared::cta.b64 [%r10], 1;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], 256;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10+128], [%p0], 256, [%r10];
mov.u32 %r1, 0;
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %q1, [%r10], %r1;
@!%q1 bra WAIT;
REST:
mad.lo.u32 %r11, %t, 16, %r10;
mul.wide.u32 %d20, %t, 16;
add.u64 %d20, %d20, %p0;
cp.async.cg.shared.global [%r11+1024], [%d20], 16;
cp.async.wait_all;
"""
    found = report(body, [np.zeros((32, 4), np.uint32)])
    assert found["bytes"] == {
        "bulk": {"read": 256, "written": 256},
        "cp.async": {"read": 512, "written": 512},
    }
    assert found["waits"]["mbarrier"]["executed"] == 1
    assert found["waits"]["mbarrier"]["unready"] == 1


@pytest.mark.parametrize("threads", [32, 96])
def test_memory_of_another_cta_is_counted_apart(threads):
    body = """
mov.u32 %r10, buf;
mov.u32 %r1, %cluster_ctarank;
xor.b32 %r1, %r1, 1;
mapa.shared::cluster.u32 %r11, %r10, %r1;
ld.shared::cluster.u32 %r2, [%r11];
barrier.cluster.arrive;
barrier.cluster.wait;
"""
    found = report(body, grid=(2, 1, 1), cluster=(2, 1, 1), block=(threads, 1, 1))
    assert found["bytes"] == {"distributed shared": {"read": 2 * threads * 4, "written": 0}}
    assert found["waits"]["cluster barrier"]["executed"] == 2 * threads // 32


def test_instructions_by_class_and_warp():
    body = """
setp.ge.u32 %q0, %t, 32;
@%q0 bra END;
cvt.rn.f32.u32 %r1, %t;
add.f32 %r1, %r1, %r1;
mul.f32 %r1, %r1, %r1;
shl.b32 %r2, %t, 1;
END:
"""
    found = report(body, grid=(3, 1, 1), block=(64, 1, 1))["instructions"]
    # mov of %tid.x, setp, bra and ret in both warps, the rest in one.
    assert found["by_warp"] == [3 * 8, 3 * 4]
    assert found["total"] == 3 * 12
    assert found["by_class"] == {
        "integer": 3 * 3, "float": 3 * 2, "convert": 3, "move": 3 * 2, "control": 3 * 4,
    }  # fmt: skip


def test_counts_of_mmas():
    body = """
mov.b32 %r1, 0;
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r2, %r3, %r4, %r5}, {%r1, %r1, %r1, %r1},
  {%r1, %r1}, {%r1, %r1, %r1, %r1};
"""
    found = report(body, block=(64, 1, 1))["tensor"]
    assert found == {"mma f16": {"instructions": 2, "flops": 2 * 2 * 16 * 8 * 16}}


def test_barriers_count_who_had_to_wait():
    found = report("bar.sync 0;", block=(128, 1, 1))["waits"]
    assert found == {"barrier": {"executed": 4, "unready": 3}}


def test_no_report_unless_asked_for():
    with options():
        launch(kernel(0, ""), [])
    assert launch_reports() == []

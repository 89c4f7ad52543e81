"""Lanes of one warp that exchange data through shared memory need bar.warp.sync."""

from __future__ import annotations

import re

import numpy as np
import pytest

from emulator_checks import run_checked

ROW = ".shared .align 16 .b32 row[64];"
#: Lane t writes word t and reads word t ^ 1 of its warp.
PLACES = """mov.u32 %r0, row; shl.b32 %r1, %t, 2; add.u32 %r1, %r0, %r1; xor.b32 %r2, %r1, 4;
mul.wide.u32 %d0, %t, 4; add.u64 %d0, %p0, %d0; ld.global.b32 %r3, [%d0];"""
RESULT = "st.global.b32 [%d0], %r4;"
WRITE, READ = "st.shared.b32 [%r1], %r3;", "ld.shared.b32 %r4, [%r2];"

ORDERED = {
    "bar.warp.sync": "bar.warp.sync 0xffffffff;",
    "bar.sync": "bar.sync 0;",
    "the cluster barrier": "barrier.cluster.arrive; barrier.cluster.wait;",
}
#: These meet, and order nothing (PTX ISA, "shfl.sync", "vote.sync").
UNORDERED = {
    "nothing": "",
    "shfl.sync": "shfl.sync.bfly.b32 %r5, %r3, 0, 31, 0xffffffff;",
    "vote.sync": "vote.sync.ballot.b32 %r5, 1, 0xffffffff;",
    "redux.sync": "redux.sync.add.u32 %r5, %r3, 0xffffffff;",
}


def run(body: str, rng: np.random.Generator):
    array = rng.integers(0, 1 << 32, 64, np.uint32)
    results, reports, message = run_checked(PLACES + body + RESULT, ROW, [array], block=(64, 1, 1))
    return array, results, reports, message


@pytest.mark.parametrize("case", ORDERED)
def test_ordered_exchanges_are_silent(rng, case):
    order = ORDERED[case]
    again = f"{order} add.u32 %r3, %r4, 1; {WRITE} {order} {READ}"
    array, (got,), reports, _ = run(WRITE + order + READ + again, rng)
    assert reports == []
    np.testing.assert_array_equal(got, array + np.uint32(1))


@pytest.mark.parametrize("case", UNORDERED)
def test_a_read_of_what_another_lane_has_written_is_reported(rng, case):
    _, _, reports, message = run(WRITE + UNORDERED[case] + READ, rng)
    assert [report["kind"] for report in reports] == ["data race"]
    found = re.search(
        r"warp (\d) lane 0 reads shared 0x\w+ \(row \+ 0x(\w+)\), which PTX line \d+: "
        r"st.shared.b32 of CTA \(0, 0, 0\) warp (\d) lane 1 writes, and nothing orders the two "
        r"lanes of one warp. Fix: bar.warp.sync",
        message,
    )
    assert found, message
    reader, offset, writer = (int(group, 16) for group in found.groups())
    assert reader == writer and offset == 128 * reader + 4


SILENT = {
    "its own word": "ld.shared.b32 %r4, [%r1]; st.shared.b32 [%r1], 0; ld.shared.b32 %r5, [%r1];",
    "bytes side by side": """shl.b32 %r6, %t, 1; add.u32 %r6, %r0, %r6; bar.sync 0;
        st.shared.b16 [%r6], %h0; ld.shared.b16 %h1, [%r6]; mov.u32 %r4, 0;""",
    "strong accesses": """st.relaxed.cta.shared.b32 [%r1], %r3;
        ld.relaxed.cta.shared.b32 %r4, [%r2];""",
    "a write after a shuffle of what was read": """bar.warp.sync 0xffffffff;
        ld.shared.b32 %r4, [%r2]; shfl.sync.bfly.b32 %r5, %r4, 1, 31, 0xffffffff;
        st.shared.b32 [%r1], %r5;""",
    "one value written by all": """shr.u32 %r6, %t, 5; shl.b32 %r6, %r6, 2; add.u32 %r6, %r0, %r6;
        st.shared.b32 [%r6], 7; ld.shared.b32 %r4, [%r6];""",
    "one word read by all": """bar.sync 0; ld.shared.b32 %r4, [row]; ld.shared.b32 %r5, [row+4];""",
}


@pytest.mark.parametrize("case", SILENT)
def test_what_is_no_exchange_is_silent(rng, case):
    start = "mov.b16 %h0, 0; " + ("" if "strong" in case or "one value" in case else WRITE)
    assert run(start + SILENT[case], rng)[2] == []

"""Lanes of one warp that exchange data through shared memory need bar.warp.sync."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.emulator.checks import run_checked

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


#: Lane t reads what lane t ^ 1 has written; the members of each half are the lanes of that half.
HALVES = "mov.u32 %r6, 0xffff;\nsetp.ge.u32 %q2, %t, 16;\nand.b32 %r7, %t, 31;\n"
HALVES += "setp.ge.u32 %q2, %r7, 16;\n@%q2 mov.u32 %r6, 0xffff0000;\n"


def test_a_barrier_orders_its_members(rng):
    """Neighbours are in one half; the lanes of the other half are not."""
    half = HALVES + "bar.warp.sync %r6;"
    array, (got,), reports, _ = run(WRITE + half + READ, rng)
    assert reports == []
    np.testing.assert_array_equal(got, array.reshape(-1, 2)[:, ::-1].ravel())
    far = "xor.b32 %r2, %r2, 64;\n"
    _, _, reports, _ = run(WRITE + half + far + READ, rng)
    assert [report["kind"] for report in reports] == ["data race"]
    # Two steps reach all lanes: within the halves, then between lanes t and t ^ 16.
    pairs = "shl.b32 %r6, 0x10001, %r8;\nbar.warp.sync %r6;"
    two = half + "and.b32 %r8, %t, 15;\n" + pairs + far
    _, _, reports, message = run(WRITE + two + READ, rng)
    assert reports == [], message


#: A matrix of 8 by 8 halves at the end of the memory; lane t stores halves 2 t and 2 t + 1 of it.
MATRIX = """shl.b32 %r8, %t, 2;
and.b32 %r8, %r8, 127;
add.u32 %r8, %r0, %r8;
xor.b32 %r8, %r8, {0};
and.b32 %r9, %t, 7;
shl.b32 %r9, %r9, 4;
add.u32 %r9, %r0, %r9;
setp.ge.u32 %q3, %t, 32;
@%q3 bra END;
st.shared.b32 [%r8], %r3;
"""
LOAD_MATRIX = "ldmatrix.sync.aligned.m8n8.x1{0}.shared.b16 {{%r4}}, [%r9];\nEND:\n"
STORE_MATRIX = "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r9], {%r3};\n"


@pytest.mark.parametrize("trans", ["", ".trans"])
def test_ldmatrix_reads_what_other_lanes_have_written(rng, trans):
    load = LOAD_MATRIX.format(trans)
    _, _, reports, message = run(MATRIX.format(4) + load, rng)
    assert [report["kind"] for report in reports] == ["data race"]
    assert "ldmatrix" in message and "Fix: bar.warp.sync" in message
    assert run(MATRIX.format(4) + "bar.warp.sync -1;\n" + load, rng)[2] == []


def test_a_lane_gets_its_own_words_from_ldmatrix(rng):
    assert run(MATRIX.format(0) + LOAD_MATRIX.format(""), rng)[2] == []


def test_what_stmatrix_writes_is_of_the_lanes_that_hold_it(rng):
    matrix = MATRIX.format(0).replace("st.shared.b32 [%r8], %r3;", STORE_MATRIX)
    own, other = "ld.shared.b32 %r4, [%r8];\nEND:\n", "xor.b32 %r8, %r8, 4;\n"
    assert run(matrix + own, rng)[2] == []
    assert [one["kind"] for one in run(matrix + other + own, rng)[2]] == ["data race"]
    assert run(matrix + "bar.warp.sync -1;\n" + other + own, rng)[2] == []


def test_a_volatile_access_orders_nothing(rng):
    """Between a weak write and a weak read of another word."""
    volatile = "st.volatile.shared.b32 [%r1+128], %r3;\nld.volatile.shared.b32 %r5, [%r1+128];\n"
    _, _, reports, _ = run(
        "setp.ge.u32 %q0, %t, 32;\n@%q0 bra END;\n" + WRITE + volatile + READ + "\nEND:\n", rng
    )
    assert [report["kind"] for report in reports] == ["data race"]

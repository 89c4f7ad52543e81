"""``tcgen05.alloc``, ``dealloc`` and ``relinquish_alloc_permit``."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.checks import changed, run_checked
from tests.emulator.options import options
from tests.emulator.run_ptx import EmulatorError, kernel, launch
from tests.emulator.tcgen05 import DECLARATIONS, address, allocate, cluster_sync, free

RELINQUISH = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"
LOAD = "ld.shared.b32 %a, [slot];"


def run(body: str, arrays: list[np.ndarray] | None = None, **geometry: object) -> list[np.ndarray]:
    source = kernel(len(arrays or []), body, DECLARATIONS)
    return launch(source, arrays or [], arch="sm_100a", **geometry)


def test_allocations_that_are_live_together_do_not_overlap(rng):
    sizes = sorted((2 ** rng.integers(5, 8, 4)).tolist(), reverse=True)
    body = [address("%p0", 4 * len(sizes))]
    for i, size in enumerate(sizes):
        body += [
            allocate(size),
            f"ld.shared.b32 %v{i}, [slot];",
            f"st.global.b32 [%x+{4 * i}], %v{i};",
        ]
    body += [free(size, address=f"%v{i}") for i, size in enumerate(sizes)]
    (got,) = run("\n".join(body), [np.full((32, len(sizes)), 0xDEAD, np.uint32)])
    assert (got == got[0]).all()
    columns = [c for at, size in zip(got[0], sizes, strict=True) for c in range(at, at + size)]
    assert len(set(columns)) == sum(sizes)
    assert max(columns) < 512


@pytest.mark.parametrize("seed", range(8))
def test_who_finds_no_room_waits_until_another_warp_frees_its_columns(seed):
    body = f"""
    setp.lt.u32 %q7, %t, 32;
    mov.u32 %r3, slot; shr.u32 %r4, %t, 5; mad.lo.u32 %r3, %r4, 4, %r3;
    {allocate(512, slot="%r3")}
    ld.shared.b32 %a, [%r3];
    tcgen05.st.sync.aligned.32x32b.x1.b32 [%a], %t;
    tcgen05.wait::st.sync.aligned;
    tcgen05.ld.sync.aligned.32x32b.x1.b32 %v0, [%a];
    tcgen05.wait::ld.sync.aligned;
    {free(512)}
    {address("%p0", 4)}
    st.global.b32 [%x], %v0;"""
    source = DECLARATIONS.replace(".b32 slot;", ".b8 slot[16];")
    (got,) = launch(
        kernel(1, body, source),
        [np.zeros(128, np.uint32)],
        arch="sm_100a",
        block=(128, 1, 1),
        seed=seed,
    )
    np.testing.assert_array_equal(got, np.arange(128))


def test_a_deadlock_tells_who_holds_the_columns():
    body = f"""setp.lt.u32 %q7, %t, 32;
    @!%q7 bar.sync 0;
    {allocate(512)}
    @%q7 bar.sync 0;"""
    message = (
        "deadlock in kernel kernel.* warp 1 .* waits for columns of tensor memory; the CTA holds "
        r"columns 0 to 511 \(warp 0, PTX line"
    )
    with pytest.raises(EmulatorError, match=f"(?s){message}"):
        run(body, block=(64, 1, 1))


# Warp 0 frees what warp 1 has stored; then warp 1 loads it again.
USE_AFTER_FREE = f"""
setp.lt.u32 %q7, %t, 32;
@!%q7 bra HAVE;
{allocate(64)}
HAVE:
bar.sync 0;
ld.shared.b32 %a, [slot];
@%q7 bra FREE;
tcgen05.st.sync.aligned.32x32b.x1.b32 [%a], %t;
tcgen05.wait::st.sync.aligned;
FREE:
bar.sync 0;
@!%q7 bra FREED;
{free(64)}
FREED:
bar.sync 0; // after the dealloc
@%q7 bra DONE;
tcgen05.ld.sync.aligned.32x32b.x1.b32 %v0, [%a];
tcgen05.wait::ld.sync.aligned;
{address("%p0", 4)}
st.global.b32 [%x], %v0;
DONE:
"""


def test_columns_that_were_freed_keep_their_data():
    with options(checks=False):
        (got,) = run(USE_AFTER_FREE, [np.full(64, 0xDEAD, np.uint32)], block=(64, 1, 1))
    np.testing.assert_array_equal(got[32:], np.arange(32, 64))


@pytest.mark.parametrize("ordered", [True, False])
def test_checks_report_the_use_of_columns_that_were_freed(ordered):
    body = USE_AFTER_FREE
    if not ordered:
        body = changed(body, "bar.sync 0; // after the dealloc", "")
    _, found, message = run_checked(
        body, DECLARATIONS, [np.zeros(64, np.uint32)], arch="sm_100a", block=(64, 1, 1)
    )
    if ordered:
        assert "not all allocated; the CTA holds no columns" in message
    else:
        assert any("tcgen05.dealloc" in str(report) for report in found), message


def test_columns_that_nobody_allocated_cannot_be_read():
    body = f"{allocate(32)}\n{LOAD}\ntcgen05.ld.sync.aligned.32x32b.x1.b32 %v0, [%a+32];"
    with pytest.raises(EmulatorError, match=r"1 columns from column 32 .* not all allocated"):
        run(body + free(32))


@pytest.mark.parametrize("columns", [0, 16, 48, 33, 1024])
def test_numbers_of_columns_that_are_not_allowed(columns):
    message = f"alloc of {columns} columns: their number must be a power of two from 32 to 512"
    with pytest.raises(EmulatorError, match=message):
        run(allocate(columns))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (allocate(64), r"exits and holds columns 0 to 63 \(warp 0, PTX line \d+\)"),
        (allocate(64) + LOAD + free(32), "dealloc of 32 columns .* allocated 64 columns"),
        (allocate(64) + LOAD + free(64, address="32"), "0x20, where no allocation begins"),
        (allocate(64) + LOAD + free(64) + free(64), "no allocation begins; the CTA holds no col"),
        (RELINQUISH + allocate(64), "has given up the right to allocate .*PTX line"),
        (allocate(64) + allocate(128), "alloc of 128 columns after one of 64"),
        (allocate(32, group=2), "cta_group::2 in the CTA of rank 0 of a cluster of 1"),
        (f"setp.lt.u32 %q1, %t, 16;\n@%q1 {allocate(32)}", "deadlock|all 32 lanes"),
        ("mov.u32 %r1, %t;\n" + allocate(32).replace("32;", "%r1;"), "different numbers"),
    ],
)
def test_misuse(body, message):
    with pytest.raises(EmulatorError, match=message):
        run(body)


def pair(body: str, **geometry: object) -> list[np.ndarray]:
    return run(body, grid=(2, 1, 1), cluster=(2, 1, 1), **geometry)


@pytest.mark.parametrize("seed", range(4))
def test_a_pair_gets_the_same_columns_in_both(seed):
    body = f"""mov.u32 %r5, %cluster_ctarank; setp.eq.u32 %q1, %r5, 0;
    {allocate(128, group=2)}
    ld.shared.b32 %v0, [slot];
    {allocate(64, group=2)}
    ld.shared.b32 %v1, [slot];
    {free(128, group=2, address="%v0")}
    {allocate(64, group=2)}
    ld.shared.b32 %v2, [slot];
    {free(64, group=2, address="%v1")}
    {free(64, group=2, address="%v2")}
    {cluster_sync()}
    mov.u32 %r0, %cluster_ctarank; mad.lo.u32 %r0, %r0, 32, %t;
    mul.wide.u32 %x, %r0, 12;\nadd.u64 %x, %x, %p0;
    st.global.b32 [%x], %v0; st.global.b32 [%x+4], %v1; st.global.b32 [%x+8], %v2;"""
    source = kernel(1, body, DECLARATIONS)
    (got,) = launch(
        source,
        [np.full((64, 3), 0xDEAD, np.uint32)],
        arch="sm_100a",
        grid=(2, 1, 1),
        cluster=(2, 1, 1),
        seed=seed,
    )
    np.testing.assert_array_equal(got, np.tile([0, 128, 0], (64, 1)))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            f"mov.u32 %r5, %cluster_ctarank; shl.b32 %r5, 32, %r5;\n{allocate(0, group=2)}".replace(
                "], 0;", "], %r5;"
            ),
            "ask for 32 and 64 columns|ask for 64 and 32 columns",
        ),
        (
            "mov.u32 %r5, %cluster_ctarank; setp.eq.u32 %q1, %r5, 0;\n@%q1 bra HERE;\nret;\nHERE:\n"
            + allocate(64, group=2),
            r"(?s)deadlock.*CTA \(0, 0, 0\).*holds no columns\), and for the tcgen05.alloc of",
        ),
        (
            allocate(64, group=2) + LOAD + free(64),
            "dealloc of 64 columns at 0x0 with cta_group::1; it allocated 64 columns there with "
            "cta_group::2",
        ),
    ],
)
def test_misuse_by_a_pair(body, message):
    with pytest.raises(EmulatorError, match=message):
        pair(body)

"""Tensor copies of four rows that have a coordinate each: tile::gather4 and tile::scatter4."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.ptx_driver import DriverError, TensorMap, emulator
from tests.emulator.run_ptx import EmulatorError, kernel, load
from warploom.runtime.emulator_libraries import find_libraries

ROWS, COLUMNS, WIDTH = 40, 96, 32
GATHER = "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes"
SCATTER = "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group"

#: Gathers four rows of the first array, returns shared memory in the second one and scatters the
#: rows over the third.
KERNEL = f"""
.visible .entry kernel(.param .align 64 .b8 from[128], .param .align 64 .b8 to[128],
                       .param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3)
{{
.shared .align 1024 .b8 buffer[256];
.shared .align 8 .b64 barrier;
.reg .b32 %r<12>; .reg .b64 %d<8>; .reg .pred %q<2>;
.reg .b32 %t; .reg .b32 %buffer; .reg .b32 %barrier;
mov.u32 %t, %tid.x;
mov.u32 %buffer, buffer;
mov.u32 %barrier, barrier;
setp.ne.u32 %q0, %t, 0;
ld.param.u64 %d1, [p1];
ld.param.u64 %d2, [p3];
mov.b64 %d4, from;
mov.b64 %d5, to;
ld.global.v4.b32 {{%r1, %r2, %r3, %r4}}, [%d2];
ld.global.v4.b32 {{%r5, %r6, %r7, %r8}}, [%d2+16];
ld.global.b32 %r9, [%d2+32];
@%q0 bra READY;
mbarrier.init.shared.b64 [%barrier], 1;
fence.proxy.async.shared::cta;
mbarrier.arrive.expect_tx.shared.b64 %d3, [%barrier], 256;
{GATHER} [%buffer], [%d4, {{%r9, %r1, %r2, %r3, %r4}}], [%barrier];
READY:
bar.sync 0;
POLL:
mbarrier.try_wait.parity.shared.b64 %q1, [%barrier], 0;
@!%q1 bra POLL;
shl.b32 %r10, %t, 3;
cvt.u64.u32 %d3, %r10;
add.u64 %d3, %d3, %d1;
add.u32 %r10, %r10, %buffer;
ld.shared.b64 %d6, [%r10];
st.global.b64 [%d3], %d6;
@%q0 bra END;
{SCATTER} [%d5, {{%r9, %r5, %r6, %r7, %r8}}], [%buffer];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
END:
ret;
}}
"""


def run(rows: list[int], targets: list[int], column: int, swizzle: int, box_rows: int = 1):
    """The tensor, shared memory after the gather and the tensor that was scattered to."""
    driver = emulator(str(find_libraries()[0]))
    tensor = np.arange(ROWS * COLUMNS, dtype=np.uint16).reshape(ROWS, COLUMNS)
    arrays = [
        tensor,
        np.zeros((4, WIDTH), np.uint16),
        np.zeros_like(tensor),
        np.array([*rows, *targets, column], np.int32),
    ]
    maps = [
        TensorMap(buffer, 1, (COLUMNS, ROWS), (2 * COLUMNS,), (WIDTH, box_rows), (1, 1), swizzle)
        for buffer in (0, 2)
    ]
    module = driver.load(KERNEL)
    try:
        results = driver.launch(module, "kernel", arrays, maps=maps)
    finally:
        driver.unload(module)
    return tensor, results[1], results[2]


def box(tensor: np.ndarray, rows: list[int], column: int) -> np.ndarray:
    """What a gather brings: zeros for what is out of bounds."""
    padded = np.zeros((ROWS, COLUMNS + 2 * WIDTH), np.uint16)
    padded[:, WIDTH:-WIDTH] = tensor
    inside = [0 <= row < ROWS for row in rows]
    picked = padded[np.where(inside, rows, 0), WIDTH + column : 2 * WIDTH + column]
    return np.where(np.array(inside)[:, None], picked, 0)


@pytest.mark.parametrize(
    ("rows", "column"), [([7, 3, 3, 39], 32), ([0, -1, 40, 5], 80), ([1, 2, 3, 4], -16)]
)
def test_rows_are_gathered_and_scattered(rows, column):
    targets = [20, 11, 0, 38]
    tensor, gathered, scattered = run(rows, targets, column, swizzle=0)
    expected = box(tensor, rows, column)
    np.testing.assert_array_equal(gathered, expected)
    target = np.zeros((ROWS, COLUMNS + 2 * WIDTH), np.uint16)
    target[targets, WIDTH + column : 2 * WIDTH + column] = expected
    np.testing.assert_array_equal(scattered, target[:, WIDTH:-WIDTH])


def test_rows_are_swizzled_like_those_of_a_tile():
    rows = [9, 30, 2, 17]
    tensor, gathered, scattered = run(rows, rows, 16, swizzle=2)
    # 64 bytes a row: bits 4 and 5 of an address are those above bit 7, xor-ed.
    chunks = box(tensor, rows, 16).reshape(16, 8)
    address = np.arange(16)
    np.testing.assert_array_equal(gathered.reshape(16, 8)[address ^ (address >> 3 & 3)], chunks)
    np.testing.assert_array_equal(scattered[rows, 16:48], tensor[rows, 16:48])


def test_boxes_of_several_rows():
    with pytest.raises(DriverError, match=r"boxes of one row; this one has 2 dimensions and 4"):
        run([0, 1, 2, 3], [0, 1, 2, 3], 0, swizzle=0, box_rows=4)


@pytest.mark.parametrize(
    "instruction",
    [
        f"{GATHER} [%r1], [%d1, {{%r1, %r2}}], [%r3]",
        f"{GATHER.replace('2d', '3d')} [%r1], [%d1, {{%r1, %r2, %r3, %r4, %r5}}], [%r3]",
        f"{SCATTER} [%d1, {{%r1, %r2, %r3, %r4}}], [%r1]",
    ],
)
def test_other_numbers_of_coordinates(instruction):
    with pytest.raises(EmulatorError, match=r"four rows are for \.2d"):
        load(kernel(0, f"{instruction};"))

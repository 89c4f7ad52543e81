"""``tcgen05.ld`` and ``tcgen05.st``: where the registers of a warp lie in tensor memory."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.run_ptx import EmulatorError, kernel, launch
from tests.emulator.tcgen05 import (
    DECLARATIONS,
    address,
    own_quarter,
    random_words,
    read_all,
    vector,
    with_memory,
    write_all,
)

#: Columns and registers of a thread for one repetition.
SHAPES = {
    "16x64b": (2, 1),
    "16x128b": (4, 2),
    "16x256b": (8, 4),
    "32x32b": (1, 1),
    "16x32bx2": (1, 1),
}
CASES = [
    (shape, 1 << power)
    for shape, (_, registers) in SHAPES.items()
    for power in range(8)
    if registers << power <= 128
]


def cell(shape: str, thread: int, register: int, split: int) -> tuple[int, int]:
    """Row and column of a register, as the figures of the PTX ISA have it."""
    columns, registers = SHAPES[shape]
    repetition, index = divmod(register, registers)
    row, column = {
        "16x64b": (thread // 4 + 8 * (thread % 2), thread // 2 % 2),
        "16x128b": (thread // 4 + 8 * index, thread % 4),
        "16x256b": (thread // 4 + 8 * (index // 2), 2 * (thread % 4) + index % 2),
        "32x32b": (thread, 0),
        "16x32bx2": (thread % 16, split * (thread // 16)),
    }[shape]
    return row, column + repetition * columns


def run(arrays: list[np.ndarray], body: str, **options: object) -> list[np.ndarray]:
    source = kernel(len(arrays), with_memory(body), DECLARATIONS)
    return launch(source, arrays, arch="sm_100a", **{"block": (128, 1, 1), **options})


def touched(shape: str, repetitions: int, split: int, halves: bool) -> dict:
    """Places of one warp: (row, column) -> (thread, register, which half or 0)."""
    result = {}
    for thread in range(32):
        for register in range(SHAPES[shape][1] * repetitions):
            if not halves:
                result[cell(shape, thread, register, split)] = (thread, register, 0)
                continue
            row, column = cell(shape, thread, register, 0)
            base = split * (thread // 16) if shape == "16x32bx2" else 0
            for half in range(2):
                result[row, base + 2 * column + half] = (thread, register, half)
    return result


def split_of(shape: str, repetitions: int, halves: bool) -> int:
    """An offset of the second half: it leaves a gap, if there is room for one."""
    columns = SHAPES[shape][0] * repetitions * (2 if halves else 1)
    return columns if columns > 128 else columns + 3


def extent(places: dict) -> tuple[int, int]:
    """Columns that hold the places and, if there is room, others; and a first column."""
    columns = 1 + max(column for _, column in places)
    first = 1 if columns < 512 else 0
    return -(-(columns + first) // 32) * 32, first


@pytest.mark.parametrize("halves", [False, True], ids=["whole", "halves"])
@pytest.mark.parametrize(("shape", "repetitions"), CASES)
def test_load_reads_the_cells_of_the_figures(shape, repetitions, halves, rng):
    split = split_of(shape, repetitions, halves)
    places = touched(shape, repetitions, split, halves)
    columns, _ = extent(places)
    memory = random_words(rng, 128, columns)
    count = SHAPES[shape][1] * repetitions
    lane = 0 if shape == "32x32b" else 16
    offset = f", {split}" if shape == "16x32bx2" else ""
    pack = ".pack::16b" if halves else ""
    body = f"""{write_all("%p0", columns)}
    {own_quarter(lane)}
    tcgen05.ld.sync.aligned.{shape}.x{repetitions}{pack}.b32 {vector("v", count)}, [%r1]{offset};
    tcgen05.wait::ld.sync.aligned;
    {address("%p1", 4 * count)}
    """ + "\n".join(f"st.global.b32 [%x+{4 * i}], %v{i};" for i in range(count))
    _, got = run([memory, np.zeros((128, count), np.uint32)], body)
    expected = np.zeros((4, 32, count), np.uint32)
    for (row, column), (thread, register, half) in places.items():
        value = memory.reshape(4, 32, columns)[:, lane + row, column]
        if halves:
            value = (value & 0xFFFF) << np.uint32(16 * half)
        expected[:, thread, register] |= value
    np.testing.assert_array_equal(got.reshape(4, 32, count), expected)


@pytest.mark.parametrize("halves", [False, True], ids=["whole", "halves"])
@pytest.mark.parametrize(("shape", "repetitions"), CASES)
def test_store_writes_these_cells_and_no_others(shape, repetitions, halves, rng):
    split = split_of(shape, repetitions, halves)
    places = touched(shape, repetitions, split, halves)
    columns, first = extent(places)
    before = random_words(rng, 128, columns)
    count = SHAPES[shape][1] * repetitions
    values = random_words(rng, 128, count)
    offset = f", {split}" if shape == "16x32bx2" else ""
    unpack = ".unpack::16b" if halves else ""
    body = "\n".join(
        [
            write_all("%p0", columns),
            own_quarter(0, first),
            address("%p1", 4 * count),
            *(f"ld.global.b32 %v{i}, [%x+{4 * i}];" for i in range(count)),
            f"tcgen05.st.sync.aligned.{shape}.x{repetitions}{unpack}.b32 [%r1]{offset}, "
            f"{vector('v', count)};",
            "tcgen05.wait::st.sync.aligned;",
            read_all("%p2", columns),
        ]
    )
    got = run([before, values, np.zeros_like(before)], body)[-1]
    expected = before.reshape(4, 32, columns).copy()
    for (row, column), (thread, register, half) in places.items():
        value = values.reshape(4, 32, count)[:, thread, register]
        expected[:, row, column + first] = value >> (16 * half) & 0xFFFF if halves else value
    np.testing.assert_array_equal(got, expected.reshape(128, columns))


def test_lane_zero_stands_for_the_quarter_of_any_warp(rng):
    memory = random_words(rng, 128, 32)
    body = f"""{write_all("%p0", 32)}
    tcgen05.ld.sync.aligned.32x32b.x1.b32 %v0, [%a];
    tcgen05.wait::ld.sync.aligned;
    {address("%p1", 4)}
    st.global.b32 [%x], %v0;"""
    _, got = run([memory, np.zeros(128, np.uint32)], body)
    np.testing.assert_array_equal(got, memory[:, 0])


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        ("add.u32 %r1, %a, 0x400000;", "it may access lanes"),
        ("add.u32 %r1, %a, 0x80000;", "lane 8 .* is not a multiple of 32"),
        ("mov.b32 %r1, 512;", "1 columns from column 512 of lane 0 are out of bounds"),
        ("mov.u32 %r1, %t;", "lanes 0 and 1 have different addresses"),
    ],
)
def test_addresses_that_the_warp_may_not_use(instruction, message):
    body = f"{instruction}\ntcgen05.ld.sync.aligned.32x32b.x1.b32 %v0, [%r1];"
    with pytest.raises(EmulatorError, match=message):
        run([], body, block=(32, 1, 1))


def test_columns_that_are_not_allocated():
    body = with_memory("tcgen05.ld.sync.aligned.32x32b.x2.b32 {%v0, %v1}, [%a+63];", 64)
    with pytest.raises(EmulatorError, match="not all allocated; the CTA holds columns 0 to 63"):
        launch(kernel(0, body, DECLARATIONS), [], arch="sm_100a")


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        ("tcgen05.ld.sync.aligned.16x256b.x64.b32 %v0, [%a];", "256 registers; at most 128"),
        ("tcgen05.ld.sync.aligned.32x32b.x2.b32 %v0, [%a];", "it has 1 registers"),
        ("tcgen05.ld.sync.aligned.8x32b.x2.b32 %v0, [%a];", "it needs a shape"),
        ("tcgen05.ld.32x32b.x1.b32 %v0, [%a];", "it needs .sync.aligned"),
        ("tcgen05.ld.sync.aligned.32x32b.x1.unpack::16b.b32 %v0, [%a];", "unpack::16b"),
        ("tcgen05.ld.red.sync.aligned.32x32b.x2.min.u32 {%v0,%v1}, %v2, [%a];", "sm_103f"),
        ("tcgen05.swap.sync.aligned;", "there is no instruction tcgen05.swap"),
    ],
)
def test_what_is_no_instruction_is_refused_when_it_is_loaded(instruction, message):
    with pytest.raises(EmulatorError, match=message):
        launch(kernel(0, instruction, DECLARATIONS), [], arch="sm_100a")

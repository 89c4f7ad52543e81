"""Register fragments against the tables of the PTX ISA, for every thread and register.

The model below is written from the manual's formulas (which element a register of a lane holds);
the layouts under test are strides (which lane and register an element goes to).
"""

import itertools

import numpy as np
import pytest
import tvm_ffi
from tvm.tirx.layout import Axis, S, TileLayout

from tests.shared.layout_evaluation import evaluate_layout
from warploom.errors import IllegalCombination
from warploom.layout.fragment import (
    column_fragment,
    matrix_fragment,
    mma_accumulator,
    row_fragment,
    wgmma_accumulator,
    wgmma_register_a,
)
from warploom.target.wgmma import WGMMA_KINDS

LANES = range(32)
WIDTHS = range(8, 257, 8)


def places(layout, shape):
    """Integer arrays of ``shape``: warp, lane and element of the thread of every coordinate."""
    axes = evaluate_layout(layout, shape)
    warp = axes.get("warpid", 0) + axes.get("wid_in_wg", np.zeros(shape, int))
    return warp, axes.get("laneid", np.zeros(shape, int)), axes.get("m", np.zeros(shape, int))


def holders(layout, extent):
    """For each coordinate of a vector, the (warp, lane) -> element of all threads that hold it."""
    held = [{} for _ in range(extent)]
    for copies in itertools.product(*(range(int(it.extent)) for it in layout.replica)):
        step = {"laneid": 0, "warpid": 0, "wid_in_wg": 0}
        for it, index in zip(layout.replica, copies, strict=True):
            step[it.axis.name] += index * int(it.stride)
        warp_step = step["warpid"] + step["wid_in_wg"]
        for i, (warp, lane, element) in enumerate(zip(*places(layout, (extent,)), strict=True)):
            held[i][warp + warp_step, lane + step["laneid"]] = element
    return held


def check(layout, shape, model):
    """The layout is the bijection that ``model`` ((warp, lane, element) -> coordinate) says."""
    assert len(set(model.values())) == len(model) == shape[0] * shape[1]
    warp, lane, element = (axis.tolist() for axis in places(layout, shape))
    for where, (i, j) in model.items():
        assert (warp[i][j], lane[i][j], element[i][j]) == where
    assert layout.verify_well_formed()


def accumulator_model(n):
    """PTX ISA, "D fragment layout for wgmma.mma_async.m64nNk16": lane and i -> row, column."""
    return {
        (warp, lane, i): (
            16 * warp + lane // 4 + (8 if i % 4 >= 2 else 0),
            8 * (i // 4) + 2 * (lane % 4) + i % 2,
        )
        for warp in range(4)
        for lane in LANES
        for i in range(n // 2)
    }


def register_a_model(bits):
    """PTX ISA, A fragments of m64k8 (32 bits), m64k16 (16 bits) and m64k32 (8 bits)."""

    def coordinate(warp, lane, i):
        g, t = lane // 4, lane % 4
        if bits == 32:
            return 16 * warp + g + 8 * (i in (1, 3)), t + 4 * (i >= 2)
        if bits == 16:
            return 16 * warp + g + 8 * (i in (2, 3, 6, 7)), 2 * t + i % 2 + 8 * (i >= 4)
        lower = 4 <= i < 8 or i >= 12
        return 16 * warp + g + 8 * lower, 4 * t + i % 4 + 16 * (i >= 8)

    return {
        (warp, lane, i): coordinate(warp, lane, i)
        for warp in range(4)
        for lane in LANES
        for i in range(4 * 32 // bits)
    }


@pytest.mark.parametrize("n", WIDTHS)
def test_accumulator_of_one_instruction(n):
    check(wgmma_accumulator(64, n), (64, n), accumulator_model(n))


@pytest.mark.parametrize("n", WIDTHS)
def test_accumulator_is_the_layout_that_stock_schedules_accept(n):
    lane, warp = Axis.laneid, Axis.wid_in_wg
    stock = TileLayout(S[(4, 2, 8, n // 8, 4, 2) : (1 @ warp, 2, 4 @ lane, 4, 1 @ lane, 1)])
    ours = wgmma_accumulator(64, n)
    assert tvm_ffi.structural_equal(ours.canonicalize(), stock.canonicalize())


@pytest.mark.parametrize("warpgroups, first_warp", [(1, 0), (2, 0), (2, 4), (3, 8), (4, 0)])
@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("n", [8, 24, 40])
def test_accumulator_of_several_blocks_and_warpgroups(warpgroups, first_warp, blocks, n):
    shape = (64 * blocks * warpgroups, n)
    model = {}
    for group, block in itertools.product(range(warpgroups), range(blocks)):
        top = 64 * (group * blocks + block)
        for (warp, lane, i), (row, column) in accumulator_model(n).items():
            where = (first_warp + 4 * group + warp, lane, block * n // 2 + i)
            model[where] = (top + row, column)
    check(wgmma_accumulator(*shape, warpgroups, first_warp), shape, model)


REGISTER_A = sorted({(kind.a, kind.k) for kind in WGMMA_KINDS})


@pytest.mark.parametrize("dtype, k", REGISTER_A)
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("blocks", [1, 2])
def test_register_a(dtype, k, steps, blocks):
    shape = (64 * blocks, k * steps)
    one = register_a_model(bits=8 * 32 // k)
    elements = 4 * k // 8
    model = {
        (warp, lane, (block * steps + step) * elements + i): (64 * block + row, step * k + column)
        for block, step in itertools.product(range(blocks), range(steps))
        for (warp, lane, i), (row, column) in one.items()
    }
    check(wgmma_register_a(dtype, shape[1], shape[0]), shape, model)


@pytest.mark.parametrize("k", range(16, 257, 16))
def test_16_bit_register_a_is_an_accumulator(k):
    ours, other = wgmma_register_a("bfloat16", k), wgmma_accumulator(64, k)
    assert tvm_ffi.structural_equal(ours.canonicalize(), other.canonicalize())


@pytest.mark.parametrize("warpgroups, first_warp", [(1, 0), (2, 0), (3, 4)])
@pytest.mark.parametrize("blocks", [1, 2])
def test_row_and_column_vectors_lie_beside_the_accumulator(warpgroups, first_warp, blocks):
    m, n = 64 * blocks * warpgroups, 24
    warps, lanes, elements = places(wgmma_accumulator(m, n, warpgroups, first_warp), (m, n))
    rows, columns = [{} for _ in range(m)], [{} for _ in range(n)]
    for i, j in itertools.product(range(m), range(n)):
        block, register = divmod(int(elements[i, j]), n // 2)
        thread = (warps[i, j], lanes[i, j])
        rows[i][thread] = 2 * block + register // 2 % 2
        columns[j].setdefault(thread, register // 4 * 2 + register % 2)
    assert holders(row_fragment(m, warpgroups, first_warp), m) == rows
    assert holders(column_fragment(n, warpgroups, first_warp), n) == columns


@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("n", WIDTHS)
def test_mma_accumulator(blocks, n):
    """PTX ISA, "Accumulator fragment for mma.m16n8": c0, c1 in row g, c2, c3 in row g + 8."""
    model = {
        (0, lane, (block * (n // 8) + tile) * 4 + i): (
            16 * block + lane // 4 + 8 * (i >= 2),
            8 * tile + 2 * (lane % 4) + i % 2,
        )
        for block, tile in itertools.product(range(blocks), range(n // 8))
        for lane in LANES
        for i in range(4)
    }
    check(mma_accumulator(16 * blocks, n), (16 * blocks, n), model)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rows, columns", list(itertools.product((8, 16, 32), (8, 24, 64))))
def test_matrix_fragment(rows, columns, transposed):
    """PTX ISA, "ldmatrix fragment layout": lane l holds row l // 4, elements 2 (l % 4) and + 1."""
    model = {}
    for down, across, lane, i in itertools.product(
        range(rows // 8), range(columns // 8), LANES, range(2)
    ):
        inner = (lane // 4, 2 * (lane % 4) + i)
        row, column = inner[::-1] if transposed else inner
        where = (0, lane, 2 * (across * (rows // 8) + down) + i)
        model[where] = (8 * down + row, 8 * across + column)
    check(matrix_fragment(rows, columns, transposed), (rows, columns), model)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: wgmma_accumulator(63, 8), "rows .* multiple of 64 .* got 63"),
        (lambda: wgmma_accumulator(64, 12), "columns .* multiple of 8 .* got 12"),
        (lambda: wgmma_accumulator(64, 0), "got 0"),
        (lambda: wgmma_accumulator(192, 8, 2), "multiple of 128 .* got 192"),
        (lambda: wgmma_accumulator(128, 8, 0), "warpgroups=0"),
        (lambda: wgmma_accumulator(128, 8, 2, 2), "first_warp=2"),
        (lambda: wgmma_accumulator(64, 8, 1, 4), "first_warp must be 0, got 4"),
        (lambda: wgmma_register_a("int8", 48), "multiple of 32 .* got 48"),
        (lambda: wgmma_register_a("float64", 16), "got float64"),
        (lambda: row_fragment(32), "got 32"),
        (lambda: column_fragment(4), "got 4"),
        (lambda: mma_accumulator(8, 8), "multiple of 16 .* got 8"),
        (lambda: matrix_fragment(8, 4), "columns .* got 4"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(IllegalCombination, match=message):
        make()

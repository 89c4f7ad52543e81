"""Copies between wgmma fragments and memory: every swizzle, ragged edges, TMA stores."""

import re
import zlib
from dataclasses import dataclass

import numpy as np
import pytest
import tvm
from tvm.backend.cuda.tile_primitive.tma_utils import mma_shared_layout
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.layout import Axis, S, TileLayout

from tests.ops.tiles_kernels import Case, Kernels, Operand, modules, move, to_device
from tests.shared.sampling import covering, either

DTYPES = ("float16", "bfloat16", "float32", "int32", "float8_e4m3fn", "float8_e5m2", "int8")
#: Matrices around the 64 x 40 tile: larger, cut in a row, in a column of 8, in any column.
RAGGED = ((64, 40), (100, 48), (37, 40), (64, 32), (50, 36), (37, 33), (3, 5))


@dataclass(frozen=True)
class Shared:
    """A tile copied to or from shared memory with one swizzle (None: row-major)."""

    dtype: str
    m: int
    n: int
    swizzle: int | None
    store: bool

    def __str__(self) -> str:
        direction = "store" if self.store else "load"
        return f"{self.dtype}-{self.m}x{self.n}-swizzle-{self.swizzle}-{direction}"

    @property
    def shape(self) -> tuple[int, int]:
        return self.m, self.n

    def layout(self):
        if self.swizzle is None:
            return TileLayout(S[self.shape : (self.n, 1)])
        return mma_shared_layout(self.dtype, self.swizzle, self.shape)


def _shared_cases():
    for dtype in DTYPES:
        bits = tvm.DataType(dtype).bits
        for swizzle in (None, 0, 1, 2, 3):
            atom = max(8, (128 << (swizzle or 0)) // bits)
            for m, n in (
                (64, atom),
                (128 if atom < 64 else 64, 3 * atom if atom < 64 else 2 * atom),
            ):
                for store in (True, False):
                    yield Shared(dtype, m, n, swizzle, store)


@dataclass(frozen=True)
class Ragged:
    """A 64 x 40 tile at ``(row, column)`` of a matrix that may be smaller; ``m`` is symbolic."""

    dtype: str
    rows: int
    columns: int
    store: bool
    row: int = 0
    column: int = 0
    tma: bool = False

    def __str__(self) -> str:
        direction = "tma" if self.tma else "store" if self.store else "load"
        at = f"-at-{self.row}-{self.column}" if self.row or self.column else ""
        return f"{self.dtype}-{self.rows}x{self.columns}{at}-{direction}"


def _ragged_cases():
    for dtype in ("float32", "float16", "int8"):
        for rows, columns in RAGGED:
            yield Ragged(dtype, rows, columns, True)
            yield Ragged(dtype, rows, columns, False)
        yield Ragged(dtype, 100, 72, True, row=64, column=40)
        yield Ragged(dtype, 100, 72, False, row=64, column=40)


def _tma_cases():
    """A TMA store needs rows of a multiple of 16 bytes, not of a multiple of the tile."""
    for dtype in ("float32", "bfloat16", "float8_e4m3fn"):
        unit = 128 // tvm.DataType(dtype).bits
        for rows, units in ((64, 8), (37, 8), (64, 3), (50, 5), (5, 1)):
            yield Ragged(dtype, rows, units * unit, True, tma=True)


def _traits(case: Shared) -> list[tuple]:
    bits, atoms = tvm.DataType(case.dtype).bits, case.m * case.n
    return [(case.dtype, case.store), (bits, case.swizzle, case.store), (bits, atoms > 64 * 64)]


#: Every type and every swizzle always runs in both directions, and every edge.
SHARED = covering(_shared_cases(), _traits)
RAGGED_CASES = covering(
    (*_ragged_cases(), *_tma_cases()),
    lambda case: [
        (case.dtype, case.store, case.tma),
        (case.rows, case.columns * (tvm.DataType(case.dtype).bits if case.tma else 1), case.row,
         case.store, case.tma),
    ],
)  # fmt: skip


def _fragment(dtype, m, n):
    return Case("", m, n, (), Operand("tile", dtype), None, None)


def _element(step, thread, n):
    return (step * 128 + thread) // n, (step * 128 + thread) % n


def _shared_kernel(case):
    m, n = case.shape
    fragment = _fragment(case.dtype, m, n)

    @T.prim_func
    def kernel(x: T.handle, y: T.handle):
        source = T.match_buffer(x, (m, n), case.dtype)
        result = T.match_buffer(y, (m, n), case.dtype)
        T.device_entry()
        T.cta_id([1])
        T.warpgroup_id([1])
        warp = T.warp_id_in_wg([4])
        lane = T.lane_id([32])
        thread = T.thread_id([128])
        pool = T.SMEMPool()
        shared = pool.alloc((m, n), case.dtype, align=1024, layout=case.layout())
        pool.commit()
        tile = T.meta_var(fragment.result.allocate(m, n))
        if case.store:
            move(fragment, fragment.result, source, tile, (warp, lane), True)
            Tx.wg.copy(shared[:, :], tile[:, :])
            T.cuda.cta_sync()
            for step in T.serial(m * n // 128):
                result[_element(step, thread, n)] = shared[_element(step, thread, n)]
        else:
            for step in T.serial(m * n // 128):
                shared[_element(step, thread, n)] = source[_element(step, thread, n)]
            T.cuda.cta_sync()
            Tx.wg.copy(tile[:, :], shared[:, :])
            move(fragment, fragment.result, result, tile, (warp, lane), False)

    return kernel


def _ragged_kernel(case):
    m, n, row, column = 64, 40, case.row, case.column
    fragment = _fragment(case.dtype, m, n)

    @T.prim_func
    def kernel(x: T.handle, y: T.handle):
        rows = T.int32()
        matrix = T.match_buffer(x, (rows, case.columns), case.dtype, align=16)
        packed = T.match_buffer(y, (m, n), case.dtype)
        T.device_entry()
        T.cta_id([1])
        T.warpgroup_id([1])
        warp = T.warp_id_in_wg([4])
        lane = T.lane_id([32])
        tile = T.meta_var(fragment.result.allocate(m, n))
        if case.store:
            move(fragment, fragment.result, packed, tile, (warp, lane), True)
            Tx.wg.copy(matrix[row : row + m, column : column + n], tile[:, :])
        else:
            Tx.wg.copy(tile[:, :], matrix[row : row + m, column : column + n])
            move(fragment, fragment.result, packed, tile, (warp, lane), False)

    return kernel


def _tma_kernel(case):
    m, n = 64, 1024 // tvm.DataType(case.dtype).bits
    fragment = _fragment(case.dtype, m, n)

    @T.prim_func
    def kernel(x: T.handle, y: T.handle):
        rows = T.int32()
        matrix = T.match_buffer(x, (rows, case.columns), case.dtype, align=16)
        packed = T.match_buffer(y, (m, n), case.dtype)
        T.device_entry()
        T.cta_id([1])
        wg = T.warpgroup_id([1])
        warp = T.warp_id_in_wg([4])
        lane = T.lane_id([32])
        pool = T.SMEMPool()
        layout = T.meta_var(mma_shared_layout(case.dtype, 3, (m, n)))
        shared = pool.alloc((m, n), case.dtype, align=1024, layout=layout)
        pool.commit()
        tile = T.meta_var(fragment.result.allocate(m, n))
        move(fragment, fragment.result, packed, tile, (warp, lane), True)
        Tx.wg.copy(shared[:, :], tile[:, :])
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.warpgroup_sync(wg)
        if T.And(warp == 0, lane == 0):
            Tx.copy_async(matrix[0:m, 0:n], shared[:, :], dispatch="tma_auto")
            T.ptx.cp.async_.bulk.commit_group()
            T.ptx.cp.async_.bulk.wait_group(0)

    return kernel


@pytest.fixture(scope="module")
def shared():
    return Kernels(_shared_kernel, *SHARED)


@pytest.fixture(scope="module")
def ragged():
    return Kernels(lambda case: (_tma_kernel if case.tma else _ragged_kernel)(case), *RAGGED_CASES)


@pytest.mark.parametrize("number", either([0], range(1, len(modules(*SHARED)))))
def test_shared_tiles_stay_in_registers(shared, number):
    assert shared.in_local_memory(number) == []


@pytest.mark.parametrize("number", either([0], range(1, len(modules(*RAGGED_CASES)))))
def test_ragged_tiles_stay_in_registers(ragged, number):
    assert ragged.in_local_memory(number) == []


@pytest.mark.parametrize("case", either(*SHARED), ids=str)
def test_instruction_suits_the_element(shared, case):
    """Matrix instructions move 16-bit pairs only; others move the two neighbours of a thread."""
    _, definition = shared[case]
    bits = tvm.DataType(case.dtype).bits
    matrix = "stmatrix" if case.store else "ldmatrix"
    assert (matrix in definition) == (bits == 16)
    if bits != 16:
        width = {32: "v2_u32", 8: "u16"}[bits]
        kind = "st" if case.store else "ld"
        moved = re.findall(rf"ptx_{kind}_\w*shared\w*{width}\(", definition)
        assert len(moved) == case.m * case.n // 256


def _random(rng, shape, dtype):
    """Whole numbers of every dtype here, none of them zero."""
    values = rng.integers(1, 16, shape) * rng.choice([-1, 1], shape)
    return Operand("tile", dtype)._round(values) if "int" not in dtype else values.astype(dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("case", either(*SHARED), ids=str)
@pytest.mark.some(8)
def test_shared_results(shared, case):
    rng = np.random.default_rng(zlib.crc32(str(case).encode()))
    expected = _random(rng, case.shape, case.dtype)
    source, result = to_device(expected, Operand("tile", case.dtype).poison(*case.shape))
    shared[case][0](source, result)
    np.testing.assert_array_equal(result.numpy().view(np.uint8), expected.view(np.uint8))


@pytest.mark.gpu
@pytest.mark.parametrize("case", either(*RAGGED_CASES), ids=str)
@pytest.mark.some(6)
def test_ragged_results(ragged, case):
    """Inside the matrix all is copied; outside a store writes nothing and a load gives zero."""
    rng = np.random.default_rng(zlib.crc32(str(case).encode()))
    n = 1024 // tvm.DataType(case.dtype).bits if case.tma else 40
    matrix, packed = (_random(rng, s, case.dtype) for s in ((case.rows, case.columns), (64, n)))
    # Rows behind the matrix belong to somebody else: they must stay as they are.
    memory = np.concatenate([matrix, _random(rng, (64, case.columns), case.dtype)])
    window = (slice(case.row, case.row + 64), slice(case.column, case.column + n))
    inside = matrix[window].shape
    (on_device, result) = to_device(memory, packed)
    view = on_device._create_view((case.rows, case.columns), matrix.dtype.name)
    ragged[case][0](view, result)
    expected_memory, expected_packed = memory.copy(), packed.copy()
    if case.store:
        expected_memory[: case.rows][window] = packed[: inside[0], : inside[1]]
    else:
        expected_packed[:] = 0
        expected_packed[: inside[0], : inside[1]] = matrix[window]
    for actual, expected in ((on_device, expected_memory), (result, expected_packed)):
        np.testing.assert_array_equal(actual.numpy().view(np.uint8), expected.view(np.uint8))


#: Elements of a row -> bytes that one instruction moves; a row of 12 bytes is three of 4.
ROWS = {("float32", 4): 16, ("float32", 2): 8, ("float32", 3): 4, ("float16", 8): 16,
        ("float16", 4): 8, ("float16", 2): 4, ("float16", 3): 2, ("int8", 16): 16,
        ("int8", 32): 16, ("int8", 3): 1}  # fmt: skip


def _row_kernel(case):
    dtype, n = case
    layout = TileLayout(S[(128, n) : (1 @ Axis.tid_in_wg, 1)])

    @T.prim_func
    def kernel(A: T.Buffer((128, n), dtype), B: T.Buffer((128, n), dtype)):
        T.device_entry()
        T.cta_id([1])
        T.warpgroup_id([1])
        T.warp_id_in_wg([4])
        T.lane_id([32])
        tile = T.alloc_buffer((128, n), dtype, scope="local", layout=layout)
        Tx.wg.copy(tile[:, :], A[:, :], dispatch="fragment")
        Tx.wg.copy(B[:, :], tile[:, :], dispatch="fragment")

    return kernel


@pytest.fixture(scope="module")
def row_kernels():
    return Kernels(_row_kernel, tuple(ROWS))


@pytest.mark.gpu
@pytest.mark.parametrize("case", ROWS, ids=str)
def test_rows_of_threads_move_in_the_widest_words(row_kernels, case, rng):
    """A thread that holds a row moves it in words of up to 16 bytes, never beyond its end."""
    function, definition = row_kernels[case]
    suffix = {16: "v4_u32", 8: "v2_u32", 4: "u32", 2: "u16", 1: "u8"}[ROWS[case]]
    assert re.search(rf"ptx_ld_(vec_)?global_{suffix}\(", definition), definition
    expected = rng.integers(0, 256, (128, case[1] * np.dtype(case[0]).itemsize), np.uint8)
    expected = expected.view(case[0])
    a, b = to_device(expected, Operand("tile", case[0]).poison(*expected.shape))
    function(a, b)
    np.testing.assert_array_equal(b.numpy().view(np.uint8), expected.view(np.uint8))

"""Layouts from uses; explicit ones stay; conflicts name both uses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.backend.cuda.tile_primitive.tma_utils import mma_shared_layout
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.layout import Axis, S, TileLayout

from tests.shared import tile_programs
from tests.shared.lowered_programs import after_passes, hinted, run
from tests.shared.tile_programs.case import numpy_dtype, precision
from warploom import emulator
from warploom.errors import Decline
from warploom.layout.fragment import column_fragment, row_fragment, wgmma_accumulator
from warploom.layout.smem_matrix import SharedMatrix
from warploom.lower.lowerings import lower
from warploom.lower.passes.canonicalize import canonicalize
from warploom.lower.passes.infer_layouts import infer_layouts
from warploom.lower.passes.squeeze_vectors import squeeze_vectors
from warploom.target import Major, Swizzle
from warploom.tile.program import allocations


def layouts(func: Any, warpgroups: int | None = None) -> dict[str, Any]:
    program = after_passes(func, canonicalize, squeeze_vectors)
    program = infer_layouts(program, warpgroups)
    return {tile.name: tile.layout for tile in allocations(program.body)}


def same(a: Any, b: Any) -> bool:
    return tvm_ffi.structural_equal(a, b)


@pytest.mark.parametrize("layout", ["NT", "NN", "TN", "TT"])
@pytest.mark.parametrize(("dtype", "bk"), [("float16", 64), ("float16", 32), ("float16", 16)])
def test_operands_have_the_widest_swizzle_that_fits(layout, dtype, bk):
    bm, bn = 128, 64
    found = layouts(tile_programs.gemm(128, 64, bk, (bm, bn, bk), dtype, layout=layout).func)
    for name, rows, transposed in (("A_s", bm, layout[0] == "T"), ("B_s", bn, layout[1] == "N")):
        major = Major.MN if transposed else Major.K
        width = (rows if transposed else bk) * tvm.DataType(dtype).bits // 8
        swizzle = max((s for s in Swizzle if width % s.row_bytes == 0), key=lambda s: s.row_bytes)
        assert same(found[name], SharedMatrix(dtype, major, swizzle, rows, bk).layout(()))


@pytest.mark.parametrize(("rows", "expected"), [(64, 1), (128, 2), (192, 3), (256, 2)])
def test_consumers_share_rows(rows, expected):
    found = layouts(tile_programs.gemm(rows, 64, 64, (rows, 64, 64)).func)
    assert same(found["acc"], wgmma_accumulator(rows, 64, warpgroups=expected))


def test_the_number_of_consumers_can_be_chosen():
    func = tile_programs.gemm(128, 64, 64, (128, 64, 64)).func
    assert same(layouts(func, 1)["acc"], wgmma_accumulator(128, 64, warpgroups=1))
    assert same(layouts(hinted(func, consumers=1))["acc"], wgmma_accumulator(128, 64))
    with pytest.raises(Decline, match=r"3 consumer warpgroups cannot share tiles of \[128\] rows"):
        layouts(func, 3)


def test_vectors_lie_along_what_uses_them():
    found = layouts(tile_programs.attention().func)
    assert all(same(found[n], row_fragment(64)) for n in ("largest", "before", "total"))

    @T.prim_func
    def program(C: T.Buffer((64, 32), "float32"), Row: T.Buffer((32,), "float32")):
        T.device_entry()
        T.cta_id([1])
        tile = T.alloc_buffer((64, 32), "float32", scope="fragment")
        row = T.alloc_buffer((32,), "float32", scope="fragment")
        again = T.alloc_buffer((32,), "float32", scope="fragment")
        for j in T.serial(32):
            row[j] = Row[j]
        for j in T.serial(32):
            again[j] = row[j] * T.float32(2)
        for i, j in T.grid(64, 32):
            tile[i, j] = again[j]
        Tx.cta.copy(C[0:64, 0:32], tile)

    found = layouts(program)
    assert same(found["row"], column_fragment(32)) and same(found["again"], column_fragment(32))


def test_an_explicit_layout_stays():
    chosen = mma_shared_layout("float16", 1, (64, 64))
    other = tile_programs.gemm(64, 64, 64, (64, 64, 64)).func

    @T.prim_func
    def program(A: T.Buffer((64, 64), "float16"), C: T.Buffer((64, 64), "float32")):
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((64, 64), "float16", scope="shared", layout=chosen)
        acc = T.alloc_buffer((64, 64), "float32", scope="accumulator")
        Tx.cta.copy_async(A_s, A[0:64, 0:64])
        Tx.cta.gemm_async(acc, A_s, A_s)
        Tx.cta.copy(C[0:64, 0:64], acc)

    assert same(layouts(program)["A_s"], chosen)
    assert not same(layouts(other)["A_s"], chosen)


def faulty(fault: str) -> Any:
    """A program with a use that has no layout."""
    rows, columns = (96, 48) if fault == "rows" else (64, 64)
    wide = (64, 12) if fault == "columns" else (64, 64)

    @T.prim_func
    def program(A: T.Buffer((64, 64), "float16"), C: T.Buffer((96, 64), "float32")):
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        acc = T.alloc_buffer((rows, columns), "float32", scope="accumulator")
        other = T.alloc_buffer(wide, "float32", scope="fragment")
        vector = T.alloc_buffer((64,), "float32", scope="fragment")
        Tx.cta.copy_async(A_s, A[0:64, 0:64])
        Tx.cta.zero(other)
        Tx.cta.gemm_async(acc, A_s, A_s)
        if fault == "vector":
            for i, j in T.grid(64, 64):
                acc[i, j] = acc[i, j] + vector[j]
            Tx.cta.sum(vector, acc, axes=(1,))
        Tx.cta.copy(C[0:rows, 0:columns], acc)

    return program


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("rows", "The tile acc has 96 rows; a warpgroup holds multiples of 64"),
        ("columns", "The tile other: The columns of an accumulator must be a positive multiple"),
        (
            "vector",
            "The vector vector lies along the columns in the nest that stores acc and along the "
            "rows in the reduction of acc; use two vectors",
        ),
    ],
)
def test_declines(fault, message):
    with pytest.raises(Decline, match=message):
        layouts(faulty(fault))


def read_both_ways(dtype: str, rows: int, columns: int) -> Any:
    """G = A Aᵀ and H = G' A, both of one tile; with 8 bits G = A Aᵀ and H = Aᵀ A."""
    bits = tvm.DataType(dtype).bits

    @T.prim_func
    def program(
        A: T.Buffer((rows, columns), dtype), G: T.Buffer((rows, rows), "float32"),
        H: T.Buffer((rows, columns), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((rows, columns), dtype, scope="shared")
        acc = T.alloc_buffer((rows, rows), "float32", scope="accumulator")
        P = T.alloc_buffer((rows, rows), dtype, scope="fragment")
        other = T.alloc_buffer((rows, columns), "float32", scope="accumulator")
        Tx.cta.copy_async(A_s, A[0:rows, 0:columns])
        Tx.cta.gemm_async(acc, A_s, A_s)
        Tx.cta.cast(P, acc)
        Tx.cta.copy(G[0:rows, 0:rows], acc)
        if bits == 16:
            Tx.cta.gemm_async(other, P, A_s, transB=True)
        else:
            Tx.cta.gemm_async(other, A_s, A_s, transA=True, transB=True)
        Tx.cta.copy(H[0:rows, 0:columns], other)

    return program


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "arch"), [("float16", "sm_90a"), ("bfloat16", "sm_100a")])
@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (64, 48), (64, 144), (64, 256)])
@pytest.mark.some(3)
def test_one_tile_is_read_along_both_dimensions(rng, dtype, arch, rows, columns):
    """Whatever the swizzle, and with one atom along the columns or several."""
    found = layouts(read_both_ways(dtype, rows, columns))["A_s"]
    width = max(s.row_bytes for s in Swizzle if 2 * columns % s.row_bytes == 0)
    swizzle = next(s for s in Swizzle if s.row_bytes == width)
    for major, shape in ((Major.K, (rows, columns)), (Major.MN, (columns, rows))):
        assert same(found, SharedMatrix(dtype, major, swizzle, *shape).layout(()))
    a = (rng.standard_normal((rows, columns)) / 4).astype(numpy_dtype(dtype))
    empty = [np.full(shape, np.nan, np.float32) for shape in ((rows, rows), (rows, columns))]
    result = emulator.run(read_both_ways(dtype, rows, columns), [a, *empty], arch=arch)
    exact = a.astype(float) @ a.T.astype(float)
    assert np.abs(result.outputs[1] - exact).max() < 1e-4
    weights = exact.astype(np.float32).astype(numpy_dtype(dtype)).astype(float)
    bound = 4 * precision(dtype) * (np.abs(exact) @ np.abs(a.astype(float))).max()
    assert np.abs(result.outputs[2] - weights @ a.astype(float)).max() < bound


def test_tiles_of_8_bits_are_read_along_one_dimension():
    with pytest.raises(Decline, match="A_s, A of the MMA into other, is float8_e4m3fn"):
        layouts(read_both_ways("float8_e4m3fn", 64, 64))


@pytest.mark.parametrize(
    ("scope", "layout", "words"),
    [
        ("accumulator", wgmma_accumulator(64, 64), None),
        ("fragment", wgmma_accumulator(64, 64), None),
        ("accumulator", TileLayout(S[(64, 64) : (1 @ Axis.laneid, 1)]), "1 consumer warpgroups"),
        ("shared", mma_shared_layout("float16", 2, (64, 64)), None),
        ("shared", TileLayout(S[(64, 64) : (72, 1)]), "A of the MMA into acc: .* cannot read"),
        ("loaded", TileLayout(S[(64, 64) : (72, 1)]), "a layout that is no operand's"),
    ],
)
def test_explicit_layouts_win_or_are_declined(scope, layout, words, rng):
    """What an author wrote is never replaced without a word."""
    given = {scope: layout}

    @T.prim_func
    def program(A: T.Buffer((64, 64), "float16"), C: T.Buffer((64, 64), "float32")):
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer(
            (64, 64), "float16", scope="shared", layout=given.get("shared", "default")
        )
        R_s = T.alloc_buffer(
            (64, 64), "float16", scope="shared", layout=given.get("loaded", "default")
        )
        acc = T.alloc_buffer(
            (64, 64), "float32", scope="accumulator", layout=given.get("accumulator", "default")
        )
        out = T.alloc_buffer(
            (64, 64), "float32", scope="fragment", layout=given.get("fragment", "default")
        )
        Tx.cta.copy_async(A_s, A[0:64, 0:64])
        Tx.cta.gemm_async(acc, A_s, A_s)
        Tx.cta.copy_async(R_s, A[0:64, 0:64])
        for i, j in T.grid(64, 64):
            out[i, j] = acc[i, j] + T.cast(R_s[i, j], "float32")
        Tx.cta.copy(C[0:64, 0:64], out)

    if words:
        with pytest.raises(Decline, match=words):
            lower(program)
        return
    a = rng.standard_normal((64, 64)).astype("float16")
    (_, c) = run(lower(program), [a, np.full((64, 64), np.nan, np.float32)])
    exact = a.astype(float) @ a.T.astype(float) + a
    assert np.abs(c - exact).max() <= 1e-5 * np.abs(exact).max()


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn", "float32"])
def test_wgmma_reads_only_16_bits_along_n(dtype):
    """A pass before transposes such operands."""
    func = tile_programs.gemm(64, 64, 128, (64, 64, 64), dtype=dtype, layout="NN").func
    with pytest.raises(Decline, match=f"B_s, B of .*, is {dtype} and MN-major; sm_90a reads only"):
        layouts(func)

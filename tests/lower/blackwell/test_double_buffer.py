"""Operands that threads compute have two places where each MMA reads what was just written."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared import tile_programs
from tests.shared.lowered_programs import run
from warploom import language as wl
from warploom.lower.lowerings import lower
from warploom.lower.trace import lower_trace
from warploom.target import SM100A

ARCH = SM100A.name
#: Rows of a tile, its columns, and K of one step.
BM, BN, BK = 128, 32, 32
TWO_PLACES = "in two places"


def scaled(steps: int, how: str, stages: int = 3, tiles: int = 2) -> tvm.tirx.PrimFunc:
    """C = A (s B)ᵀ, where threads compute the tile s B in one of several ways."""
    rows, depth = tiles * BM, steps * BK

    @T.prim_func
    def func(A: T.Buffer((rows, depth), "float16"), B: T.Buffer((BN, depth), "float16"),
             S: T.Buffer((steps,), "float32"), C: T.Buffer((rows, BN), "float32")):  # fmt: skip
        T.device_entry()
        i = T.cta_id([tiles])
        A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
        B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
        B_c = T.alloc_buffer((BN, BK), "float16", scope="shared")
        acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        if how in ("once", "left half"):
            for y, x in T.grid(BN, BK):
                B_c[y, x] = T.cast(S[0] + T.cast(y - x, "float32"), "float16")
        for k in wl.pipelined(steps, stages):
            Tx.cta.copy_async(A_s, A[i * BM : i * BM + BM, k * BK : k * BK + BK])
            Tx.cta.copy_async(B_s, B[0:BN, k * BK : k * BK + BK])
            if how in ("every step", "added to"):
                for y, x in T.grid(BN, BK):
                    B_c[y, x] = T.cast(S[k] * T.cast(B_s[y, x], "float32"), "float16")
            if how == "added to":
                for y, x in T.grid(BN, BK):
                    B_c[y, x] = B_c[y, x] + B_s[y, x]
            if how == "left half":
                for y, x in T.grid(BN, BK // 2):
                    B_c[y, x] = B_s[y, x]
            if how == "in a branch":  # noqa: SIM102 (the parser decides this one)
                if k % 2 == 0:
                    for y, x in T.grid(BN, BK):
                        B_c[y, x] = B_s[y, x]
            Tx.cta.gemm_async(acc, A_s, B_c, accum=k > 0)
        Tx.cta.copy(C[i * BM : i * BM + BM, 0:BN], acc)

    return func


def barriers_of(func: tvm.tirx.PrimFunc, name: str) -> str:
    """What the passes say about a tile that goes to and fro."""
    lines = [line for step in lower_trace(func, ARCH) for line in step.decisions]
    (line,) = (line for line in lines if line.startswith(f"tile barriers: {name} "))
    return line


@pytest.mark.parametrize(
    "how, twice",
    [
        ("every step", True),
        ("once", True),
        ("added to", False),
        ("left half", False),
        ("in a branch", False),
    ],
)
@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.some(4)
def test_operands_that_threads_compute(rng, grid_of, steps, how, twice):
    grid_of(1)
    func = scaled(steps, how)
    assert barriers_of(func, "B_c").endswith(TWO_PLACES) == twice
    arrays = [
        rng.standard_normal((2 * BM, steps * BK)).astype("float16"),
        rng.standard_normal((BN, steps * BK)).astype("float16"),
        rng.standard_normal(steps).astype("float32"),
        np.full((2 * BM, BN), np.nan, "float32"),
    ]
    expected = [array.copy() for array in arrays]
    wl.interpret(func, expected)
    result = run(lower(func, ARCH), arrays, ARCH)[3]
    scale = np.abs(expected[3]).max()
    np.testing.assert_allclose(result, expected[3], rtol=0, atol=1e-5 * scale)


@pytest.mark.parametrize("how", ["all", "half", "fragment"])
@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.some(3)
def test_operands_that_threads_copy_from_registers(rng, grid_of, steps, how):
    """One that is overwritten as a whole has two places; one that is in part, does not.

    A fragment that is an operand itself is copied to tensor memory.
    """
    rows, depth = 2 * BM, steps * BK
    columns = BK // 2 if how == "half" else BK

    @T.prim_func
    def func(A: T.Buffer((rows, depth), "float16"), B: T.Buffer((BN, depth), "float16"),
             C: T.Buffer((rows, BN), "float32")):  # fmt: skip
        T.device_entry()
        i = T.cta_id([2])
        B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
        A_f = T.alloc_buffer((BM, columns), "float16", scope="fragment")
        A_c = T.alloc_buffer((BM, BK), "float16", scope="shared")
        acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        if columns < BK:
            for y, x in T.grid(BM, BK):
                A_c[y, x] = T.cast(y - x, "float16")
        for k in wl.pipelined(steps, 2):
            Tx.cta.copy_async(B_s, B[0:BN, k * BK : k * BK + BK])
            for y, x in T.grid(BM, columns):
                A_f[y, x] = A[i * BM + y, k * BK + x] * T.float16(2)
            if how == "fragment":
                Tx.cta.gemm_async(acc, A_f, B_s, accum=k > 0)
            else:
                Tx.cta.copy(A_c[0:BM, 0:columns], A_f)
                Tx.cta.gemm_async(acc, A_c, B_s, accum=k > 0)
        Tx.cta.copy(C[i * BM : i * BM + BM, 0:BN], acc)

    grid_of(1)
    if how == "fragment":
        lines = [line for step in lower_trace(func, ARCH) for line in step.decisions]
        assert "tensor memory: A_f in 2 x 1 x 16 columns" in lines
    else:
        assert barriers_of(func, "A_c").endswith(TWO_PLACES) == (how == "all")
    a, b = (rng.standard_normal((n, depth)).astype("float16") for n in (rows, BN))
    arrays = [a, b, np.full((rows, BN), np.nan, "float32")]
    expected = [array.copy() for array in arrays]
    wl.interpret(func, expected)
    result = run(lower(func, ARCH), arrays, ARCH)[2]
    scale = np.abs(expected[2]).max()
    np.testing.assert_allclose(result, expected[2], rtol=0, atol=1e-5 * scale)


def test_vectors_in_shared_memory_stay(rng):
    """Threads write a shared vector and read it; no MMA does."""

    @T.prim_func
    def func(A: T.Buffer((BM, BK), "float16"), B: T.Buffer((BN, BK), "float16"),
             S: T.Buffer((BN,), "float32"), C: T.Buffer((BM, BN), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
        B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
        V_s = T.alloc_buffer((BN,), "float32", scope="shared")
        acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        out = T.alloc_buffer((BM, BN), "float32", scope="fragment")
        for x in T.serial(BN):
            V_s[x] = S[x] + T.float32(1)
        for k in wl.pipelined(1, 1):
            Tx.cta.copy_async(A_s, A[0:BM, k * BK : k * BK + BK])
            Tx.cta.copy_async(B_s, B[0:BN, k * BK : k * BK + BK])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        for y, x in T.grid(BM, BN):
            out[y, x] = acc[y, x] * V_s[x]
        Tx.cta.copy(C, out)

    a, b = (rng.standard_normal(shape).astype("float16") for shape in ((BM, BK), (BN, BK)))
    scale = rng.standard_normal(BN).astype("float32")
    arrays = [a, b, scale, np.full((BM, BN), np.nan, "float32")]
    result = run(lower(func, ARCH), arrays, ARCH)[3]
    expected = a.astype("float64") @ b.astype("float64").T * (scale + 1)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-4)


def test_one_place_where_shared_memory_has_no_room_for_two():
    """Dequantised tiles of 32 KiB beside a result of 64 KiB and a ring of 32 KiB a stage."""
    tile = (128, 256, 64)
    few, many = (
        tile_programs.dequantised(8, 256, 512, 256, tile=tile, stages=stages).func
        for stages in (3, 4)
    )
    assert barriers_of(few, "W_f").endswith(TWO_PLACES)
    assert not barriers_of(many, "W_f").endswith(TWO_PLACES)
    assert lower(many, ARCH) is not None

"""The short forms of statements: each is the statements that stand in its place."""

from __future__ import annotations

import pytest
import tvm_ffi
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc, decl_buffer

from tests.shared.tile_programs.case import poisoned, random_values
from warploom import emulator
from warploom import language as wl
from warploom.errors import TileProgramError

ARCHS = ("sm_90a", "sm_100a")
M, N, K, BM, BN, BK, ROWS = 100, 136, 96, 64, 64, 32, 4


def test_a_tile_is_a_region():
    @T.prim_func
    def short(A: T.Buffer((3, M, K), "float16"), C: T.Buffer((M, K), "float16")):
        T.device_entry()
        i, h = T.cta_id([2, 3])
        A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
        Tx.cta.copy_async(A_s, wl.tile(A, (h, i, 1), (BM, BK)))
        Tx.cta.copy(wl.tile(C, (i, 2), A_s), A_s)

    @T.prim_func
    def long(A: T.Buffer((3, M, K), "float16"), C: T.Buffer((M, K), "float16")):
        T.device_entry()
        i, h = T.cta_id([2, 3])
        A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
        Tx.cta.copy_async(A_s, A[h, i * BM : i * BM + BM, BK : BK + BK])
        Tx.cta.copy(C[i * BM : i * BM + BM, 2 * BK : 2 * BK + BK], A_s)

    assert tvm_ffi.structural_equal(short.with_attr("global_symbol", "long"), long)


def test_load_gemm_cast_and_store_are_their_long_forms():
    @T.prim_func
    def short(A: T.Buffer((M, K), "float16"), B: T.Buffer((K, N), "float16"),
              C: T.Buffer((M, N), "bfloat16")):  # fmt: skip
        T.device_entry()
        i, j = T.cta_id([2, 3])
        A_s = wl.load(A, (i, 0), (BM, K))
        B_s = wl.load(B[0:K, j * BN : j * BN + BN])
        acc = wl.gemm(A_s, B_s, transB=True)
        wl.store(C, (i, j), acc)

    @T.prim_func
    def long(A: T.Buffer((M, K), "float16"), B: T.Buffer((K, N), "float16"),
             C: T.Buffer((M, N), "bfloat16")):  # fmt: skip
        T.device_entry()
        i, j = T.cta_id([2, 3])
        A_s = T.alloc_buffer((BM, K), "float16", scope="shared")
        Tx.cta.copy_async(A_s, A[i * BM : i * BM + BM, 0:K])
        B_s = T.alloc_buffer((K, BN), "float16", scope="shared")
        Tx.cta.copy_async(B_s, B[0:K, j * BN : j * BN + BN])
        acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        Tx.cta.gemm_async(acc, A_s, B_s, transB=True)
        out = T.alloc_buffer((BM, BN), "bfloat16", scope="fragment")
        Tx.cta.cast(out, acc)
        Tx.cta.copy(C[i * BM : i * BM + BM, j * BN : j * BN + BN], out)

    assert tvm_ffi.structural_equal(short.with_attr("global_symbol", "long"), long)


def test_a_tile_of_the_same_dtype_is_stored_as_it_is():
    @T.prim_func
    def program(A: T.Buffer((M, K), "float16"), C: T.Buffer((M, K), "float16")):
        T.device_entry()
        i = T.cta_id([2])
        A_s = wl.load(A, (i, 0), (BM, K))
        wl.store(C[i * BM : i * BM + BM, 0:K], A_s)

    assert "cast" not in program.script()


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn", "float16"])
def test_accumulators_suit_their_operands(dtype):
    @T.prim_func
    def program(A: T.Buffer((64, 64), dtype), C: T.Buffer((64, 64), "float32")):
        T.device_entry()
        T.cta_id([1])
        A_s = wl.load(A, (0, 0), (64, 64))
        acc = wl.gemm(A_s, A_s)
        wl.store(C, (0, 0), acc)

    kind = "int32" if dtype == "int8" else "float32"
    script = program.script()
    assert f'acc = T.alloc_buffer((64, 64), "{kind}"'.replace(', "float32"', "") in script


def of_vector(dtype: str) -> PrimFunc:
    @T.prim_func
    def program(X: T.Buffer((M,), dtype), Y: T.Buffer((M,), "float32")):
        T.device_entry()
        b = T.cta_id([T.ceildiv(M, ROWS)])
        x = wl.load(X, (b,), (ROWS,), scope="fragment", dtype="float32")
        for i in T.serial(ROWS):
            x[i] = x[i] * T.float32(3)
        wl.store(Y, (b,), x)

    return program


def of_matrices(dtype: str) -> PrimFunc:
    @T.prim_func
    def program(X: T.Buffer((2, M, K), dtype), Y: T.Buffer((2, M, K), "float32")):
        T.device_entry()
        b, h = T.cta_id([T.ceildiv(M, ROWS), 2])
        x = wl.load(X[h, b * ROWS : b * ROWS + ROWS, 0:K], scope="fragment", dtype="float32")
        Tx.cta.mul(x, x, T.float32(3))
        wl.store(Y, (h, b, 0), x)

    return program


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
@pytest.mark.parametrize(("make", "shape"), [(of_vector, (M,)), (of_matrices, (2, M, K))])
@pytest.mark.some(5)
def test_fragments_are_loaded_and_cast(make, shape, dtype, arch, rng):
    x = random_values(rng, shape, dtype)
    func, y = make(dtype), poisoned(shape, "float32")
    meant = y.copy()
    wl.interpret(func, [x, meant])
    assert (meant == 3 * x.astype("float32")).all()
    found = emulator.run(func, [x, y], arch=arch).outputs[1]
    assert (found == meant).all()


def test_errors_name_what_does_not_fit():
    buffer = decl_buffer((M, K), "float16")
    for index, shape, words in (
        ((0,), (BM, BK), "got 1 numbers for buffer, which has 2 dimensions"),
        ((0, 0), (2, BM, BK), "a shape of 3 extents for buffer, which has 2"),
        ((2, 0), (BM, BK), "begins at 128 in dimension 0, whose elements are 0 to 100 - 1"),
        ((0, -1), (BM, BK), "begins at -32 in dimension 1"),
    ):
        with pytest.raises(TileProgramError, match=words):
            wl.tile(buffer, index, shape)
    with pytest.raises(TileProgramError, match="the scope 'global'"):
        wl.load(buffer, (0, 0), (BM, BK), scope="global")
    with pytest.raises(TileProgramError, match="does not cast to float32; write scope"):
        wl.load(buffer, (0, 0), (BM, BK), dtype="float32")
    with pytest.raises(TileProgramError, match=r"operand A of wl\.gemm has 1 dimensions"):
        wl.gemm(buffer[0, 0:BK], buffer)

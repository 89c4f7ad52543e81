"""Exercises of 03_tile_program.py."""

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import Exercise, check_program

M, N, K = 128, 128, 96
BM, BN, BK = 64, 64, 32


def gemm():
    """C = A B^T, float32."""

    @T.prim_func
    def program(
        A: T.Buffer((M, K), "float16"), B: T.Buffer((N, K), "float16"),
        C: T.Buffer((M, N), "float32"),
    ):  # fmt: skip
        T.device_entry()
        i, j = T.cta_id([M // BM, N // BN])
        A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
        B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
        acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        # solution: a loop of wl.pipelined with two copies and an MMA, then a copy of acc to C
        for k in wl.pipelined(K // BK, stages=2):
            Tx.cta.copy_async(A_s, A[i * BM : i * BM + BM, k * BK : k * BK + BK])
            Tx.cta.copy_async(B_s, B[j * BN : j * BN + BN, k * BK : k * BK + BK])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        Tx.cta.copy(C[i * BM : i * BM + BM, j * BN : j * BN + BN], acc)
        # end

    return program


def transposed():
    """C = A^T B, of A stored as [K, M] and B as [K, N]."""

    @T.prim_func
    def program(
        A: T.Buffer((K, M), "float16"), B: T.Buffer((K, N), "float16"),
        C: T.Buffer((M, N), "float32"),
    ):  # fmt: skip
        T.device_entry()
        i, j = T.cta_id([M // BM, N // BN])
        A_s = T.alloc_buffer((BK, BM), "float16", scope="shared")
        B_s = T.alloc_buffer((BK, BN), "float16", scope="shared")
        acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        for k in wl.pipelined(K // BK, stages=2):
            # solution: tiles have K as their first dimension, and the MMA is told so by
            #   transA=True and transB=True
            Tx.cta.copy_async(A_s, A[k * BK : k * BK + BK, i * BM : i * BM + BM])
            Tx.cta.copy_async(B_s, B[k * BK : k * BK + BK, j * BN : j * BN + BN])
            Tx.cta.gemm_async(acc, A_s, B_s, transA=True, transB=True, accum=k > 0)
            # end
        Tx.cta.copy(C[i * BM : i * BM + BM, j * BN : j * BN + BN], acc)

    return program


def _operands(seed):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((rows, K)).astype(np.float16) for rows in (M, N)]


def check_gemm():
    a, b = _operands(1)
    check_program(gemm(), [a, b], a.astype(np.float64) @ b.astype(np.float64).T, tolerance=1e-5)


def check_transposed():
    a, b = _operands(2)
    inputs = [np.ascontiguousarray(one.T) for one in (a, b)]
    expected = a.astype(np.float64) @ b.astype(np.float64).T
    check_program(transposed(), inputs, expected, tolerance=1e-5)


EXERCISES = [
    Exercise("A GEMM with a pipelined loop", check_gemm),
    Exercise("A GEMM of operands that are stored with K first", check_transposed),
]

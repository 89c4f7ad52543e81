"""Exercises of 05_dynamic_shapes.py."""

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import Exercise, check_program

N, K = 64, 64
BM, BK = 64, 32


def double():
    """Y = 2 X, of any number of rows of 100."""

    @T.prim_func
    def program(x: T.handle, y: T.handle):
        # solution: m = T.int32() is a size that only the launch knows; T.match_buffer(x, (m, 100),
        #   "float32") is the matrix, and T.ceildiv(m, 8) the CTAs of eight rows
        m = T.int32()
        X = T.match_buffer(x, (m, 100), "float32")
        Y = T.match_buffer(y, (m, 100), "float32")
        T.device_entry()
        i = T.cta_id([T.ceildiv(m, 8)])
        t = wl.load(X, (i, 0), (8, 100), scope="fragment")
        for r, c in T.grid(8, 100):
            t[r, c] = t[r, c] + t[r, c]
        wl.store(Y, (i, 0), t)
        # end

    return program


def gemm():
    """C = A B^T, of any number of rows of A."""

    @T.prim_func
    def program(a: T.handle, B: T.Buffer((N, K), "float16"), c: T.handle):
        m = T.int32()
        A = T.match_buffer(a, (m, K), "float16")
        C = T.match_buffer(c, (m, N), "float32")
        T.device_entry()
        # solution: a CTA for each BM rows; rows beyond the last are zero where they are loaded, and
        #   are not stored
        i = T.cta_id([T.ceildiv(m, BM)])
        A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
        B_s = T.alloc_buffer((N, BK), "float16", scope="shared")
        acc = T.alloc_buffer((BM, N), "float32", scope="accumulator")
        for k in wl.pipelined(K // BK, stages=2):
            Tx.cta.copy_async(A_s, A[i * BM : i * BM + BM, k * BK : k * BK + BK])
            Tx.cta.copy_async(B_s, B[:, k * BK : k * BK + BK])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        Tx.cta.copy(C[i * BM : i * BM + BM, :], acc)
        # end

    return program


def check_double():
    for rows in (1, 21):
        x = np.random.default_rng(rows).standard_normal((rows, 100)).astype(np.float32)
        check_program(double(), [x], 2 * x, tolerance=0)


def check_gemm():
    for rows in (3, 100):
        rng = np.random.default_rng(rows)
        a, b = (rng.standard_normal((n, K)).astype(np.float16) for n in (rows, N))
        expected = a.astype(np.float64) @ b.astype(np.float64).T
        check_program(gemm(), [a, b], expected, tolerance=1e-5)


EXERCISES = [
    Exercise("Twice a matrix of any number of rows", check_double),
    Exercise("A GEMM of any number of rows", check_gemm),
]

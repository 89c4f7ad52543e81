"""Factories of small tile programs that tests tune, and their right results."""

from __future__ import annotations

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.errors import IllegalCombination


def matmul(M, N, K, tile_m, tile_n, stages=2, dtype="float32"):
    """C = A Bᵀ; float16 operands, results of another dtype perhaps."""
    if tile_n % 8:
        raise IllegalCombination(f"tile_n is {tile_n}; it must be a multiple of 8.")

    @T.prim_func
    def program(
        a: T.Buffer((M, K), "float16"),
        b: T.Buffer((N, K), "float16"),
        c: T.Buffer((M, N), dtype),
    ):
        T.device_entry()
        i, j = T.cta_id([T.ceildiv(M, tile_m), -(-N // tile_n)])
        A_s = T.alloc_buffer((tile_m, 32), "float16", scope="shared")
        B_s = T.alloc_buffer((tile_n, 32), "float16", scope="shared")
        acc = T.alloc_buffer((tile_m, tile_n), "float32", scope="accumulator")
        for k in wl.pipelined(-(-K // 32), stages=stages):
            Tx.cta.copy_async(A_s, a[i * tile_m : i * tile_m + tile_m, k * 32 : k * 32 + 32])
            Tx.cta.copy_async(B_s, b[j * tile_n : j * tile_n + tile_n, k * 32 : k * 32 + 32])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        out = T.alloc_buffer((tile_m, tile_n), dtype, scope="fragment")
        Tx.cta.cast(out, acc)
        Tx.cta.copy(c[i * tile_m : i * tile_m + tile_m, j * tile_n : j * tile_n + tile_n], out)

    return program


def half_matmul(M, N, K, tile_m):
    """As :func:`matmul`, with float16 results."""
    return matmul(M, N, K, tile_m, 32, dtype="float16")


def copy_rows(rows, columns, tile, fault=0):
    """B = A + 1, row by row; with a fault it adds that much more, from column 8 on."""

    @T.prim_func
    def program(A: T.Buffer((rows, columns), "float32"), B: T.Buffer((rows, columns), "float32")):
        T.device_entry()
        i = T.cta_id([T.ceildiv(rows, tile)])
        held = T.alloc_buffer((tile, columns), "float32", scope="shared")
        Tx.cta.copy_async(held, A[i * tile : i * tile + tile, :])
        for y, x in T.grid(tile, columns):
            B[i * tile + y, x] = held[y, x] + T.if_then_else(
                x < 8, T.float32(1), T.float32(1 + fault)
            )

    return program


def softmax(rows, columns, tile):
    """B = softmax(A) along columns."""

    @T.prim_func
    def program(A: T.Buffer((rows, columns), "float32"), B: T.Buffer((rows, columns), "float32")):
        T.device_entry()
        i = T.cta_id([T.ceildiv(rows, tile)])
        held = T.alloc_buffer((tile, columns), "float32", scope="fragment")
        most = T.alloc_buffer((tile, 1), "float32", scope="fragment")
        total = T.alloc_buffer((tile, 1), "float32", scope="fragment")
        Tx.cta.copy(held, A[i * tile : i * tile + tile, :])
        Tx.cta.max(most, held, axes=[-1])
        for y, x in T.grid(tile, columns):
            held[y, x] = T.exp(held[y, x] - most[y, 0])
        Tx.cta.sum(total, held, axes=[-1])
        for y, x in T.grid(tile, columns):
            held[y, x] = held[y, x] / total[y, 0]
        Tx.cta.copy(B[i * tile : i * tile + tile, :], held)

    return program


def softmax_of(array: np.ndarray) -> np.ndarray:
    """Softmax along the last axis, in float64."""
    powers = np.exp(array.astype("float64") - array.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)

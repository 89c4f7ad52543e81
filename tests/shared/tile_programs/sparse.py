"""C = A B with a 2:4 sparse A, in all dtypes and sizes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.tile_programs.case import (
    ACCUMULATORS,
    Case,
    poisoned,
    precision,
    random_values,
    wide,
)
from warploom import language as wl
from warploom.layout.metadata_words import WORD, WORD_BYTES, from_words, to_words
from warploom.sparse import compress, decompress, prune_2_4, sparsity


def few_bits(values: np.ndarray) -> np.ndarray:
    """The values; float32 ones as tf32 has them, since the tensor core reads no more bits."""
    if values.dtype != np.float32:
        return values
    return values.astype(ml_dtypes.bfloat16).astype(np.float32)


def sparse_gemm(
    m: int = 128,
    n: int = 128,
    k: int = 256,
    tile: tuple[int, int, int] = (64, 64, 128),
    dtype: str = "float16",
    b_dtype: str | None = None,
    acc_dtype: str | None = None,
    out_dtype: str | None = None,
    layout: str = "NT",
    stages: int | None = None,
    symbolic: bool = False,
    symbolic_k: bool = False,
    words: bool = False,
) -> Case:
    """C = A B, with A and its metadata compressed; parameters as those of ``gemm``.

    K is that of the dense A; metadata has rows of 16 bytes and more only where tiles have as much.
    With ``words`` it is in words, padded to whole tiles.
    """
    bm, bn, bk = tile
    b_dtype = b_dtype or dtype
    acc_dtype = acc_dtype or ACCUMULATORS.get(dtype, "float32")
    out_dtype = out_dtype or acc_dtype
    rule = sparsity(dtype)
    held, unit = bk // 2, rule.metadata_unit * (WORD_BYTES if words else 1)
    per, e_dtype = bk // unit, WORD if words else "uint8"
    e_rows, e_deep = (-(-m // bm) * bm, -(-k // bk) * per) if words else (m, k // unit)
    trans_a, trans_b = layout[0] == "T", layout[1] == "N"
    a_tile = (held, bm) if trans_a else (bm, held)
    b_shape, b_tile = ((k, n), (bk, bn)) if trans_b else ((n, k), (bn, bk))

    @T.prim_func
    def sparse_matmul(a: T.handle, e: T.handle, b: T.handle, c: T.handle):
        rows = T.int32() if symbolic else T.meta_var(m)
        deep = T.int32() if symbolic_k else T.meta_var(k // 2)
        A = T.match_buffer(a, (deep, rows) if trans_a else (rows, deep), dtype)
        E = T.match_buffer(
            e,
            (rows if symbolic else e_rows, deep * 2 // unit if symbolic_k else e_deep), e_dtype,
        )
        B = T.match_buffer(b, (deep * 2, n) if trans_b else (n, deep * 2), b_dtype)
        C = T.match_buffer(c, (rows, n), out_dtype)
        T.device_entry()
        i, j = T.cta_id([T.ceildiv(rows, bm), -(-n // bn)])
        A_s = T.alloc_buffer(a_tile, dtype, scope="shared")
        E_s = T.alloc_buffer((bm, per), e_dtype, scope="shared")
        B_s = T.alloc_buffer(b_tile, b_dtype, scope="shared")
        acc = T.alloc_buffer((bm, bn), acc_dtype, scope="accumulator")
        out = T.alloc_buffer((bm, bn), out_dtype, scope="fragment")
        for step in wl.pipelined(T.ceildiv(deep, held), stages):
            if trans_a:
                Tx.cta.copy_async(A_s, A[step * held : step * held + held, i * bm : i * bm + bm])
            else:
                Tx.cta.copy_async(A_s, A[i * bm : i * bm + bm, step * held : step * held + held])
            Tx.cta.copy_async(E_s, E[i * bm : i * bm + bm, step * per : step * per + per])
            if trans_b:
                Tx.cta.copy_async(B_s, B[step * bk : step * bk + bk, j * bn : j * bn + bn])
            else:
                Tx.cta.copy_async(B_s, B[j * bn : j * bn + bn, step * bk : step * bk + bk])
            Tx.cta.gemm_async(
                acc, A_s, B_s, sparse=E_s, transA=trans_a, transB=trans_b, accum=step > 0
            )
        Tx.cta.cast(out, acc)
        Tx.cta.copy(C[i * bm : i * bm + bm, j * bn : j * bn + bn], out)

    def arguments(rng: np.random.Generator) -> list[Any]:
        values, metadata = compress(prune_2_4(few_bits(random_values(rng, (m, k), dtype))))
        return [
            np.ascontiguousarray(values.T) if trans_a else values,
            to_words(metadata, dtype, (bm, per)) if words else metadata,
            few_bits(random_values(rng, b_shape, b_dtype)),
            poisoned((m, n), out_dtype),
        ]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        metadata = from_words(args[1], dtype, k // rule.metadata_unit)[:m] if words else args[1]
        dense, b = decompress(args[0].T if trans_a else args[0], metadata), wide(args[2])
        return {3: wide(dense) @ (b if trans_b else b.T)}

    return Case(sparse_matmul, arguments, expected, precision(out_dtype))

"""Tiles of registers that have several times the rows of accumulators, on both architectures."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.lowered_programs import run
from tests.shared.tile_programs.case import poisoned, random_values, wide
from warploom import language as wl
from warploom.errors import Decline
from warploom.lower.lowerings import lower


def transposed(bm, bn, dtype):
    """A product, its transpose through shared memory, and sums of the transpose's rows."""

    @T.prim_func
    def func(
        A: T.Buffer((2 * bm, 32), "float16"), B: T.Buffer((bn, 32), "float16"),
        Ct: T.Buffer((bn, 2 * bm), dtype), sums: T.Buffer((2, bn), "float32"),
    ):  # fmt: skip
        T.device_entry()
        i = T.cta_id([2])
        A_s = T.alloc_buffer((bm, 32), "float16", scope="shared")
        B_s = T.alloc_buffer((bn, 32), "float16", scope="shared")
        S = T.alloc_buffer((bm, bn), "float32", scope="shared")
        acc = T.alloc_buffer((bm, bn), "float32", scope="accumulator")
        tr = T.alloc_buffer((bn, bm), "float32", scope="fragment")
        out = T.alloc_buffer((bn, bm), dtype, scope="fragment")
        row = T.alloc_buffer((bn,), "float32", scope="fragment")
        Tx.cta.copy_async(A_s, A[i * bm : i * bm + bm, 0:32])
        Tx.cta.copy_async(B_s, B)
        Tx.cta.gemm_async(acc, A_s, B_s)
        Tx.cta.copy(S, acc)
        for x, y in T.grid(bn, bm):
            tr[x, y] = S[y, x]
        Tx.cta.sum(row, tr, axes=(1,))
        for x, y in T.grid(bn, bm):
            out[x, y] = T.cast(tr[x, y] + row[x], dtype)
        Tx.cta.copy(Ct[0:bn, i * bm : i * bm + bm], out)
        Tx.cta.copy(sums[i, 0:bn], row)

    return func


@pytest.mark.parametrize(("shape", "dtype", "arch"), itertools.product(
    [(64, 64), (64, 128), (64, 192), (128, 128)], ["float16", "float32"], ["sm_90a", "sm_100a"],
))  # fmt: skip
@pytest.mark.some(5)
def test_transposes(shape, dtype, arch, rng):
    bm, bn = shape
    a, b = (random_values(rng, (rows, 32), "float16") for rows in (2 * bm, bn))
    product = wide(b) @ wide(a).T
    sums = product.reshape(bn, 2, bm).sum(2).T
    expected = product + np.repeat(sums.T, bm, axis=1)
    arguments = [a, b, poisoned((bn, 2 * bm), dtype), poisoned((2, bn), "float32")]
    interpreted = [np.copy(x) for x in arguments]
    func = transposed(bm, bn, dtype)
    wl.interpret(func, interpreted)
    for got in (interpreted, run(lower(func, arch), arguments, arch)):
        allowed = (1e-3 if dtype == "float16" else 1e-5) * np.abs(expected).max()
        assert np.abs(wide(got[2]) - expected).max() <= allowed
        assert np.abs(got[3] - sums).max() <= 1e-5 * np.abs(sums).max()


def test_rows_that_no_blocks_have():
    with pytest.raises(Decline, match="acc 128, tr 192, out 192; tensor memory holds 64 or 128"):
        lower(transposed(128, 192, "float32"), "sm_100a")

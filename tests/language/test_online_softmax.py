"""``wl.OnlineSoftmax``: attention of any blocks of keys, with any mask, against numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.lowered_programs import check
from tests.shared.tile_programs.case import Case, poisoned
from warploom import language as wl

ROWS, D = 64, 64


def attention(keys: int, block: int, nothing: int, scale: float) -> Case:
    """Attention to ``keys`` keys; of ``nothing`` queries no key is seen, of others every third."""

    @T.prim_func
    def program(Q: T.Buffer((ROWS, D), "float16"), K: T.Buffer((keys, D), "float16"),
                V: T.Buffer((keys, D), "float16"), Out: T.Buffer((ROWS, D), "float32"),
                LSE: T.Buffer((ROWS,), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        Q_s = wl.load(Q, (0, 0), (ROWS, D))
        acc = wl.alloc_accumulator((ROWS, D))
        softmax = wl.OnlineSoftmax(ROWS, scale=scale)
        Tx.cta.zero(acc)
        for s in wl.pipelined(T.ceildiv(keys, block)):
            K_s = wl.load(K, (s, 0), (block, D))
            V_s = wl.load(V, (s, 0), (block, D))
            S = wl.gemm(Q_s, K_s)
            for i, j in T.grid(ROWS, block):
                key: T.let = s * block + j
                seen: T.let = T.And(T.And(key < keys, key % 3 == i % 3), i >= nothing)
                S[i, j] = T.if_then_else(seen, S[i, j], T.float32("-inf"))
            softmax.update(S, acc)
            Tx.cta.gemm_async(acc, wl.cast(S, "float16"), V_s, transB=True, accum=True)
        softmax.divide(acc)
        wl.store(Out, (0, 0), acc)
        for i in T.serial(ROWS):
            LSE[i] = softmax.log_of_sum(i)

    def expected(args: list) -> dict[int, np.ndarray]:
        q, k, v = (each.astype(np.float64) for each in args[:3])
        seen = np.arange(keys) % 3 == np.arange(ROWS)[:, None] % 3
        seen &= np.arange(ROWS)[:, None] >= nothing
        weights = np.where(seen, np.exp(scale * (q @ k.T)), 0)
        total = np.maximum(weights.sum(1, keepdims=True), 1e-30)
        lowest = -1e30 * scale + math.log(1e-30)
        log_of_sum = np.where(seen.any(1), np.log(total[:, 0]), lowest)
        # In terms of the largest element, the others would say nothing beside -1e30.
        return {3: weights / total @ v} | ({} if nothing else {4: log_of_sum})

    return Case(
        program,
        lambda rng: [
            *(rng.standard_normal((n, D)).astype(np.float16) for n in (ROWS, keys, keys)),
            poisoned((ROWS, D), "float32"), poisoned((ROWS,), "float32"),
        ],
        expected,
        3e-3,
    )  # fmt: skip


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("nothing", [0, 5])
@pytest.mark.parametrize(("keys", "block"), [(64, 64), (150, 64), (40, 32)])
@pytest.mark.some(4)
def test_attention(keys, block, nothing, arch, rng):
    check(attention(keys, block, nothing, 0.25), rng, arch)


def test_names_in_a_program_are_those_of_its_author():
    script = attention(64, 64, 0, 1.0).func.script()
    assert all(f"softmax_{name} = " in script for name in ("largest", "shrink", "total"))

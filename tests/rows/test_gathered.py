"""Rows that are multiplied with matrices that a tensor names for each."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te
from tvm.tirx import PrimFunc

import warploom
from warploom.errors import Decline
from warploom.rows import row_kernel
from warploom.rows.choose import plan_of
from warploom.rows.problem import read_rows


def gathered(
    tokens: int, choices: int, n: int, k: int, experts: int, dtype: str, index: str, own: bool
) -> PrimFunc:
    """``(P[t, c], X[t, (c,)], W[P[t, c]])`` multiplied; ``own``: each choice has a row of X."""
    shape = (tokens, choices, k) if own else (tokens, k)
    x, w = te.placeholder(shape, dtype, "x"), te.placeholder((experts, n, k), dtype, "w")
    p, r = te.placeholder((tokens, choices), index, "p"), te.reduce_axis((0, k), "r")
    out = te.compute(
        (tokens, choices, n),
        lambda t, c, i: te.sum(
            (x[t, c, r] if own else x[t, r]).astype("float32")
            * w[p[t, c], i, r].astype("float32"),
            r,
        ),
        "out",
    )
    return te.create_prim_func([x, w, p, out])


@pytest.mark.gpu
@pytest.mark.some(4)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize(
    ("tokens", "choices", "n", "k", "index", "own"),
    [(1, 2, 40, 64, "int32", False), (1, 8, 24, 128, "int64", True),
     (3, 2, 10, 1032, "int32", False), (5, 1, 7, 8, "int64", True), (2, 6, 12, 4096, "int32", True),
     (4, 2, 9, 37, "int32", False)],
)  # fmt: skip
def test_matrices_that_are_looked_up(rng, tokens, choices, n, k, index, own, dtype):
    experts = 8
    function = gathered(tokens, choices, n, k, experts, dtype, index, own)
    kernel = row_kernel(read_rows(function)).with_attr("global_symbol", "main")
    target = warploom.cuda_target("h200")
    built = tvm.compile(tvm.IRModule({"main": kernel}), target, tir_pipeline="warploom")
    x = rng.standard_normal((tokens, choices, k) if own else (tokens, k)).astype(dtype)
    w = rng.standard_normal((experts, n, k)).astype(dtype)
    p = rng.integers(0, experts, (tokens, choices)).astype(index)
    out = np.full((tokens, choices, n), np.nan, np.float32)
    arrays = [tvm.runtime.tensor(one, tvm.cuda(0)) for one in (x, w, p, out)]
    built["main"](*arrays)
    wide = x.astype(np.float64) if own else x.astype(np.float64)[:, None]
    wanted = np.einsum("tck,tcnk->tcn", np.broadcast_to(wide, (tokens, choices, k)),
                       w.astype(np.float64)[p])  # fmt: skip
    np.testing.assert_allclose(arrays[-1].numpy(), wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("k", "words"), [(64, "8 threads"), (1024, "32 threads"), (8192, "once")])
def test_a_warp_has_a_row_at_most(k, words):
    plan = plan_of(read_rows(gathered(1, 2, 40, k, 8, "float16", "int32", False)))
    assert plan.vector == 8
    assert plan.threads <= 32
    assert words in str(plan)


def test_matrices_that_many_rows_are_multiplied_with_are_left_to_rules_for_matmuls():
    x, w = te.placeholder((4, 16, 64), "float16", "x"), te.placeholder((8, 32, 64), "float16", "w")
    p, r = te.placeholder((4,), "int32", "p"), te.reduce_axis((0, 64), "r")
    out = te.compute((4, 16, 32), lambda b, m, n: te.sum(x[b, m, r] * w[p[b], n, r], r), "out")
    with pytest.raises(Decline, match="matmuls are left"):
        plan_of(read_rows(te.create_prim_func([x, w, p, out])))

"""Attention by hand, a tutorial: instructions of two MMAs among its own arithmetic."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm

from tests.shared.reference import numpy_dtype
from tests.shared.tutorial_names import tutorial_names
from warploom.compiler.callback import compile_cached
from warploom.compiler.invoke import current_request
from warploom.compiler.report import compile_report
from warploom.compiler.sass import listing
from warploom.errors import IllegalCombination
from warploom.target import cuda_target

TARGET = cuda_target("h200")
attention = tutorial_names("19_attention_by_hand.py")["attention"]


def softmax_product(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    logits = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("tokens", "head_dim", "heads", "keys", "stages", "dtype"),
    [
        (150, 64, 2, 64, 2, "float16"),
        (3, 64, 2, 32, 3, "float16"),
        pytest.param(129, 128, 1, 48, 1, "bfloat16", marks=pytest.mark.slow),
        pytest.param(64, 48, 1, 16, 4, "float16", marks=pytest.mark.slow),
    ],
)
def test_attention_by_hand(tokens, head_dim, heads, keys, stages, dtype, rng):
    kernel = attention(tokens, head_dim, heads, keys, stages, dtype)
    executable = tvm.compile(tvm.IRModule({"main": kernel}), TARGET, tir_pipeline="tirx")
    shape, own = (heads, tokens, head_dim), numpy_dtype(dtype)
    q, k, v = (rng.standard_normal(shape, np.float32).astype(own) for _ in range(3))
    out = tvm.runtime.tensor(np.full(shape, np.nan, np.float32).astype(own), tvm.cuda(0))
    executable["main"](*(tvm.runtime.tensor(x, tvm.cuda(0)) for x in (q, k, v)), out)
    epsilon = 2.0 ** (-10 if dtype == "float16" else -7)
    expected = softmax_product(q, k, v)
    # Weights and the result are rounded to the dtype.
    np.testing.assert_allclose(out.numpy().astype(np.float64), expected, 0, 4 * epsilon)


def test_registers_are_not_spilled_and_no_mma_is_serialised():
    kernel = attention(256, 64, keys=32)
    executable = tvm.compile(tvm.IRModule({"main": kernel}), TARGET, tir_pipeline="tirx")
    report = compile_report(executable, TARGET)
    (found,) = report.kernels
    assert not report.problems, "\n".join(map(str, report.problems))
    assert found.spill_store_bytes == found.spill_load_bytes == found.info.stack_bytes == 0
    # 4 of Q Kᵀ, and 2 of the weights times V between which the softmax goes on.
    assert found.sass["HGMMA"] == 64 // 16 + 32 // 16
    source = executable.mod.imports[0].inspect_source()
    with TARGET:
        cubin = compile_cached(current_request(source, "cubin")).output.binary
    # Exponentials (M) of the next weights stand between the MMAs (H) of weights and V.
    order = "".join(re.findall(r"\b([HM])(?:GMMA|UFU)\b", listing(cubin)))
    assert re.search(r"HHHHM+HM+H", order), order


def test_a_head_that_no_mma_has_is_refused():
    with pytest.raises(IllegalCombination, match="K = 40 is not a positive multiple of 16"):
        attention(64, head_dim=40)

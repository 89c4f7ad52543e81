"""A mixture of experts in ``nn``: routing, tokens sorted by expert, grouped GEMMs."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

import warploom
from tests.relax.grouped_functions import tiles_by_hand
from warploom.relax.inspect import inspect

pytestmark = pytest.mark.gpu

_TARGET = warploom.cuda_target("h200")
_HIDDEN, _INNER = 64, 96


def _offsets(chosen: te.Tensor, experts: int) -> te.Tensor:
    """The first row of each expert, and the end of the last one."""
    p = te.reduce_axis((0, chosen.shape[0]), "p")
    return te.compute(
        (experts + 1,), lambda e: te.sum(tirx.Cast("int32", chosen[p] < e), p), "offsets"
    )


def _places(chosen: te.Tensor) -> te.Tensor:
    """Where each choice is among all, sorted by experts."""
    q = te.reduce_axis((0, chosen.shape[0]), "q")
    before = lambda p: tirx.any(  # noqa: E731
        chosen[q] < chosen[p], tirx.all(chosen[q].equal(chosen[p]), q < p)
    )
    return te.compute(
        chosen.shape, lambda p: te.sum(tirx.Cast("int32", before(p)), q), "places"
    )


def _sorted_rows(tokens: int, choices: int, dtype: str) -> PrimFunc:
    """Rows of tokens at the places of their choices."""

    @T.prim_func(private=True, s_tir=True)
    def scatter(
        x: T.Buffer((T.int64(tokens), T.int64(_HIDDEN)), dtype),
        places: T.Buffer((T.int64(tokens * choices),), "int32"),
        out: T.Buffer((T.int64(tokens * choices), T.int64(_HIDDEN)), dtype),
    ):
        T.func_attr({"op_pattern": 8, "tirx.noalias": True})
        for p, h in T.grid(T.int64(tokens * choices), T.int64(_HIDDEN)):
            with T.sblock("scatter"):
                i, j = T.axis.remap("SS", [p, h])
                T.reads(x[i // T.int64(choices), j], places[i])
                T.writes(out[places[i], j])
                out[places[i], j] = x[i // T.int64(choices), j]

    return scatter


class Mixture(nn.Module):
    """SwiGLU experts, of which each token has some."""

    def __init__(self, experts: int, choices: int, dtype: str) -> None:
        self.experts, self.choices, self.dtype = experts, choices, dtype
        self.router = nn.Linear(_HIDDEN, experts, bias=False, dtype=dtype)
        self.both = nn.Parameter((experts, 2 * _INNER, _HIDDEN), dtype=dtype)
        self.down = nn.Parameter((experts, _HIDDEN, _INNER), dtype=dtype)

    def _grouped(self, x, w, offsets):
        func = tiles_by_hand(*map(int, w.shape), self.dtype)
        out = nn.Tensor.placeholder([x.shape[0], w.shape[1]], self.dtype)
        return op.tensor_ir_op(func, "group_gemm", [x, w, offsets], out)

    def forward(self, x: nn.Tensor):
        tokens, choices = int(x.shape[0]), self.choices
        scores = op.softmax(op.astype(self.router(x), "float32"), -1)
        weights, chosen = op.topk(scores, choices, dtype="int32")
        weights = weights / op.sum(weights, -1, keepdims=True)
        flat = op.reshape(chosen, (tokens * choices,))
        offsets = op.tensor_expr_op(lambda c: _offsets(c, self.experts), "offsets", [flat])
        places = op.tensor_expr_op(_places, "places", [flat])
        rows = nn.Tensor.placeholder([tokens * choices, _HIDDEN], self.dtype)
        func = _sorted_rows(tokens, choices, self.dtype)
        rows = op.tensor_ir_op(func, "scatter", [x, places], rows)
        gate, up = op.split(self._grouped(rows, self.both, offsets), 2, -1)
        y = op.take(self._grouped(op.silu(gate) * up, self.down, offsets), places, 0)
        y = op.reshape(y, (tokens, choices, _HIDDEN))
        mixed = op.astype(y, "float32") * op.reshape(weights, (tokens, choices, 1))
        return op.astype(op.sum(mixed, 1), self.dtype)


def _expected(x, router, both, down, choices):
    """In float64, with the choices of the rounded router."""
    logits = x @ router.T
    scores = np.exp(logits - logits.max(1, keepdims=True))
    chosen = np.argsort(-scores, 1, kind="stable")[:, :choices]
    weights = np.take_along_axis(scores, chosen, 1)
    weights /= weights.sum(1, keepdims=True)
    inner = np.einsum("th,tcnh->tcn", x, both[chosen])
    gate, up = np.split(inner, 2, -1)
    return np.einsum("tcn,tchn,tc->th", gate / (1 + np.exp(-gate)) * up, down[chosen], weights)


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("tokens", "experts", "choices", "bias"),
    [(24, 8, 2, 0), (5, 16, 4, 0), (40, 8, 1, 60), (130, 64, 6, 0), (9, 8, 8, 0)],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_tokens_that_are_sorted_by_experts(rng, tokens, experts, choices, bias, dtype):
    """``bias``: how much the router prefers one expert, which then has all tokens."""
    model = Mixture(experts, choices, dtype)
    spec = {"forward": {"x": nn.spec.Tensor([tokens, _HIDDEN], dtype)}}
    module, _ = model.export_tvm(spec)
    reports = inspect(module)
    assert sum("a grouped GEMM" in str(one) for one in reports) == 2
    assert any(f"the {choices} largest of the softmax" in str(one) for one in reports)
    x = rng.standard_normal((tokens, _HIDDEN))
    router = rng.standard_normal((experts, _HIDDEN)) / 4
    if bias:
        x[:, 0], router[:, 0], router[3, 0] = 1, 0, bias
    arrays = [x, router, rng.standard_normal((experts, 2 * _INNER, _HIDDEN)) / 8,
              rng.standard_normal((experts, _HIDDEN, _INNER)) / 8]  # fmt: skip
    arrays = [one.astype(dtype) for one in arrays]
    wide = [one.astype(np.float64) for one in arrays]
    machine = relax.VirtualMachine(relax.build(module, _TARGET), tvm.cuda(0))
    found = machine["forward"](*(tvm.runtime.tensor(one, tvm.cuda(0)) for one in arrays))
    # Scores that are nearly equal may be rounded to others: such tokens are not compared.
    logits = np.sort(wide[0] @ wide[1].T, 1)
    gap = logits[:, -choices] - logits[:, -choices - 1] if choices < experts else np.ones(tokens)
    clear = gap > {"float16": 0.01, "bfloat16": 0.08}[dtype]
    assert clear.mean() > 0.5
    wanted = _expected(*wide, choices)[clear]
    bound = {"float16": 1e-2, "bfloat16": 6e-2}[dtype] * np.abs(wanted).max()
    assert np.abs(found.numpy().astype(np.float64)[clear] - wanted).max() <= bound

"""Products whose columns are paired afterwards, such as those of SwiGLU, are one kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx
from tvm.relax.frontend import nn

import warploom
from tests.shared import relax_models as models
from warploom.relax.inspect import inspect

_TARGET = warploom.cuda_target("h200")
_HIDDEN, _WIDE = 64, 72


def _silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


class _Halves(nn.Module):
    """SwiGLU of one weight: the gate's outputs are the first half."""

    def __init__(self) -> None:
        self.gate_up = nn.Linear(_HIDDEN, 2 * _WIDE, bias=False)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        gate, up = nn.op.split(self.gate_up(x), 2, axis=-1)
        return nn.op.silu(gate) * up

    @staticmethod
    def expected(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        gate, up = np.split(x @ weight.T, 2, 1)
        return _silu(gate) * up


class _Two(nn.Module):
    """SwiGLU of two weights, and a residual from elsewhere."""

    def __init__(self) -> None:
        self.gate = nn.Linear(_HIDDEN, _WIDE, bias=False)
        self.up = nn.Linear(_HIDDEN, _WIDE, bias=False)
        self.shift = nn.Parameter((_WIDE,), "float32")

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.op.silu(self.gate(x)) * self.up(x) + self.shift

    @staticmethod
    def expected(x: np.ndarray, gate: np.ndarray, up: np.ndarray, shift: np.ndarray) -> Any:
        return _silu(x @ gate.T) * (x @ up.T) + shift


class _Rows(_Two):
    """Two GEMMs of different rows."""

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.op.silu(self.gate(x)) * self.up(nn.op.relu(x)) + self.shift


class _Twice(_Halves):
    """The GEMM is also a result."""

    def forward(self, x: nn.Tensor) -> Any:
        made = self.gate_up(x)
        gate, up = nn.op.split(made, 2, axis=-1)
        return nn.op.silu(gate) * up, made


class _Neighbours(nn.Module):
    """Each column is paired with the next one: fused, all would be summed twice."""

    def __init__(self) -> None:
        self.weight = nn.Linear(_HIDDEN, _WIDE + 8, bias=False)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        def pairs(one: te.Tensor) -> te.Tensor:
            shape = one.shape[0], tirx.IntImm("int64", _WIDE)
            return te.compute(shape, lambda i, j: one[i, j] * one[i, j + 1], "pairs")

        return nn.op.tensor_expr_op(pairs, "pairs", [self.weight(x)])


def _exported(model: nn.Module, dtype: str, rows: int | str = "m") -> tvm.IRModule:
    model.to(dtype)
    return models.exported(model, [rows, _HIDDEN], dtype)


@pytest.mark.gpu
@pytest.mark.parametrize(("kind", "dtype"), [(_Halves, "float16"), (_Two, "bfloat16")])
def test_pairs_of_gemms_are_one_kernel(
    kind: Any, dtype: str, rng: np.random.Generator
) -> None:
    module = _exported(kind(), dtype)
    (report,) = inspect(module)
    assert (report.problem.products, report.problem.n) == (2, _WIDE)
    executable = relax.build(module, _TARGET)
    machine = relax.VirtualMachine(executable, tvm.cuda(0))
    shapes = {_Halves: ((2 * _WIDE, _HIDDEN),), _Two: ((_WIDE, _HIDDEN),) * 2 + ((_WIDE,),)}[kind]
    weights = [rng.standard_normal(one).astype(dtype) / 4 for one in shapes]
    for rows in (3, 40):
        arrays = [rng.standard_normal((rows, _HIDDEN)).astype(dtype), *weights]
        tensors = (tvm.runtime.tensor(one.astype(dtype), tvm.cuda(0)) for one in arrays)
        found = machine["forward"](*tensors).numpy().astype(np.float64)
        wanted = kind.expected(*(one.astype(dtype).astype(np.float64) for one in arrays))
        bound = {"float16": 4e-3, "bfloat16": 3e-2}[dtype] * np.abs(wanted).max()
        assert np.abs(found - wanted).max() <= bound


@pytest.mark.parametrize("kind", [_Rows, _Twice, _Neighbours])
def test_gemms_that_would_be_more_work_stay_apart(kind: Any) -> None:
    problems = [one.problem for one in inspect(_exported(kind(), "float16")) if one.problem]
    assert problems and all(one.products == 1 for one in problems)


@pytest.mark.parametrize("rows", [40, "m"])
def test_functions_between_keep_their_place(rows: int | str) -> None:
    class Normed(_Halves):
        def forward(self, x: nn.Tensor) -> nn.Tensor:
            return super().forward(nn.op.relu(x))

    reports = inspect(_exported(Normed(), "float16", rows))
    assert [bool(one.problem) for one in reports] == [True, False], "relu is no part of a product"

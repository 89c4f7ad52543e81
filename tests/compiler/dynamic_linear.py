"""A small Relax model with symbolic sizes, for the tests' process and for others."""

from __future__ import annotations

import tvm
from tvm.relax.frontend import nn


class _Model(nn.Module):
    """A GEMM and a constant, for a prompt and for decoding: their rows are other dimensions."""

    def __init__(self, factor: float) -> None:
        self.linear, self.factor = nn.Linear(64, 64, bias=False), factor

    def _run(self, x):
        return self.linear(x) * self.factor

    def prompt(self, x):
        return self._run(x)

    def decoding(self, x):
        return self._run(x)


def module(factor: float = 2.0) -> tvm.IRModule:
    """The model, made anew."""
    model = _Model(factor)
    model.to("float16")
    made, _ = model.export_tvm(
        {
            "prompt": {"x": nn.spec.Tensor([1, "n", 64], "float16")},
            "decoding": {"x": nn.spec.Tensor(["b", 1, 64], "float16")},
        }
    )
    return made

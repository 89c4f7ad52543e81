"""Linear layers by how their weights are stored: float16, MLC-LLM's q4f16_1, and fp8."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from warploom_bench.decoder import QuantisedLinear

#: Largest float8_e4m3fn.
FP8_LARGEST = 448.0


class Fp8Linear(nn.Module):
    """``x W^T`` of float8_e4m3fn numbers, with one scale for the weight and one for activations."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self.weight = nn.Parameter((outputs, inputs), "float8_e4m3fn")
        self.scale = nn.Parameter((1,), "float32")
        self.x_scale = nn.Parameter((1,), "float32")

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        def narrow(x: te.Tensor, scale: te.Tensor) -> te.Tensor:
            def element(*at: Any) -> Any:
                value = x[at].astype("float32") / scale[0]
                bound = tirx.const(FP8_LARGEST, "float32")
                return tirx.max(tirx.min(value, bound), -bound).astype("float8_e4m3fn")

            return te.compute(x.shape, element, "narrow")

        rows = op.tensor_expr_op(narrow, "narrow", [x, self.x_scale])
        product = op.matmul(rows, op.permute_dims(self.weight), out_dtype="float32")
        return op.astype(product * (self.scale * self.x_scale), x.dtype)


class BiasedLinear(nn.Module):
    """Any of these layers, and a bias behind it."""

    def __init__(self, inner: nn.Module, outputs: int) -> None:
        self.inner, self.bias = inner, nn.Parameter((outputs,), "float16")

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.inner(x) + self.bias


def linear(outputs: int, inputs: int, weights: str, bias: bool = False) -> nn.Module:
    """A linear layer with weights of a kind (:data:`warploom_bench.models.sizes.WEIGHTS`)."""
    if weights == "float16":
        return nn.Linear(inputs, outputs, bias=bias, dtype="float16")
    if weights == "int4":
        made: nn.Module = QuantisedLinear(inputs, outputs, "float16")
    else:
        made = Fp8Linear(inputs, outputs)
    return BiasedLinear(made, outputs) if bias else made

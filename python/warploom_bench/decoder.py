"""A Llama-style decoder block, written with Relax's ``nn.Module``.

Tokens attend to those before them among the same rows; there is no cache. The number of rows is
known at run time only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.relax.frontend import nn

#: Keys are padded to a multiple of this, so that rows of scores begin at multiples of 16 bytes.
_KEYS = 8
#: Weights of 4 bits: how many a word holds, how many share a scale, and the field of 0.
_PER_WORD, GROUP, ZERO = 8, 32, 7


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes of a block; those of Llama 3 8B by default.

    Attributes
    ----------
    hidden, intermediate : int
        Width of the residual stream and of the MLP.
    heads, kv_heads, head_dim : int
        ``heads // kv_heads`` heads of queries share one of keys and values.
    positions : int
        Rows that the table of rotations has.
    dtype : str
        ``"float16"`` or ``"bfloat16"``.
    quantised : bool
        Whether weights have 4 bits, and a scale of ``dtype`` for each ``GROUP`` of them.
    fused_attention : bool
        Whether attention is Relax's operator, or else two GEMMs and a softmax.
    epsilon : float
        Of RMSNorm.
    """

    hidden: int = 4096
    intermediate: int = 14336
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    positions: int = 8192
    dtype: str = "float16"
    quantised: bool = False
    fused_attention: bool = True
    epsilon: float = 1e-5

    @property
    def layers(self) -> dict[str, tuple[int, int]]:
        """Name -> (outputs, inputs) of the four linear layers."""
        width = self.heads * self.head_dim
        return {
            "qkv": (width + 2 * self.kv_heads * self.head_dim, self.hidden),
            "out": (self.hidden, width),
            "gate_up": (2 * self.intermediate, self.hidden),
            "down": (self.hidden, self.intermediate),
        }


class QuantisedLinear(nn.Module):
    """``x W^T`` with weights of 4 bits in words, the first in the lowest bits."""

    def __init__(self, inputs: int, outputs: int, dtype: str) -> None:
        self.inputs, self.outputs, self.dtype = inputs, outputs, dtype
        self.words = nn.Parameter((outputs, inputs // _PER_WORD), "uint32")
        self.scales = nn.Parameter((outputs, inputs // GROUP), dtype)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        def weight(words: te.Tensor, scales: te.Tensor) -> te.Tensor:
            def element(n: Any, k: Any) -> Any:
                shift = (k % _PER_WORD * 4).astype("uint32")
                field = words[n, k // _PER_WORD] >> shift & tirx.const(15, "uint32")
                return (field.astype(self.dtype) - tirx.const(ZERO, self.dtype)) * scales[
                    n, k // GROUP
                ]

            return te.compute((self.outputs, self.inputs), element, "weight")

        made = nn.op.tensor_expr_op(weight, "weight", [self.words, self.scales])
        return nn.op.matmul(x, nn.op.permute_dims(made))


class Decoder(nn.Module):
    """``h = x + attention(norm(x))``, then ``h + mlp(norm(h))``.

    ``rotations`` are cosines and sines of the rotary embedding, float32
    ``(2, positions, head_dim / 2)``.
    """

    def __init__(self, config: DecoderConfig) -> None:
        self.config = config
        for name, (outputs, inputs) in config.layers.items():
            if config.quantised:
                made = QuantisedLinear(inputs, outputs, config.dtype)
            else:
                made = nn.Linear(inputs, outputs, bias=False, dtype=config.dtype)
            setattr(self, name, made)
        shape = [config.hidden]
        self.attention_norm = nn.Parameter(shape, config.dtype)
        self.mlp_norm = nn.Parameter(shape, config.dtype)
        self.rotations = nn.Parameter((2, config.positions, config.head_dim // 2), "float32")

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        """Rows ``(m, hidden)`` of both ``x`` and the result."""
        h = self.out(self._attention(self.qkv(self._norm(x, self.attention_norm)))) + x
        gate, up = nn.op.split(self.gate_up(self._norm(h, self.mlp_norm)), 2, axis=-1)
        return self.down(nn.op.silu(gate) * up) + h

    def _norm(self, x: nn.Tensor, weight: nn.Tensor) -> nn.Tensor:
        return nn.op.rms_norm(x, weight, axes=-1, epsilon=self.config.epsilon)

    def _attention(self, qkv: nn.Tensor) -> nn.Tensor:
        """From ``(m, all heads * head_dim)`` to ``(m, heads * head_dim)``."""
        config, rows = self.config, qkv.shape[0]
        q = self._heads(qkv, 0, config.heads, rows, True)
        first, count = config.heads, config.kv_heads
        if config.fused_attention:
            k = self._heads(qkv, first, count, rows, True)
            v = self._heads(qkv, first + count, count, rows, False)
            mixed = nn.op.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            keys = (rows + (_KEYS - 1)) // _KEYS * _KEYS
            share, depth = config.heads // count, config.head_dim
            k = self._heads(qkv, first, count, keys, True)
            v = self._heads(qkv, first + count, count, keys, False)
            q = nn.op.permute_dims(nn.op.reshape(q, [rows, count, share, depth]), [1, 2, 0, 3])
            k = nn.op.permute_dims(nn.op.reshape(k, [keys, count, 1, depth]), [1, 2, 3, 0])
            v = nn.op.permute_dims(nn.op.reshape(v, [keys, count, 1, depth]), [1, 2, 0, 3])
            mixed = nn.op.matmul(self._softmax(nn.op.matmul(q, k)), v)
            mixed = nn.op.permute_dims(mixed, [2, 0, 1, 3])
        return nn.op.reshape(mixed, [rows, config.heads * config.head_dim])

    def _heads(self, qkv: nn.Tensor, first: int, count: int, rows: Any, rotated: bool) -> nn.Tensor:
        """Heads from ``first`` on as ``(1, rows, count, head_dim)``, zeros beyond the last row."""
        half, depth = self.config.head_dim // 2, self.config.head_dim
        padded = not tvm_ffi.structural_equal(rows, qkv.shape[0])

        def heads(qkv: te.Tensor, rotations: te.Tensor) -> te.Tensor:
            def element(_: Any, i: Any, h: Any, d: Any) -> Any:
                column = (first + h) * depth
                value = qkv[i, column + d]
                if rotated:
                    other = qkv[i, column + (d + half) % depth].astype("float32")
                    other = tirx.Select(d < half, -other, other)
                    turned = value.astype("float32") * rotations[0, i, d % half]
                    value = (turned + other * rotations[1, i, d % half]).astype(qkv.dtype)
                if not padded:
                    return value
                return tirx.if_then_else(i < qkv.shape[0], value, tirx.const(0, qkv.dtype))

            return te.compute((1, rows, count, depth), element, "heads")

        return nn.op.tensor_expr_op(heads, "heads", [qkv, self.rotations])

    def _softmax(self, scores: nn.Tensor) -> nn.Tensor:
        """Weights of the keys up to each query's own position; in float32 inside."""
        scale = 1 / math.sqrt(self.config.head_dim)

        def softmax(scores: te.Tensor) -> te.Tensor:
            *outer, keys = scores.shape
            lowest = tirx.min_value("float32")

            def seen(h: Any, g: Any, i: Any, j: Any) -> Any:
                value = scores[h, g, i, j].astype("float32") * tirx.const(scale, "float32")
                return tirx.Select(j <= i, value, lowest)

            r, s = te.reduce_axis((0, keys), "r"), te.reduce_axis((0, keys), "s")
            largest = te.compute(outer, lambda *at: te.max(seen(*at, r), r), "largest")
            total = te.compute(
                outer, lambda *at: te.sum(te.exp(seen(*at, s) - largest[at]), s), "total"
            )
            return te.compute(
                scores.shape,
                lambda *at: (te.exp(seen(*at) - largest[at[:3]]) / total[at[:3]]).astype(
                    scores.dtype
                ),
                "softmax",
            )

        return nn.op.tensor_expr_op(softmax, "softmax", [scores])


def decoder_module(
    config: DecoderConfig, rows: int | str = "m"
) -> tuple[tvm.IRModule, dict[str, tuple[tuple[int, ...], str]]]:
    """The block as a module with ``forward(x, *parameters)``.

    Returns
    -------
    (IRModule, dict)
        And shape and dtype of each parameter, in their order.
    """
    spec = {"forward": {"x": nn.spec.Tensor([rows, config.hidden], config.dtype)}}
    module, parameters = Decoder(config).export_tvm(spec)
    shapes = {
        name: (tuple(int(extent) for extent in parameter.shape), parameter.dtype)
        for name, parameter in parameters
    }
    return module, shapes

"""Attention over latent vectors (MLA), as MLC-LLM writes DeepSeek's models.

A prefill expands the latent vectors of its tokens to keys and values of all heads. A decode step
multiplies queries by the expansion instead, and attends the cached vectors as they are.
"""

from __future__ import annotations

from typing import Any

from tvm import te, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache

from warploom_bench.models.linears import linear
from warploom_bench.models.sizes import LanguageSizes


class LatentAttention(nn.Module):
    """One cached vector for all heads: ``latent`` elements, and a rotated key beside it."""

    def __init__(self, sizes: LanguageSizes) -> None:
        self.sizes, linears = sizes, sizes.projections
        self.query = linear(*linears["query"], sizes.weights)
        self.compress = linear(*linears["compress"], sizes.weights)
        self.norm = nn.RMSNorm(sizes.latent, -1, epsilon=1e-5, bias=False, dtype="float16")
        self.expand_keys = nn.Parameter((sizes.heads, sizes.head_dim, sizes.latent), "float16")
        self.expand_values = nn.Parameter((sizes.heads, sizes.head_dim, sizes.latent), "float16")
        self.out = linear(*linears["out"], sizes.weights)

    def forward(self, x: nn.Tensor, cache: PagedKVCache, layer: int) -> nn.Tensor:
        one, (batch, rows, _) = self.sizes, x.shape
        scale = one.query_dim**-0.5
        positions = cache.get_query_positions(batch * rows)
        q = op.reshape(self.query(x), (batch, rows, one.heads, one.query_dim))
        plain, turned = op.split(q, [one.head_dim], -1)
        turned = self._rotated(turned, positions)
        vector, key = op.split(self.compress(x), [one.latent], -1)
        vector = self.norm(vector)
        key = self._rotated(op.reshape(key, (batch, rows, 1, one.rotated)), positions)
        cached = op.concat([op.reshape(vector, (batch, rows, 1, one.latent)), key], -1)
        cache = cache.append_mla_kv(layer, cached)
        if _is_one(rows):
            absorbed = op.matmul(_heads_first(plain), self.expand_keys)
            q = op.concat([_heads_first(absorbed, batch), turned], -1)
            found, _ = cache.cross_attention(layer, q, one.latent, scale)
            found = op.matmul(_heads_first(found), op.permute_dims(self.expand_values, [0, 2, 1]))
            found = _heads_first(found, batch)
        else:
            wide = (one.heads * one.head_dim, one.latent)
            heads = (batch, rows, one.heads, one.head_dim)
            keys, values = (
                op.reshape(op.matmul(vector, op.permute_dims(op.reshape(each, wide))), heads)
                for each in (self.expand_keys, self.expand_values)
            )
            key = op.broadcast_to(key, (batch, rows, one.heads, one.rotated))
            q, k = op.concat([plain, turned], -1), op.concat([keys, key], -1)
            found, _ = cache.self_attention(layer, q, k, values, scale)
        return self.out(op.reshape(found, (batch, rows, one.heads * one.head_dim)))

    def _rotated(self, x: nn.Tensor, positions: nn.Tensor) -> nn.Tensor:
        """Heads ``[batch, rows, heads, rotated]`` turned by their positions."""
        half, theta = self.sizes.rotated // 2, self.sizes.theta

        def rotate(x: te.Tensor, positions: te.Tensor) -> te.Tensor:
            def element(b: Any, i: Any, h: Any, d: Any) -> Any:
                speed = tirx.power(
                    tirx.const(theta, "float32"),
                    (d % half).astype("float32") / tirx.const(-half, "float32"),
                )
                angle = positions[b * x.shape[1] + i].astype("float32") * speed
                value = x[b, i, h, d].astype("float32")
                other = x[b, i, h, (d + half) % (2 * half)].astype("float32")
                other = tirx.Select(d < half, -other, other)
                return (value * tirx.cos(angle) + other * tirx.sin(angle)).astype(x.dtype)

            return te.compute(x.shape, element, "rotated")

        return op.tensor_expr_op(rotate, "rotated", [x, positions])


def _is_one(extent: Any) -> bool:
    return isinstance(extent, int | tirx.IntImm) and int(extent) == 1


def _heads_first(x: nn.Tensor, batch: Any = None) -> nn.Tensor:
    """From ``[b, 1, heads, d]`` to ``[heads, b, d]``, and back with ``batch``."""
    if batch is None:
        b, _, heads, depth = x.shape
        return op.permute_dims(op.reshape(x, (b, heads, depth)), [1, 0, 2])
    heads, _, depth = x.shape
    return op.reshape(op.permute_dims(x, [1, 0, 2]), (batch, 1, heads, depth))

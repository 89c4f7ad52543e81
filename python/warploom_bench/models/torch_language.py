"""The language models in PyTorch: the rival, and in float32 the reference of both.

The functions take the weights of a layer by name, so that one compiled layer serves all of them.
The residual sum of a layer's end is made at the beginning of the next layer, where torch.compile
fuses it with the norm: a model that is compiled layer by layer has the kernels of a whole graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from warploom_bench.decoder import GROUP, ZERO
from warploom_bench.models.rivals import attention_by, fastest_attention
from warploom_bench.models.sizes import LanguageSizes

_EPSILON, _FP8_LARGEST = 1e-5, 448.0
#: Keys and values of a layer, or its latent vectors: ``[sequences, heads, tokens, elements]``.
Cache = tuple[Any, ...]


class TorchLanguage:
    """A model with caches of fixed length.

    Parameters
    ----------
    torch : module
    sizes : LanguageSizes
    parameters : Mapping of str to Tensor
        Of Relax's model, by name. They are shared where they are the same in PyTorch; words of 4
        bits are unpacked, for want of an operator that multiplies them.
    dtype : torch.dtype
        Of weights and activations; fp8 weights stay as they are.
    attention : callable
        ``(q, k, v, causal, scale) -> mixed`` of heads ``[b, heads, n, d]``.
    device : str
    """

    def __init__(
        self, torch: Any, sizes: LanguageSizes, parameters: Mapping[str, Any], dtype: Any,
        attention: Callable[..., Any], device: str = "cuda",
    ) -> None:  # fmt: skip
        self.torch, self.sizes, self.dtype, self.attention = torch, sizes, dtype, attention
        self._parameters, self.device = parameters, device
        self._run_layer: Callable[..., Any] = self._layer
        self._run_begin: Callable[..., Any] = self._begin
        self._run_end: Callable[..., Any] = self._end
        self._layers: list[dict[str, Any]] | None = None
        self._ends = self._weights("")

    def hold(self) -> None:
        """Keep the weights of all layers, which are otherwise made for each call."""
        self._layers = [self._weights(f"layers.{i}.") for i in range(self.sizes.layers)]

    def compile(self, compiled: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Compile a layer, and what is before and behind all of them."""
        self._run_layer = compiled(self._layer)
        self._run_begin, self._run_end = compiled(self._begin), compiled(self._end)

    def caches(self, sequences: int, tokens: int) -> list[Cache]:
        """Caches of all layers, of random numbers."""
        one, torch = self.sizes, self.torch
        parts = [(one.kv_heads, one.head_dim)] * 2
        if one.latent:
            parts = [(1, one.latent + one.rotated)]

        def normal(heads: int, depth: int) -> Any:
            shape = (sequences, heads, tokens, depth)
            return torch.empty(shape, device=self.device, dtype=self.dtype).normal_()

        return [tuple(normal(*part) for part in parts) for _ in range(one.layers)]

    def use_fastest_attention(self, caches: Sequence[Cache], tokens: int, decode: bool) -> str:
        """Time PyTorch's attentions on operands of a step, and take the fastest; its name.

        Parameters
        ----------
        caches : sequence
            Of so many ``tokens``.
        decode : bool
            Whether a step has one token, or else all of them.
        """
        one, batch = self.sizes, len(caches[0][0])
        rows = 1 if decode else tokens
        if one.latent and decode:
            (vectors,) = caches[0]
            k, v = vectors, vectors[..., : one.latent]
            q = vectors.new_empty(batch, 1, one.heads, vectors.shape[-1]).normal_()
        else:
            q = caches[0][0].new_empty(batch, one.heads, rows, one.query_dim).normal_()
            k, v = caches[0] if not one.latent else (q, q[..., : one.head_dim])
        backend = fastest_attention(self.torch, q, k, v, not decode)
        self.attention = attention_by(self.torch, backend)
        return backend

    def step(self, ids: Any, caches: Sequence[Cache] | None, positions: Any) -> Any:
        """Logits ``[b, 1, vocabulary]`` behind the tokens ``[b, n]``, in float32.

        Parameters
        ----------
        ids : Tensor
        caches : sequence, optional
            Of a prefill of all their tokens, or of one more token behind those they hold.
        positions : Tensor
            Of the new tokens, int64 ``[n]``.
        """
        x, y, cos, sin = self._run_begin(ids, positions, self._ends)
        for number in range(self.sizes.layers):
            weights = self._layers[number] if self._layers else self._weights(f"layers.{number}.")
            own = caches[number] if caches is not None else ()
            x, y = self._run_layer(x, y, weights, own, positions, cos, sin)
        return self._run_end(x, y, self._ends)

    def rotated(self, x: Any, cos: Any, sin: Any) -> Any:
        """Heads ``[b, heads, n, d]`` turned by :meth:`rotations`."""
        low, high = x.float().chunk(2, -1)
        return self.torch.cat([low * cos - high * sin, high * cos + low * sin], -1).to(x.dtype)

    def _weights(self, start: str) -> dict[str, Any]:
        """The weights whose names begin so; without it, those of no layer."""
        made = {}
        for name, tensor in self._parameters.items():
            if not name.startswith(start) or (not start and name.startswith("layers.")):
                continue
            own = name.removeprefix(start).replace(".inner", "")
            if own.endswith(".words"):
                scales = self._parameters[name.removesuffix("words") + "scales"]
                made[own.removesuffix("words") + "weight"] = self._unpacked(tensor, scales)
            elif own.endswith(("scale", "x_scale")) or self._is_fp8(tensor):
                made[own] = tensor
            elif not own.endswith(".scales"):
                made[own] = tensor.to(self.dtype)
        return made

    def _is_fp8(self, tensor: Any) -> bool:
        return tensor.dtype == self.torch.float8_e4m3fn

    def _unpacked(self, words: Any, scales: Any) -> Any:
        shifts = self.torch.arange(0, 32, 4, device=words.device, dtype=self.torch.int32)
        fields = words[:, :, None] >> shifts & 15
        groups = (fields - ZERO).to(self.dtype).reshape(len(words), -1, GROUP)
        return (groups * scales.to(self.dtype)[:, :, None]).reshape(len(words), -1)

    def rotations(self, positions: Any) -> tuple[Any, Any]:
        """Cosines and sines of the positions ``[n]``: float32 ``[1, 1, n, d / 2]``."""
        torch, one = self.torch, self.sizes
        half = (one.rotated or one.head_dim) // 2
        order = torch.arange(half, device=positions.device, dtype=torch.float32)
        angles = (positions[:, None] * one.theta ** (order / -half))[None, None]
        return angles.cos(), angles.sin()

    def _begin(self, ids: Any, positions: Any, w: Mapping[str, Any]) -> tuple[Any, ...]:
        torch = self.torch
        x = torch.nn.functional.embedding(ids, w["embedding.weight"])
        return x, torch.zeros_like(x), *self.rotations(positions)

    def _end(self, x: Any, y: Any, w: Mapping[str, Any]) -> Any:
        return self._linear(self._norm((x + y)[:, -1:], w, "norm"), w, "head").float()

    def _layer(
        self, x: Any, y: Any, w: Mapping[str, Any], cache: Cache, positions: Any, cos: Any, sin: Any
    ) -> tuple[Any, Any]:
        """``x`` is the residual stream, to which ``y`` of the layer before is still to be added."""
        x = x + y
        attend = self._latent if self.sizes.latent else self._grouped
        mixed = attend(self._norm(x, w, "attention_norm"), w, cache, positions, cos, sin)
        x = x + self._linear(mixed, w, "attention.out")
        h = self._norm(x, w, "mlp_norm")
        if self.sizes.experts:
            return x, self._experts(h, w)
        gate, up = self._linear(h, w, "mlp.gate_up").chunk(2, -1)
        return x, self._linear(self.torch.nn.functional.silu(gate) * up, w, "mlp.down")

    def _norm(self, x: Any, w: Mapping[str, Any], name: str) -> Any:
        weight = w[f"{name}.weight"]
        return self.torch.nn.functional.rms_norm(x, (weight.shape[0],), weight, _EPSILON)

    def _linear(self, x: Any, w: Mapping[str, Any], name: str) -> Any:
        torch, weight = self.torch, w[f"{name}.weight"]
        bias = w.get(f"{name}.bias")
        if not self._is_fp8(weight):
            return torch.nn.functional.linear(x, weight, bias)
        x_scale, scale = w[f"{name}.x_scale"], w[f"{name}.scale"]
        narrow = (x.float() / x_scale).clamp(-_FP8_LARGEST, _FP8_LARGEST).to(torch.float8_e4m3fn)
        if self.dtype == torch.float32:
            y = torch.nn.functional.linear(narrow.float(), weight.float()) * (x_scale * scale)
        else:
            flat = narrow.reshape(-1, narrow.shape[-1])
            y = torch._scaled_mm(
                flat, weight.t(), scale_a=x_scale, scale_b=scale, out_dtype=self.dtype
            ).reshape(*x.shape[:-1], -1)
        return y if bias is None else y + bias

    def _grouped(
        self, x: Any, w: Mapping[str, Any], cache: Cache, positions: Any, cos: Any, sin: Any
    ) -> Any:
        one, (b, n, _) = self.sizes, x.shape
        heads = self._linear(x, w, "attention.qkv").view(b, n, -1, one.head_dim).transpose(1, 2)
        q, k, v = heads.split([one.heads, one.kv_heads, one.kv_heads], 1)
        q, k = self.rotated(q, cos, sin), self.rotated(k, cos, sin)
        for kept, new in zip(cache, (k, v), strict=False):
            kept.index_copy_(2, positions, new)
        if n == 1:
            k, v = cache
        mixed = self.attention(q, k, v, n > 1)
        return mixed.transpose(1, 2).reshape(b, n, one.heads * one.head_dim)

    def _latent(
        self, x: Any, w: Mapping[str, Any], cache: Cache, positions: Any, cos: Any, sin: Any
    ) -> Any:
        torch, one, (b, n, _) = self.torch, self.sizes, x.shape
        q = self._linear(x, w, "attention.query").view(b, n, one.heads, -1).transpose(1, 2)
        plain, turned = q.split([one.head_dim, one.rotated], -1)
        turned = self.rotated(turned, cos, sin)
        vector, key = self._linear(x, w, "attention.compress").split([one.latent, one.rotated], -1)
        vector = self._norm(vector, w, "attention.norm")[:, None]
        key = self.rotated(key[:, None], cos, sin)
        keys, values = w["attention.expand_keys"], w["attention.expand_values"]
        if cache:
            cache[0].index_copy_(2, positions, torch.cat([vector, key], -1))
        if n == 1:
            # The heads of a sequence are rows of one attention over its vectors.
            q = torch.cat([torch.einsum("bhnd,hdl->bhnl", plain, keys), turned], -1)
            scale = (one.head_dim + one.rotated) ** -0.5
            mixed = self.attention(
                q.transpose(1, 2), cache[0], cache[0][..., : one.latent], False, scale
            ).transpose(1, 2)
            mixed = torch.einsum("bhnl,hdl->bhnd", mixed, values)
        else:
            k = torch.einsum("bonl,hdl->bhnd", vector, keys)
            v = torch.einsum("bonl,hdl->bhnd", vector, values)
            k = torch.cat([k, key.expand(-1, one.heads, -1, -1)], -1)
            mixed = self.attention(torch.cat([plain, turned], -1), k, v, True)
        return mixed.transpose(1, 2).reshape(b, n, one.heads * one.head_dim)

    def _experts(self, x: Any, w: Mapping[str, Any]) -> Any:
        torch, one = self.torch, self.sizes
        flat = x.reshape(-1, one.hidden)
        shares = self._linear(flat, w, "mlp.router").float().softmax(-1)
        weights, chosen = shares.topk(one.choices, -1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        order = chosen.flatten().argsort(stable=True)
        known = torch.arange(one.experts, device=x.device)
        ends = (chosen.flatten()[:, None] == known).sum(0).cumsum(0)
        rows = flat[order // one.choices]
        gate, up = self._multiply_groups(rows, w["mlp.gate_up.weight"], ends).chunk(2, -1)
        y = self._multiply_groups(torch.nn.functional.silu(gate) * up, w["mlp.down.weight"], ends)
        y = torch.empty_like(y).index_copy(0, order, y).view(len(flat), one.choices, -1)
        return (y * weights[..., None]).sum(1).view(x.shape)

    def _multiply_groups(self, rows: Any, weight: Any, ends: Any) -> Any:
        """Rows sorted by group, times the weight ``[outputs, inputs]`` of its group."""
        torch = self.torch
        if self.dtype == torch.bfloat16:  # the dtype that PyTorch has a kernel for
            return torch._grouped_mm(rows, weight.transpose(1, 2), offs=ends.int())
        parts, start = [], 0
        for group, end in enumerate(ends.tolist()):
            parts.append(rows[start:end] @ weight[group].T)
            start = end
        return torch.cat(parts)

"""Attention as PyTorch's modules and their users write it: one kernel, with PyTorch's results."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import warploom
from warploom.relax.inspect import inspect

torch = pytest.importorskip("torch", reason="PyTorch, whose exported programs these are")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.gpu

_TARGET = warploom.cuda_target("h200")
_WIDTH, _HEADS = 128, 4
_DIM = _WIDTH // _HEADS


class Operator(nn.Module):
    """``scaled_dot_product_attention``; a mask of floats becomes booleans if it says so."""

    def __init__(self, boolean: bool = False, **options: Any) -> None:
        super().__init__()
        self.boolean, self.options = boolean, options

    def forward(self, q, k, v, *mask):
        mask = [one > 0 for one in mask] if self.boolean else mask
        return functional.scaled_dot_product_attention(q, k, v, *mask, **self.options)


class Module(nn.Module):
    """``nn.MultiheadAttention``, perhaps with padding that is masked."""

    def __init__(self, batch_first: bool = True) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(_WIDTH, _HEADS, batch_first=batch_first)

    def forward(self, x, context=None, padding=None):
        keys = x if context is None else context
        padding = None if padding is None else padding > 0.5
        return self.inner(x, keys, keys, key_padding_mask=padding, need_weights=False)[0]


class Written(nn.Module):
    """Attention of three linear layers, written out; the logits are masked in several ways."""

    def __init__(self, mask: str = "") -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(_WIDTH, _WIDTH) for _ in range(3))
        self.mask = mask

    def forward(self, x, chosen):
        q, k, v = (
            linear(x).view(*x.shape[:2], _HEADS, _DIM).permute(0, 2, 1, 3)
            for linear in (self.q, self.k, self.v)
        )
        logits = torch.matmul(q, k.transpose(-1, -2)) / _DIM**0.5
        if self.mask == "fill":
            logits = logits.masked_fill((chosen < 0)[:, None, None, :], float("-inf"))
        elif self.mask == "add":
            logits = logits + chosen[:, None, None, :]
        elif self.mask == "causal":
            seen = torch.tril(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool))
            logits = torch.where(seen, logits, torch.finfo(logits.dtype).min)
        weights = functional.dropout(logits.softmax(-1), 0.1, self.training)
        return torch.matmul(weights, v).permute(0, 2, 1, 3).reshape(x.shape)


class Packed(nn.Module):
    """One linear layer for q, k and v, whose parts are together or those of each head.

    With ``norms``, heads of q and k have a norm each, and PyTorch's operator mixes.
    """

    def __init__(self, of_heads: bool, norms: bool = False) -> None:
        super().__init__()
        self.qkv, self.of_heads = nn.Linear(_WIDTH, 3 * _WIDTH), of_heads
        self.norms = nn.ModuleList(nn.LayerNorm(_DIM) for _ in range(2 * norms))

    def forward(self, x):
        rows = self.qkv(x)
        if self.of_heads:
            rows = rows.view(*x.shape[:2], _HEADS, 3 * _DIM)
            q, k, v = (part.transpose(1, 2) for part in rows.chunk(3, -1))
        else:
            rows = rows.reshape(*x.shape[:2], 3, _HEADS, _DIM)
            q, k, v = rows.permute(2, 0, 3, 1, 4).unbind(0)
        if self.norms:
            q, k = (norm(one) for norm, one in zip(self.norms, (q, k), strict=True))
            mixed = functional.scaled_dot_product_attention(q, k, v)
            return mixed.transpose(1, 2).reshape(x.shape)
        weights = (q * _DIM**-0.5 @ k.transpose(-2, -1)).softmax(-1)
        return (weights @ v).transpose(1, 2).reshape(x.shape)


class Windows(nn.Module):
    """Windows of images: a bias of heads, and a mask of each window of an image."""

    def __init__(self, windows: int) -> None:
        super().__init__()
        self.qkv, self.windows = nn.Linear(_WIDTH, 3 * _WIDTH), windows
        self.bias = nn.Parameter(torch.randn(_HEADS, 17, 17))
        self.register_buffer("mask", torch.randn(windows, 17, 17).sign().clamp(max=0) * 100)

    def forward(self, x):
        q, k, v = self.qkv(x).reshape(*x.shape[:2], 3, _HEADS, _DIM).permute(2, 0, 3, 1, 4)
        logits = (q * _DIM**-0.5) @ k.transpose(-2, -1) + self.bias
        apart = logits.view(-1, self.windows, _HEADS, 17, 17) + self.mask[:, None]
        weights = apart.view(logits.shape).softmax(-1)
        return (weights @ v).transpose(1, 2).reshape(x.shape)


class Rotated(nn.Module):
    """Half of the elements of each head of q and k are rotated, in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(_WIDTH, 3 * _WIDTH)
        angles = torch.arange(_X[1])[:, None] * 0.1 ** torch.arange(_DIM // 4)
        self.turns = nn.ParameterList([angles.cos(), angles.sin()])

    def forward(self, x):
        rows = self.qkv(x).view(*x.shape[:2], 3, _HEADS, _DIM).permute(2, 0, 3, 1, 4)
        cos, sin = self.turns
        q, k = (
            torch.cat((low * cos - high * sin, high * cos + low * sin, rest), -1)
            for low, high, rest in (
                one.split([_DIM // 4, _DIM // 4, _DIM // 2], -1) for one in rows[:2].unbind(0)
            )
        )
        mixed = functional.scaled_dot_product_attention(q, k, rows[2], is_causal=True)
        return mixed.transpose(1, 2).reshape(x.shape)


_Q, _K, _X = (2, _HEADS, 17, _DIM), (2, _HEADS, 23, _DIM), (2, 17, _WIDTH)
_SHARED = (2, 2, 23, _DIM)
#: Names, modules, shapes of inputs, and kernels beside the attention.
_CASES: dict[str, tuple[Any, tuple[tuple[int, ...], ...], int]] = {
    "operator": (Operator, (_Q, _K, _K), 1),
    "causal": (lambda: Operator(is_causal=True), (_Q, _Q, _Q), 1),
    "boolean mask": (lambda: Operator(True), (_Q, _K, _K, (2, 1, 17, 23)), 2),
    "bias": (Operator, (_Q, _K, _K, (1, _HEADS, 17, 23)), 2),
    "shared keys": (lambda: Operator(enable_gqa=True), (_Q, _SHARED, _SHARED), 1),
    # Its tokens are transposed before the GEMM, whose weight is one matrix for all.
    "module": (Module, (_X,), 4),
    "module, tokens first": (lambda: Module(False), (_X,), 2),
    "module, cross": (Module, (_X, (2, 23, _WIDTH)), 6),
    "module, padding": (Module, (_X, _X, (2, 17)), 7),
    "written": (Written, (_X, (2, 17)), 4),
    "written, filled": (lambda: Written("fill"), (_X, (2, 17)), 5),
    "written, added": (lambda: Written("add"), (_X, (2, 17)), 4),
    "written, causal": (lambda: Written("causal"), (_X, (2, 17)), 4),
    "packed": (lambda: Packed(False), (_X,), 2),
    "packed, of heads": (lambda: Packed(True), (_X,), 2),
    "packed, with norms": (lambda: Packed(False, True), (_X,), 7),
    "rotated": (Rotated, (_X,), 7),
    "windows": (lambda: Windows(2), ((6, 17, _WIDTH),), 2),
    "windows of one image": (lambda: Windows(4), ((4, 17, _WIDTH),), 2),
}  # fmt: skip


class _Halved(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *inputs):
        return self.inner(*(x.float() for x in inputs))


@pytest.mark.parametrize("name", _CASES)
@pytest.mark.some(2)
def test_attention_of_an_exported_model_is_one_kernel(name: str, rng) -> None:
    make, shapes, others = _CASES[name]
    torch.manual_seed(0)
    model = make().eval()
    inputs = [torch.from_numpy(rng.standard_normal(shape).astype("float16")) for shape in shapes]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # within torch.export
        program = torch.export.export(_Halved(model), tuple(inputs))
        module = from_exported_program(program)
        wanted = model.double()(*(x.double() for x in inputs)).numpy()
    module = relax.transform.DecomposeOpsForInference("main")(module)
    module = relax.transform.ToMixedPrecision("float16")(module)
    reports = [one for one in inspect(module) if not one.reshapes]
    assert sum(bool(one.attention) for one in reports) == 1
    assert len(reports) <= 1 + others
    machine = relax.VirtualMachine(relax.build(module, _TARGET), tvm.cuda(0))
    (found,) = machine["main"](*(tvm.runtime.tensor(x.numpy(), tvm.cuda(0)) for x in inputs))
    assert np.abs(found.numpy() - wanted).max() <= 4e-3 * np.abs(wanted).max()

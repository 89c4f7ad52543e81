"""Models that PyTorch exports: their GEMMs are taken, and the results are those of PyTorch."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tvm
from tvm import relax

import warploom
from warploom.relax.inspect import inspect

torch = pytest.importorskip("torch", reason="PyTorch, whose exported programs these are")
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.gpu

_TARGET = warploom.cuda_target("h200")
_HIDDEN, _INNER, _HEADS, _SHARED, _DIM = 128, 192, 2, 1, 64
#: Largest error relative to the largest result.
_BOUNDS = {"float16": 2e-3, "bfloat16": 2e-2}


class Mlp(torch.nn.Module):
    """SwiGLU, and what it gets added to the result.

    Without biases: TVM's frontend adds those of 16 bits to GEMMs that it has made float32.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = (torch.nn.Linear(_HIDDEN, _INNER, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(_INNER, _HIDDEN, bias=False)

    def forward(self, x):
        return self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x)) + x


class Decoder(torch.nn.Module):
    """A Llama-style block: heads share keys and values, causal attention, SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        sizes = {"qkv": (_HIDDEN, (_HEADS + 2 * _SHARED) * _DIM), "out": (_HEADS * _DIM, _HIDDEN),
                 "gate": (_HIDDEN, _INNER), "up": (_HIDDEN, _INNER),
                 "down": (_INNER, _HIDDEN)}  # fmt: skip
        for name, size in sizes.items():
            setattr(self, name, torch.nn.Linear(*size, bias=False))
        self.norms = torch.nn.ParameterList(torch.rand(_HIDDEN) + 0.5 for _ in range(2))

    def _normed(self, x, weight):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, True) + 1e-5)).to(x.dtype) * weight

    def _rotated(self, heads, cos, sin):
        low, high = heads.chunk(2, -1)
        return heads * cos + torch.cat((-high, low), -1) * sin

    def forward(self, x, cos, sin):
        rows = x.shape[0]
        heads = self.qkv(self._normed(x, self.norms[0])).view(rows, -1, _DIM).transpose(0, 1)
        q, k, v = heads.split([_HEADS, _SHARED, _SHARED], 0)
        q, k = self._rotated(q, cos, sin), self._rotated(k, cos, sin)
        k, v = (one.repeat_interleave(_HEADS // _SHARED, 0) for one in (k, v))
        mixed = torch.nn.functional.scaled_dot_product_attention(
            q[None], k[None], v[None], is_causal=True
        )[0]
        y = self.out(mixed.transpose(0, 1).reshape(rows, -1)) + x
        z = self._normed(y, self.norms[1])
        return self.down(torch.nn.functional.silu(self.gate(z)) * self.up(z)) + y


def rotations(rows: int) -> list[torch.Tensor]:
    """Cosines and sines for heads."""
    half = _DIM // 2
    angles = torch.arange(rows)[:, None] * 100.0 ** (-torch.arange(half) / half)
    return [torch.cat((one, one), 1) for one in (angles.cos(), angles.sin())]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("model", "products"),
    [(Mlp, {(24, _INNER, _HIDDEN), (24, _HIDDEN, _INNER)}),
     (Decoder, {(24, 256, _HIDDEN), (24, _HIDDEN, 2 * _DIM), (24, _INNER, _HIDDEN),
                (24, _HIDDEN, _INNER)})],
    ids=["MLP", "decoder block"],
)  # fmt: skip
def test_exported_programs(model, products, dtype):
    torch.manual_seed(0)
    made = model().to(getattr(torch, dtype)).eval()
    inputs = [torch.randn(24, _HIDDEN)] + (rotations(24) if model is Decoder else [])
    inputs = [one.to(getattr(torch, dtype)) for one in inputs]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # within torch.export
        exported = torch.export.export(made, tuple(inputs))
        module = from_exported_program(exported, keep_params_as_input=True)
        wanted = made.double()(*(one.double() for one in inputs)).numpy()
    module, parameters = relax.frontend.detach_params(module)
    taken = {(p.m, p.n, p.k) for p in (one.problem for one in inspect(module)) if p is not None}
    assert products <= taken
    machine = relax.VirtualMachine(relax.build(module, _TARGET), tvm.cuda(0))
    arrays = [tvm.runtime.tensor(_numpy(one), tvm.cuda(0)) for one in inputs]
    arrays += [tvm.runtime.tensor(one.numpy(), tvm.cuda(0)) for one in parameters["main"]]
    (result,) = machine["main"](*arrays)
    found = result.numpy().astype(np.float64)
    assert np.abs(found - wanted).max() <= _BOUNDS[dtype] * np.abs(wanted).max()


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    """PyTorch gives numpy no bfloat16."""
    return tvm.runtime.from_dlpack(tensor).numpy()

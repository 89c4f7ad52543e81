"""Mixtures of experts as models write them: what their parts become, and their results."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

import warploom
from warploom.relax.flatten_nests import FlattenNests
from warploom.relax.inspect import inspect

pytestmark = pytest.mark.gpu

_TARGET = warploom.cuda_target("h200")
_EXPERTS, _CHOICES, _HIDDEN, _INNER, _TOKENS = 8, 2, 64, 128, 24
#: Largest error relative to the largest result.
_BOUNDS = {"float16": 2e-3, "bfloat16": 2e-2}

torch = pytest.importorskip("torch", reason="PyTorch, whose exported programs these are")
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402


class Experts(torch.nn.Module):
    """A router and SwiGLUs; :meth:`mixed` is how a model mixes them."""

    def __init__(self) -> None:
        super().__init__()
        self.router = torch.nn.Linear(_HIDDEN, _EXPERTS, bias=False)
        sizes = {"gate": (_INNER, _HIDDEN), "up": (_INNER, _HIDDEN), "down": (_HIDDEN, _INNER)}
        for name, size in sizes.items():
            weights = torch.randn(_EXPERTS, *size) / size[1] ** 0.5
            setattr(self, name, torch.nn.Parameter(weights))

    def forward(self, x):
        weights, chosen = torch.topk(torch.softmax(self.router(x).float(), -1), _CHOICES)
        return self.mixed(x, (weights / weights.sum(-1, keepdim=True)).to(x.dtype), chosen)

    def dense(self, x, weights, chosen):
        """The weights of all experts."""
        zeros = torch.zeros(x.shape[0], _EXPERTS, dtype=x.dtype)
        return zeros.scatter(1, chosen, weights)


class Einsums(Experts):
    """All experts compute all tokens, written as einsums."""

    def mixed(self, x, weights, chosen):
        gate = torch.nn.functional.silu(torch.einsum("th,efh->tef", x, self.gate))
        y = torch.einsum("tef,ehf->teh", gate * torch.einsum("th,efh->tef", x, self.up), self.down)
        return torch.einsum("teh,te->th", y, self.dense(x, weights, chosen))


class Batched(Experts):
    """All experts compute all tokens, as batches of matmuls."""

    def mixed(self, x, weights, chosen):
        rows = x.repeat(_EXPERTS, 1).view(_EXPERTS, -1, _HIDDEN)
        gate = torch.nn.functional.silu(torch.bmm(rows, self.gate.transpose(1, 2)))
        inner = gate * torch.bmm(rows, self.up.transpose(1, 2))
        y = torch.bmm(inner, self.down.transpose(1, 2))
        return (y * self.dense(x, weights, chosen).transpose(0, 1)[..., None]).sum(0)


class OneByOne(Experts):
    """A loop over experts, whose matmuls compute all tokens."""

    def mixed(self, x, weights, chosen):
        out = torch.zeros_like(x)
        for e in range(_EXPERTS):
            inner = torch.nn.functional.silu(x @ self.gate[e].T) * (x @ self.up[e].T)
            out = out + (inner @ self.down[e].T) * (weights * (chosen == e)).sum(-1, keepdim=True)
        return out


class Gathered(Experts):
    """Each token looks up the weights of its experts."""

    def mixed(self, x, weights, chosen):
        gate, up, down = self.gate[chosen], self.up[chosen], self.down[chosen]
        inner = torch.nn.functional.silu(torch.einsum("th,tkfh->tkf", x, gate))
        inner = inner * torch.einsum("th,tkfh->tkf", x, up)
        return (torch.einsum("tkf,tkhf->tkh", inner, down) * weights[..., None]).sum(1)


def exported(kind: type[Experts], dtype: str, tokens: int):
    """The module, its arguments, and what float64 makes of them."""
    made = kind().to(getattr(torch, dtype)).eval()
    x = torch.randn(tokens, _HIDDEN).to(getattr(torch, dtype))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # within torch.export
        program = torch.export.export(made, (x,))
        module = from_exported_program(program, keep_params_as_input=True)
        wanted = made.double()(x.double()).numpy()
    module, parameters = relax.frontend.detach_params(module)
    arrays = [tvm.runtime.from_dlpack(x).numpy(), *(one.numpy() for one in parameters["main"])]
    return module, arrays, wanted


def _run(module, arrays):
    machine = relax.VirtualMachine(relax.build(module, _TARGET), tvm.cuda(0))
    found = machine["main"](*(tvm.runtime.tensor(one, tvm.cuda(0)) for one in arrays))
    found = found if hasattr(found, "numpy") else found[0]
    return found.numpy().astype(np.float64)


@pytest.mark.some(3)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("kind", "tokens", "matmuls"),
    [(Einsums, _TOKENS, 3), (Batched, _TOKENS, 3), (OneByOne, _TOKENS, 4), (Gathered, 5, 1),
     (Gathered, 1, 0), (Einsums, 1, 0)],
)  # fmt: skip
def test_models_of_torch(kind, tokens, matmuls, dtype):
    """``matmuls``: how many functions multiply on tensor cores, at least."""
    torch.manual_seed(0)
    module, arrays, wanted = exported(kind, dtype, tokens)
    reports = inspect(module)
    assert sum(one.on_tensor_cores for one in reports) >= matmuls
    assert any("the 2 largest of the softmax of 8 float32" in str(one) for one in reports)
    left = [str(one) for one in reports if "left to TVM" in str(one)]
    assert not [one for one in left if "product of full precision" in one]
    copies = ("take", "along_k", "strided_slice", "tile" if kind is not Batched else "take")
    assert not [one.name for one in reports if any(copy in one.name for copy in copies)]
    found = _run(module, arrays)
    assert np.abs(found - wanted).max() <= _BOUNDS[dtype] * np.abs(wanted).max()


def one_token(choices: int, n: int, k: int, dtype: str, own: bool) -> PrimFunc:
    """The matmul of one token with the weights of its experts, a block for each of them."""

    def row(x, e, j):
        return x[e, j] if own else x[0, j]

    @T.prim_func(private=True, s_tir=True)
    def moe_gemv(
        x: T.Buffer((choices if own else 1, k), dtype),
        w: T.Buffer((_EXPERTS, n, k), dtype),
        indptr: T.Buffer((1, choices), "int32"),
        o: T.Buffer((choices, n), dtype),
    ):
        T.func_attr({"op_pattern": 4, "tirx.noalias": True})
        for expert in T.thread_binding(choices, thread="blockIdx.y"):
            with T.sblock("expert"):
                e = T.axis.spatial(choices, expert)
                T.reads(x[:, :], w[indptr[0, e], :, :], indptr[0, e])
                T.writes(o[e, :])
                for i1, i2 in T.grid(n, k):
                    with T.sblock("gemv"):
                        i, j = T.axis.remap("SR", [i1, i2])
                        with T.init():
                            o[e, i] = T.cast(T.float16(0), dtype)
                        o[e, i] = o[e, i] + row(x, e, j) * w[indptr[0, e], i, j]

    return moe_gemv


@pytest.mark.parametrize(
    ("choices", "n", "k", "dtype", "own"),
    [(2, 40, 64, "float16", False), (4, 24, 256, "bfloat16", True), (8, 8, 72, "float16", False)],
)
def test_one_token_with_blocks_of_experts(rng, choices, n, k, dtype, own):
    """As MLC-LLM writes the step of a single token."""
    builder = relax.BlockBuilder()
    func = one_token(choices, n, k, dtype, own)
    shapes = [tuple(int(size) for size in param.shape) for param in func.params]
    params = [
        relax.Var(param.name, relax.TensorType(shape, str(param.dtype)))
        for param, shape in zip(func.params[:-1], shapes, strict=False)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            called = relax.call_tir(
                builder.add_func(func, "moe_gemv"), params, relax.TensorType((choices, n), dtype)
            )
            found = builder.emit_output(builder.emit(called))
        builder.emit_func_output(found)
    module = builder.get()
    (report,) = inspect(module)
    assert report.rows is not None
    x = rng.standard_normal(shapes[0]).astype(dtype)
    w = rng.standard_normal(shapes[1]).astype(dtype)
    p = rng.integers(0, _EXPERTS, (1, choices)).astype(np.int32)
    wanted = np.einsum("cnk,ck->cn", w.astype(np.float64)[p[0]],
                       np.broadcast_to(x.astype(np.float64), (choices, k)))  # fmt: skip
    bound = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    np.testing.assert_allclose(_run(module, [x, w, p]), wanted, rtol=bound, atol=1e-2)


def test_other_nests_stay_as_they_are():
    """A block within a block that adds nothing up."""

    @T.prim_func(private=True, s_tir=True)
    def copies(x: T.Buffer((4, 32), "float32"), o: T.Buffer((4, 32), "float32")):
        for row in T.thread_binding(4, thread="blockIdx.y"):
            with T.sblock("row"):
                e = T.axis.spatial(4, row)
                for column in T.serial(32):
                    with T.sblock("column"):
                        i = T.axis.spatial(32, column)
                        o[e, i] = x[e, i]

    module = tvm.IRModule({"copies": copies})
    assert FlattenNests()(module).same_as(module)

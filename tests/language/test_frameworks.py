"""Tensors of PyTorch, JAX and CuPy go in and out by DLPack; programs are ops of PyTorch."""

from __future__ import annotations

import itertools
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

import warploom
from warploom import emulator
from warploom import language as wl
from warploom.errors import IllegalCombination, ToolchainError

pytestmark = pytest.mark.gpu
_NUMBERS = itertools.count()


@T.prim_func
def scaled(x: T.handle, y: T.handle, alpha: T.float32):
    """Y = alpha X."""
    m = T.int32()
    X, Y = T.match_buffer(x, (m, 40), "float32"), T.match_buffer(y, (m, 40), "float32")
    T.device_entry()
    i = T.cta_id([T.ceildiv(m, 8)])
    t = wl.load(X, (i, 0), (8, 40), scope="fragment")
    for r, c in T.grid(8, 40):
        t[r, c] = t[r, c] * alpha
    wl.store(Y, (i, 0), t)


@T.prim_func
def moments(
    X: T.Buffer((8, 40), "bfloat16"), S: T.Buffer((8,), "float32"),
    Y: T.Buffer((8, 40), "bfloat16"),
):  # fmt: skip
    """The sum of each row, and twice the matrix."""
    T.device_entry()
    T.cta_id([1])
    t = wl.load(X, (0, 0), (8, 40), scope="fragment", dtype="float32")
    total = wl.alloc_fragment((8,))
    Tx.cta.sum(total, t, axes=(1,))
    wl.store(S, (0,), total)
    for r, c in T.grid(8, 40):
        t[r, c] = t[r, c] + t[r, c]
    wl.store(Y, (0, 0), t)


def data(rng, rows=13):
    return rng.standard_normal((rows, 40)).astype(np.float32)


def name() -> str:
    """A name that no op of this process has."""
    return f"test_{next(_NUMBERS)}"


def test_pytorch_goes_in_and_out(rng):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = torch.from_numpy(data(rng))
    found = warploom.jit(scaled, out_idx=1)(x, 2.5)
    assert isinstance(found, torch.Tensor)
    torch.testing.assert_close(found, 2.5 * x)


def test_jax_goes_in_and_out(rng):
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    x = jax.numpy.asarray(data(rng))
    before = np.asarray(x).copy()
    found = jax.numpy.from_dlpack(warploom.jit(scaled, out_idx=1)(x, 2.5))
    np.testing.assert_allclose(np.asarray(found), np.float32(2.5) * before, rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(x), before)


def test_cupy_goes_in_and_out(rng):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    try:
        x = cupy.asarray(data(rng))
    except cupy.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(f"CuPy has no GPU: {error}")
    found = cupy.from_dlpack(warploom.jit(scaled, out_idx=1)(x, 2.5))
    cupy.testing.assert_allclose(found, 2.5 * x, rtol=1e-6)


def test_an_op_runs_and_passes_the_checks_of_pytorch(rng):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    op = warploom.torch.op(scaled, name(), out_idx=1)
    x = torch.from_numpy(data(rng))
    torch.testing.assert_close(op(x, 2.5), 2.5 * x)
    columns = torch.from_numpy(np.asfortranarray(data(rng)))  # not contiguous
    torch.testing.assert_close(op(columns, -1.0), -columns)
    torch.library.opcheck(op, (x, 2.5))


def test_an_op_traces_and_exports_with_a_dynamic_size(rng):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    own = name()
    op = warploom.torch.op(scaled, own, out_idx=1)

    class Model(torch.nn.Module):
        def forward(self, x):
            return op(x + 1, 2.0).sum(1)

    x = torch.from_numpy(data(rng))
    rows = torch.export.Dim("rows", min=2, max=64)
    exported = torch.export.export(Model(), (x,), dynamic_shapes={"x": {0: rows}})
    assert any(own in str(node.target) for node in exported.graph.nodes)
    for one in (x, torch.from_numpy(data(rng, 20))):
        expected = (2 * (one + 1)).sum(1)
        torch.testing.assert_close(exported.module()(one), expected)
        torch.testing.assert_close(torch.compile(Model(), backend="eager")(one), expected)


def test_an_op_of_two_results_of_other_dtypes(rng):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    op = warploom.torch.op(moments, name(), out_idx=(1, -1))
    x = torch.from_numpy(data(rng, 8)).to(torch.bfloat16)
    total, twice = op(x)
    torch.testing.assert_close(total, x.float().sum(1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(twice, 2 * x)
    with torch._subclasses.FakeTensorMode() as mode:
        total, twice = op(mode.from_tensor(x))
    assert total.shape == (8,) and total.dtype == torch.float32
    assert twice.shape == (8, 40) and twice.dtype == torch.bfloat16


def test_an_op_on_the_cpu_of_a_machine_with_a_gpu(rng, monkeypatch):
    """There the emulator is a process of its own, to which arrays go."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    outside = SimpleNamespace(
        is_enabled=lambda: False, enable_without_gpu=lambda: False, run=emulator.run
    )
    monkeypatch.setattr(warploom.torch, "emulator", outside)
    x = torch.from_numpy(data(rng, 8)).to(torch.bfloat16)
    total, twice = warploom.torch.op(moments, name(), out_idx=(1, -1))(x)
    torch.testing.assert_close(total, x.float().sum(1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(twice, 2 * x)
    y = torch.from_numpy(data(rng, 5))
    op = warploom.torch.op(scaled, name(), out_idx=1)
    torch.testing.assert_close(op(y, 0.5), 0.5 * y)


def test_a_derivative_can_be_registered(rng):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    op = warploom.torch.op(scaled, name(), out_idx=1)

    def setup(ctx, inputs, output):
        ctx.alpha = inputs[1]

    op.register_autograd(lambda ctx, grad: (op(grad, ctx.alpha), None), setup_context=setup)
    x = torch.from_numpy(data(rng)).requires_grad_()
    op(x, 3.0).sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 3.0))


def test_programs_that_are_no_ops_are_refused():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    with pytest.raises(IllegalCombination, match="name at least one of the program's 3 parameters"):
        warploom.torch.op(scaled, name(), out_idx=())
    with pytest.raises(IllegalCombination, match="the size m of the result X is of no argument"):
        warploom.torch.op(one_size, name(), out_idx=0)


@T.prim_func
def one_size(x: T.handle, Y: T.Buffer((4,), "float32")):
    m = T.int32()
    X = T.match_buffer(x, (m,), "float32")
    T.device_entry()
    i = T.cta_id([T.ceildiv(m, 8)])
    t = wl.load(X, (i,), (8,), scope="fragment")
    wl.store(X, (i,), t)


def test_without_pytorch_the_package_to_install_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ToolchainError, match="pip install torch"):
        warploom.torch.op(scaled, name())

"""Weights as models store them: few bits in words along K or N, 8 bits, transposed, of any width.

Whatever stock TVM builds is built, agrees with numpy, and is a tensor-core kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes  # noqa: F401  (numpy learns float8)
import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx
from tvm.relax.frontend import nn

import warploom
from warploom.relax.inspect import FunctionReport, inspect

_TARGET = warploom.cuda_target("h200")
Reference = Callable[..., np.ndarray]


def _arrays(mod: tvm.IRModule, rows: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Random data for all parameters of a model."""
    made = []
    for param in mod["forward"].params:
        shape = [int(s) if isinstance(s, tirx.IntImm) else rows for s in param.ty.shape]
        dtype = str(param.ty.dtype)
        if dtype == "uint32":
            made.append(rng.integers(0, 2**32, shape, dtype=np.uint32))
        elif dtype == "int8":
            made.append(rng.integers(-9, 9, shape).astype(dtype))
        else:
            scale = shape[-1] ** -0.5 if len(shape) > 1 else 1
            made.append(np.asarray(rng.standard_normal(shape) * scale).astype(dtype))
    return made


def _check(
    mod: tvm.IRModule, expected: Reference, rng: np.random.Generator, rows: int = 24
) -> list[FunctionReport]:
    """Compare a model with float64; return what became of its functions."""
    arrays = _arrays(mod, rows, rng)
    machine = relax.VirtualMachine(relax.build(mod, _TARGET), tvm.cuda(0))
    found = machine["forward"](*(tvm.runtime.tensor(one, tvm.cuda(0)) for one in arrays)).numpy()
    wide = (one if one.dtype == np.uint32 else one.astype(np.float64) for one in arrays)
    wanted = expected(*wide)
    error = np.abs(found.astype(np.float64) - wanted).max() / np.abs(wanted).max()
    assert error < 4e-3, error
    return inspect(mod)


def _exported(model: nn.Module, rows: Any, k: int) -> tvm.IRModule:
    spec = {"forward": {"x": nn.spec.Tensor([1, rows, k], "float16")}}
    return model.export_tvm(spec)[0]


class _FourBits(nn.Module):
    """Weights [K, N] as words of eight along K or N, with scales of groups and maybe zeros."""

    def __init__(self, k: int, n: int, group: int, along_n: bool, zeros: str) -> None:
        self.k, self.n, self.group, self.along_n = k, n, group, along_n
        self.words = nn.Parameter((k, n // 8) if along_n else (k // 8, n), "uint32")
        self.scales = nn.Parameter((k // group, n), "float16")
        if zeros == "words":
            self.zeros = nn.Parameter((k // group, n // 8), "uint32")
        elif zeros:
            self.zeros = nn.Parameter((k // group, n), "float16")

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        def unpacked(words: te.Tensor, at: tuple, number: Any) -> Any:
            shift = ((number % 8) * 4).astype("uint32")
            return ((words[at] >> shift) & tirx.const(15, "uint32")).astype("float16")

        def weight(words: te.Tensor, scales: te.Tensor, *zeros: te.Tensor) -> te.Tensor:
            def element(k: Any, n: Any) -> Any:
                at, number = ((k, n // 8), n) if self.along_n else ((k // 8, n), k)
                zero: Any = tirx.const(7, "float16")
                if zeros and str(zeros[0].dtype) == "uint32":
                    zero = unpacked(zeros[0], (k // self.group, n // 8), n)
                elif zeros:
                    zero = zeros[0][k // self.group, n]
                return (unpacked(words, at, number) - zero) * scales[k // self.group, n]

            return te.compute((self.k, self.n), element, "dequantize")

        params = [self.words, self.scales, *([self.zeros] if hasattr(self, "zeros") else [])]
        return nn.op.matmul(x, nn.op.tensor_expr_op(weight, "dequantize", params))

    def reference(self, x: np.ndarray, words: np.ndarray, scales: np.ndarray, *zeros: np.ndarray):
        k, n = np.arange(self.k), np.arange(self.n)
        if self.along_n:
            numbers = words[:, n // 8] >> (n % 8 * 4).astype(np.uint32)
        else:
            numbers = words[k // 8] >> (k % 8 * 4).astype(np.uint32)[:, None]
        zero: Any = 7
        if zeros and zeros[0].dtype == np.uint32:
            zero = (zeros[0][:, n // 8] >> (n % 8 * 4).astype(np.uint32) & 15)[k // self.group]
            zero = zero.astype(np.float64)
        elif zeros:
            zero = zeros[0][k // self.group]
        weight = ((numbers & 15).astype(np.float64) - zero) * scales[k // self.group]
        return x @ weight


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 24, "n"])
@pytest.mark.parametrize("along_n", [False, True])
@pytest.mark.parametrize("zeros", ["", "numbers", "words"])
@pytest.mark.some(4)
def test_weights_of_four_bits(
    rows: Any, along_n: bool, zeros: str, rng: np.random.Generator
) -> None:
    k, n = 128 * int(rng.integers(1, 4)), 64 * int(rng.integers(1, 4))
    group = int(rng.choice([32, 64, 128]))
    print(k, n, group)
    model = _FourBits(k, n, group, along_n, zeros)
    mod = _exported(model, rows, k)
    (report,) = _check(mod, model.reference, rng, 17)
    bits = 4 + 16 / group + {"": 0, "numbers": 16, "words": 4}[zeros] / group
    assert report.problem is not None and report.problem.b_bits == pytest.approx(bits)


class _EightBits(nn.Module):
    """A weight of 8 bits for an input of 16, scaled before or after the matmul."""

    def __init__(self, dtype: str, shape: tuple, late: bool) -> None:
        self.late = late
        self.weight = nn.Parameter((96, 128), dtype)
        self.scale = nn.Parameter(shape, "float16")

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        weight = nn.op.astype(self.weight, "float16")
        if not self.late:
            scaled = relax.op.multiply(weight._expr, self.scale._expr)
            weight = nn.op.wrap_nested(scaled, "scaled")
        y = nn.op.matmul(x, nn.op.permute_dims(weight, [1, 0]))
        return y * self.scale if self.late else y


@pytest.mark.gpu
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int8"])
@pytest.mark.some(3)
def test_weights_of_eight_bits_with_one_scale(
    dtype: str, shape: tuple, late: bool, rng: np.random.Generator
) -> None:
    mod = _exported(_EightBits(dtype, shape, late), 24, 128)
    (report,) = _check(mod, lambda x, w, s: (x @ w.T) * s, rng)
    assert report.problem is not None and report.problem.b_bits == 8


@pytest.mark.gpu
@pytest.mark.parametrize("bias", [False, True])
def test_heads_of_any_width(bias: bool, rng: np.random.Generator) -> None:
    for n in (int(rng.integers(2, 300)), int(2 * rng.integers(1, 150) + 1), 3):
        print(n)
        model = nn.Linear(64, n, bias=bias)
        model.to("float16")
        spec = {"forward": {"x": nn.spec.Tensor([1, "n", 64], "float16")}}
        mod = model.export_tvm(spec)[0]
        (report,) = _check(mod, lambda x, w, b=0.0: x @ w.T + b, rng, 13)
        assert report.problem is not None and report.problem.n == n


def _amp(rank: int) -> tvm.IRModule:
    """A LoRA layer of float32 as mixed precision makes it: weights are converted and transposed."""
    builder = relax.BlockBuilder()
    shapes = {"x": (1, 24, 128), "w": (96, 128), "a": (rank, 128), "b": (96, rank)}
    x, w, a, b = (relax.Var(n, relax.TensorType(s, "float32")) for n, s in shapes.items())
    with builder.function("forward", [x, w, a, b]):
        with builder.dataflow():
            def linear(x: Any, w: Any) -> Any:
                return builder.emit(relax.op.matmul(x, builder.emit(relax.op.permute_dims(w))))

            scaled = builder.emit(
                relax.op.multiply(linear(linear(x, a), b), relax.const(2.0, "float32"))
            )
            result = builder.emit_output(relax.op.add(linear(x, w), scaled))
        builder.emit_func_output(result)
    return relax.transform.ToMixedPrecision("float32")(builder.get())


@pytest.mark.gpu
@pytest.mark.parametrize("rank", [8, 4, 12])
def test_weights_that_are_converted_on_the_way(rank: int, rng: np.random.Generator) -> None:
    """Conversions go along the rows of weights; a K of 4 or 12 is for TVM's matmul."""
    reports = _check(_amp(rank), lambda x, w, a, b: x @ w.T + 2 * (x @ a.T @ b.T), rng)
    taken = [one for one in reports if one.problem is not None]
    left = [one for one in reports if one.problem is None and one.rows is None]
    assert len(taken) == (3 if rank == 8 else 2) and (rank != 8 or not left)


def _bound(mod: tvm.IRModule, arrays: list[np.ndarray]) -> tvm.IRModule:
    """A model whose weights are constants."""
    weights = mod["forward"].params[1:]
    tensors = map(tvm.runtime.tensor, arrays)
    table = {param.name: one for param, one in zip(weights, tensors, strict=True)}
    return relax.transform.BindParams("forward", table)(mod)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_that_are_constants(dtype: str, rng: np.random.Generator) -> None:
    """TVM folds their transposition: [K, N], which no TMA loads where N is odd."""
    n = int(2 * rng.integers(1, 90) + 1)
    print(n)
    model = nn.Linear(64, n, bias=False)
    model.to(dtype)
    mod = model.export_tvm({"forward": {"x": nn.spec.Tensor([1, 24, 64], dtype)}})[0]
    x, w = _arrays(mod, 24, rng)
    mod = _bound(mod, [w])
    (report,) = inspect(mod)
    assert report.problem is not None and report.problem.layout == "NT"
    machine = relax.VirtualMachine(relax.build(mod, _TARGET), tvm.cuda(0))
    found = machine["forward"](tvm.runtime.tensor(x, tvm.cuda(0))).numpy().astype(np.float64)
    wanted = x.astype(np.float64) @ w.astype(np.float64).T
    bound = 2e-3 if dtype == "float16" else 2e-2
    assert np.abs(found - wanted).max() < bound * np.abs(wanted).max()


@pytest.mark.gpu
@pytest.mark.parametrize("route", ["bound", "lifted"])
def test_weights_are_converted_once(route: str, rng: np.random.Generator) -> None:
    """As constants while the model is built, or by the function that LiftTransformParams makes."""
    mod = _amp(8)
    x, *weights = _arrays(mod, 24, rng)
    device = tvm.cuda(0)
    tensors = [tvm.runtime.tensor(one, device) for one in weights]
    if route == "bound":
        mod = _bound(mod, weights)
    else:
        main = mod["forward"].with_attr("num_input", 1)
        mod = relax.transform.LiftTransformParams()(tvm.IRModule({"forward": main}))
    executable = relax.build(mod, _TARGET)
    machine = relax.VirtualMachine(executable, device)
    tensors = [] if route == "bound" else machine["forward_transform_params"](tensors)
    found = machine["forward"](tvm.runtime.tensor(x, device), *tensors).numpy()
    w, a, b = (one.astype(np.float64) for one in weights)
    wanted = x.astype(np.float64) @ w.T + 2 * (x @ a.T @ b.T)
    assert np.abs(found - wanted).max() < 2e-3 * np.abs(wanted).max()
    # Each call converts its input, and nothing else.
    own = [one.name for one in inspect(mod) if one.problem is None and "transpose" not in one.name]
    assert own == ["cast"]

"""Residuals of norms in float32: which become 16 bits, what stays, and what is exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes  # noqa: F401  (numpy learns bfloat16)
import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import op

import warploom
from warploom.relax.inspect import inspected
from warploom.relax.joining import is_call_tir
from warploom.relax.narrow_products import KEEP
from warploom.relax.narrow_residuals import NarrowResiduals

_TARGET = warploom.cuda_target("h200")
_ROWS, _WIDTH = 24, 64
Emit = Callable[[relax.Expr], relax.Var]

_NORMS: dict[str, Callable[..., relax.Expr]] = {
    "layer norm": lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-1]),
    "rms norm": lambda x, g, b: op.nn.rms_norm(x, g, axes=[-1]),
    "group norm": lambda x, g, b: op.nn.group_norm(x, g, b, num_groups=4, channel_axis=1, axes=[]),
}


def _post_norm(emit: Emit, norm: Any, dtype: str, x: Any, w: Any, g: Any, b: Any) -> relax.Expr:
    """Two layers with the norm behind the residual, as mixed precision leaves BERT."""
    x = emit(op.astype(x, "float32"))
    for _ in range(2):
        x = emit(norm(x, g, b))
        h = emit(op.matmul(emit(op.astype(x, dtype)), w, out_dtype=dtype))
        x = emit(op.add(x, emit(op.astype(h, "float32"))))
    return norm(x, g, b)


def _pre_norm(emit: Emit, norm: Any, dtype: str, x: Any, w: Any, g: Any, b: Any) -> relax.Expr:
    """Two layers that accumulate in float32, with the norm before the GEMM."""
    x = emit(op.astype(x, "float32"))
    for _ in range(2):
        h = emit(op.astype(emit(norm(x, g, b)), dtype))
        h = emit(op.matmul(h, w, out_dtype=dtype))
        x = emit(op.add(x, emit(op.astype(h, "float32"))))
    return norm(x, g, b)


def _leaving(emit: Emit, norm: Any, dtype: str, x: Any, w: Any, g: Any, b: Any) -> relax.Expr:
    """A norm in float32 that leaves the function, and goes to a GEMM in 16 bits."""
    wide = emit(norm(emit(op.astype(x, "float32")), g, b))
    h = emit(op.matmul(emit(op.astype(wide, dtype)), w, out_dtype=dtype))
    return relax.Tuple([wide, emit(op.add(wide, emit(op.astype(h, "float32"))))])


def _several(emit: Emit, norm: Any, dtype: str, x: Any, w: Any, g: Any, b: Any) -> relax.Expr:
    """A widened tensor with readers of all kinds: a norm, a sum, an activation, a view."""
    wide = emit(op.astype(emit(op.matmul(x, w, out_dtype=dtype)), "float32"))
    turned = emit(op.permute_dims(emit(op.permute_dims(wide))))
    parts = [norm(wide, g, b), op.nn.gelu(wide), op.multiply(wide, wide), op.abs(turned)]
    total = wide
    for part in parts:
        total = emit(op.add(total, emit(part)))
    return total


def _module(body: Any, norm: str, dtype: str, keep: bool = False) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    shapes = {"x": ((_ROWS, _WIDTH), dtype), "w": ((_WIDTH, _WIDTH), dtype),
              "g": ((_WIDTH,), "float32"), "b": ((_WIDTH,), "float32")}  # fmt: skip
    params = [relax.Var(name, relax.TensorType(*each)) for name, each in shapes.items()]
    with builder.function("main", params, attrs={KEEP: True} if keep else None):
        with builder.dataflow():
            made = body(builder.emit, _NORMS[norm], dtype, *params)
            found = builder.emit_output(made)
        builder.emit_func_output(found)
    return builder.get()


def _arrays(rng: np.random.Generator, dtype: str) -> list[np.ndarray]:
    x, w = rng.standard_normal((_ROWS, _WIDTH)), rng.standard_normal((_WIDTH, _WIDTH)) / 8
    g, b = 1 + 0.2 * rng.standard_normal(_WIDTH), 0.2 * rng.standard_normal(_WIDTH)
    return [x.astype(dtype), w.astype(dtype), g.astype("float32"), b.astype("float32")]


def _run(mod: tvm.IRModule, target: Any, device: Any, arrays: list[np.ndarray]) -> list[Any]:
    machine = relax.VirtualMachine(relax.build(mod, target), device)
    found = machine["main"](*(tvm.runtime.tensor(one, device) for one in arrays))
    return [each.numpy() for each in ([found] if isinstance(found, tvm.runtime.Tensor) else found)]


def _rewritten(mod: tvm.IRModule) -> tvm.IRModule:
    with _TARGET:
        return NarrowResiduals()(mod)


def _written(mod: tvm.IRModule) -> list[str]:
    """Types of what the kernels of a model write, in their order."""
    found = []

    def visit(expr: Any) -> None:
        if isinstance(expr, relax.Call) and is_call_tir(expr):
            found.append(str(expr.ty.dtype))

    relax.analysis.post_order_visit(inspected(mod, False, None, _TARGET).mod["main"], visit)
    return found


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("norm", ["layer norm", "rms norm"])
def test_no_kernel_between_norms_writes_float32(norm: str, dtype: str) -> None:
    found = _written(_module(_post_norm, norm, dtype))
    # A norm and a GEMM for each layer, and the last norm, which leaves the model.
    assert found == [dtype] * 4 + ["float32"]
    kept = _written(_module(_post_norm, norm, dtype, keep=True))
    assert kept.count("float32") > 1


@pytest.mark.some(3)
@pytest.mark.parametrize("body", [_post_norm, _pre_norm, _leaving, _several])
@pytest.mark.parametrize("norm", _NORMS)
def test_without_rounding_nothing_changes(body: Any, norm: str, rng: np.random.Generator) -> None:
    mod = _module(body, norm, "float16", keep=True)
    arrays = _arrays(rng, "float16")
    made = _rewritten(mod)
    assert not tvm_ffi.structural_equal(made["main"], mod["main"])
    for found, wanted in zip(
        _run(made, "llvm", tvm.cpu(), arrays), _run(mod, "llvm", tvm.cpu(), arrays), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("body", [_pre_norm, _leaving, _several])
def test_sums_that_go_on_and_results_stay_float32(body: Any) -> None:
    mod, kept = (_rewritten(_module(body, "layer norm", "float16", keep)) for keep in (0, 1))
    assert tvm_ffi.structural_equal(mod["main"].body, kept["main"].body, map_free_vars=True)


def test_other_targets_keep_their_types() -> None:
    mod = _module(_post_norm, "layer norm", "float16")
    with tvm.target.Target({"kind": "cuda", "arch": "sm_90"}):
        assert tvm_ffi.structural_equal(NarrowResiduals()(mod), mod)


def _exact(x: np.ndarray, w: np.ndarray, g: np.ndarray, b: np.ndarray) -> np.ndarray:
    x, w = x.astype(np.float64), w.astype(np.float64)

    def norm(x: np.ndarray) -> np.ndarray:
        apart = x - x.mean(-1, keepdims=True)
        return apart / np.sqrt((apart**2).mean(-1, keepdims=True) + 1e-5) * g + b

    for _ in range(2):
        x = norm(x)
        x = x + x @ w
    return norm(x)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_model_computes_what_it_says(dtype: str, rng: np.random.Generator) -> None:
    arrays = _arrays(rng, dtype)
    mod = _module(_post_norm, "layer norm", dtype)
    (found,) = _run(mod, _TARGET, tvm.cuda(0), arrays)
    wanted = _exact(*arrays)
    # Each layer rounds its norm, its GEMM and its sum, of numbers up to four.
    rounding = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    assert np.abs(found - wanted).max() <= 4 * 2 * 3 * rounding
    assert np.sqrt(np.mean((found - wanted) ** 2)) <= 2 * 3 * rounding

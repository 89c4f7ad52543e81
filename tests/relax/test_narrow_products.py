"""Matmuls of widened 16-bit operands: which are narrowed, what is rounded, and what stays."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import warploom
from warploom.relax.constant_rows import SliceConstantRows
from warploom.relax.inspect import inspect
from warploom.relax.narrow_products import KEEP, NarrowProducts

_TARGET = warploom.cuda_target("h200")


def module(body, *shapes: tuple[tuple[int, ...], str], keep: bool = False) -> tvm.IRModule:
    """A module whose function computes ``body`` of tensors of some shapes and dtypes."""
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{number}", relax.TensorType(shape, dtype))
        for number, (shape, dtype) in enumerate(shapes)
    ]
    attrs = {KEEP: True} if keep else None
    with builder.function("main", params, attrs=attrs):
        with builder.dataflow():
            found = builder.emit_output(body(builder.emit, *params))
        builder.emit_func_output(found)
    return builder.get()


def products(mod: tvm.IRModule) -> list[tuple[str, ...]]:
    """Types of the operands of each matmul, after the pass."""
    with _TARGET:
        mod = NarrowProducts()(mod)
    found = []

    def visit(expr):
        if isinstance(expr, relax.Call) and getattr(expr.op, "name", "") == "relax.matmul":
            found.append((*(str(arg.ty.dtype) for arg in expr.args), str(expr.ty.dtype)))

    relax.analysis.post_order_visit(mod["main"], visit)
    return found


def wide(emit, x):
    return emit(relax.op.astype(x, "float32"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("keep", [False, True])
def test_widened_operands_are_multiplied_as_they_were(dtype, keep):
    def body(emit, x, w):
        turned = emit(relax.op.permute_dims(wide(emit, w), [0, 2, 1]))
        rows = emit(relax.op.reshape(wide(emit, x), [2, 12, 64]))
        return relax.op.matmul(rows, turned)

    mod = module(body, ((24, 64), dtype), ((2, 32, 64), dtype), keep=keep)
    assert products(mod) == [(dtype, dtype, "float32")]


def swiglu(emit, x, w1, w2):
    """As TVM's frontend writes it: float32 from the first matmul on."""
    wide_h = emit(relax.op.matmul(x, w1, out_dtype="float32"))
    active = emit(relax.op.multiply(wide_h, emit(relax.op.sigmoid(wide_h))))
    return relax.op.matmul(active, wide(emit, w2), out_dtype="float32")


@pytest.mark.parametrize(
    ("keep", "wanted"), [(False, ("float16", "float16", "float32")), (True, ("float32",) * 3)]
)
def test_what_16_bit_matmuls_have_made_is_rounded(keep, wanted):
    shapes = (((24, 64), "float16"), ((64, 96), "float16"), ((96, 64), "float16"))
    found = products(module(swiglu, *shapes, keep=keep))
    assert found == [("float16", "float16", "float32"), wanted]


def _of_float32(emit, x, y, w):
    return relax.op.matmul(emit(relax.op.multiply(wide(emit, x), y)), wide(emit, w))


def _no_matmul(emit, x, y, w):
    both = emit(relax.op.add(wide(emit, x), wide(emit, x)))
    return relax.op.matmul(both, wide(emit, w))


def _of_a_softmax(emit, x, y, w):
    scores = emit(relax.op.matmul(x, emit(relax.op.permute_dims(x)), out_dtype="float32"))
    weights = emit(relax.op.nn.softmax(scores))
    return relax.op.matmul(emit(relax.op.matmul(weights, y)), wide(emit, w))


def _of_other_bits(emit, x, y, w):
    found = emit(relax.op.matmul(x, emit(relax.op.permute_dims(x)), out_dtype="float32"))
    other = emit(relax.op.astype(emit(relax.op.astype(x, "bfloat16")), "float32"))
    return relax.op.matmul(found, other)


@pytest.mark.parametrize("body", [_of_float32, _no_matmul, _of_a_softmax, _of_other_bits])
def test_what_comes_from_float32_is_not_rounded(body):
    mod = module(body, ((24, 64), "float16"), ((24, 64), "float32"), ((64, 32), "float16"))
    assert products(mod)[-1][0] == "float32"


def test_other_targets_keep_their_types():
    shapes = (((24, 64), "float16"), ((64, 96), "float16"), ((96, 64), "float16"))
    mod = module(swiglu, *shapes)
    with tvm.target.Target({"kind": "cuda", "arch": "sm_90"}):
        assert tvm_ffi.structural_equal(NarrowProducts()(mod), mod)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_results_are_those_of_rounded_operands(rng, dtype):
    shapes = (((24, 64), dtype), ((64, 96), dtype), ((96, 64), dtype))
    mod = module(swiglu, *shapes)
    assert sum(report.on_tensor_cores for report in inspect(mod)) == 2
    arrays = [(rng.standard_normal(shape) * 0.5).astype(dtype) for shape, dtype in shapes]
    machine = relax.VirtualMachine(relax.build(mod, _TARGET), tvm.cuda(0))
    found = machine["main"](*(tvm.runtime.tensor(one, tvm.cuda(0)) for one in arrays)).numpy()
    x, w1, w2 = (one.astype(np.float64) for one in arrays)
    h = x @ w1
    h = (h / (1 + np.exp(-h))).astype(dtype).astype(np.float64)
    # An operand may be rounded to either neighbour, as float32 sums before it differ.
    ulp = {"float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    assert (np.abs(found - h @ w2) <= 1e-4 + 0.2 * ulp * (np.abs(h) @ np.abs(w2))).all()


def test_rows_of_a_constant_index_are_slices():
    @I.ir_module
    class Model:
        @R.function
        def main(w: R.Tensor((3, 8, 4), "float16")):
            with R.dataflow():
                first = R.take(w, R.const(2, "int64"), axis=0)
                outside = R.take(w, R.const(3, "int64"), axis=0)
                several = R.take(w, R.const([1], "int64"), axis=1)
                out = (first, outside, several)
                R.output(out)
            return out

    made = SliceConstantRows()(Model)
    names = []

    def visit(expr):
        if isinstance(expr, relax.Call):
            names.append(expr.op.name.removeprefix("relax."))

    relax.analysis.post_order_visit(made["main"], visit)
    assert names.count("take") == 1
    assert names.count("strided_slice") == 2
    assert tvm_ffi.structural_equal(made["main"].ret_ty, Model["main"].ret_ty)

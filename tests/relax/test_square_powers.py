"""Squares of a model are products, whatever their sign."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

import warploom
from warploom.relax.square_powers import SquarePowers

_TARGET = warploom.cuda_target("h200")


def _powers(exponent: relax.Expr, dtype: str, rows: int = 16) -> tvm.IRModule:
    """Means of the powers of rows, as norms have them."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((rows, 64), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            raised = builder.emit(relax.op.power(x, exponent))
            mean = builder.emit_output(relax.op.mean(raised, [-1], True))
        builder.emit_func_output(mean)
    return builder.get()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_squares_of_negative_numbers(dtype, rng):
    module = _powers(relax.const(2.0, dtype), dtype)
    machine = relax.VirtualMachine(relax.build(module, _TARGET), tvm.cuda(0))
    x = -np.abs(rng.standard_normal((16, 64))).astype(dtype)
    found = machine["main"](tvm.runtime.tensor(x, tvm.cuda(0))).numpy().astype(np.float64)
    wanted = (x.astype(np.float64) ** 2).mean(1, keepdims=True)
    np.testing.assert_allclose(found, wanted, rtol={"float32": 1e-6, "float16": 4e-3}[dtype])


@pytest.mark.parametrize(
    ("exponent", "squared"),
    [(relax.const(2.0, "float32"), True), (relax.const(3.0, "float32"), False),
     (relax.const(0.5, "float32"), False),
     (relax.const(np.full((16, 64), 2, "float32")), False),
     (relax.const(np.full((2, 1, 1), 2, "float32")), False)],
    ids=["2", "3", "0.5", "a tensor", "more dimensions"],
)  # fmt: skip
def test_only_the_scalar_2_is_a_product(exponent, squared):
    before = _powers(exponent, "float32")
    text = SquarePowers()(before).script()
    assert ("R.multiply(x, x)" in text) == squared
    assert ("R.power" in text) != squared

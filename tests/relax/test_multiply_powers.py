"""Small whole powers of a model are products, whatever the sign of what is raised."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

import warploom
from warploom.relax.multiply_powers import MultiplyPowers

_TARGET = warploom.cuda_target("h200")


def _powers(exponent: relax.Expr, dtype: str, rows: int = 16, named: bool = False) -> tvm.IRModule:
    """Means of the powers of rows, as norms have them; the exponent may be a variable."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((rows, 64), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            exponent = builder.emit(exponent) if named else exponent
            raised = builder.emit(relax.op.power(x, exponent))
            mean = builder.emit_output(relax.op.mean(raised, [-1], True))
        builder.emit_func_output(mean)
    return builder.get()


@pytest.mark.gpu
@pytest.mark.parametrize("exponent", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_powers_of_negative_numbers(exponent, dtype, rng):
    module = _powers(relax.const(float(exponent), dtype), dtype, named=exponent == 2)
    machine = relax.VirtualMachine(relax.build(module, _TARGET), tvm.cuda(0))
    x = -(0.5 + np.abs(rng.standard_normal((16, 64)))).clip(0, 2).astype(dtype)
    found = machine["main"](tvm.runtime.tensor(x, tvm.cuda(0))).numpy().astype(np.float64)
    wanted = (x.astype(np.float64) ** exponent).mean(1, keepdims=True)
    np.testing.assert_allclose(found, wanted, rtol={"float32": 2e-6, "float16": 4e-3}[dtype])


@pytest.mark.parametrize("exponent", range(1, 9))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_product_has_few_factors_and_rounds_once(exponent, dtype):
    text = MultiplyPowers()(_powers(relax.const(float(exponent), dtype), dtype)).script()
    assert "R.power" not in text
    assert text.count("R.multiply") == exponent.bit_length() - 1 + exponent.bit_count() - 1
    widened = dtype == "bfloat16" and exponent > 2
    assert text.count("R.astype") == (2 if widened else 0)


@pytest.mark.parametrize(
    "exponent",
    [relax.const(0.0, "float32"), relax.const(9.0, "float32"), relax.const(-1.0, "float32"),
     relax.const(0.5, "float32"), relax.const(np.full((16, 64), 2, "float32")),
     relax.const(np.full((2, 1, 1), 2, "float32"))],
    ids=["0", "9", "-1", "0.5", "a tensor", "more dimensions"],
)  # fmt: skip
def test_other_powers_stay(exponent):
    text = MultiplyPowers()(_powers(exponent, "float32")).script()
    assert "R.power" in text
    assert "R.multiply" not in text

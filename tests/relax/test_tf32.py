"""float32 GEMMs of models: as tf32 where a function allows it, otherwise TVM's."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tvm
from tvm import relax

import warploom
from tests.shared.reference import round_to_tf32
from warploom.gemm.tf32 import allow_tf32
from warploom.relax.inspect import inspect

_TARGET = warploom.cuda_target("h200")


def _transposed(x: relax.Expr, w: relax.Expr) -> relax.Expr:
    return relax.op.matmul(x, relax.op.permute_dims(w))


def _module() -> tvm.IRModule:
    """Two functions with a GEMM each, of different sizes, and one that both call."""
    builder = relax.BlockBuilder()
    for name, rows in (("exact", 24), ("fast", 40)):
        x = relax.Var("x", relax.TensorType((rows, 64), "float32"))
        w = relax.Var("w", relax.TensorType((72, 64), "float32"))
        u = relax.Var("u", relax.TensorType((48, 64), "float32"))
        with builder.function(name, [x, w, u]):
            with builder.dataflow():
                y = builder.emit(_transposed(x, w))
                both = builder.emit(_transposed(u, w))
                result = builder.emit_output(_transposed(relax.op.nn.relu(y), both))
            builder.emit_func_output(result)
    return builder.get()


def _taken(mod: tvm.IRModule, **options: bool) -> set[tuple[int, ...]]:
    problems = [one.problem for one in inspect(mod, **options) if one.problem]
    assert all("float32 as tf32" in str(one) for one in problems)
    return {(one.m, one.n, one.k) for one in problems}


def test_only_functions_that_allow_it() -> None:
    mod = _module()
    assert not _taken(mod)
    reasons = [one.reason for one in inspect(mod)]
    assert sum("the attribute warploom.tf32" in one for one in reasons) == 5
    everything = _taken(mod, tf32=True)
    assert everything == {(24, 72, 64), (40, 72, 64), (48, 72, 64), (24, 48, 72), (40, 48, 72)}
    mod["fast"] = allow_tf32(mod["fast"])
    # What `exact` calls, too, stays exact.
    assert _taken(mod) == {(40, 72, 64), (40, 48, 72)}


@pytest.mark.gpu
def test_results(rng: np.random.Generator) -> None:
    mod = _module()
    mod["fast"] = allow_tf32(mod["fast"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        machine = relax.VirtualMachine(relax.build(mod, _TARGET), tvm.cuda(0))
    errors = {}
    for name, rows in (("exact", 24), ("fast", 40)):
        shapes = (rows, 64), (72, 64), (48, 64)
        arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
        tensors = [tvm.runtime.tensor(one, tvm.cuda(0)) for one in arrays]
        found = machine[name](*tensors).numpy()
        x, w, u = (one.astype(np.float64) for one in arrays)
        wanted = np.maximum(x @ w.T, 0) @ (u @ w.T).T
        errors[name] = np.abs(found - wanted).max() / np.abs(wanted).max()
    assert errors["exact"] < 1e-6 < 5e-5 < errors["fast"] < 4e-3
    assert np.abs(round_to_tf32(arrays[0]) - arrays[0]).max() > 1e-4

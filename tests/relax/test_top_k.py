"""``topk`` of models: which become kernels, in the default pipeline, and what they find."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import warploom
from warploom.relax import with_warploom
from warploom.relax.call_top_k import CallTopK
from warploom.relax.inspect import inspect

_TARGET = warploom.cuda_target("h200")


def module(shape, k, of="float32", softmax=False, **options) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, of))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit(relax.op.nn.softmax(x)) if softmax else x
            found = builder.emit_output(relax.op.topk(value, k, **options))
        builder.emit_func_output(found)
    return builder.get()


def _run(mod, x):
    machine = relax.VirtualMachine(relax.build(mod, _TARGET), tvm.cuda(0))
    found = machine["main"](tvm.runtime.tensor(x, tvm.cuda(0)))
    return [one.numpy() for one in (found if hasattr(found, "__len__") else [found])]


@pytest.mark.gpu
@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("shape", "k", "options"),
    [((24, 8), 2, {"dtype": "int32"}), ((2, 3, 50), 4, {"dtype": "int64"}), ((70,), 5, {}),
     (("rows", 64), 6, {}), ((3, 4, 16), 3, {"axis": 2, "largest": False}),
     ((2, 2100), 7, {"dtype": "int64"})],
)  # fmt: skip
def test_results_are_those_of_a_stable_sort(rng, shape, k, options):
    sizes = [13 if isinstance(one, str) else one for one in shape]
    rows = {"rows": tirx.Var("rows", "int64")}
    mod = module([rows.get(one, one) for one in shape], k, **options)
    (report, *others) = [one for one in inspect(mod) if one.program]
    assert f"the {k} " in str(report)
    assert len(others) == (sizes[-1] > 1024)
    x = rng.standard_normal(sizes).astype(np.float32).round(1)
    values, indices = _run(mod, x)
    order = np.argsort(x if options.get("largest") is False else -x, -1, kind="stable")[..., :k]
    np.testing.assert_array_equal(indices, order)
    assert str(indices.dtype) == options.get("dtype", "int32")
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, -1))


@pytest.mark.gpu
@pytest.mark.parametrize("ret_type", ["values", "indices"])
def test_a_softmax_before_it_is_part_of_the_kernel(rng, ret_type):
    mod = module((9, 64), 6, softmax=True, ret_type=ret_type)
    assert ["softmax" in str(one) for one in inspect(mod)] == [True]
    x = rng.standard_normal((9, 64)).astype(np.float32)
    (found,) = _run(mod, x)
    weights = np.exp(x.astype(np.float64))
    weights /= weights.sum(1, keepdims=True)
    order = np.argsort(-x, 1, kind="stable")[:, :6]
    if ret_type == "indices":
        np.testing.assert_array_equal(found, order)
    else:
        np.testing.assert_allclose(found, np.take_along_axis(weights, order, 1), rtol=1e-5)


@pytest.mark.parametrize(
    ("shape", "k", "options"),
    [((9, 64), 6, {"axis": 0}), ((9, 64), 0, {}), ((2, 100), 65, {}), ((2, 64), 3, {"x": "int32"}),
     ((9, "columns"), 2, {})],
)  # fmt: skip
def test_others_are_left_to_tvm(shape, k, options):
    sizes = [tirx.Var(one, "int64") if isinstance(one, str) else one for one in shape]
    dtype = options.pop("x", "float32")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(sizes, dtype))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.topk(x, k, **options)))
    with _TARGET:
        made = CallTopK()(builder.get())
    assert len(made.functions) == 1


def test_a_softmax_of_16_bits_rounds_before_the_search():
    reports = inspect(module((9, 64), 6, of="float16", softmax=True))
    (program,) = [str(one) for one in reports if one.program]
    assert "softmax" not in program
    assert len(reports) == 2


def test_other_targets_keep_the_operator():
    mod = module((9, 64), 6)
    with tvm.target.Target({"kind": "cuda", "arch": "sm_90"}):
        assert len(CallTopK()(mod).functions) == 1


def test_passes_of_ones_own_search_before_tvm_sorts():
    """``DispatchSortScan``, which replaces the operator, goes long before ``LegalizeOps``."""
    passes = with_warploom([relax.backend.DispatchSortScan(), relax.transform.LegalizeOps()])
    names = [one.info.name for one in passes]
    assert names.index("warploom.CallTopK") < names.index("DispatchSortScan")
    with _TARGET:
        made = tvm.transform.Sequential(passes)(module((9, 64), 6))
    assert all(gv.name_hint == "main" or "top_k" in gv.name_hint for gv in made.get_global_vars())

"""Grouped GEMMs of models: which functions are recognised, and what replaces them."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

import warploom
from tests.relax.grouped_functions import sum_of_all, tiles_by_hand
from warploom.errors import Decline
from warploom.lower.trace import lower_trace
from warploom.relax.call_grouped import CallGrouped
from warploom.relax.inspect import inspect
from warploom.relax.read_grouped import read_grouped

_TARGET = warploom.cuda_target("h200")


def module(func, shapes, m, n) -> tvm.IRModule:
    """A function that calls ``func``, with twice its result."""
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{number}", relax.TensorType(shape, dtype))
        for number, (shape, dtype) in enumerate(shapes)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            called = builder.add_func(func, "group_gemm")
            dtype = str(func.params[-1].dtype)
            y = builder.emit(relax.call_tir(called, params, relax.TensorType((m, n), dtype)))
            found = builder.emit_output(relax.op.multiply(y, relax.const(2.0, dtype)))
        builder.emit_func_output(found)
    return builder.get()


def _expected(x, w, offsets):
    found = np.zeros((x.shape[0], w.shape[1]))
    for g, weights in enumerate(w):
        rows = slice(offsets[g], offsets[g + 1])
        found[rows] = 2 * (x[rows].astype(np.float64) @ weights.astype(np.float64).T)
    return found


@pytest.mark.gpu
@pytest.mark.some(4)
@pytest.mark.parametrize(
    "sizes",
    [(5, 0, 15, 4), (0, 0, 24), (24,), (1,) * 8, (0, 1, 129, 0, 64, 3, 0, 0), (0,) * 8],
)
@pytest.mark.parametrize(
    ("kind", "dtype", "indptr"),
    [("tiles", "float16", "int32"), ("sum", "bfloat16", "int64"), ("any rows", "float16", "int32")],
)
def test_groups_of_any_sizes(rng, sizes, kind, dtype, indptr):
    groups, n, k = len(sizes), 72, 40
    offsets = np.cumsum([0, *sizes]).astype(indptr)
    m = int(offsets[-1]) + (0 if kind == "tiles" else 5)  # rows of no group
    m = max(m, 1)
    if kind == "tiles":
        func = tiles_by_hand(groups, n, k, dtype, indptr)
    else:
        func = sum_of_all(groups, n, k, dtype, indptr, m if kind == "sum" else None, "pxw")
    rows = tirx.Var("rows", "int64") if kind == "any rows" else m
    shapes = [((rows, k), dtype), ((groups, n, k), dtype), ((groups + 1,), indptr)]
    order = (0, 1, 2) if kind == "tiles" else (2, 0, 1)
    mod = module(func, [shapes[place] for place in order], rows, n)
    assert any("a grouped GEMM" in str(one) for one in inspect(mod))
    x = rng.standard_normal((m, k)).astype(dtype)
    w = rng.standard_normal((groups, n, k)).astype(dtype)
    machine = relax.VirtualMachine(relax.build(mod, _TARGET), tvm.cuda(0))
    given = [(x, w, offsets)[place] for place in order]
    found = machine["main"](*(tvm.runtime.tensor(one, tvm.cuda(0)) for one in given))
    found = found.numpy().astype(np.float64)
    wanted = _expected(x, w, offsets)
    if kind == "tiles":
        found, wanted = found[: offsets[-1]], wanted[: offsets[-1]]
    bound = {"float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    np.testing.assert_allclose(found, wanted, rtol=bound, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("groups", "k", "said"), [(2, 2048, "CTAs of a cluster"), (4, 4096, "slots of a workspace")]
)
@pytest.mark.in_turn(2)
def test_few_rows_of_groups_are_split_along_k(rng, groups, k, said):
    """A tile or two would leave most SMs idle: several CTAs share each."""
    n, rows = 64, tirx.Var("rows", "int64")
    func = sum_of_all(groups, n, k, "float16")
    shapes = [((rows, k), "float16"), ((groups, n, k), "float16"), ((groups + 1,), "int32")]
    mod = module(func, shapes, rows, n)
    with _TARGET:
        (program,) = (
            one for gv, one in CallGrouped()(mod).functions_items() if gv.name_hint != "main"
            and "gemm_grouped" in gv.name_hint
        )  # fmt: skip
        decided = [text for step in lower_trace(program) for text in step.decisions]
    assert any("sums" in text and said in text for text in decided), decided
    machine = relax.VirtualMachine(relax.build(mod, _TARGET), tvm.cuda(0))
    offsets = np.array([*[0] * groups, 2], "int32")
    x, w = (rng.standard_normal(shape).astype("float16") for shape in ((2, k), (groups, n, k)))
    found = machine["main"](*(tvm.runtime.tensor(one, tvm.cuda(0)) for one in (x, w, offsets)))
    wanted = _expected(x, w, offsets)
    np.testing.assert_allclose(found.numpy().astype(float), wanted, rtol=2.0**-9, atol=0.05)


def test_what_is_read_of_a_function():
    by_hand = read_grouped(tiles_by_hand(4, 64, 32, "float16"))
    assert (by_hand.groups, by_hand.n, by_hand.k, by_hand.m) == (4, 64, 32, None)
    assert not by_hand.fills
    of_all = read_grouped(sum_of_all(3, 64, 32, "bfloat16", "int64", 24, "wpx"))
    assert (of_all.weights, of_all.offsets, of_all.rows, of_all.m) == (0, 1, 2, 24)
    assert of_all.fills
    assert (of_all.dtype, of_all.indptr_dtype) == ("bfloat16", "int64")


def _gathered() -> tirx.PrimFunc:
    """The third parameter names the weights of each row; there are as many rows as offsets."""
    x, w = te.placeholder((5, 32), "float16", "x"), te.placeholder((4, 64, 32), "float16", "w")
    p, r = te.placeholder((5,), "int32", "p"), te.reduce_axis((0, 32), "r")
    o = te.compute((5, 64), lambda i, j: te.sum(x[i, r] * w[p[i], j, r], r), "o")
    return te.create_prim_func([x, w, p, o])


def _with(**options) -> tirx.PrimFunc:
    return sum_of_all(4, 64, 32, "float16", m=24, **options)


@pytest.mark.parametrize(
    ("make", "reason"),
    [(_gathered, "names the weights"),
     (lambda: _with(value=lambda x, w: x + w), "adds"),
     (lambda: _with(value=lambda x, w: x * x), "multiplies"),
     (lambda: _with(value=lambda x, w: x * w * tirx.const(2, "float16")), "computes"),
     (lambda: _with(value=lambda x, w: tirx.max(x * w, tirx.const(0, "float16"))), "computes"),
     (lambda: _with(value=lambda x, w: tirx.if_then_else(x > w, x * w, x)), "depends|chooses"),
     (lambda: _with(at=lambda p, g, i: p[g] <= i), "neighbours"),
     (lambda: _with(at=lambda p, g, i: tirx.all(p[g] <= i, i < p[0])), "neighbours")],
)  # fmt: skip
def test_functions_that_compute_something_else(make, reason):
    with pytest.raises(Decline, match=reason):
        read_grouped(make())


@pytest.mark.parametrize(("dtype", "k"), [("float32", 32), ("float16", 36)])
def test_what_no_tile_program_computes_is_left_to_tvm(dtype, k):
    func = sum_of_all(4, 64, k, dtype, m=24)
    shapes = [((24, k), dtype), ((4, 64, k), dtype), ((5,), "int32")]
    with _TARGET:
        made = CallGrouped()(module(func, shapes, 24, 64))
    assert {gv.name_hint for gv in made.get_global_vars()} == {"main", "group_gemm"}

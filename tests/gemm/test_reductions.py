"""Reductions along the rows of a product: in its tile, or left alone with a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

import warploom
from tests.gemm.test_generate import check
from tests.shared.gemm_functions import Function, _wide
from warploom.decide import Config
from warploom.decide.selector import choose
from warploom.errors import Decline, IllegalCombination
from warploom.gemm import recognise
from warploom.relax.inspect import inspect

#: An element of C near the middle of two float16 numbers may round to the other one, and then moves
#: the reduction by a unit of that element.
_FLIPPED = 2.0**-11
_SMALL = Config(64, 64, 32, 3, consumers=1)
#: Kind -> the reduction of te, of numpy, and what is reduced.
_KINDS: dict[str, tuple[Any, Any]] = {
    "sum": (te.sum, np.sum),
    "max": (te.max, np.max),
    "min": (te.min, np.min),
}


def reduced(
    kind: str = "sum",
    parts: int = 1,
    m: int | str = 70,
    n: int = 64,
    k: int = 96,
    stored: bool = True,
    squares: bool = False,
    dtype: str = "float32",
    batch: int = 1,
    keep: bool = False,
) -> Function:
    """``C = X Y^T + bias`` in float16, and a reduction of its rows, or of equal parts of each."""
    rows = te.var(m) if isinstance(m, str) else m
    x = te.placeholder((batch, rows, k), "float16", "X")
    y = te.placeholder((n, k), "float16", "Y")
    bias = te.placeholder((n,), "float32", "bias")
    r = te.reduce_axis((0, k), "r")
    total = te.compute(
        (batch, rows, n),
        lambda b, i, j: te.sum(x[b, i, r].astype("float32") * y[j, r].astype("float32"), r),
        "matmul",
    )
    c = te.compute(total.shape, lambda *at: (total[at] + bias[at[-1]]).astype("float16"), "C")
    width = n // parts
    j = te.reduce_axis((0, width), "j")

    def value(b: Any, i: Any, t: Any) -> Any:
        wide = c[b, i, t * width + j if parts > 1 else j].astype("float32")
        return (wide * wide if squares else wide).astype(dtype)

    def at(b: Any, i: Any, *part: Any) -> Any:
        return _KINDS[kind][0](value(b, i, part[0] if parts > 1 else 0), j)

    shape = (batch, rows, *([parts] if parts > 1 else [1] if keep else []))
    rest = te.compute(shape, at, "R")

    def expected(x: Any, y: Any, bias: Any, *_: Any) -> list[np.ndarray]:
        c = _wide(x) @ _wide(y).T + _wide(bias)
        found = c.astype(np.float16).astype(np.float64)
        found = (found * found if squares else found).reshape(*c.shape[:2], parts, width)
        found = _KINDS[kind][1](found, 3)
        found = found if parts > 1 or keep else found[..., 0]
        return [c, found] if stored else [found]

    results = [c, rest] if stored else [rest]
    func = te.create_prim_func([x, y, bias, *results])
    return Function(func, expected, len(results), sums=_FLIPPED)


_FUNCTIONS: dict[str, tuple[Callable[[], Function], Config]] = {
    "sum": (reduced, _SMALL),
    "squares": (lambda: reduced(squares=True, n=136, keep=True), replace(_SMALL, tile_n=136)),
    "maximum of parts": (lambda: reduced("max", 3, n=192), replace(_SMALL, cluster_m=2)),
    "minimum": (lambda: reduced("min", m=130), Config(128, 64, 32, 3, split_k=2)),
    "nothing else stored": (lambda: reduced("max", stored=False), _SMALL),
    "ragged": (lambda: reduced("min", n=60, squares=True), _SMALL),
    "float16": (lambda: reduced("max", 2, n=128, dtype="float16"), _SMALL),
    "several images": (lambda: reduced(batch=3, m=25, parts=2, n=128), _SMALL),
    "one row": (lambda: reduced(m=1, keep=True), _SMALL),
}


@pytest.mark.parametrize("name", _FUNCTIONS)
@pytest.mark.some(3)
def test_reductions_are_computed(name: str, rng: np.random.Generator) -> None:
    make, config = _FUNCTIONS[name]
    check(make(), config, rng)


@pytest.mark.parametrize("rows", [1, 65])
def test_numbers_of_rows_of_the_launch(rows: int, rng: np.random.Generator) -> None:
    function = reduced(m="m", squares=True)
    assert recognise(function.func).problem.m is None
    check(function, _SMALL, rng, m=rows)


def test_the_model_chooses_a_tile_that_spans_them() -> None:
    problem = recognise(reduced(parts=4, m=4096, n=1024, k=4096).func).problem
    assert problem.reduced == 256 and "rows reduced over 256 columns" in str(problem)
    assert problem.outputs == ("float16", "float32")
    config = choose(problem)
    assert (config.tile_n, config.swap_ab) == (256, False)
    with pytest.raises(IllegalCombination, match="rows are reduced over 256 columns"):
        replace(config, tile_n=128).check(problem)


def _along_rows() -> tirx.PrimFunc:
    a, b = te.placeholder((64, 64), "float16", "A"), te.placeholder((64, 64), "float16", "B")
    r, s = te.reduce_axis((0, 64), "r"), te.reduce_axis((0, 64), "s")
    c = te.compute((64, 64), lambda i, j: te.sum(a[i, r] * b[j, r], r), "matmul")
    return te.create_prim_func([a, b, c, te.compute((64,), lambda j: te.sum(c[s, j], s), "R")])


def _softmax() -> tirx.PrimFunc:
    a, b = te.placeholder((64, 64), "float16", "A"), te.placeholder((64, 64), "float16", "B")
    r, s = te.reduce_axis((0, 64), "r"), te.reduce_axis((0, 64), "s")
    c = te.compute((64, 64), lambda i, j: te.sum(a[i, r] * b[j, r], r), "matmul")
    d = te.compute((64,), lambda i: te.max(c[i, s], s), "largest")
    return te.create_prim_func([a, b, te.compute((64, 64), lambda i, j: c[i, j] - d[i], "D")])


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_along_rows, "R reduces the product along its rows"),
        (_softmax, "block largest reduces a product within the function"),
        (lambda: reduced(n=512).func, "R reduces 512 columns of the product, and a tile has"),
    ],
)
def test_what_is_left_alone(make: Callable[[], tirx.PrimFunc], reason: str) -> None:
    with pytest.raises(Decline, match=reason):
        recognise(make())


def _scored(rows: int | str, columns: int, kind: str = "max") -> tvm.IRModule:
    """The largest product of each row of x with rows of w, and a scale for it."""
    builder = relax.BlockBuilder()
    m = tirx.Var(rows, "int64") if isinstance(rows, str) else rows
    x = relax.Var("x", relax.TensorType((m, 64), "float16"))
    w = relax.Var("w", relax.TensorType((columns, 64), "float16"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            y = builder.emit(relax.op.matmul(x, relax.op.permute_dims(w), out_dtype="float32"))
            found = builder.emit(getattr(relax.op, kind)(relax.op.nn.relu(y), axis=-1))
            result = builder.emit_output(found)
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.gpu
@pytest.mark.parametrize(("rows", "kind"), [(40, "max"), ("m", "sum")])
def test_models_reduce_rows_in_the_product(
    rows: int | str, kind: str, rng: np.random.Generator
) -> None:
    mod = _scored(rows, 200, kind)
    (report,) = inspect(mod)
    assert report.problem.reduced == 200 and report.problem.outputs == ("float32",)
    executable = relax.build(mod, warploom.cuda_target("h200"))
    machine = relax.VirtualMachine(executable, tvm.cuda(0))
    for count in (40,) if rows == 40 else (1, 70):
        x, w = (rng.standard_normal((n, 64)).astype(np.float16) for n in (count, 200))
        found = machine["main"](*(tvm.runtime.tensor(one, tvm.cuda(0)) for one in (x, w))).numpy()
        wanted = _KINDS[kind][1](np.maximum(_wide(x) @ _wide(w).T, 0), 1)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)


def test_rows_wider_than_a_tile_stay_apart() -> None:
    reports = inspect(_scored(64, 512))
    assert [one.problem.reduced for one in reports if one.problem] == [0]
    assert sum(one.rows is not None for one in reports) == 1

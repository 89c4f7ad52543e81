"""Row functions before and behind reductions of rows: one kernel, where that is as good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import warploom
from warploom.relax.inspect import inspect

_TARGET = warploom.cuda_target("h200")
Build = Callable[..., Any]


def _model(build: Build, shapes: list[tuple], dtype: str) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    sizes = {"m": tirx.Var("m", "int64")}
    params = [
        relax.Var(f"x{i}", relax.TensorType([sizes.get(s, s) for s in shape], dtype))
        for i, shape in enumerate(shapes)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            result = build(builder.emit, *params)
            results = result if isinstance(result, tuple) else (result,)
            named = [builder.emit_output(one) for one in results]
        builder.emit_func_output(named if len(named) > 1 else named[0])
    return builder.get()


def _norm(emit: Build, x: Any, y: Any, w: Any) -> Any:
    return relax.op.nn.rms_norm(emit(relax.op.add(x, y)), w, [-1], 1e-5)


def _normed(x: np.ndarray, y: Any, w: np.ndarray) -> np.ndarray:
    x = x + y
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w


def _masked(emit: Build, x: Any, mask: Any) -> Any:
    scaled = emit(relax.op.multiply(x, relax.const(0.125, "float16")))
    return relax.op.nn.softmax(emit(relax.op.add(scaled, mask)), -1)


def _softmax(x: np.ndarray, mask: Any) -> np.ndarray:
    made = np.exp(x * 0.125 + mask)
    return made / made.sum(-1, keepdims=True)


def _quantised(emit: Build, x: Any) -> Any:
    largest = emit(relax.op.max(emit(relax.op.abs(x)), -1, keepdims=True))
    scale = emit(relax.op.divide(largest, relax.const(127.0, "float32")))
    return relax.op.astype(emit(relax.op.round(emit(relax.op.divide(x, scale)))), "int8")


def _rounded(x: np.ndarray) -> np.ndarray:
    return np.rint(x / np.abs(x).max(-1, keepdims=True) * 127)


def _as_exported(emit: Build, x: Any, w: Any) -> Any:
    """An RMSNorm as torch exports those of Hugging Face: the cast of x has two readers."""
    wide = emit(relax.op.astype(x, "float32"))
    squares = emit(relax.op.power(wide, relax.const(2.0, "float32")))
    mean = emit(relax.op.mean(squares, -1, keepdims=True))
    scale = emit(relax.op.rsqrt(emit(relax.op.add(mean, relax.const(1e-5, "float32")))))
    scaled = emit(relax.op.multiply(wide, scale))
    return relax.op.multiply(w, emit(relax.op.astype(scaled, "float16")))


def _decomposed(emit: Build, x: Any, w: Any, b: Any) -> Any:
    mean = emit(relax.op.mean(x, -1, keepdims=True))
    spread = emit(relax.op.variance(x, -1, keepdims=True))
    spread = emit(relax.op.sqrt(emit(relax.op.add(spread, relax.const(1e-5, "float32")))))
    apart = emit(relax.op.divide(emit(relax.op.subtract(x, mean)), spread))
    return relax.op.add(emit(relax.op.multiply(apart, w)), b)


def _layer_normed(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * w + b


def _by_hand(emit: Build, x: Any) -> Any:
    """A softmax in four steps, of which the exponentials have two readers."""
    apart = emit(relax.op.subtract(x, emit(relax.op.max(x, -1, keepdims=True))))
    powers = emit(relax.op.exp(apart))
    return relax.op.divide(powers, emit(relax.op.sum(powers, -1, keepdims=True)))


CASES = [
    (_as_exported, lambda x, w: _normed(x, 0, w), [("m", 6, 128), (128,)], "float16", 4e-3),
    (_decomposed, _layer_normed, [("m", 100), (100,), (100,)], "float32", 1e-5),
    (_by_hand, lambda x: _softmax(8 * x, 0), [("m", 77)], "float32", 1e-5),
    (_norm, _normed, [("m", 128), ("m", 128), (128,)], "float16", 4e-3),
    (_norm, _normed, [(3, 50), (3, 50), (50,)], "float32", 1e-5),
    (_masked, _softmax, [("m", 4, 6, 40), ("m", 1, 6, 40)], "float16", 4e-3),
    (_quantised, _rounded, [("m", 96)], "float32", 1e-2),
]


@pytest.mark.gpu
@pytest.mark.parametrize(("build", "expected", "shapes", "dtype", "bound"), CASES)
def test_rows_are_read_once(
    build: Build, expected: Callable, shapes: list[tuple], dtype: str, bound: float,
    rng: np.random.Generator,
) -> None:  # fmt: skip
    mod = _model(build, shapes, dtype)
    (report,) = inspect(mod)
    assert report.rows is not None and report.rows.threads
    machine = relax.VirtualMachine(relax.build(mod, _TARGET), tvm.cuda(0))
    for rows in (1, 7):
        arrays = [
            rng.standard_normal([rows if s == "m" else s for s in shape]).astype(dtype)
            for shape in shapes
        ]
        found = machine["main"](*(tvm.runtime.tensor(one, tvm.cuda(0)) for one in arrays)).numpy()
        wanted = expected(*(one.astype(np.float64) for one in arrays))
        error = np.abs(found.astype(np.float64) - wanted).max() / np.abs(wanted).max()
        assert error <= bound


def test_a_sum_that_others_use_stays() -> None:
    def both(emit: Build, x: Any, y: Any, w: Any) -> Any:
        total = emit(relax.op.add(x, y))
        return relax.op.nn.rms_norm(total, w, [-1], 1e-5), total

    mod = _model(both, [(8, 128), (8, 128), (128,)], "float16")
    assert sorted(one.name for one in inspect(mod)) == ["add", "rms_norm"]


def test_rows_that_a_matmul_reads_stay() -> None:
    def multiplied(emit: Build, x: Any, y: Any, w: Any) -> Any:
        return relax.op.matmul(emit(relax.op.nn.softmax(emit(relax.op.add(x, y)), -1)), w)

    mod = _model(multiplied, [(24, 128), (24, 128), (128, 64)], "float16")
    first, second = inspect(mod)
    assert (first.rows is None, second.rows is None) == (False, True)
    assert second.problem is not None

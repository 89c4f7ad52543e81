"""GELUs without ``erff``: which expressions are taken, and what all float16 numbers become."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes  # noqa: F401  (numpy learns bfloat16)
import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.ir import Call
from tvm.tirx import BufferStore

from warploom.gemm.gelu import with_quick_gelu
from warploom.gemm.widen import widened

_ROOT = math.sqrt(0.5)
_PHI = np.vectorize(lambda x: math.erfc(-x * _ROOT) / 2, otypes=[np.float64])


def _erf(x: Any) -> Any:
    return tirx.call_intrin("float32", "tirx.erf", x)


#: As frontends and users write it, of ``x`` and a gate ``y``; and the same by Phi.
_FORMS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "topi": (lambda x, y: x * (0.5 + _erf(x * _ROOT) * 0.5), lambda x, y: x * _PHI(x)),
    "textbook": (
        lambda x, y: 0.5 * x * (1.0 + _erf(x / math.sqrt(2))), lambda x, y: x * _PHI(x),
    ),
    "turned round": (lambda x, y: (_erf(_ROOT * x) + 1.0) * x, lambda x, y: 2 * x * _PHI(x)),
    "a gate": (lambda x, y: y * (x * (0.5 + _erf(x * _ROOT) * 0.5)), lambda x, y: y * x * _PHI(x)),
    "another scale": (lambda x, y: x * (2.0 + 2.0 * _erf(x * 0.3)) / 8.0,
                      lambda x, y: x * _PHI(0.3 * x / _ROOT) / 2),
    "of a sum": (lambda x, y: (x + y) * (0.5 + 0.5 * _erf((x + y) * _ROOT)),
                 lambda x, y: (x + y) * _PHI(x + y)),
    "of a scaled sum": (lambda x, y: (x + y) * 0.25 * (0.5 + 0.5 * _erf((x + y) * 0.25 * _ROOT)),
                        lambda x, y: (x + y) / 4 * _PHI((x + y) / 4)),
    "of another": (
        lambda x, y: (y * (0.5 + _erf(y * _ROOT) * 0.5)) * x * (1.0 + _erf(x * _ROOT)),
        lambda x, y: y * _PHI(y) * 2 * x * _PHI(x),
    ),
}  # fmt: skip
#: Expressions of ``erf`` that are no GELU.
_OTHERS: dict[str, Callable[..., Any]] = {
    "alone": lambda x, y: _erf(x),
    "of the other sign": lambda x, y: x * (0.5 + _erf(x * -_ROOT) * 0.5),
    "of another number": lambda x, y: y * (0.5 + _erf(x * _ROOT) * 0.5),
    "of unequal parts": lambda x, y: x * (0.5 + _erf(x * _ROOT) * 0.25),
    "of a constant": lambda x, y: x * (0.5 + _erf(tirx.const(0.1, "float32")) * 0.5),
}


def _calls_erf(value: Any) -> bool:
    found: list[Any] = []
    tvm_ffi.structural_walk(value, (Call, lambda call: found.append(call.op)))
    return any(getattr(one, "name", "") == "tirx.erf" for one in found)


def _computed(form: Callable[..., Any], dtype: str, *arrays: np.ndarray) -> np.ndarray:
    """A form of float32 numbers, which were widened, rounded to ``dtype``: by LLVM."""
    x, y = (te.placeholder((len(arrays[0]),), dtype, name) for name in "xy")

    def element(i: Any) -> Any:
        return tirx.Cast(dtype, form(*(tirx.Cast("float32", one[i]) for one in (x, y))))

    def quick(store: BufferStore) -> BufferStore:
        return BufferStore(store.buffer, widened(store.value), store.indices)

    z = te.compute((len(arrays[0]),), element, "z")
    func = tvm_ffi.structural_map(te.create_prim_func([x, y, z]), (BufferStore, quick))
    assert not _calls_erf(func)
    found = tvm.runtime.tensor(np.full(len(arrays[0]), np.nan, dtype))
    given = [tvm.runtime.tensor(one) for one in arrays]
    tvm.compile(func, target="llvm")(*given, found)
    return found.numpy()


def _all_float16() -> np.ndarray:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    return every[np.isfinite(every)]


def test_every_float16_is_as_near_as_by_erf() -> None:
    x = _all_float16()
    found = _computed(_FORMS["topi"][0], "float16", x, x).astype(np.float64)
    exact = x.astype(np.float64) * _PHI(x.astype(np.float64))
    ulp = np.spacing(np.minimum(np.abs(exact), 6e4).astype(np.float16)).astype(np.float64)
    assert np.all(np.abs(found - exact) <= 1.25 * ulp)
    assert np.mean(np.abs(found - exact) <= 0.51 * ulp) > 0.98


def test_numbers_that_are_none() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0, 65504.0, -65504.0], np.float16)
    found = _computed(_FORMS["topi"][0], "float16", x, x)
    np.testing.assert_array_equal(found, [np.inf, np.nan, np.nan, 0.0, 65504.0, 0.0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", _FORMS)
def test_all_ways_to_write_it(name: str, dtype: str, rng: np.random.Generator) -> None:
    form, exact = _FORMS[name]
    arrays = [(2 * rng.standard_normal(512)).astype(dtype) for _ in range(2)]
    found = _computed(form, dtype, *arrays).astype(np.float64)
    wanted = exact(*(one.astype(np.float64) for one in arrays))
    bits = {"float16": 11, "bfloat16": 8}[dtype]
    assert np.all(np.abs(found - wanted) <= np.abs(wanted) * 1.02 * 2.0**-bits + 1e-6)


@pytest.mark.parametrize("name", _OTHERS)
def test_other_uses_of_erf_stay(name: str) -> None:
    x, y = (tirx.Var(one, "float32") for one in "xy")
    value = _OTHERS[name](x, y)
    assert with_quick_gelu(value).same_as(value)


def test_results_of_float32_stay() -> None:
    x = tirx.Var("x", "float32")
    value = _FORMS["topi"][0](x, x)
    assert widened(value).same_as(value)
    assert _calls_erf(value) and not _calls_erf(widened(tirx.Cast("float16", value)))

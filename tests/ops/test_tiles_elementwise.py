"""Elementwise tile primitives on wgmma fragments: results, and that tiles stay in registers."""

import re

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.ops.tiles_kernels import Case, Kernels, Operand, check, make_kernel, modules
from tests.shared.sampling import covering, either

UNARY = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "reciprocal": lambda x: 1 / x,
    "silu": lambda x: x / (1 + np.exp(-x)),
}
BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "fdiv": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
ROUNDING = {"float32": 4e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
CASTS = (
    *(("float32", d) for d in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int32")),
    *((s, "float32") for s in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int32")),
    *(("int32", d) for d in ("float16", "bfloat16", "int8", "uint8")),
    ("float16", "bfloat16"),
    ("bfloat16", "float16"),
)


def _call(name, *scalars, **options):
    def emit(result, *sources):
        getattr(Tx.wg, name)(result, *sources, *scalars, dispatch="fragment", **options)

    return emit


def _unary_cases(m, n):
    for name, function in UNARY.items():
        for dtype, tolerance in ROUNDING.items():
            if n == 256 and dtype != "float32":
                continue
            operand = Operand("tile", dtype, 0.25, 4)
            yield Case(
                f"{name}-{dtype}-{m}x{n}", m, n, (operand,), Operand("tile", dtype), _call(name),
                lambda _, x, function=function: function(x), tolerance,
            )  # fmt: skip


def _binary_cases(m, n):
    for name, function in BINARY.items():
        tile = Operand("tile", "float32", 0.25, 4)
        forms = [tile, Operand("rows", "float32", 0.25, 4), Operand("columns", "float32", 0.25, 4)]
        for other in forms:
            yield Case(
                f"{name}-tile-{other.kind}-{m}x{n}", m, n, (tile, other), tile, _call(name),
                lambda _, x, y, function=function: function(x, y), ROUNDING["float32"],
            )  # fmt: skip
        yield Case(
            f"{name}-tile-scalar-{m}x{n}", m, n, (tile,), tile, _call(name, T.float32(1.5)),
            lambda _, x, function=function: function(x, 1.5), ROUNDING["float32"],
        )  # fmt: skip
    for name in ("add", "sub", "mul", "maximum", "minimum"):
        tile, rows = Operand("tile", "int32", -99, 99), Operand("rows", "int32", -99, 99)
        yield Case(
            f"{name}-int32-{m}x{n}", m, n, (tile, rows), tile, _call(name),
            lambda _, x, y, name=name: BINARY[name](x, y),
        )  # fmt: skip
    first, tile = Operand("rows"), Operand("tile")
    yield Case(
        f"sub-rows-tile-{m}x{n}", m, n, (first, tile), tile, _call("sub"), lambda _, x, y: x - y,
        ROUNDING["float32"],
    )  # fmt: skip


def _other_cases(m, n):
    tile = Operand("tile")
    yield Case(f"zero-{m}x{n}", m, n, (), tile, _call("zero"), lambda _: 0)
    yield Case(f"fill-{m}x{n}", m, n, (), tile, _call("fill", T.float32(2.5)), lambda _: 2.5)
    half = Operand("tile", "float16")
    yield Case(f"zero-float16-{m}x{n}", m, n, (), half, _call("zero"), lambda _: 0)
    operands = (tile, Operand("rows"), Operand("columns"))
    yield Case(
        f"fma-rows-columns-{m}x{n}", m, n, operands, tile, _call("fma"),
        lambda _, x, y, z: x * y + z, 1e-5,
    )  # fmt: skip
    yield Case(
        f"fma-scalars-{m}x{n}", m, n, (tile,), tile,
        _call("fma", T.float32(2), T.float32(3)), lambda _, x: x * 2 + 3, 1e-5,
    )  # fmt: skip
    yield Case(
        f"exp2-affine-{m}x{n}", m, n, (tile,), tile,
        _call("exp2", bias=T.float32(-1), scale=T.float32(0.5)),
        lambda _, x: np.exp2(0.5 * x - 1), 1e-5,
    )  # fmt: skip
    if n >= 24:
        yield Case(
            f"add-slice-{m}x{n}", m, n, (tile,), tile,
            lambda r, x: Tx.wg.add(
                r[:, 8:24], x[:, 0:16], T.float32(1), dispatch="fragment"
            ),
            _add_slice, ROUNDING["float32"], keeps=True,
        )  # fmt: skip


def _add_slice(old, x):
    result = old.copy()
    result[:, 8:24] = x[:, 0:16] + 1
    return result


def _cast_cases(m, n):
    for source, result in CASTS:
        low = 0 if result == "uint8" else -100
        operand = Operand("tile", source, low, 100)
        # float -> int truncates in C and in numpy, so it is exact too.
        yield Case(
            f"cast-{source}-{result}-{m}x{n}", m, n, (operand,), Operand("tile", result),
            _call("cast"), _cast_reference(result),
        )  # fmt: skip


def _cast_reference(result):
    return lambda _, x: np.trunc(x) if "int" in result else x


_ALL = [
    *(case for m, n in ((64, 24), (64, 256)) for case in _unary_cases(m, n)),
    *(case for m, n in ((64, 8), (128, 40)) for case in _binary_cases(m, n)),
    *(case for m, n in ((64, 8), (128, 40), (64, 256)) for case in _other_cases(m, n)),
    *(case for m, n in ((64, 24), (64, 256)) for case in _cast_cases(m, n)),
]
#: Every function of every type and form always runs, and every shape with so many operands.
ALWAYS, OTHERS = covering(
    _ALL, lambda case: [case.name.rpartition("-")[0], (len(case.operands), case.n)]
)
#: Tiles of 256 columns fill the registers of a thread.
WIDE, NARROW = ([case for case in ALWAYS if (case.n == 256) == wide] for wide in (True, False))
LISTS = (WIDE, NARROW, OTHERS)


@pytest.fixture(scope="module")
def kernels():
    return Kernels(make_kernel, *LISTS)


@pytest.mark.parametrize("number", either([0], range(1, len(modules(*LISTS)))))
def test_tiles_stay_in_registers(kernels, number):
    """No kernel indexes registers at run time or spills, not even with 128 of them."""
    assert kernels.in_local_memory(number) == []


@pytest.mark.parametrize(
    "case",
    either(*([c for c in x if c.name.startswith("cast")] for x in (ALWAYS, OTHERS))),
    ids=str,
)
@pytest.mark.some(4)
def test_casts_to_small_floats_convert_two_at_once(kernels, case):
    _, definition = kernels[case]
    packed = case.operands[0].dtype != "int32" and "float" in case.result.dtype
    packed &= case.result.dtype != "float32"
    expected = case.m * case.n // 256 if packed else 0
    assert len(re.findall(r"cvt_\w*x2_f32\(", definition)) == expected


@pytest.mark.gpu
@pytest.mark.parametrize("case", either(ALWAYS, OTHERS), ids=str)
@pytest.mark.some(15)
def test_results(kernels, case):
    check(case, kernels[case][0])

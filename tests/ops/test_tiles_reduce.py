"""Row reductions of wgmma fragments into a value that all lanes of a row hold."""

import re

import numpy as np
import pytest
from tvm.script.tirx import tile as Tx

from tests.ops.tiles_kernels import Case, Kernels, Operand, check, make_kernel, modules
from tests.shared.sampling import covering, either

FUNCTIONS = {"sum": np.sum, "max": np.max, "min": np.min}
COMBINE = {"sum": np.add, "max": np.maximum, "min": np.minimum}
SHAPES = ((64, 8), (64, 24), (128, 40), (64, 256))


def _reduce(name, **options):
    def emit(result, source):
        getattr(Tx.wg, name)(result, source, -1, dispatch="fragment", **options)

    return emit


def _cases(m, n):
    for name, function in FUNCTIONS.items():
        for dtype, rank in (("float32", 2), ("int32", 1)):
            tile, rows = Operand("tile", dtype, -9, 9), Operand("rows", dtype, -9, 9, rank)
            tolerance = 2e-5 if dtype == "float32" else 0

            def new(old, x, function=function, rank=rank):
                return function(x, axis=1, keepdims=rank == 2)

            def accumulated(old, x, new=new, combine=COMBINE[name]):
                return combine(old, new(old, x))

            label = f"{name}-{dtype}-{m}x{n}"
            yield Case(label, m, n, (tile,), rows, _reduce(name), new, tolerance)
            yield Case(
                f"{label}-accum", m, n, (tile,), rows, _reduce(name, accum=True), accumulated,
                tolerance, keeps=True,
            )  # fmt: skip
    half = Operand("tile", "float16", -9, 9)
    yield Case(
        f"sum-float16-{m}x{n}", m, n, (half,), Operand("rows"), _reduce("sum"),
        lambda _, x: x.sum(axis=1, keepdims=True), 2e-5,
    )  # fmt: skip
    if n >= 24:
        yield Case(
            f"max-slice-{m}x{n}", m, n, (Operand("tile"),), Operand("rows"),
            lambda r, x: Tx.wg.max(r, x[:, 8:24], -1, dispatch="fragment"),
            lambda _, x: x[:, 8:24].max(axis=1, keepdims=True),
        )  # fmt: skip


def _softmax(result, source, row):
    """What an attention kernel does: both reductions, each broadcast over the tile."""
    Tx.wg.max(row, source, -1)
    Tx.wg.sub(result, source, row)
    Tx.wg.exp(result, result)
    Tx.wg.sum(row, result, -1)
    Tx.wg.reciprocal(row, row)
    Tx.wg.mul(result, result, row)


def _softmax_reference(_, x, row):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


_ALL = [
    *(case for m, n in SHAPES for case in _cases(m, n)),
    *(
        Case(
            f"softmax-{m}x{n}", m, n, (Operand("tile"), Operand("rows")), Operand("tile"),
            _softmax, _softmax_reference, 1e-5,
        )
        for m, n in SHAPES
    ),
]  # fmt: skip
#: Every function of every type and form always runs, and every shape.
ALWAYS, OTHERS = covering(_ALL, lambda case: [case.name.replace(f"-{case.m}x{case.n}", ""), case.n])


@pytest.fixture(scope="module")
def kernels():
    return Kernels(make_kernel, ALWAYS, OTHERS)


@pytest.mark.parametrize("number", either([0], range(1, len(modules(ALWAYS, OTHERS)))))
def test_tiles_stay_in_registers(kernels, number):
    assert kernels.in_local_memory(number) == []


@pytest.mark.parametrize("case", either(ALWAYS, OTHERS), ids=str)
def test_two_exchanges_a_row(kernels, case):
    """Four lanes hold a row: masks 1 and 2 for each of a thread's rows, nothing more."""
    masks = re.findall(r"__shfl_xor_sync\([^,]+,[^,]+, (\d+)", kernels[case][1])
    reductions = 2 if case.name.startswith("softmax") else 1
    assert sorted(masks) == sorted(["1", "2"] * (case.m // 32 * reductions))


@pytest.mark.gpu
@pytest.mark.parametrize("case", either(ALWAYS, OTHERS), ids=str)
def test_results(kernels, case):
    check(case, kernels[case][0])

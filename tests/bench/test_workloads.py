"""The GEMMs that are measured: what they compute, and what cuBLASLt is asked for."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import ml_dtypes  # noqa: F401  (numpy learns float8 and bfloat16)
import numpy as np
import pytest
import tvm

from tests.shared.reference import numpy_dtype
from warploom.errors import WarploomError
from warploom.gemm.workloads import problem_of
from warploom.gemm_shape import EPILOGUES, LAYOUTS, RESULT_DTYPE, GemmShape
from warploom.target.dtypes import bits_of
from warploom_bench import cublaslt, unseen
from warploom_bench.competitors import default, tile_program
from warploom_bench.operands import Operands, allowed_error, arguments
from warploom_bench.suite import load_suite

SHAPES = [
    *(GemmShape("g", 72, 136, 96, "float16", layout=one) for one in LAYOUTS),
    *(GemmShape("g", 72, 144, 96, "bfloat16", epilogue=one) for one in EPILOGUES[1:]),
    GemmShape("g", 72, 136, 96, "float8_e4m3fn"),
    GemmShape("g", 72, 136, 96, "int8"),
    GemmShape("g", 72, 136, 96, "tfloat32"),
]


def operands_of(shape: GemmShape, rng: np.random.Generator) -> Operands:
    """Random numpy operands, and a poisoned result."""

    def random(*extents):
        if shape.dtype == "int8":
            return rng.integers(-128, 128, extents, np.int8)
        return rng.standard_normal(extents).astype(numpy_dtype(shape.storage_dtype))

    poison = -(2**31) if shape.dtype == "int8" else np.nan
    c = np.full((shape.m, shape.columns), poison, numpy_dtype(shape.result_dtype))
    scales = [np.array([value], np.float32) for value in (0.75, 1.25)]
    bias = random(shape.n) if shape.epilogue.startswith("bias") else None
    residual = random(shape.m, shape.n) if shape.epilogue == "residual" else None
    return Operands(random(*shape.a_shape), random(*shape.b_shape), *scales, c, bias, residual)


def expected(shape: GemmShape, one: Operands) -> np.ndarray:
    """The result in float64."""
    a, b = (x.astype(float) for x in (one.a, one.b))
    total = (a if shape.layout[0] == "N" else a.T) @ (b if shape.layout[1] == "N" else b.T)
    if shape.dtype == "float8_e4m3fn":
        total *= one.scale_a[0] * one.scale_b[0]
    if one.bias is not None:
        total = total + one.bias.astype(float)
    if shape.epilogue == "bias_gelu":
        return 0.5 * total * (1 + np.tanh((2 / np.pi) ** 0.5 * (total + 0.044715 * total**3)))
    if one.residual is not None:
        total = total + one.residual.astype(float)
    if shape.epilogue == "swiglu":
        gate, up = np.split(total, 2, axis=1)
        return gate / (1 + np.exp(-gate)) * up
    return total


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.some(3)
def test_the_default_computes_what_is_measured(shape, rng):
    host = operands_of(shape, rng)
    device = Operands(*(
        None if one is None else tvm.runtime.tensor(one, tvm.cuda(0))
        for one in vars(host).values()
    ))  # fmt: skip
    default(shape)["main"](*arguments(shape, device))
    exact = expected(shape, host)
    error = np.linalg.norm(device.c.numpy().astype(float) - exact) / np.linalg.norm(exact)
    assert error <= allowed_error(shape)


def test_the_tile_program_declines_the_rest():
    taken = [one for one in SHAPES if one.dtype in ("int8", "tfloat32") or one.epilogue != "none"]
    assert all(tile_program(one) is None for one in taken)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"layout": "XY"}, "no layout 'XY'; allowed are NT, NN, TN, TT"),
        ({"epilogue": "relu"}, "no epilogue 'relu'; allowed are none, bias"),
        ({"epilogue": "bias", "dtype": "int8"}, "'bias' is measured for float16 and bfloat16"),
        ({"epilogue": "swiglu", "n": 7}, "halves the columns, and there are 7"),
    ],
)
def test_impossible_workloads_are_refused(fields, message):
    with pytest.raises(WarploomError, match=message):
        GemmShape(**{"group": "g", "m": 8, "n": 8, "k": 8, "dtype": "float16", **fields})


class Library:
    """Records what cuBLASLt is asked for, and offers two algorithms of which one is unusable."""

    handle = None

    def __init__(self):
        self.layouts, self.attributes, self.ran = [], {}, []

    def call(self, name, *arguments):
        if name == "MatrixLayoutCreate":
            arguments[0]._obj.value = len(self.layouts) + 1
            self.layouts.append(tuple(one.value for one in arguments[1:]))
        elif name == "MatmulDescSetAttribute":
            self.attributes[arguments[1].value] = arguments[2]._obj.value
        elif name == "MatmulAlgoGetHeuristic":
            found, count = arguments[8], arguments[9]._obj
            found[0].state, found[1].state, count.value = 1, 0, 2
        elif name == "Matmul":
            self.ran.append(arguments)


class Tensor:
    def __init__(self, at):
        self.at = at

    def data_ptr(self):
        return self.at


TORCH = SimpleNamespace(
    empty=lambda *_, **__: Tensor(7), uint8=None,
    cuda=SimpleNamespace(current_stream=lambda: SimpleNamespace(cuda_stream=5)),
)  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("epilogue", ["none", "bias_gelu", "residual"])
def test_cublaslt_multiplies_transposed_matrices(monkeypatch, layout, epilogue):
    library = Library()
    monkeypatch.setattr(cublaslt, "_library", lambda: library)
    shape = GemmShape("g", 24, 40, 32, "float16", layout=layout, epilogue=epilogue)
    a, b, c, bias, residual = (Tensor(at) for at in (1000, 2000, 3000, 4000, 5000))
    operands = Operands(
        a, b, None, None, c, bias if epilogue == "bias_gelu" else None,
        residual if epilogue == "residual" else None,
    )  # fmt: skip
    matmul = cublaslt.Matmul(TORCH, shape, operands)
    assert len(matmul.algorithms) == 1, "the other one does not support the product"
    # Column-major, with leading dimension: rows and columns change places.
    first, second, result = ((rows, columns) for _, rows, columns, _ in library.layouts)
    assert [one[1] == one[3] for one in library.layouts] == [True] * 3
    first = first[::-1] if library.attributes.get(3) else first
    second = second[::-1] if library.attributes.get(4) else second
    assert (first, second, result) == ((40, 32), (32, 24), (40, 24)), "C^T = B^T A^T"
    assert library.attributes[7] == {"none": 1, "bias_gelu": 36, "residual": 1}[epilogue]
    assert library.attributes.get(8) == (4000 if epilogue == "bias_gelu" else None)
    matmul.run(operands)
    (call,) = library.ran
    assert (call[3].value, call[5].value) == (2000, 1000), "B is the library's first operand"
    assert call[8].value == (5000 if epilogue == "residual" else 3000) and call[10].value == 3000
    assert call[7]._obj.value == (1.0 if epilogue == "residual" else 0.0)
    assert ctypes.sizeof(cublaslt._Found) == 96, "cublasLtMatmulHeuristicResult_t"


def test_cublaslt_has_no_swiglu():
    shape = GemmShape("g", 24, 40, 32, "float16", epilogue="swiglu")
    with pytest.raises(WarploomError, match="no epilogue 'swiglu'"):
        cublaslt.Matmul(TORCH, shape, None)


def test_unseen_shapes_are_those_of_their_seed():
    shapes = load_suite("unseen:11:24")
    assert shapes == load_suite("unseen:11:24") != load_suite("unseen:12:24")
    assert len(shapes) == 24 and {s.group for s in shapes} == set(unseen.STRATA)
    assert all(s.n % 8 == s.k % 8 == 0 for s in shapes)
    public = {(s.m, s.n, s.k) for s in load_suite("public")}
    assert not public & {(s.m, s.n, s.k) for s in shapes}


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "int8", "tfloat32", "swiglu", "TN", "NN"])
def test_rows_of_unseen_shapes_are_whole_chunks_of_tma(kind):
    option = "dtypes" if kind in RESULT_DTYPE else "layouts" if kind in LAYOUTS else "epilogues"
    shapes = load_suite("unseen:11:24", **{option: (kind,)})
    for shape in shapes:
        operand, result = bits_of(shape.storage_dtype), bits_of(shape.result_dtype)
        rows = (shape.a_shape[1], operand), (shape.b_shape[1], operand), (shape.columns, result)
        assert all(extent * bits % 128 == 0 for extent, bits in rows), shape
        problem_of(shape)  # the model knows it
    assert any(shape.m % 2 for shape in shapes) == (kind != "TN"), "other extents stay ragged"


@pytest.mark.parametrize("name", ["unseen", "unseen:", "unseen:x", "unseen:1:2:3", "unseen:-1"])
def test_suites_of_random_shapes_have_a_seed(name):
    with pytest.raises(WarploomError, match=r"unseen:SEED\[:COUNT\]"):
        load_suite(name)

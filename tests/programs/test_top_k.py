"""The largest numbers of rows, against numpy's stable sort: ties, borders of chunks, no numbers."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

import warploom
from warploom.errors import IllegalCombination
from warploom.programs.top_k import CHUNK, MOST, parts_of, top_k

pytestmark = pytest.mark.gpu

_TARGET = warploom.cuda_target("h200")


def _searched(x, k, *, index_dtype="int32", **options):
    """What the kernels leave of rows: launches until one chunk of a row is left."""
    places = None
    while True:
        rows, columns = x.shape
        parts = parts_of(columns)
        last = parts == 1
        func = top_k(
            columns, k, dtype=str(x.dtype), index_dtype=index_dtype if last else "int32",
            placed=places is not None, **options,
        )  # fmt: skip
        compiled = tvm.compile(tvm.IRModule({"main": func}), _TARGET, tir_pipeline="warploom")
        size = (rows, parts * k)
        values = np.full(size, np.nan, np.float32).astype(x.dtype)
        indices = np.full(size, -7, index_dtype if last else "int32")
        inputs = [x] if places is None else [x, places]
        arrays = [tvm.runtime.tensor(one, tvm.cuda(0)) for one in (*inputs, values, indices)]
        compiled["main"](*arrays)
        x, places = (one.numpy() for one in arrays[-2:])
        if last:
            return x, places


def _wanted(x, k, largest=True):
    keys = x.astype(np.float64)
    order = np.argsort(-keys if largest else keys, 1, kind="stable")[:, :k]
    return np.take_along_axis(x, order, 1), order


@pytest.mark.some(12)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(
    ("rows", "columns", "k"),
    [(1, 1, 1), (5, 8, 2), (3, 8, 8), (7, 31, 4), (2, 33, 33), (9, 64, 6), (4, 96, 1), (3, 256, 8),
     (2, 300, 64), (2, CHUNK - 1, 5), (2, CHUNK, 3), (2, CHUNK + 1, 5), (1, 2 * CHUNK + 40, 64),
     (2, 3000, 40)],
)  # fmt: skip
def test_rows_of_any_length(rng, rows, columns, k, largest, dtype):
    x = rng.standard_normal((rows, columns)).astype(np.float32)
    x[0, rng.integers(0, columns, columns // 3 + 1)] = 0.5  # equal numbers
    x[-1, columns // 2 :] = -0.0
    x[-1, : columns // 3] = 0.0
    if columns > 4:
        x[0, 1], x[0, 2] = np.inf, -np.inf
    x = x.astype(dtype)
    values, indices = _searched(x, k, largest=largest, index_dtype="int64")
    wanted, order = _wanted(x, k, largest)
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(values.astype(np.float32), wanted.astype(np.float32))


@pytest.mark.parametrize("largest", [True, False])
def test_what_is_no_number_is_larger_than_all(rng, largest):
    x = rng.standard_normal((3, 40)).astype(np.float32)
    x[0, [3, 17]] = [np.nan, -np.nan]
    x[1] = np.nan
    x[2, 5], x[2, 6] = np.inf, -np.inf
    values, indices = _searched(x, 40, largest=largest)
    for row in range(3):
        assert sorted(indices[row]) == list(range(40))
        count = int(np.isnan(x[row]).sum())
        first = values[row, :count] if largest else values[row, 40 - count :]
        assert np.isnan(first).all()
        assert np.isnan(values[row]).sum() == count


@pytest.mark.parametrize(("experts", "k"), [(8, 2), (64, 6), (160, 8), (1000, 3)])
def test_softmax_of_a_row(rng, experts, k):
    x = (rng.standard_normal((6, experts)) * 3).astype(np.float32)
    x[0, 2:5] = 9.0  # equal experts
    values, indices = _searched(x, k, softmax=True)
    weights = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    np.testing.assert_array_equal(indices, _wanted(x, k)[1])
    np.testing.assert_allclose(values, np.take_along_axis(weights, indices, 1), rtol=2e-6)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [({"columns": 8, "k": 9}, "k is 9"), ({"columns": 200, "k": MOST + 1}, "k is 65"),
     ({"columns": 0, "k": 1}, "columns is 0"), ({"columns": 8, "k": 0}, "k is 0"),
     ({"columns": 8, "k": 1, "dtype": "float64"}, "dtype"),
     ({"columns": 8, "k": 1, "index_dtype": "int16"}, "index_dtype"),
     ({"columns": CHUNK + 1, "k": 1, "softmax": True}, "softmax"),
     ({"columns": 8, "k": 1, "dtype": "float16", "softmax": True}, "softmax")],
)  # fmt: skip
def test_what_no_kernel_computes(arguments, reason):
    with pytest.raises(IllegalCombination, match=reason):
        top_k(**arguments)

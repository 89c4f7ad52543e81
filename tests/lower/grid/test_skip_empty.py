"""A kernel for any number of rows takes none: nothing is launched, on any path to it."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te
from tvm.s_tir import dlight
from tvm.tirx import PrimFunc

from tests.lower import kernels_by_hand
from tests.shared import tile_programs
from warploom import dlight as rules
from warploom.lower.grid.skip_empty import skip_empty
from warploom.lower.lowerings import lower
from warploom.target import cuda_target
from warploom.tile.read import read

H200 = cuda_target("h200")
N, K = 72, 64


def of_te() -> PrimFunc:
    """As dlight schedules it."""
    m = te.var("m")
    a, b = te.placeholder((m, K), "float16", "A"), te.placeholder((N, K), "float16", "B")
    k = te.reduce_axis((0, K), "k")
    c = te.compute((m, N), lambda i, j: te.sum(a[i, k] * b[j, k], k), "C")
    func = te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")
    with H200:
        return dlight.ApplyDefaultSchedule(rules.Matmul())(tvm.IRModule({"main": func}))["main"]


def of_tiles() -> PrimFunc:
    """A tile program."""
    return tile_programs.gemm(100, N, K, (64, 72, 64), symbolic=True, out_dtype="float16").func


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("make", "options"), [(of_te, {}), (of_tiles, {"tir_pipeline": "warploom"})]
)
def test_no_rows_are_no_launch_and_rows_after_them_are_right(make, options, rng):
    run = tvm.compile(tvm.IRModule({"main": make()}), H200, **options)["main"]
    b = rng.standard_normal((N, K), np.float32).astype(np.float16)
    for m in (0, 70):
        a = rng.standard_normal((m, K), np.float32).astype(np.float16)
        c = np.full((m, N), np.nan, np.float16)
        tensors = [tvm.runtime.tensor(one, tvm.cuda(0)) for one in (a, b, c)]
        run(*tensors)
        exact = a.astype(float) @ b.T.astype(float)
        np.testing.assert_allclose(tensors[-1].numpy(), exact, 2**-10, 2**-7)


@pytest.mark.parametrize(
    "func", [tile_programs.gemm(100, N, K, (64, 72, 64)).func, kernels_by_hand.sm90(2)],
    ids=["constant extents", "by hand"],
)  # fmt: skip
def test_other_kernels_stay_as_they_are(func):
    lowered = lower(func)
    assert skip_empty(lowered, read(func)).same_as(lowered)

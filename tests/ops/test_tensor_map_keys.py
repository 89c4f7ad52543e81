"""A copy has the tensor map of its buffer and kernel, wherever TVM's expressions lie in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te
from tvm.backend.cuda.tile_primitive.copy_async import tma
from tvm.s_tir import Schedule

from tests.shared import gemm_functions
from warploom import emulator
from warploom.decide import Config
from warploom.gemm import recognise
from warploom.gemm.annotations import annotate

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """All expressions of TVM seem to lie at one address, and nothing compiled earlier is used."""
    monkeypatch.setattr(tma, "hash", lambda _: 1, raising=False)
    monkeypatch.setenv("WARPLOOM_CACHE", "0")


def compiled(func: Any, kernels: dict[int | None, Config]) -> Any:
    """The program with this config up to each number of rows, for the emulator."""
    schedule = Schedule(func)
    block = schedule.get_sblock(recognise(func).anchor)
    for limit, config in kernels.items():
        annotate(schedule, block, config.values(), limit)
    return schedule.mod


@pytest.mark.parametrize("rows", [60, 64, 65, 100, 130])
def test_kernels_of_a_module_have_their_own_maps(rows, rng):
    """Only the kernel for this number of rows is launched; the boxes of all are the same."""
    function = gemm_functions.matmul(None, 136, 96)
    few, more, many = (Config(64, 48, 32, stages, consumers=1) for stages in (2, 3, 4))
    module = compiled(function.func, {64: few, 128: more, None: many})
    arguments = function.arguments(rng, m=rows)
    result = emulator.run(module, arguments, kernel="main")
    function.assert_right(result.outputs[-1:], arguments)


def test_buffers_of_one_name_have_their_own_maps(rng):
    a, b = (te.placeholder((64, 96), "float16", "A") for _ in "ab")
    r = te.reduce_axis((0, 96), "r")
    product = te.compute(
        (64, 64), lambda i, j: te.sum(a[i, r].astype("float32") * b[j, r].astype("float32"), r), "C"
    )
    func = te.create_prim_func([a, b, product])
    module = compiled(func, {None: Config(64, 64, 32, 2, consumers=1)})
    x, w = (rng.standard_normal((64, 96)).astype("float16") for _ in "xw")
    result = emulator.run(module, [x, w, np.full((64, 64), np.nan, "float32")], kernel="main")
    np.testing.assert_allclose(result.outputs[-1], x.astype(float) @ w.T.astype(float), atol=1e-3)

"""Copies of every few elements: what they bring, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from tests.shared.lowered_programs import run
from warploom import language as wl
from warploom.errors import TileProgramError
from warploom.lower.lowerings import lower
from warploom.ops.copy_strided import knows_strides


def _copy(steps: tuple[int, ...], box: tuple[int, int, int] = (4, 16, 64)) -> PrimFunc:
    """X[h, w, c] at a box of pixels that begins outside, as rows of Y, multiplied by 1."""
    start = -1, -3
    rows, depth = box[0] * box[1], box[2]

    @T.prim_func
    def copy(x: T.handle, one: T.handle, y: T.handle):
        X = T.match_buffer(x, (13, 21, 64), "float16")
        One = T.match_buffer(one, (depth, depth), "float16")
        Y = T.match_buffer(y, (rows, depth), "float32")
        T.device_entry()
        T.cta_id([1])
        X_s = T.alloc_buffer((rows, depth), "float16", scope="shared")
        One_s = T.alloc_buffer((depth, depth), "float16", scope="shared")
        acc = T.alloc_buffer((rows, depth), "float32", scope="accumulator")
        for _ in wl.pipelined(1, 1):
            Tx.cta.copy_async(
                X_s, X[start[0] : start[0] + box[0], start[1] : start[1] + box[1], 0:depth],
                dispatch="tma_auto", steps=steps,
            )  # fmt: skip
            Tx.cta.copy_async(One_s, One)
            Tx.cta.gemm_async(acc, X_s, One_s)
        Tx.cta.copy(Y, acc)

    return copy


def _arguments(rng: np.random.Generator, func: PrimFunc) -> list[np.ndarray]:
    x = rng.standard_normal((13, 21, 64)).astype(np.float16)
    shape = tuple(int(extent) for extent in func.params[2].shape)
    return [x, np.eye(64, dtype=np.float16), np.full(shape, np.nan, np.float32)]


@pytest.mark.parametrize("steps", [(1, 1, 1), (3, 2, 1), (1, 8, 1)])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.some(3)
def test_every_few_elements(
    steps: tuple[int, ...], arch: str, rng: np.random.Generator
) -> None:
    func = _copy(steps)
    arguments = _arguments(rng, func)
    wanted = np.zeros((4, 16, 64))
    for i in range(4):
        for j in range(16):
            h, w = i * steps[0] - 1, j * steps[1] - 3
            if 0 <= h < 13 and 0 <= w < 21:
                wanted[i, j] = arguments[0][h, w]
    assert np.array_equal(run(lower(func, arch), arguments, arch)[2], wanted.reshape(64, 64))
    wl.interpret(func, arguments)
    assert np.array_equal(arguments[2], wanted.reshape(64, 64))


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ((2, 2), r"steps = \[2, 2\] for 3 dimensions of X"),
        ((1, 1, 2), "from 1 to 8, and 1 for the last"),
        ((9, 1, 1), "from 1 to 8"),
    ],
)
def test_steps_that_do_not_exist(
    steps: tuple[int, ...], reason: str, rng: np.random.Generator
) -> None:
    func = _copy(steps)
    with pytest.raises(TileProgramError, match=reason):
        wl.interpret(func, _arguments(rng, func))


@pytest.mark.parametrize(
    ("name", "scope"), [("copy", "fragment"), ("copy", "shared"), ("copy_async", "fragment")]
)
def test_only_loads_of_shared_tiles_have_steps(name: str, scope: str) -> None:
    @T.prim_func
    def func(A: T.Buffer((64, 16), "float32"), C: T.Buffer((8, 16), "float32")):
        T.device_entry()
        T.cta_id([1])
        tile = T.alloc_buffer((8, 16), "float32", scope=scope)
        getattr(Tx.cta, name)(tile, A[0:8, 0:16], steps=(2, 1))
        Tx.cta.copy(C[0:8, 0:16], tile)

    arguments = [np.ones((64, 16), np.float32), np.ones((8, 16), np.float32)]
    for refuse in (lambda: wl.interpret(func, arguments), lambda: lower(func, "sm_90a")):
        with pytest.raises(TileProgramError, match=rf"steps = \[2, 1\] of a {name} from global"):
            refuse()


@pytest.mark.parametrize(
    ("steps", "box", "reason"),
    [
        ((2, 2), (4, 16, 64), "one for each"),
        ((9, 1, 1), (4, 16, 64), r"steps = \[9, 1, 1\].*from 1 to 8"),
        ((1, 8, 1), (1, 64, 64), "box extent 512 of dimension 1 is not within 1 to 256"),
    ],
)
def test_boxes_that_do_not_exist(
    steps: tuple[int, ...], box: tuple[int, int, int], reason: str
) -> None:
    with pytest.raises(Exception, match=reason):
        kernel = lower(_copy(steps, box)).with_attr("global_symbol", "main")
        tvm.compile(tvm.IRModule({"main": kernel}), tvm.target.Target("nvidia/nvidia-h100"),
                    tir_pipeline="tirx")  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "known"),
    [((8, 64), True), (("n", 64), True), ((1, "n", 64), True), ((2, "n", 64), False),
     (("n", "n", 64), False), ((64,), True)],
)  # fmt: skip
def test_strides_that_are_known(shape: tuple[Any, ...], known: bool) -> None:
    extents = [T.int32() if isinstance(e, str) else e for e in shape]
    assert knows_strides(tvm.tirx.decl_buffer(extents, "float16")) is known

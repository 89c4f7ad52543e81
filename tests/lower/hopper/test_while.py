"""Loops that end when a condition does not hold, which all threads know."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.lowered_programs import run
from tests.shared.tile_programs.case import poisoned, random_values, wide
from warploom import language as wl
from warploom.errors import Decline, TileProgramError
from warploom.lower.lowerings import lower


@T.prim_func
def matmul(
    A: T.Buffer((64, 128), "float16"), B: T.Buffer((32, 128), "float16"),
    steps: T.Buffer((1,), "int32"), C: T.Buffer((64, 32), "float32"),
):  # fmt: skip
    T.device_entry()
    T.cta_id([1])
    A_s = T.alloc_buffer((64, 32), "float16", scope="shared")
    B_s = T.alloc_buffer((32, 32), "float16", scope="shared")
    acc = T.alloc_buffer((64, 32), "float32", scope="accumulator")
    Tx.cta.zero(acc)
    k: T.int32 = 0
    while k < steps[0]:
        Tx.cta.copy_async(A_s, A[:, k * 32 : k * 32 + 32])
        Tx.cta.copy_async(B_s, B[:, k * 32 : k * 32 + 32])
        Tx.cta.gemm_async(acc, A_s, B_s, accum=True)
        k = k + 1
    Tx.cta.copy(C, acc)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_steps_that_only_memory_knows(steps, arch, rng):
    a, b = random_values(rng, (64, 128), "float16"), random_values(rng, (32, 128), "float16")
    arguments = [a, b, np.array([steps], np.int32), poisoned((64, 32), "float32")]
    expected = wide(a)[:, : 32 * steps] @ wide(b)[:, : 32 * steps].T
    interpreted = [np.copy(x) for x in arguments]
    wl.interpret(matmul, interpreted)
    for got in (interpreted[3], run(lower(matmul, arch), arguments, arch)[3]):
        assert np.abs(got - expected).max() <= 1e-5 * max(np.abs(expected).max(), 1)


@T.prim_func
def square_root(A: T.Buffer((64, 16), "float32"), C: T.Buffer((64, 16), "float32")):
    """Newton's iteration, until the worst error of the tile is small."""
    T.device_entry()
    T.cta_id([1])
    x = T.alloc_buffer((64, 16), "float32", scope="fragment")
    error = T.alloc_buffer((64, 16), "float32", scope="fragment")
    worst = T.alloc_buffer((1, 1), "float32", scope="shared")
    Tx.cta.fill(x, T.float32(1))
    Tx.cta.fill(worst, T.float32(1))
    while worst[0, 0] > T.float32(1e-5):
        for i, j in T.grid(64, 16):
            x[i, j] = T.float32(0.5) * (x[i, j] + A[i, j] / x[i, j])
        for i, j in T.grid(64, 16):
            error[i, j] = T.abs(x[i, j] * x[i, j] - A[i, j])
        Tx.cta.max(worst, error, axes=(0, 1))
    Tx.cta.copy(C, x)


@pytest.mark.filterwarnings("ignore")
def test_until_a_tile_converges(rng):
    a = rng.uniform(0.5, 4, (64, 16)).astype(np.float32)
    interpreted = [a, poisoned((64, 16), "float32")]
    wl.interpret(square_root, interpreted)
    for got in (interpreted[1], run(lower(square_root), [a, poisoned((64, 16), "float32")])[1]):
        np.testing.assert_allclose(got, np.sqrt(a), rtol=1e-5)


def iterated(multiplies):
    """A product, whose elements are halved until all are small; or products until that."""

    @T.prim_func
    def func(
        A: T.Buffer((64, 32), "float16"), B: T.Buffer((32, 32), "float16"),
        C: T.Buffer((64, 32), "float32"), n: T.Buffer((1, 1), "int32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((64, 32), "float16", scope="shared")
        B_s = T.alloc_buffer((32, 32), "float16", scope="shared")
        acc = T.alloc_buffer((64, 32), "float32", scope="accumulator")
        worst = T.alloc_buffer((1, 1), "float32", scope="shared")
        count = T.alloc_buffer((1, 1), "int32", scope="fragment")
        Tx.cta.copy_async(A_s, A)
        Tx.cta.copy_async(B_s, B)
        Tx.cta.gemm_async(acc, A_s, B_s)
        Tx.cta.fill(worst, T.float32(99))
        steps: T.int32 = 0
        while worst[0, 0] > T.float32(1) and steps < 20:
            if multiplies:
                Tx.cta.gemm_async(acc, A_s, B_s, accum=True)
            Tx.cta.mul(acc, acc, T.float32(0.5))
            Tx.cta.max(worst, acc, axes=(0, 1))
            steps = steps + 1
        Tx.cta.copy(C, acc)
        Tx.cta.fill(count, steps)
        Tx.cta.copy(n, count)

    return func


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.filterwarnings("ignore")
def test_until_a_product_is_small(arch, rng):
    a, b = random_values(rng, (64, 32), "float16"), random_values(rng, (32, 32), "float16")
    product = wide(a) @ wide(b).T
    steps = max(1, int(np.ceil(np.log2(product.max()))))
    arguments = [a, b, poisoned((64, 32), "float32"), np.full((1, 1), -1, np.int32)]
    interpreted = [np.copy(x) for x in arguments]
    wl.interpret(iterated(False), interpreted)
    for got in (interpreted, run(lower(iterated(False), arch), arguments, arch)):
        assert got[3][0, 0] == steps
        np.testing.assert_allclose(got[2], product * 0.5**steps, rtol=0, atol=1e-5)


def test_what_is_refused():
    @T.prim_func
    def forever(C: T.Buffer((64, 16), "float32")):
        T.device_entry()
        T.cta_id([1])
        x = T.alloc_buffer((64, 16), "float32", scope="fragment")
        k: T.int32 = 0
        while k < 3:
            Tx.cta.zero(x)
        Tx.cta.copy(C, x)

    with pytest.raises(TileProgramError, match="nothing in the while loop changes its condition"):
        lower(forever)
    with pytest.raises(Decline, match="The condition of a while loop reads the tile worst, which"):
        lower(iterated(True), "sm_100a")

"""Functions with several kernels, and with statements of the host before them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import emulator
from warploom import language as wl
from warploom.errors import Decline, TileProgramError
from warploom.lower.lowerings import lower

pytestmark = pytest.mark.gpu

ROWS, COLUMNS, K, PARTS = 128, 64, 256, 2
WAIT = 'T.ptx.griddepcontrol("wait", "")'


def split_matmul(by_hand: bool) -> Any:
    """A Bᵀ: a kernel stores partial sums, another adds those of ``count`` rows, in blocks of 64."""
    part = K // PARTS

    @T.prim_func
    def function(
        A: T.Buffer((ROWS, K), "float16"), B: T.Buffer((COLUMNS, K), "float16"),
        C: T.Buffer((ROWS, COLUMNS), "float32"), count: T.int32,
    ):  # fmt: skip
        assert count <= ROWS, "count is too large"
        blocks: T.let[T.int32] = (count + 63) // 64
        sums = T.alloc_buffer((PARTS, ROWS, COLUMNS), "float32", scope="global")
        flat = T.decl_buffer((ROWS * COLUMNS,), "float32", data=C.data)
        with wl.kernel():
            i, p = T.cta_id([ROWS // 64, PARTS])
            A_s = T.alloc_buffer((64, 64), "float16", scope="shared")
            B_s = T.alloc_buffer((COLUMNS, 64), "float16", scope="shared")
            acc = T.alloc_buffer((64, COLUMNS), "float32", scope="accumulator")
            for k in wl.pipelined(part // 64, 2):
                at: T.let = p * part + k * 64
                Tx.cta.copy_async(A_s, A[i * 64 : i * 64 + 64, at : at + 64])
                Tx.cta.copy_async(B_s, B[:, at : at + 64])
                Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
            for y, x in T.grid(64, COLUMNS):
                sums[p, i * 64 + y, x] = acc[y, x]
        with wl.kernel():
            block = T.cta_id([blocks])
            if by_hand:
                thread = T.thread_id([128])
                T.ptx.griddepcontrol.wait()
                for n in T.serial(64 * COLUMNS // 128):
                    place: T.let = n * 128 + thread
                    row: T.let = block * 64 + place // COLUMNS
                    flat[block * 64 * COLUMNS + place] = (
                        sums[0, row, place % COLUMNS] + sums[1, row, place % COLUMNS]
                    )
            else:
                out = T.alloc_buffer((64, COLUMNS), "float32", scope="shared")
                for y, x in T.grid(64, COLUMNS):
                    out[y, x] = sums[0, block * 64 + y, x] + sums[1, block * 64 + y, x]
                Tx.cta.copy(C[block * 64 : block * 64 + 64, :], out)

    return function


def arguments_of(rng: np.random.Generator, count: int) -> tuple[list[Any], np.ndarray]:
    """Arguments, and what C is then."""
    a, b = (rng.standard_normal((n, K)).astype("float16") for n in (ROWS, COLUMNS))
    c = np.full((ROWS, COLUMNS), np.nan, "float32")
    expected = c.astype(float)
    done = -(-count // 64) * 64
    expected[:done] = (a.astype(float) @ b.astype(float).T)[:done]
    return [a, b, c, count], expected


@pytest.mark.parametrize("count", [ROWS, 1, 0])
def test_kernels_follow_each_other(rng, count):
    arguments, expected = arguments_of(rng, count)
    function = split_matmul(by_hand=False)
    (*_, by_kernels) = emulator.run(function, arguments).outputs
    np.testing.assert_allclose(by_kernels, expected, rtol=0, atol=1e-3)
    wl.interpret(function, arguments)
    np.testing.assert_allclose(arguments[2], expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("count", [ROWS, 0])
def test_a_kernel_may_be_by_hand(rng, arch, count):
    """Without CTAs it is not launched, as a tile program is not."""
    arguments, expected = arguments_of(rng, count)
    (*_, result) = emulator.run(split_matmul(by_hand=True), arguments, arch=arch).outputs
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-3)


def test_a_kernel_that_waits_too_late_is_reported(rng):
    """It starts while the kernel before it still stores."""
    script = split_matmul(by_hand=True).script()
    line = next(line for line in script.splitlines() if WAIT in line)
    mutant = tvm.script.from_source(script.replace(line + "\n", "") + "\n" + line)
    arguments, _ = arguments_of(rng, ROWS)
    with pytest.raises(emulator.EmulatorError, match="griddepcontrol"):
        emulator.run(mutant, arguments)


def test_the_host_may_refuse_arguments(rng):
    arguments, _ = arguments_of(rng, ROWS)
    arguments[-1] = ROWS + 1
    function = split_matmul(by_hand=False)
    with pytest.raises(TileProgramError, match="does not hold: count is too large"):
        wl.interpret(function, arguments)
    with pytest.raises(emulator.EmulatorError, match="count is too large"):
        emulator.run(function, arguments)


def test_a_kernel_asserts_nothing():
    @T.prim_func
    def function(A: T.Buffer((64,), "float32"), n: T.int32):
        T.device_entry()
        T.cta_id([1])
        assert n > 0, "no"
        for i in T.serial(64):
            A[i] = T.float32(1)
        wl.print("{}", n)

    with pytest.raises(TileProgramError, match=r"the kernel asserts 'n > 0'.*wl\.device_assert"):
        wl.interpret(function, [np.zeros(64, "float32"), 1])


def test_kernels_in_branches_are_declined():
    @T.prim_func
    def function(A: T.Buffer((64,), "float32"), n: T.int32):
        if n > 0:
            with wl.kernel():
                T.cta_id([1])
                wl.hints(stages=2)
                for i in T.serial(64):
                    A[i] = T.float32(1)
        with wl.kernel():
            T.cta_id([1])
            for i in T.serial(64):
                A[i] = A[i] + T.float32(1)

    with pytest.raises(Decline, match="stands in a loop, a branch or another kernel"):
        lower(function)

"""``wl.exit_if`` and ``wl.device_assert``: CTAs that end early, and kernels that do."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.lowered_programs import hinted, run
from tests.shared.tile_programs.case import random_values, wide
from warploom import language as wl
from warploom.errors import TileProgramError
from warploom.lower.lowerings import lower

pytestmark = pytest.mark.gpu
ROWS, MOST = 64, 3


def sequences(late):
    """Products of the rows of sequences, of which each has as many CTAs as the longest one.

    A CTA without rows ends at once; those of odd sequences end before they store, with ``late``.
    """

    @T.prim_func
    def func(
        A: T.Buffer((3, MOST * ROWS, 48), "float16"), B: T.Buffer((32, 48), "float16"),
        length: T.Buffer((3,), "int32"), C: T.Buffer((3, MOST * ROWS, 32), "float32"),
    ):  # fmt: skip
        T.device_entry()
        s, i = T.cta_id([3, MOST])
        wl.exit_if(i * ROWS >= length[s])
        A_s = T.alloc_buffer((ROWS, 16), "float16", scope="shared")
        B_s = T.alloc_buffer((32, 16), "float16", scope="shared")
        acc = T.alloc_buffer((ROWS, 32), "float32", scope="accumulator")
        for k in wl.pipelined(3, 2):
            Tx.cta.copy_async(A_s, A[s, i * ROWS : i * ROWS + ROWS, k * 16 : k * 16 + 16])
            Tx.cta.copy_async(B_s, B[:, k * 16 : k * 16 + 16])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        Tx.cta.maximum(acc, acc, T.float32(0))
        if late:
            wl.exit_if(s % 2 == 1)
        Tx.cta.copy(C[s, i * ROWS : i * ROWS + ROWS, 0:32], acc)

    return func


HINTS = [{"persistent": False}, {"ctas": 2}, {"specialise": False}, {"consumers": 1}]


@pytest.mark.parametrize(("late", "hints", "arch"), itertools.product(
    [False, True], HINTS, ["sm_90a", "sm_100a"],
))  # fmt: skip
@pytest.mark.filterwarnings("ignore")
@pytest.mark.some(5)
def test_ctas_end(late, hints, arch, rng):
    func = sequences(late)
    assert tvm_ffi.structural_equal(tvm.script.from_source(func.script()), func)
    a, b = (random_values(rng, shape, "float16") for shape in ((3, MOST * ROWS, 48), (32, 48)))
    lengths = rng.permutation([0, 70, 192]).astype(np.int32)
    before = np.full((3, MOST * ROWS, 32), -7, np.float32)
    expected = before.copy()
    for s, length in enumerate(lengths):
        rows = -(-int(length) // ROWS) * ROWS
        if not (late and s % 2):
            expected[s, :rows] = np.maximum(wide(a[s, :rows]) @ wide(b).T, 0)
    interpreted = [np.copy(x) for x in (a, b, lengths, before)]
    wl.interpret(func, interpreted)
    got = run(lower(hinted(func, **hints), arch), [a, b, lengths, before], arch)
    for result in (interpreted[3], got[3]):
        assert np.abs(result - expected).max() <= 1e-4 * np.abs(expected).max()


def rows_in_order(order):
    """Rows of a program without an MMA, until the first CTA that has none."""

    @T.prim_func
    def func(
        X: T.Buffer((40, 24), "float32"), n: T.Buffer((1, 1), "int32"),
        Y: T.Buffer((40, 24), "float32"),
    ):  # fmt: skip
        T.device_entry()
        b = T.cta_id([5])
        x = T.alloc_buffer((8, 24), "float32", scope="fragment")
        if order == "first":
            wl.exit_if(b >= n[0, 0])
        Tx.cta.copy(x, X[b * 8 : b * 8 + 8, 0:24])
        wl.exit_if(b == n[0, 0] - 1)
        if order == "second":
            wl.exit_if(b >= n[0, 0])
        Tx.cta.copy(Y[b * 8 : b * 8 + 8, 0:24], x)

    return func


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("order", ["first", "second"])
def test_several_exits_without_an_mma(order, arch, rng):
    x, y = rng.standard_normal((2, 40, 24)).astype(np.float32)
    expected = y.copy()
    expected[:16] = x[:16]
    arguments = [x, np.full((1, 1), 3, np.int32), y]
    interpreted = [np.copy(one) for one in arguments]
    wl.interpret(rows_in_order(order), interpreted)
    np.testing.assert_array_equal(interpreted[2], expected)
    got = run(lower(rows_in_order(order), arch), arguments, arch)
    np.testing.assert_array_equal(got[2], expected)


def exits_inside(place):
    @T.prim_func
    def func(A: T.Buffer((64,), "float32")):
        T.device_entry()
        b = T.cta_id([4])
        x = T.alloc_buffer((64,), "float32", scope="fragment")
        Tx.cta.copy(x, A)
        if place == "loop":
            for k in T.serial(3):
                Tx.cta.add(x, x, T.float32(1))
                wl.exit_if(k + b == 3)
        elif place == "branch":
            if b == 1:
                wl.exit_if(A[0] > 0)
        else:
            wl.exit_if(x[3] > 0)
        Tx.cta.copy(A, x)

    return func


@pytest.mark.parametrize(("place", "sentence"), [
    ("loop", r"wl.exit_if stands in a loop, a branch or a block(.|\n)*wl.exit_if\(k \+ b == 3\)"),
    ("branch", r"wl.exit_if stands in a loop, a branch or a block(.|\n)*wl.exit_if\(A\[0\] > 0\)"),
    ("tile", r"x\[3\]' reads x, in scope fragment, outside of an elementwise nest"),
])  # fmt: skip
def test_where_no_exit_stands(place, sentence):
    for refuse in (lambda func: wl.interpret(func, [np.zeros(64, np.float32)]), lower):
        with pytest.raises(TileProgramError, match=sentence):
            refuse(exits_inside(place))


def asserted(most):
    """A product whose elements and steps are checked."""

    @T.prim_func
    def func(
        A: T.Buffer((64, 64), "float16"), n: T.Buffer((2,), "int32"),
        C: T.Buffer((64, 64), "float32"),
    ):  # fmt: skip
        T.device_entry()
        b = T.cta_id([2])
        A_s = T.alloc_buffer((64, 32), "float16", scope="shared")
        acc = T.alloc_buffer((64, 64), "float32", scope="accumulator")
        for k in wl.pipelined(2):
            Tx.cta.copy_async(A_s, A[:, k * 32 : k * 32 + 32])
            wl.device_assert(n[b] + k < 8, "CTA {} has {} steps, 100% {{}}", b, n[b])
            Tx.cta.gemm_async(acc, A_s, A_s, accum=k > 0)
        wl.device_assert(acc[3, 5] <= most, "{:.1f}", acc[3, 5])
        wl.device_assert(True)
        if b == 0:
            Tx.cta.copy(C, acc)

    return func


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("prints", ["0", "1"])
def test_assertions(arch, prints, texts, monkeypatch):
    monkeypatch.setenv("WARPLOOM_PRINT", prints)
    ones, c = np.ones((64, 64), np.float16), np.full((64, 64), np.nan, np.float32)
    fine, wrong = np.array([3, 6], np.int32), np.array([3, 7], np.int32)
    func = asserted(T.float32(64))
    wl.interpret(func, [ones, fine, c.copy()])
    said, (*_, got) = texts(lambda: run(lower(func, arch), [ones, fine, c], arch))
    assert said == "" and (got == 64).all()
    for program, n, text in (
        (func, wrong, "CTA 1 has 7 steps, 100% {}"),
        (asserted(T.float32(63)), fine, "64.0"),
    ):
        with pytest.raises(TileProgramError, match=f"device_assert: {text}(.|\n)*wl.device_assert"):
            wl.interpret(program, [ones, n, c.copy()])

        def fails(program=program, n=n):
            with pytest.raises(Exception, match="the kernel executed trap"):
                run(lower(program, arch), [ones, n, c], arch)

        said, _ = texts(fails)
        assert set(said.splitlines()) <= {line for line in said.splitlines() if text in line}
        assert "test_exits.py:" in said and f": device_assert: {text}" in said


def test_an_assertion_of_the_host_in_a_kernel():
    @T.prim_func
    def func(A: T.Buffer((64,), "float32")):
        T.device_entry()
        T.cta_id([1])
        x = T.alloc_buffer((64,), "float32", scope="fragment")
        Tx.cta.copy(x, A)
        assert A[0] > 0, "positive"
        Tx.cta.copy(A, x)

    with pytest.raises(TileProgramError, match="in kernels, write wl"):
        lower(func)

"""Random sequences of statements, and what they have found: on the emulator with its checks."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.lowered_programs import run
from tests.shared.tile_programs.statements import random_statements
from warploom import language as wl
from warploom.errors import Decline
from warploom.lower.lowerings import lower

ARCHS, BFLOAT16 = ("sm_90a", "sm_100a"), ml_dtypes.bfloat16
#: Programs of either kind in every run, those of one process, and all where asked for.
SAMPLE, SHARE, ALL = 10, 50, 2000
#: Why a program with an MMA is declined, as patterns: all its tiles in registers have one layout.
OF_FRAGMENTS = (
    "A nest indexes the accumulator",
    "A nest indexes the rows of",
    "tiles in registers are indexed by expressions of the nest's loop variables",
    "needs elements of",
    r"warpgroups hold multiples of \d+ rows",
    r"a warpgroup holds multiples of \d+ rows",
    "warpgroups cannot share; use a multiple",
    "loops stores",
    "lies along the columns of tiles",
)


def copied(arguments: list[Any]) -> list[Any]:
    return [np.copy(a) for a in arguments]


def run_seed(seed: int, with_mma: bool, arch: str) -> bool:
    """Run the program of a seed; whether a lowering has taken it."""
    rng = np.random.default_rng(seed)
    case, _ = random_statements(rng, with_mma)
    arguments = case.arguments(rng)
    try:
        kernel = lower(case.func, arch)
    except Decline as reason:
        known = any(re.search(one, str(reason)) for one in OF_FRAGMENTS)
        assert with_mma and known, (seed, str(reason))
        return False
    after = run(kernel, copied(arguments), arch)
    for index, expected in case.expected(copied(arguments)).items():
        name = f"seed {seed}, {arch}, {case.func.params[index].name}"
        np.testing.assert_array_equal(after[index].astype(float), expected, name)
    return True


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("with_mma", [False, True], ids=["threads", "mma"])
@pytest.mark.parametrize("seed", range(SAMPLE))
@pytest.mark.some(4)
def test_random_statements(seed, with_mma, arch):
    run_seed(seed, with_mma, arch)


@pytest.mark.long
@pytest.mark.parametrize("start", range(0, ALL, SHARE))
def test_two_thousand_random_programs(start):
    seeds = range(10_000 + start, 10_000 + start + SHARE)
    taken = [run_seed(seed, seed % 3 == 0, ARCHS[seed // 3 % 2]) for seed in seeds]
    assert sum(taken) >= 0.7 * SHARE


# -- what they have found --------------------------------------------------------------------------


def require(func: Any, arguments: list[Any], wanted: dict[int, np.ndarray], arch: str) -> None:
    """The interpreter and the kernel compute what is wanted, exactly."""
    interpreted = copied(arguments)
    wl.interpret(func, interpreted)
    for found in (interpreted, run(lower(func, arch), copied(arguments), arch)):
        for index, values in wanted.items():
            np.testing.assert_array_equal(found[index].astype(float), values)


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return rng.integers(-9, 10, shape).astype(dtype)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("first, last", [(8, 8), (9, 3)])
def test_a_nest_without_iterations_does_nothing(first, last, arch, rng):
    @T.prim_func
    def func(X: T.Buffer((4, 16), "float32"), Y: T.Buffer((4, 16), "float32")):
        T.device_entry()
        T.cta_id([1])
        x = wl.load(X, (0, 0), (4, 16))
        for i in range(4):
            for j in range(first, last):
                x[i, j] = T.float32(0)
        Tx.cta.copy(Y, x)

    x = numbers(rng, (4, 16), "float32")
    require(func, [x, np.full_like(x, np.nan)], {1: x}, arch)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("scope", ["fragment", "shared"])
@pytest.mark.parametrize("shape", [(7,), (5, 24), (3, 4, 16), (2, 3, 1, 8), (2, 1, 3, 2, 8)])
@pytest.mark.some(5)
def test_single_elements_and_rows_of_a_tile(shape, scope, arch, rng):
    """They are stored at places that no loop counts."""
    last = tuple(extent - 1 for extent in shape)

    @T.prim_func
    def func(X: T.Buffer(shape, "float32"), Y: T.Buffer(shape, "float32")):
        T.device_entry()
        T.cta_id([1])
        x = T.alloc_buffer(shape, "float32", scope=scope)
        Tx.cta.copy(x, X)
        x[last] = T.float32(30)
        for j in T.serial(shape[-1]):
            x[(*(0 for _ in shape[:-1]), j)] = T.float32(40)
        wl.print("{}", x[last])
        Tx.cta.copy(Y, x)

    x = numbers(rng, shape, "float32")
    wanted = x.astype(float)
    wanted[last] = 30
    wanted[(*(0 for _ in shape[:-1]), slice(None))] = 40
    require(func, [x, np.full_like(x, np.nan)], {1: wanted}, arch)


@pytest.mark.parametrize("arch", ARCHS)
def test_a_row_of_an_accumulator(arch, rng):
    @T.prim_func
    def func(A: T.Buffer((64, 32), "float16"), B: T.Buffer((32, 32), "float16"),
             C: T.Buffer((64, 32), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        acc = wl.gemm(wl.load(A, (0, 0), (64, 32)), wl.load(B, (0, 0), (32, 32)))
        out = wl.alloc_fragment((64, 32))
        Tx.cta.copy(out, acc)
        out[63, 31] = T.float32(7)
        for j in T.serial(32):
            out[5, j] = acc[5, j] * T.float32(2)
        Tx.cta.copy(C, out)

    a, b = numbers(rng, (64, 32), "float16"), numbers(rng, (32, 32), "float16")
    wanted = a.astype(float) @ b.astype(float).T
    wanted[5] *= 2
    wanted[63, 31] = 7
    require(func, [a, b, np.full((64, 32), np.nan, "float32")], {2: wanted}, arch)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.some(3)
def test_a_loaded_tile_is_reduced_beside_an_mma(axis, arch, rng):
    """Stages are one more dimension of the tile."""
    kept = 64

    @T.prim_func
    def func(A: T.Buffer((64, 32), "float16"), B: T.Buffer((64, 32), "float16"),
             X: T.Buffer((64, 64), "bfloat16"), C: T.Buffer((64, 64), "float32"),
             R: T.Buffer((kept,), "bfloat16")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        x = wl.load(X, (0, 0), (64, 64))
        total = wl.alloc_fragment((kept,), "bfloat16")
        wl.store(C, (0, 0), wl.gemm(wl.load(A, (0, 0), (64, 32)), wl.load(B, (0, 0), (64, 32))))
        Tx.cta.max(total, x, axes=(axis,))
        Tx.cta.copy(R, total)

    a, b = (numbers(rng, (64, 32), "float16") for _ in range(2))
    x = numbers(rng, (64, 64), "float32")
    outputs = [np.full((64, 64), np.nan, "float32"), np.full(kept, np.nan).astype(BFLOAT16)]
    wanted = {3: a.astype(float) @ b.astype(float).T, 4: x.max(axis).astype(float)}
    require(func, [a, b, x.astype(BFLOAT16), *outputs], wanted, arch)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("update", [False, True])
@pytest.mark.parametrize("length", [1000, 1002])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.some(6)
def test_nothing_is_stored_behind_a_vector(dynamic, length, update, arch, rng):
    """TMA stores multiples of 16 bytes: with 4008 it would write 8 behind the last element."""
    block = 512

    @T.inline
    def body(X, Y, b):
        x = wl.load(X, (b,), (block,))
        for i in T.serial(block):
            x[i] = x[i] + 1
        if update:
            Tx.cta.atomic_add(Y[b * block : b * block + block], x)
        else:
            Tx.cta.copy(Y[b * block : b * block + block], x)

    @T.prim_func
    def known(X: T.Buffer((2 * block,), "int32"), Y: T.Buffer((length,), "int32")):
        T.device_entry()
        b = T.cta_id([2])
        body(X, Y, b)

    @T.prim_func
    def of_launch(X: T.Buffer((2 * block,), "int32"), y: T.handle):
        n = T.int32()
        Y = T.match_buffer(y, (n,), "int32")
        T.device_entry()
        b = T.cta_id([2])
        body(X, Y, b)

    x, y = numbers(rng, (2 * block,), "int32"), numbers(rng, (length,), "int32")
    wanted = x[:length] + 1 + (y if update else 0)
    require(of_launch if dynamic else known, [x, y], {1: wanted}, arch)


@pytest.mark.parametrize("arch", ARCHS)
def test_tiles_that_are_read_between_loads(arch, rng):
    """Each load has its own barrier where the threads that load wait for it before the next."""

    @T.prim_func
    def func(X: T.Buffer((8, 32), "float32"), Z: T.Buffer((8, 32), "float32"),
             Y: T.Buffer((8, 32), "float32"), R: T.Buffer((8,), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        total = wl.alloc_fragment((8,))
        x = wl.load(X, (0, 0), (8, 32))
        for i, j in T.grid(8, 32):
            x[i, j] = x[i, j] * T.float32(2)
        z = wl.load(Z, (0, 0), (8, 32))
        for i, j in T.grid(8, 32):
            x[i, j] = x[i, j] + z[i, j]
        Tx.cta.sum(total, x, axes=(1,))
        Tx.cta.copy(Y, x)
        Tx.cta.copy(R, total)

    x, z = numbers(rng, (8, 32), "float32"), numbers(rng, (8, 32), "float32")
    outputs = [np.full((8, 32), np.nan, "float32"), np.full(8, np.nan, "float32")]
    wanted = 2.0 * x + z
    require(func, [x, z, *outputs], {2: wanted, 3: wanted.sum(1)}, arch)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", ["float16", "int32"])
def test_branches_around_tiles_of_their_own(dtype, arch, rng):
    """Behind an exit are tiles that the branch allocates; a thread has half a register of x."""

    @T.prim_func
    def func(X: T.Buffer((3, 64), dtype), Y: T.Buffer((3, 64), dtype),
             P: T.Buffer((3,), "int32")):  # fmt: skip
        T.device_entry()
        b = T.cta_id([3])
        x = wl.alloc_fragment((64,), dtype)
        for i in T.serial(64):
            x[i] = X[b, i]
        if b % 2 == 0:
            Tx.cta.add(x, x, T.cast(2, dtype))
        wl.exit_if(b >= 2)
        at = T.alloc_buffer((1,), "int32", scope="shared")
        Tx.cta.argmax(at, x, axis=0)
        Tx.cta.copy(Y[b, 0:64], x)
        P[b] = at[0]

    x = numbers(rng, (3, 64), dtype)
    wanted = np.full((3, 64), 77.0)
    wanted[:2] = x[:2] + np.array([[2], [0]])
    places = [*wanted[:2].argmax(1), 77]
    outputs = [np.full((3, 64), 77, dtype), np.full(3, 77, "int32")]
    require(func, [x, *outputs], {1: wanted, 2: np.array(places)}, arch)

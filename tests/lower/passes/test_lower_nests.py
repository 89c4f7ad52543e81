"""Nests over registers: who holds what, and which elements are out of reach."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.lowered_programs import check
from tests.shared.tile_programs.case import Case, poisoned, random_values, wide
from warploom import language as wl
from warploom.errors import Decline
from warploom.lower.lowerings import lower

ROWS, COLUMNS = 128, 32


def case_of(program: Any, model: Any) -> Case:
    """A program from A, float16, and a vector to C, float32."""

    def arguments(rng: np.random.Generator) -> list:
        return [
            random_values(rng, (ROWS, COLUMNS), "float16"),
            random_values(rng, (ROWS,), "float32"), poisoned((ROWS, COLUMNS), "float32"),
        ]  # fmt: skip

    return Case(program, arguments, lambda args: {2: model(wide(args[0]), wide(args[1]))}, 1e-6)


def mixed() -> Case:
    """Row vectors, positions, conditions, bindings and global memory in one nest."""

    @T.prim_func
    def program(
        A: T.Buffer((ROWS, COLUMNS), "float16"), V: T.Buffer((ROWS,), "float32"),
        C: T.Buffer((ROWS, COLUMNS), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((ROWS, COLUMNS), "float16", scope="shared")
        x = T.alloc_buffer((ROWS, COLUMNS), "float32", scope="fragment")
        v = T.alloc_buffer((ROWS,), "float32", scope="fragment")
        Tx.cta.copy_async(A_s, A[0:ROWS, 0:COLUMNS])
        for i in T.serial(ROWS):
            v[i] = V[i] + T.float32(1)
        for i, j in T.grid(ROWS, COLUMNS):
            value: T.let = T.cast(A_s[i, j], "float32")
            x[i, j] = T.if_then_else(i > 2 * j, value * v[i], V[j] - value)
        Tx.cta.copy(C[0:ROWS, 0:COLUMNS], x)

    def model(a: np.ndarray, v: np.ndarray) -> np.ndarray:
        i, j = np.indices(a.shape)
        return np.where(i > 2 * j, a * (v[:, None] + 1), v[None, :COLUMNS] - a)

    return case_of(program, model)


def through_shared() -> Case:
    """Rows in the opposite order, which only shared memory can give to other threads."""

    @T.prim_func
    def program(
        A: T.Buffer((ROWS, COLUMNS), "float16"), V: T.Buffer((ROWS,), "float32"),
        C: T.Buffer((ROWS, COLUMNS), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((ROWS, COLUMNS), "float16", scope="shared")
        other = T.alloc_buffer((ROWS, COLUMNS), "float32", scope="shared")
        x = T.alloc_buffer((ROWS, COLUMNS), "float32", scope="fragment")
        Tx.cta.copy_async(A_s, A[0:ROWS, 0:COLUMNS])
        for i, j in T.grid(ROWS, COLUMNS):
            other[i, j] = T.cast(A_s[i, j], "float32")
        for i, j in T.grid(ROWS, COLUMNS):
            x[i, j] = other[ROWS - 1 - i, (j * 5) % COLUMNS] + V[i]
        Tx.cta.copy(C[0:ROWS, 0:COLUMNS], x)

    def model(a: np.ndarray, v: np.ndarray) -> np.ndarray:
        return a[::-1, np.arange(COLUMNS) * 5 % COLUMNS] + v[:, None]

    return case_of(program, model)


def over_the_edges() -> Case:
    """Reads and writes before the first and after the last element: 0, and nothing."""

    @T.prim_func
    def program(
        A: T.Buffer((ROWS, COLUMNS), "float16"), V: T.Buffer((ROWS,), "float32"),
        C: T.Buffer((ROWS, COLUMNS), "float32"),
    ):  # fmt: skip
        T.device_entry()
        part = T.cta_id([2])
        x = T.alloc_buffer((ROWS, COLUMNS), "float32", scope="fragment")
        y = T.alloc_buffer((ROWS, COLUMNS), "float32", scope="shared")
        first: T.int32 = part * ROWS - 64
        for i, j in T.grid(ROWS, COLUMNS):
            x[i, j] = V[i + first - 3] + T.cast(A[i + first + 5, j - 7], "float32")
        for i, j in T.grid(ROWS, COLUMNS):
            y[i, j] = V[i + first + 2] * x[i, j]
        for i, j in T.grid(ROWS, COLUMNS):
            x[i, j] = x[i, j] + y[i, j]
        Tx.cta.copy(C[first : first + ROWS, 0:COLUMNS], x)

    def model(a: np.ndarray, v: np.ndarray) -> np.ndarray:
        v, a = np.pad(v, (3, 2)), np.pad(a, ((0, 5), (7, 0)))[5:, :COLUMNS]
        x = v[:ROWS, None] + a
        return x + v[5:, None] * x

    return case_of(program, model)


def halves() -> Case:
    """Nests that read or write 8, or half, of the columns of tiles in registers."""
    half = COLUMNS // 2

    @T.prim_func
    def program(
        A: T.Buffer((ROWS, COLUMNS), "float16"), V: T.Buffer((ROWS,), "float32"),
        C: T.Buffer((ROWS, COLUMNS), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        x = T.alloc_buffer((ROWS, COLUMNS), "float32", scope="fragment")
        y = T.alloc_buffer((ROWS, COLUMNS), "float32", scope="fragment")
        for i, j in T.grid(ROWS, COLUMNS):
            x[i, j] = T.cast(A[i, j], "float32")
            y[i, j] = x[i, j]
        for i, j in T.grid(ROWS, half):
            y[i, j + half] = x[i, j] * V[i] + x[i, j + half]
        for i, j in T.grid(ROWS, 8):
            C[i, j] = y[i, j + (COLUMNS - 8)]
        for i, j in T.grid(ROWS, COLUMNS - 8):
            C[i, j + 8] = y[i, j]

    def model(a: np.ndarray, v: np.ndarray) -> np.ndarray:
        y = np.concatenate((a[:, :half], a[:, :half] * v[:, None] + a[:, half:]), 1)
        return np.concatenate((y[:, -8:], y[:, :-8]), 1)

    return case_of(program, model)


def reads_again() -> Case:
    """Elements of memory, some of them over its edge, that an expression reads several times."""
    known = COLUMNS - 5

    @T.prim_func
    def program(
        A: T.Buffer((ROWS, COLUMNS), "float16"), V: T.Buffer((ROWS,), "float32"),
        C: T.Buffer((ROWS, COLUMNS), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((ROWS, COLUMNS), "float16", scope="shared")
        x = T.alloc_buffer((ROWS, COLUMNS), "float32", scope="fragment")
        Tx.cta.copy_async(A_s, A[0:ROWS, 0:COLUMNS])
        for i, j in T.grid(ROWS, COLUMNS):
            far: T.let = T.cast(A_s[i, j], "float32") + V[j + (ROWS - known)]
            x[i, j] = far * V[j + (ROWS - known)] + V[i] * far * V[i] + V[j + (ROWS - known)]
        Tx.cta.copy(C[0:ROWS, 0:COLUMNS], x)

    def model(a: np.ndarray, v: np.ndarray) -> np.ndarray:
        far = np.concatenate((v[ROWS - known :], np.zeros(COLUMNS - known)))[None]
        return (a + far) * far + v[:, None] ** 2 * (a + far) + far

    return case_of(program, model)


@pytest.mark.parametrize("specialise", [True, False])
@pytest.mark.parametrize("consumers", [1, 2])
@pytest.mark.parametrize(
    "make", [halves, mixed, over_the_edges, reads_again, through_shared]
)
@pytest.mark.some(5)
def test_nests_are_right_and_free_of_races(make, consumers, specialise, rng):
    check(make(), rng, consumers=consumers, specialise=specialise)


def faulty(fault: str) -> Any:
    """A program whose nest needs what a thread does not have."""

    @T.prim_func
    def program(V: T.Buffer((64,), "float32"), C: T.Buffer((64, 64), "float32")):
        T.device_entry()
        if fault != "fine":
            wl.hints(specialise=True)  # in the fragment of an MMA
        T.cta_id([1])
        x = T.alloc_buffer((64, 64), "float32", scope="fragment")
        y = T.alloc_buffer((64, 64), "float32", scope="fragment")
        s = T.alloc_buffer((64, 64), "float32", scope="shared")
        Tx.cta.zero(y)
        if fault == "transposed":
            for i, j in T.grid(64, 64):
                x[i, j] = y[j, i] + y[i, j]
        if fault == "scalar":
            k: T.int32 = 3
            for i, j in T.grid(64, 64):
                x[i, j] = y[i, k]
        if fault == "part":
            for i, j in T.grid(64, 20):
                x[i, j] = T.float32(0)
        if fault == "fine":
            for i, j in T.grid(64, 64):
                x[i, j] = y[i, j]
        for i, j in T.grid(64, 64):
            s[i, j] = x[i, j]
        for i, j in T.grid(64, 64):
            C[i, j] = s[i, j] + V[j]

    return program


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("transposed", "A nest over x needs elements of y that other threads hold"),
        ("scalar", "A nest indexes y by k.*; tiles in registers are indexed by expressions of the"),
        ("part", "A nest indexes x by j where it has 64 elements; use a loop variable that counts"),
    ],
)
def test_declines(fault, message):
    with pytest.raises(Decline, match=message):
        lower(faulty(fault))


@pytest.mark.parametrize("specialise", [True, False])
def test_a_program_without_loads(specialise, rng):
    def arguments(rng: np.random.Generator) -> list:
        return [random_values(rng, (64,), "float32"), poisoned((64, 64), "float32")]

    def expected(args: list) -> dict[int, np.ndarray]:
        return {1: np.broadcast_to(wide(args[0]), (64, 64))}

    check(Case(faulty("fine"), arguments, expected, 0), rng, specialise=specialise)


def test_memory_is_read_once_for_an_element() -> None:
    """The compiler does not see that guarded reads are equal: each has a variable."""
    counts = []

    def visit(statement: tirx.Stmt) -> None:
        loads: list[TensorLoad] = []
        tvm_ffi.structural_walk(statement.value, (TensorLoad, loads.append))
        counts.append(sum(load.source.name == "V" for load in loads))

    body = lower(reads_again().func).body
    tvm_ffi.structural_walk(body, [(tirx.Bind, visit), (tirx.BufferStore, visit)])
    assert max(counts) == 1

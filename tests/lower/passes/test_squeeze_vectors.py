"""Register tiles of one row or one column become vectors; other tiles stay as they are."""

from __future__ import annotations

import numpy as np
import pytest
import tvm_ffi
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.lowered_programs import after_passes, check
from tests.shared.tile_programs.case import Case, poisoned, random_values, wide
from warploom.lower.passes.canonicalize import canonicalize
from warploom.lower.passes.squeeze_vectors import squeeze_vectors
from warploom.tile.program import allocations
from warploom.tile.read import read


def scaled(rows: int = 64, columns: int = 32) -> Case:
    """D = row * (C * column), with both vectors made by nests and primitives."""

    @T.prim_func
    def program(
        C: T.Buffer((rows, columns), "float16"), Row: T.Buffer((1, columns), "float32"),
        Column: T.Buffer((rows, 1), "float32"), D: T.Buffer((rows, columns), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        C_s = T.alloc_buffer((rows, columns), "float16", scope="shared")
        row = T.alloc_buffer((1, columns), "float32", scope="fragment")
        column = T.alloc_buffer((rows, 1), "float32", scope="fragment")
        total = T.alloc_buffer((rows, 1), "float32", scope="fragment")
        out = T.alloc_buffer((rows, columns), "float32", scope="fragment")
        Tx.cta.copy_async(C_s, C[0:rows, 0:columns])
        Tx.cta.copy(column, Column[0:rows, 0:1])
        for i, j in T.grid(1, columns):
            row[i, j] = Row[i, j] * T.float32(2)
        Tx.cta.mul(column, column, T.float32(0.5))
        for i, j in T.grid(rows, columns):
            out[i, j] = T.cast(C_s[i, j], "float32") * column[i, 0] * row[0, j]
        Tx.cta.sum(total, out, axes=(1,))
        Tx.cta.sub(out, out, total)
        Tx.cta.copy(D[0:rows, 0:columns], out)

    def expected(args: list) -> dict[int, np.ndarray]:
        c, row, column, _ = args
        product = wide(c) * wide(row) * wide(column)
        return {3: product - product.sum(1, keepdims=True)}

    def arguments(rng: np.random.Generator) -> list:
        shapes = ((rows, columns), "float16"), ((1, columns), "float32"), ((rows, 1), "float32")
        return [
            *(random_values(rng, *one) for one in shapes), poisoned((rows, columns), "float32"),
        ]  # fmt: skip

    return Case(program, arguments, expected, 1e-6)


def test_vectors_lose_their_second_dimension():
    program = after_passes(scaled().func, canonicalize, squeeze_vectors)
    shapes = {t.name: tuple(int(e) for e in t.shape) for t in allocations(program.body)}
    assert shapes == {
        "C_s": (64, 32), "row": (32,), "column": (64,), "total": (64,), "out": (64, 32),
    }  # fmt: skip


def test_a_program_without_vectors_stays():
    @T.prim_func
    def program(C: T.Buffer((1, 64), "float32")):
        T.device_entry()
        T.cta_id([1])
        tile = T.alloc_buffer((1, 64), "float32", scope="shared")
        for i, j in T.grid(1, 64):
            tile[i, j] = T.float32(1)
        for i, j in T.grid(1, 64):
            C[i, j] = tile[i, j]

    before = read(program)
    after = squeeze_vectors(before)
    assert tvm_ffi.structural_equal(after.to_func(), before.to_func())


@pytest.mark.parametrize("specialise", [True, False])
@pytest.mark.parametrize("rows", [64, 128])
def test_vectors_are_right_on_the_emulator(rows, specialise, rng):
    check(scaled(rows), rng, specialise=specialise)

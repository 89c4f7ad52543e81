"""Indices that a program reads from memory, for the interpreter and every lowering."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.language.test_rules import INDEX, M, N, data, named, product, require_alike
from warploom import language as wl
from warploom.errors import TileProgramError


def scatter(acc, C, X, Y):
    with T.grid(M, N) as (i, j):
        T.buffer_store(C, acc[i, j], [X[i], j])


def test_scatters_are_one_to_one(rng):
    """Rows with an index outside of C are dropped; no other row of C changes."""
    func = product(scatter, 100, INDEX)
    rows = rng.permutation(np.arange(-10, 110))[:M].astype("int32")
    a, b = data(rng)
    before = np.full((100, N), -1, np.float32)
    one = np.zeros(1, "int32")
    after = require_alike(func, [a, b, rows, one, before])
    expected = before.copy()
    inside = (rows >= 0) & (rows < 100)
    expected[rows[inside]] = (a.astype("float32") @ b.astype("float32").T)[inside]
    np.testing.assert_array_equal(after, expected)
    rows[5] = rows[9] = 7
    with pytest.raises(TileProgramError, match=r"both store C\[X\[v\], v\]; each iteration must"):
        wl.interpret(func, [a, b, rows, one, before.copy()])


def gather(acc, C, X, Y):
    with T.grid(M, N) as (i, j):
        T.buffer_store(C, acc[i, j] + Y[X[i], j], [i, j])


def test_gathers_of_rows_that_are_not_there_give_0(rng):
    func = product(gather, M, INDEX, ((20, N), "float32"))
    a, b = data(rng)
    rows = rng.integers(-5, 25, M).astype("int32")
    y = rng.integers(-9, 9, (20, N)).astype("float32")
    after = require_alike(func, [a, b, rows, y, np.full((M, N), np.nan, np.float32)])
    there = ((rows >= 0) & (rows < 20))[:, None]
    expected = a.astype("float32") @ b.astype("float32").T + np.where(there, y[rows % 20], 0)
    np.testing.assert_array_equal(after, expected)


def through_shared(acc, C, X, Y):
    """Rows move in a shared tile: scattered, and gathered again by another index."""
    tile, out = named("tile", (M, N), "shared"), named("out", (M, N), "fragment")
    Tx.cta.zero(tile)
    with T.grid(M, N) as (i, j):
        T.buffer_store(tile, acc[i, j], [X[i], j])
    with T.grid(M, N) as (i, j):
        T.buffer_store(out, tile[Y[i], j], [i, j])
    Tx.cta.copy(C, out)


def test_indices_outside_of_a_shared_tile(rng):
    func = product(through_shared, M, INDEX, INDEX)
    a, b = data(rng)
    to = rng.permutation(np.arange(-20, M + 20))[:M].astype("int32")
    of = rng.integers(-9, M + 9, M).astype("int32")
    after = require_alike(func, [a, b, to, of, np.full((M, N), np.nan, np.float32)])
    padded = np.zeros((M + 40, N), np.float32)
    padded[to + 20] = a.astype("float32") @ b.astype("float32").T
    padded[:20] = padded[M + 20 :] = 0
    np.testing.assert_array_equal(after, padded[of + 20])

"""Exercises of 02_row_softmax.py."""

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import Exercise, check_program

ROWS, COLUMNS, TILE = 6, 300, 4
EPS = 1e-5


def rms_norm():
    """Y = X / sqrt(mean of the row's squares + EPS)."""

    @T.prim_func
    def program(X: T.Buffer((ROWS, COLUMNS), "float16"), Y: T.Buffer((ROWS, COLUMNS), "float16")):
        T.device_entry()
        i = T.cta_id([T.ceildiv(ROWS, TILE)])
        x = wl.load(X, (i, 0), (TILE, COLUMNS), scope="fragment", dtype="float32")
        # solution: squares go to a tile of their own (wl.alloc_fragment), and Tx.cta.sum adds a
        #   row; T.rsqrt is one over the root
        squares = wl.alloc_fragment((TILE, COLUMNS))
        total = wl.alloc_fragment((TILE,))
        for y, c in T.grid(TILE, COLUMNS):
            squares[y, c] = x[y, c] * x[y, c]
        Tx.cta.sum(total, squares, axes=(1,))
        for y, c in T.grid(TILE, COLUMNS):
            x[y, c] = x[y, c] * T.rsqrt(total[y] / T.float32(COLUMNS) + T.float32(EPS))
        # end
        wl.store(Y, (i, 0), x)

    return program


def log_sum_exp():
    """L = log(sum of exp(x)) of each row."""

    @T.prim_func
    def program(X: T.Buffer((ROWS, COLUMNS), "float16"), L: T.Buffer((ROWS,), "float32")):
        T.device_entry()
        i = T.cta_id([T.ceildiv(ROWS, TILE)])
        x = wl.load(X, (i, 0), (TILE, COLUMNS), scope="fragment", dtype="float32")
        # solution: take the largest element out first, so that no exponential overflows
        largest = wl.alloc_fragment((TILE,))
        total = wl.alloc_fragment((TILE,))
        Tx.cta.max(largest, x, axes=(1,))
        for y, c in T.grid(TILE, COLUMNS):
            x[y, c] = T.exp(x[y, c] - largest[y])
        Tx.cta.sum(total, x, axes=(1,))
        for y in T.grid(TILE):
            total[y] = largest[y] + T.log(total[y])
        wl.store(L, (i,), total)
        # end

    return program


def _rows(seed, scale):
    x = scale * np.random.default_rng(seed).standard_normal((ROWS, COLUMNS))
    return x.astype(np.float16)


def check_rms_norm():
    x = _rows(1, 1.0)
    exact = x.astype(np.float64)
    check_program(rms_norm(), [x], exact / np.sqrt((exact**2).mean(1, keepdims=True) + EPS))


def check_log_sum_exp():
    x = _rows(2, 60.0)  # exp of these overflows float32
    exact = x.astype(np.float64)
    most = exact.max(1, keepdims=True)
    expected = most[:, 0] + np.log(np.exp(exact - most).sum(1))
    check_program(log_sum_exp(), [x], expected, tolerance=1e-5)


EXERCISES = [
    Exercise("RMS norm of rows", check_rms_norm),
    Exercise("The logarithm of the sum of the exponentials of rows", check_log_sum_exp),
]

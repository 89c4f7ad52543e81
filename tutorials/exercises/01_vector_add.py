"""Exercises of 01_vector_add.py."""

import numpy as np
from tvm.script import tirx as T

from warploom import language as wl
from warploom.tutorials import Exercise, check_program

N, TILE = 600, 256


def axpy(alpha):
    """Y = alpha X + Y, in place."""

    @T.prim_func
    def program(X: T.Buffer((N,), "float32"), Y: T.Buffer((N,), "float32")):
        T.device_entry()
        i = T.cta_id([T.ceildiv(N, TILE)])
        # solution: load tile i of X and of Y, compute in a loop over the tile, store it into Y
        x = wl.load(X, (i,), (TILE,), scope="fragment")
        y = wl.load(Y, (i,), (TILE,), scope="fragment")
        for e in T.grid(TILE):
            y[e] = T.float32(alpha) * x[e] + y[e]
        wl.store(Y, (i,), y)
        # end

    return program


def maximum():
    """Z = max(X, Y), of a float16 and a float32 vector, as float32."""

    @T.prim_func
    def program(
        X: T.Buffer((N,), "float16"), Y: T.Buffer((N,), "float32"), Z: T.Buffer((N,), "float32")
    ):
        T.device_entry()
        i = T.cta_id([T.ceildiv(N, TILE)])
        # solution: `wl.load` converts with dtype="float32"; `T.max` is the larger of two numbers
        x = wl.load(X, (i,), (TILE,), scope="fragment", dtype="float32")
        y = wl.load(Y, (i,), (TILE,), scope="fragment")
        for e in T.grid(TILE):
            y[e] = T.max(x[e], y[e])
        wl.store(Z, (i,), y)
        # end

    return program


def check_axpy():
    x, y = (np.random.default_rng(1).standard_normal((2, N))).astype(np.float32)
    check_program(axpy(2.5), [x, y], 2.5 * x.astype(np.float64) + y, tolerance=1e-6)


def check_maximum():
    x, y = np.random.default_rng(2).standard_normal((2, N))
    x, y = x.astype(np.float16), y.astype(np.float32)
    check_program(maximum(), [x, y], np.maximum(x.astype(np.float32), y), tolerance=0)


EXERCISES = [
    Exercise("Y = alpha X + Y in place", check_axpy),
    Exercise("The maximum of a float16 and a float32 vector", check_maximum),
]

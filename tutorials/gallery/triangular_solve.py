"""Triangular solve: X with L X = R, for a batch of lower triangular matrices L.

Row after row: what a row of X contributes is taken from all rows below.
"""

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery


def triangular_solve(B, N, M, dtype="float32"):
    @T.prim_func
    def program(L: T.Buffer((B, N, N), dtype), R: T.Buffer((B, N, M), dtype),
                X: T.Buffer((B, N, M), dtype)):  # fmt: skip
        T.device_entry()
        b = T.cta_id([B])
        left = wl.load(L, (b, 0, 0), (N, N))
        x = wl.load(R, (b, 0, 0), (N, M))
        for k in T.serial(N):
            for j in T.serial(M):
                x[k, j] = x[k, j] / left[k, k]
            for i, j in T.grid(N, M):
                if i > k:
                    x[i, j] = x[i, j] - left[i, k] * x[k, j]
        Tx.cta.copy(X[b], x)

    return program


def inputs(rng, B, N, M):
    lower = np.tril(rng.standard_normal((B, N, N)) / 8, -1) + np.eye(N) * rng.uniform(1, 2, N)
    return [lower.astype(np.float32), rng.standard_normal((B, N, M)).astype(np.float32)]


def reference(lower, right):
    return np.linalg.solve(lower.astype(np.float64), right.astype(np.float64))


KERNEL = gallery.Kernel(
    triangular_solve, inputs, reference,
    small={"B": 2, "N": 16, "M": 8},
    large={"B": 4096, "N": 64, "M": 64},
    torch=lambda torch, left, right: torch.linalg.solve_triangular(left, right, upper=False),
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)

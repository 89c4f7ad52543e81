"""Transposition: Y = Xᵀ, through shared memory, so that loads and stores are of whole rows."""

import numpy as np
from tvm.script import tirx as T

from warploom import language as wl
from warploom.tutorials import gallery


def transposition(M, N, BM=64, BN=64, dtype="float16"):
    @T.prim_func
    def program(X: T.Buffer((M, N), dtype), Y: T.Buffer((N, M), dtype)):
        T.device_entry()
        i, j = T.cta_id([T.ceildiv(M, BM), T.ceildiv(N, BN)])
        X_s = wl.load(X, (i, j), (BM, BN))
        y = wl.alloc_fragment((BN, BM), dtype)
        for r, c in T.grid(BN, BM):
            y[r, c] = X_s[c, r]
        wl.store(Y, (j, i), y)

    return program


def inputs(rng, M, N):
    return [rng.standard_normal((M, N)).astype(np.float16)]


KERNEL = gallery.Kernel(
    transposition, inputs, np.transpose,
    small={"M": 72, "N": 136},
    large={"M": 8192, "N": 8192},
    torch=lambda torch, x: x.T.contiguous(),
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)

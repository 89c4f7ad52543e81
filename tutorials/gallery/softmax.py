"""Softmax of rows: Y = exp(X - max X) / sum exp(X - max X), float16 in and out.

A CTA has R rows; the passes spread them over its threads.
"""

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery


def softmax(M, N, R=4):
    @T.prim_func
    def program(X: T.Buffer((M, N), "float16"), Y: T.Buffer((M, N), "float16")):
        T.device_entry()
        b = T.cta_id([T.ceildiv(M, R)])
        x = wl.load(X, (b, 0), (R, N), scope="fragment", dtype="float32")
        largest = wl.alloc_fragment((R,))
        total = wl.alloc_fragment((R,))
        Tx.cta.max(largest, x, axes=(1,))
        for i, j in T.grid(R, N):
            x[i, j] = T.exp(x[i, j] - largest[i])
        Tx.cta.sum(total, x, axes=(1,))
        for i, j in T.grid(R, N):
            x[i, j] = x[i, j] / total[i]
        wl.store(Y, (b, 0), x)

    return program


def inputs(rng, M, N):
    return [rng.standard_normal((M, N)).astype(np.float16)]


def reference(x):
    weights = np.exp(x.astype(np.float64))
    return weights / weights.sum(1, keepdims=True)


KERNEL = gallery.Kernel(
    softmax, inputs, reference,
    small={"M": 10, "N": 1000},
    large={"M": 16384, "N": 4096},
    torch=lambda torch, x: torch.softmax(x, 1),
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)

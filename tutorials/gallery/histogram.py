"""Histogram: how often each number from 0 to BINS - 1 stands in X.

Each CTA counts in shared memory, and adds its counts to H.
"""

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery


def histogram(N, BINS, BN=16384):
    @T.prim_func
    def program(X: T.Buffer((N,), "int32"), H: T.Buffer((BINS,), "int32")):
        with wl.kernel():
            T.cta_id([1])
            none = wl.alloc_fragment((BINS,), "int32")
            Tx.cta.zero(none)
            wl.store(H, (0,), none)
        with wl.kernel():
            b = T.cta_id([T.ceildiv(N, BN)])
            counts = T.alloc_shared((BINS,), "int32")
            Tx.cta.zero(counts)
            for i in T.serial(BN):
                if b * BN + i < N:
                    wl.atomic_add(counts[X[b * BN + i]], 1)
            Tx.cta.atomic_add(H[0:BINS], counts)

    return program


def inputs(rng, N, BINS):
    return [rng.integers(0, BINS, N).astype(np.int32)]


def reference(x, BINS):
    return np.bincount(x, minlength=BINS)


KERNEL = gallery.Kernel(
    histogram, inputs, reference,
    small={"N": 5000, "BINS": 200, "BN": 2048},
    large={"N": 1 << 26, "BINS": 256},
    torch=lambda torch, x, BINS: torch.bincount(x, minlength=BINS).int(),
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)

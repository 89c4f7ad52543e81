"""The MLP of Llama: Y = (silu(X Gᵀ) * (X Uᵀ)) Dᵀ, in two kernels.

X is ``(M, K)``, G and U ``(F, K)``, D ``(K, F)``. The first kernel computes both matmuls of a tile,
so that the hidden layer is written once.
"""

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery


def swiglu_mlp(M, K, F, BM=128, BN=128, BK=64, dtype="float16"):
    @T.prim_func
    def program(X: T.Buffer((M, K), dtype), G: T.Buffer((F, K), dtype), U: T.Buffer((F, K), dtype),
                D: T.Buffer((K, F), dtype), Y: T.Buffer((M, K), dtype)):  # fmt: skip
        Hidden = T.alloc_buffer((M, F), dtype, scope="global")
        with wl.kernel():
            i, j = T.cta_id([T.ceildiv(M, BM), T.ceildiv(F, BN)])
            gate = wl.alloc_accumulator((BM, BN))
            up = wl.alloc_accumulator((BM, BN))
            for k in wl.pipelined(T.ceildiv(K, BK)):
                X_s = wl.load(X, (i, k), (BM, BK))
                G_s = wl.load(G, (j, k), (BN, BK))
                U_s = wl.load(U, (j, k), (BN, BK))
                Tx.cta.gemm_async(gate, X_s, G_s, accum=k > 0)
                Tx.cta.gemm_async(up, X_s, U_s, accum=k > 0)
            for y, x in T.grid(BM, BN):
                gate[y, x] = gate[y, x] * T.sigmoid(gate[y, x]) * up[y, x]
            wl.store(Hidden, (i, j), gate)
        with wl.kernel():
            i, j = T.cta_id([T.ceildiv(M, BM), T.ceildiv(K, BN)])
            acc = wl.alloc_accumulator((BM, BN))
            for k in wl.pipelined(T.ceildiv(F, BK)):
                H_s = wl.load(Hidden, (i, k), (BM, BK))
                D_s = wl.load(D, (j, k), (BN, BK))
                Tx.cta.gemm_async(acc, H_s, D_s, accum=k > 0)
            wl.store(Y, (i, j), acc)

    return program


def inputs(rng, M, K, F):
    shapes = (M, K), (F, K), (F, K), (K, F)
    return [(rng.standard_normal(shape) * 0.2).astype(np.float16) for shape in shapes]


def reference(x, g, u, d):
    x, g, u, d = (each.astype(np.float64) for each in (x, g, u, d))
    gate = x @ g.T
    return (gate / (1 + np.exp(-gate)) * (x @ u.T)) @ d.T


KERNEL = gallery.Kernel(
    swiglu_mlp, inputs, reference,
    small={"M": 64, "K": 128, "F": 192, "BM": 64, "BN": 64},
    large={"M": 4096, "K": 4096, "F": 14336},
    torch=lambda torch, x, g, u, d: (torch.nn.functional.silu(x @ g.T) * (x @ u.T)) @ d.T,
    flops=lambda M, K, F: 6 * M * K * F,
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)

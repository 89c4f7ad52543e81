"""Linear layer with 2:4 sparse weights: Y = X Wᵀ, of each four weights of a row two are 0.

X is ``(M, K)``. ``V`` has the weights that are kept, ``(N, K // 2)``, and ``E`` says which, as
``warploom.sparse.compress`` makes both of a pruned W. The tensor core takes a sparse operand as
its first, so tiles of the accumulator have features for rows, and Y gets their transpose.
"""

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom import sparse
from warploom.tutorials import gallery


def sparse_gemm(M, N, K, BM=64, BN=64, BK=128, dtype="float16"):
    @T.prim_func
    def program(X: T.Buffer((M, K), dtype), V: T.Buffer((N, K // 2), dtype),
                E: T.Buffer((N, K // 8), "uint8"), Y: T.Buffer((M, N), dtype)):  # fmt: skip
        T.device_entry()
        i, j = T.cta_id([T.ceildiv(M, BM), N // BN])
        acc = wl.alloc_accumulator((BN, BM))
        for k in wl.pipelined(K // BK):
            X_s = wl.load(X, (i, k), (BM, BK))
            V_s = wl.load(V, (j, k), (BN, BK // 2))
            E_s = wl.load(E, (j, k), (BN, BK // 8))
            Tx.cta.gemm_async(acc, V_s, X_s, sparse=E_s, accum=k > 0)
        for f, t in T.grid(BN, BM):
            Y[i * BM + t, j * BN + f] = T.cast(acc[f, t], dtype)

    return program


def inputs(rng, M, N, K):
    x, w = (rng.standard_normal((rows, K)).astype(np.float16) for rows in (M, N))
    return [x, *sparse.compress(sparse.prune_2_4(w / np.float16(K**0.5)))]


def reference(x, values, metadata):
    return x.astype(np.float64) @ sparse.decompress(values, metadata).astype(np.float64).T


def of_torch(torch, x, values, metadata):
    nibbles = torch.stack([metadata & 15, metadata >> 4], 2).flatten(1)
    places = torch.stack([nibbles & 3, nibbles >> 2], 2).long()
    groups = values.unflatten(1, (-1, 2))
    weights = torch.zeros(*nibbles.shape, 4, dtype=x.dtype, device=x.device)
    return x @ weights.scatter(2, places, groups).flatten(1).T


KERNEL = gallery.Kernel(
    sparse_gemm, inputs, reference,
    small={"M": 100, "N": 64, "K": 384},
    large={"M": 4096, "N": 4096, "K": 4096, "BM": 256, "BN": 128},
    torch=of_torch,
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)

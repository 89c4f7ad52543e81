"""MLA decode, DeepSeek's attention to latent vectors: K is ``(latent, rope)``, V the latent part.

Q is ``(B, H, DC + DR)``, KV ``(B, S, DC + DR)``, O ``(B, H, DC)``. A tile of keys is read as K
along its rows and as V across them. Two CTAs share the columns of O, which are more than a CTA's
registers hold; both compute the weights.
"""

import math

import ml_dtypes
import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery


def mla_decode(B, H, S, DC=512, DR=64, BM=64, BN=64, parts=2, dtype="bfloat16"):
    DV = DC // parts

    @T.prim_func
    def program(Q: T.Buffer((B, H, DC + DR), dtype), KV: T.Buffer((B, S, DC + DR), dtype),
                Out: T.Buffer((B, H, DC), dtype)):  # fmt: skip
        T.device_entry()
        part, i, b = T.cta_id([parts, T.ceildiv(H, BM), B])
        Q_c = wl.load(Q[b, i * BM : i * BM + BM, 0:DC])
        Q_r = wl.load(Q[b, i * BM : i * BM + BM, DC : DC + DR])
        acc = wl.alloc_accumulator((BM, DV))
        W = wl.alloc_accumulator((BM, BN))
        softmax = wl.OnlineSoftmax(BM, scale=1 / math.sqrt(DC + DR))
        Tx.cta.zero(acc)
        for s in wl.pipelined(T.ceildiv(S, BN), stages=1):
            K_c = wl.load(KV[b, s * BN : s * BN + BN, 0:DC])
            K_r = wl.load(KV[b, s * BN : s * BN + BN, DC : DC + DR])
            Tx.cta.gemm_async(W, Q_c, K_c)
            Tx.cta.gemm_async(W, Q_r, K_r, accum=True)
            for y, x in T.grid(BM, BN):
                W[y, x] = T.if_then_else(s * BN + x < S, W[y, x], T.float32("-inf"))
            softmax.update(W, acc)
            P = wl.cast(W, dtype)
            V_s = wl.tile(K_c, (0, part), (BN, DV))
            Tx.cta.gemm_async(acc, P, V_s, transB=True, accum=True)
        softmax.divide(acc)
        wl.store(Out, (b, i, part), acc)

    return program


def inputs(rng, B, H, S, DC=512, DR=64):
    return [rng.standard_normal((B, n, DC + DR)).astype(ml_dtypes.bfloat16) for n in (H, S)]


def reference(q, kv, DC=512):
    q, kv = q.astype(np.float64), kv.astype(np.float64)
    logits = q @ kv.swapaxes(1, 2) / math.sqrt(q.shape[2])
    weights = np.exp(logits - logits.max(2, keepdims=True))
    return weights / weights.sum(2, keepdims=True) @ kv[..., :DC]


def of_torch(torch, q, kv, DC=512):
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(q[:, None], kv[:, None], kv[:, None, :, :DC])


KERNEL = gallery.Kernel(
    mla_decode, inputs, reference,
    small={"B": 1, "H": 64, "S": 100},
    large={"B": 16, "H": 128, "S": 4096},
    torch=of_torch,
    flops=lambda B, H, S: 2 * B * H * S * (512 + 64 + 512),
    tolerance=1e-2,
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)

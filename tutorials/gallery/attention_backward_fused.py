"""Attention backward in one pass, causal: dQ, dK and dV, with the weights computed once.

All gradients in one kernel, between two small ones: a CTA has a block of keys, keeps their dK and
dV, and adds its part of dQ to those of other CTAs in memory (``atomic_add``, which TMA does).
Weights are computed transposed; their gradients are read along both dimensions, for dK and dQ.
Q, K, V, O and their gradients are ``(H, S, D)``, the log of the sum of each row ``(H, S)``.
"""

import math

import ml_dtypes
import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery


def attention_backward_fused(H, S, D, BM=64, BN=64, R=64, dtype="bfloat16"):
    scale = 1 / math.sqrt(D)

    def weight(logit, lse, q, k):
        power = T.exp2((logit * T.float32(scale) - lse) * T.float32(math.log2(math.e)))
        return T.if_then_else(k <= q, power, T.float32(0))

    @T.prim_func
    def program(Q: T.Buffer((H, S, D), dtype), K: T.Buffer((H, S, D), dtype),
                V: T.Buffer((H, S, D), dtype), Out: T.Buffer((H, S, D), dtype),
                LSE: T.Buffer((H, S), "float32"), dOut: T.Buffer((H, S, D), dtype),
                dQ: T.Buffer((H, S, D), dtype), dK: T.Buffer((H, S, D), dtype),
                dV: T.Buffer((H, S, D), dtype)):  # fmt: skip
        Sums = T.alloc_buffer((H, S), "float32", scope="global")
        Parts = T.alloc_buffer((H, S, D), "float32", scope="global")
        with wl.kernel():
            i, h = T.cta_id([T.ceildiv(S, R), H])
            product = wl.load(Out, (h, i, 0), (R, D), scope="fragment", dtype="float32")
            total = wl.alloc_fragment((R,))
            for y, x in T.grid(R, D):
                product[y, x] = product[y, x] * T.cast(dOut[h, i * R + y, x], "float32")
            Tx.cta.sum(total, product, axes=(1,))
            wl.store(Sums, (h, i), total)
            Tx.cta.zero(product)
            wl.store(Parts, (h, i, 0), product)
        with wl.kernel():
            n, h = T.cta_id([T.ceildiv(S, BN), H])
            first: T.let = n * BN // BM
            K_s = wl.load(K, (h, n, 0), (BN, D))
            V_s = wl.load(V, (h, n, 0), (BN, D))
            dS = T.alloc_shared((BN, BM), dtype)
            dk = wl.alloc_accumulator((BN, D))
            dv = wl.alloc_accumulator((BN, D))
            for m in wl.pipelined(T.ceildiv(S, BM) - first, stages=2):
                Q_s = wl.load(Q, (h, first + m, 0), (BM, D))
                dO_s = wl.load(dOut, (h, first + m, 0), (BM, D))
                P = wl.gemm(K_s, Q_s)
                dP = wl.gemm(V_s, dO_s)
                for y, x in T.grid(BN, BM):
                    q: T.let = (first + m) * BM + x
                    P[y, x] = weight(P[y, x], LSE[h, q], q, n * BN + y)
                    grad: T.let = P[y, x] * (dP[y, x] - Sums[h, q]) * T.float32(scale)
                    dS[y, x] = T.cast(grad, dtype)
                Tx.cta.gemm_async(dv, wl.cast(P, dtype), dO_s, transB=True, accum=m > 0)
                Tx.cta.gemm_async(dk, dS, Q_s, transB=True, accum=m > 0)
                dq = wl.gemm(dS, K_s, transA=True, transB=True)
                Tx.cta.atomic_add(wl.tile(Parts, (h, first + m, 0), (BM, D)), dq)
            wl.store(dK, (h, n, 0), dk)
            wl.store(dV, (h, n, 0), dv)
        with wl.kernel():
            i, h = T.cta_id([T.ceildiv(S, R), H])
            dq = wl.load(Parts, (h, i, 0), (R, D), scope="fragment")
            wl.store(dQ, (h, i, 0), dq)

    return program


def inputs(rng, H, S, D):
    q, k, v, grad = (rng.standard_normal((H, S, D)).astype(ml_dtypes.bfloat16) for _ in range(4))
    weights, log_of_sum = _forward(q, k)
    out = (weights @ v.astype(np.float64)).astype(ml_dtypes.bfloat16)
    return [q, k, v, out, log_of_sum.astype(np.float32), grad]


def _forward(q, k):
    logits = q.astype(np.float64) @ k.astype(np.float64).swapaxes(1, 2) / math.sqrt(q.shape[2])
    logits = np.where(np.tri(q.shape[1], dtype=bool), logits, -np.inf)
    largest = logits.max(2, keepdims=True)
    total = np.exp(logits - largest).sum(2, keepdims=True)
    log_of_sum = largest + np.log(total)
    return np.exp(logits - log_of_sum), log_of_sum[..., 0]


def reference(q, k, v, out, log_of_sum, grad):
    weights, _ = _forward(q, k)
    q, k, v, out, grad = (each.astype(np.float64) for each in (q, k, v, out, grad))
    sums = (out * grad).sum(2, keepdims=True)
    of_logits = weights * (grad @ v.swapaxes(1, 2) - sums) / math.sqrt(q.shape[2])
    return of_logits @ k, of_logits.swapaxes(1, 2) @ q, weights.swapaxes(1, 2) @ grad


def of_torch(torch, q, k, v, out, log_of_sum, grad):
    attend = torch.nn.functional.scaled_dot_product_attention
    with torch.enable_grad():
        q, k, v = (each[None].detach().requires_grad_() for each in (q, k, v))
        result = attend(q, k, v, is_causal=True)
        return torch.autograd.grad(result, (q, k, v), grad[None])


KERNEL = gallery.Kernel(
    attention_backward_fused, inputs, reference,
    small={"H": 1, "S": 136, "D": 64},
    large={"H": 32, "S": 4096, "D": 64},
    torch=of_torch,
    flops=lambda H, S, D: 5 * H * S * S * D,
    tolerance=2e-2,
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)

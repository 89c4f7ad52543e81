"""Attention backward in one pass: dQ, dK and dV, with the weights computed once.

All gradients in one kernel, between two small ones: a CTA has a block of keys, keeps their dK and
dV, and adds its part of dQ to those of other CTAs in memory (``atomic_add``, which TMA does). So
the last bits of dQ vary; ``attention_backward`` is the form without. Weights are computed
transposed, so that they and their gradients are operand A from registers; the gradients go through
shared memory, too, where the MMA into dQ reads them along the other dimension. They are written
before the MMA into dV begins, so that fewer registers are in use at a time.

Q, O and their gradients are ``(H, S, D)``, K, V and theirs ``(KV, S, D)``, the log of the sum of
each row ``(H, S)``. Each head of K and V is shared by ``H // KV`` of Q.
"""

import math

import ml_dtypes
import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery


def attention_backward_fused(H, S, D, KV=None, causal=True, BM=None, BN=None, R=64,
                             dtype="bfloat16"):  # fmt: skip
    KV = KV or H
    share, scale, log2e = H // KV, 1 / math.sqrt(D), math.log2(math.e)
    BM, BN = BM or (128 if D <= 64 else 64), BN or (128 if D <= 64 or D == 128 else 64)
    together = math.gcd(KV, max(1024 // (D * share), 1))
    blocks, padded = -(-S // BM), -(-S // 128) * 128

    @T.inline
    def mask(P, m, n):
        """Keys that a query does not see have no weight."""
        if n * BN + BN > (m * BM if causal else S):
            for y, x in T.grid(BN, BM):
                last: T.let = m * BM + x if causal else S - 1
                P[y, x] = T.if_then_else(n * BN + y <= last, P[y, x], T.float32(0))

    @T.prim_func
    def program(Q: T.Buffer((H, S, D), dtype), K: T.Buffer((KV, S, D), dtype),
                V: T.Buffer((KV, S, D), dtype), Out: T.Buffer((H, S, D), dtype),
                LSE: T.Buffer((H, S), "float32"), dOut: T.Buffer((H, S, D), dtype),
                dQ: T.Buffer((H, S, D), dtype), dK: T.Buffer((KV, S, D), dtype),
                dV: T.Buffer((KV, S, D), dtype)):  # fmt: skip
        Sums = T.alloc_buffer((H, padded), "float32", scope="global")
        Powers = T.alloc_buffer((H, padded), "float32", scope="global")
        Parts = T.alloc_buffer((H, S, D), "float32", scope="global")
        with wl.kernel():
            i, h = T.cta_id([padded // R, H])
            product = wl.load(Out, (h, i, 0), (R, D), scope="fragment", dtype="float32")
            total = wl.alloc_fragment((R,))
            power = wl.load(LSE, (h, i), (R,), scope="fragment")
            for y, x in T.grid(R, D):
                product[y, x] = product[y, x] * T.cast(dOut[h, i * R + y, x], "float32")
            Tx.cta.sum(total, product, axes=(1,))
            for y in T.serial(R):
                power[y] = power[y] * T.float32(log2e)
            wl.store(Sums, (h, i), total)
            wl.store(Powers, (h, i), power)
            Tx.cta.zero(product)
            wl.store(Parts, (h, i, 0), product)
        with wl.kernel():
            # The longest tiles first, those of a few heads at a time: L2 holds what they share.
            # Of a static schedule some CTAs would be heads ahead of others, too many for L2.
            if causal and D > 64:
                wl.hints(persistent=False)
            else:
                wl.hints(raster="columns")
            head, n, group = T.cta_id([together, T.ceildiv(S, BN), KV // together])
            kv: T.let = group * together + head
            first: T.let = n * BN // BM if causal else 0
            steps: T.let = blocks - first
            K_s = wl.load(K, (kv, n, 0), (BN, D))
            V_s = wl.load(V, (kv, n, 0), (BN, D))
            dS = T.alloc_shared((BN, BM), dtype)
            dk = wl.alloc_accumulator((BN, D))
            dv = wl.alloc_accumulator((BN, D))
            for t in wl.pipelined(share * steps, stages=2):
                h: T.let = kv * share + t // steps
                m: T.let = first + t % steps
                Q_s = wl.load(Q, (h, m, 0), (BM, D))
                dO_s = wl.load(dOut, (h, m, 0), (BM, D))
                powers = wl.load(Powers, (h, m), (BM,))
                sums = wl.load(Sums, (h, m), (BM,))
                P = wl.gemm(K_s, Q_s)
                dP = wl.gemm(V_s, dO_s)
                for y, x in T.grid(BN, BM):
                    P[y, x] = T.exp2(P[y, x] * T.float32(scale * log2e) - powers[x])
                if causal or S % BN != 0:
                    mask(P, m, n)
                for y, x in T.grid(BN, BM):
                    dP[y, x] = P[y, x] * (dP[y, x] - sums[x])
                weights = wl.cast(P, dtype)
                grads = wl.cast(dP, dtype)
                Tx.cta.copy(dS, grads)
                Tx.cta.gemm_async(dv, weights, dO_s, transB=True, accum=t > 0)
                dq = wl.gemm(dS, K_s, transA=True, transB=True)
                Tx.cta.gemm_async(dk, grads, Q_s, transB=True, accum=t > 0)
                Tx.cta.atomic_add(wl.tile(Parts, (h, m, 0), (BM, D)), dq)
            for y, x in T.grid(BN, D):
                dk[y, x] = dk[y, x] * T.float32(scale)
            wl.store(dK, (kv, n, 0), dk)
            wl.store(dV, (kv, n, 0), dv)
        with wl.kernel():
            i, h = T.cta_id([T.ceildiv(S, R), H])
            dq = wl.load(Parts, (h, i, 0), (R, D), scope="fragment")
            for y, x in T.grid(R, D):
                dq[y, x] = dq[y, x] * T.float32(scale)
            wl.store(dQ, (h, i, 0), dq)

    return program


def inputs(rng, H, S, D, KV=None, causal=True):
    heads = [H, KV or H, KV or H, H]
    q, k, v, grad = (rng.standard_normal((n, S, D)).astype(ml_dtypes.bfloat16) for n in heads)
    weights, log_of_sum = _forward(q, k, causal)
    out = (weights @ _shared(v, H)).astype(ml_dtypes.bfloat16)
    return [q, k, v, out, log_of_sum.astype(np.float32), grad]


def _shared(x, H):
    """Keys or values of each head of Q, in float64."""
    return np.repeat(x.astype(np.float64), H // x.shape[0], axis=0)


def _forward(q, k, causal):
    logits = q.astype(np.float64) @ _shared(k, len(q)).swapaxes(1, 2) / math.sqrt(q.shape[2])
    if causal:
        logits = np.where(np.tri(q.shape[1], dtype=bool), logits, -np.inf)
    largest = logits.max(2, keepdims=True)
    total = np.exp(logits - largest).sum(2, keepdims=True)
    log_of_sum = largest + np.log(total)
    return np.exp(logits - log_of_sum), log_of_sum[..., 0]


def reference(q, k, v, out, log_of_sum, grad, causal=True):
    weights, _ = _forward(q, k, causal)
    shape = (*k.shape[:1], -1, *k.shape[1:])
    keys, values = _shared(k, len(q)), _shared(v, len(q))
    q, out, grad = (each.astype(np.float64) for each in (q, out, grad))
    sums = (out * grad).sum(2, keepdims=True)
    of_logits = weights * (grad @ values.swapaxes(1, 2) - sums) / math.sqrt(q.shape[2])
    of_keys, of_values = of_logits.swapaxes(1, 2) @ q, weights.swapaxes(1, 2) @ grad
    return of_logits @ keys, of_keys.reshape(shape).sum(1), of_values.reshape(shape).sum(1)


def of_torch(torch, q, k, v, out, log_of_sum, grad, causal=True):
    attend = torch.nn.functional.scaled_dot_product_attention
    with torch.enable_grad():
        q, k, v = (each[None].detach().requires_grad_() for each in (q, k, v))
        result = attend(q, k, v, is_causal=causal, enable_gqa=len(q[0]) > len(k[0]))
        return torch.autograd.grad(result, (q, k, v), grad[None])


KERNEL = gallery.Kernel(
    attention_backward_fused, inputs, reference,
    small={"H": 2, "KV": 1, "S": 136, "D": 64},
    large={"H": 128, "S": 4096, "D": 128},
    torch=of_torch,
    flops=lambda H, S, D: 5 * H * S * S * D,
    tolerance=2e-2,
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)

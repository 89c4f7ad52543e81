"""Flash decoding: one query a sequence, its keys split among CTAs, and the parts merged.

Q is ``(B, HK, G, D)``: G heads of queries share a head of keys and are the rows of a tile. K and V
are ``(B, HK, S, D)``; ``Length`` says how many keys a sequence has.
"""

import math

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery


def flash_decoding(B, HK, G, S, D, parts, BM=64, BN=64, dtype="float16"):
    @T.prim_func
    def program(Q: T.Buffer((B, HK, G, D), dtype), K: T.Buffer((B, HK, S, D), dtype),
                V: T.Buffer((B, HK, S, D), dtype), Length: T.Buffer((B,), "int32"),
                Out: T.Buffer((B, HK, G, D), dtype)):  # fmt: skip
        Parts = T.alloc_buffer((parts, B, HK, G, D), "float32", scope="global")
        LSE = T.alloc_buffer((parts, B, HK, G), "float32", scope="global")
        with wl.kernel():
            h, b, part = T.cta_id([HK, B, parts])
            blocks: T.let = T.ceildiv(T.ceildiv(Length[b], BN), parts)
            Q_s = wl.load(Q, (b, h, 0, 0), (BM, D))
            acc = wl.alloc_accumulator((BM, D))
            softmax = wl.OnlineSoftmax(BM, scale=1 / math.sqrt(D))
            Tx.cta.zero(acc)
            for s in wl.pipelined(blocks):
                K_s = wl.load(K, (b, h, part * blocks + s, 0), (BN, D))
                V_s = wl.load(V, (b, h, part * blocks + s, 0), (BN, D))
                W = wl.gemm(Q_s, K_s)
                for y, x in T.grid(BM, BN):
                    seen: T.let = (part * blocks + s) * BN + x < Length[b]
                    W[y, x] = T.if_then_else(seen, W[y, x], T.float32("-inf"))
                softmax.update(W, acc)
                P = wl.cast(W, dtype)
                Tx.cta.gemm_async(acc, P, V_s, transB=True, accum=True)
            softmax.divide(acc)
            for y, x in T.grid(BM, D):
                if y < G:
                    Parts[part, b, h, y, x] = acc[y, x]
            for y in T.serial(BM):
                if y < G:
                    LSE[part, b, h, y] = softmax.log_of_sum(y)
        with wl.kernel():
            h, b = T.cta_id([HK, B])
            out = wl.alloc_fragment((G, D))
            largest = wl.alloc_fragment((G,))
            total = wl.alloc_fragment((G,))
            Tx.cta.fill(largest, T.float32(-1e30))
            Tx.cta.zero(total)
            Tx.cta.zero(out)
            for part, y in T.grid(parts, G):
                largest[y] = T.max(largest[y], LSE[part, b, h, y])
            for part in T.serial(parts):
                for y in T.serial(G):
                    total[y] = total[y] + T.exp(LSE[part, b, h, y] - largest[y])
                for y, x in T.grid(G, D):
                    weight: T.let = T.exp(LSE[part, b, h, y] - largest[y])
                    out[y, x] = out[y, x] + weight * Parts[part, b, h, y, x]
            for y, x in T.grid(G, D):
                out[y, x] = out[y, x] / total[y]
            wl.store(Out, (b, h, 0, 0), out)

    return program


def inputs(rng, B, HK, G, S, D):
    q = rng.standard_normal((B, HK, G, D)).astype(np.float16)
    k, v = (rng.standard_normal((B, HK, S, D)).astype(np.float16) for _ in range(2))
    return [q, k, v, rng.integers(S // 4, S + 1, B).astype(np.int32)]


def reference(q, k, v, length):
    q, k, v = (each.astype(np.float64) for each in (q, k, v))
    logits = q @ k.swapaxes(2, 3) / math.sqrt(q.shape[3])
    seen = np.arange(k.shape[2]) < length[:, None]
    logits = np.where(seen[:, None, None], logits, -np.inf)
    weights = np.exp(logits - logits.max(3, keepdims=True))
    return weights / weights.sum(3, keepdims=True) @ v


def of_torch(torch, q, k, v, length):
    seen = torch.arange(k.shape[2], device=q.device) < length[:, None]
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(q, k, v, attn_mask=seen[:, None, None])


KERNEL = gallery.Kernel(
    flash_decoding, inputs, reference,
    small={"B": 2, "HK": 1, "G": 8, "S": 256, "D": 64, "parts": 2},
    large={"B": 16, "HK": 8, "G": 8, "S": 8192, "D": 128, "parts": 4},
    torch=of_torch,
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)

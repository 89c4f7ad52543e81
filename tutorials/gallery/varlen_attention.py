"""Attention of many sequences of different lengths, causal, without padding.

Q, K and V are ``(tokens, H, D)``: sequence z has the rows ``Begin[z] : Begin[z + 1]``. A tile of
queries belongs to one sequence; what it loads of the next one is masked, and not stored.
"""

import itertools
import math

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery


def varlen_attention(Z, longest, H, D, BM=64, BN=64, dtype="float16"):
    @T.prim_func
    def program(q: T.handle, k: T.handle, v: T.handle, Begin: T.Buffer((Z + 1,), "int32"),
                out: T.handle):  # fmt: skip
        tokens = T.int32()
        Q = T.match_buffer(q, (tokens, H, D), dtype)
        K = T.match_buffer(k, (tokens, H, D), dtype)
        V = T.match_buffer(v, (tokens, H, D), dtype)
        Out = T.match_buffer(out, (tokens, H, D), dtype)
        T.device_entry()
        i, h, z = T.cta_id([T.ceildiv(longest, BM), H, Z])
        begin: T.int32 = Begin[z]
        length: T.int32 = Begin[z + 1] - Begin[z]
        if i * BM < length:
            row: T.int32 = begin + i * BM
            Q_s = wl.load(Q[row : row + BM, h, 0:D])
            acc = wl.alloc_accumulator((BM, D))
            softmax = wl.OnlineSoftmax(BM, scale=1 / math.sqrt(D))
            Tx.cta.zero(acc)
            for s in wl.pipelined(T.ceildiv(T.min(i * BM + BM, length), BN)):
                key: T.int32 = begin + s * BN
                K_s = wl.load(K[key : key + BN, h, 0:D])
                V_s = wl.load(V[key : key + BN, h, 0:D])
                W = wl.gemm(Q_s, K_s)
                for y, x in T.grid(BM, BN):
                    seen: T.let = s * BN + x <= i * BM + y
                    W[y, x] = T.if_then_else(seen, W[y, x], T.float32("-inf"))
                softmax.update(W, acc)
                P = wl.cast(W, dtype)
                Tx.cta.gemm_async(acc, P, V_s, transB=True, accum=True)
            softmax.divide(acc)
            for y, x in T.grid(BM, D):
                if i * BM + y < length:
                    Out[row + y, h, x] = T.cast(acc[y, x], dtype)

    return program


def inputs(rng, Z, longest, H, D):
    lengths = rng.integers(1, longest + 1, Z)
    lengths[0] = longest
    begin = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    arrays = [rng.standard_normal((begin[-1], H, D)).astype(np.float16) for _ in range(3)]
    return [*arrays, begin]


def reference(q, k, v, begin):
    out = np.zeros(q.shape)
    for first, end in itertools.pairwise(begin):
        part = (each[first:end].astype(np.float64).swapaxes(0, 1) for each in (q, k, v))
        queries, keys, values = part
        logits = queries @ keys.swapaxes(1, 2) / math.sqrt(q.shape[2])
        logits = np.where(np.tri(end - first, dtype=bool), logits, -np.inf)
        weights = np.exp(logits - logits.max(2, keepdims=True))
        out[first:end] = (weights / weights.sum(2, keepdims=True) @ values).swapaxes(0, 1)
    return out


def of_torch(torch, q, k, v, begin):
    nested = [torch.nested.nested_tensor_from_jagged(each, begin.long()) for each in (q, k, v)]
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(*(each.transpose(1, 2) for each in nested), is_causal=True).transpose(1, 2)


KERNEL = gallery.Kernel(
    varlen_attention, inputs, reference,
    small={"Z": 3, "longest": 70, "H": 2, "D": 64},
    large={"Z": 16, "longest": 4096, "H": 16, "D": 128, "BM": 128, "BN": 64},
    torch=of_torch,
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)

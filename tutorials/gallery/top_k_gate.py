"""The gate of a mixture of experts: softmax of a token's logits, its k largest weights and experts.

Of equal weights the expert with the lower number comes first.
"""

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery


def top_k_gate(M, E, k, R=16):
    @T.prim_func
    def program(X: T.Buffer((M, E), "float32"), Weight: T.Buffer((M, k), "float32"),
                Expert: T.Buffer((M, k), "int32")):  # fmt: skip
        T.device_entry()
        b = T.cta_id([T.ceildiv(M, R)])
        x = wl.load(X, (b, 0), (R, E), scope="fragment")
        number = wl.alloc_fragment((R, E), "int32")
        largest = wl.alloc_fragment((R,))
        total = wl.alloc_fragment((R,))
        expert = wl.alloc_fragment((R,), "int32")
        Tx.cta.max(largest, x, axes=(1,))
        for i, j in T.grid(R, E):
            x[i, j] = T.exp(x[i, j] - largest[i])
        Tx.cta.sum(total, x, axes=(1,))
        for n in T.serial(k):
            Tx.cta.max(largest, x, axes=(1,))
            for i, j in T.grid(R, E):
                number[i, j] = T.if_then_else(x[i, j] == largest[i], j, E)
            Tx.cta.min(expert, number, axes=(1,))
            for i in T.serial(R):
                Weight[b * R + i, n] = largest[i] / total[i]
                Expert[b * R + i, n] = expert[i]
            for i, j in T.grid(R, E):
                x[i, j] = T.if_then_else(j == expert[i], T.float32(-1), x[i, j])

    return program


def inputs(rng, M, E):
    return [rng.standard_normal((M, E)).astype(np.float32)]


def reference(x, k):
    weights = np.exp(x.astype(np.float64))
    weights /= weights.sum(1, keepdims=True)
    expert = np.argsort(-weights, 1, kind="stable")[:, :k]
    return np.take_along_axis(weights, expert, 1), expert


KERNEL = gallery.Kernel(
    top_k_gate, inputs, reference,
    small={"M": 20, "E": 64, "k": 2},
    large={"M": 16384, "E": 256, "k": 8},
    torch=lambda torch, x, k: torch.topk(torch.softmax(x, 1), k),
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)

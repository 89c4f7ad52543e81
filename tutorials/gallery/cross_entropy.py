"""Cross entropy over a large vocabulary: loss = log sum exp(X) - X[label], a row for each CTA.

A row of a vocabulary of 128k is longer than registers hold: the program goes through it block by
block, and keeps the largest logit and the sum.
"""

import ml_dtypes
import numpy as np
from tvm.script import tirx as T

from warploom import language as wl
from warploom.tutorials import gallery


def cross_entropy(M, V, BV=4096, dtype="bfloat16"):
    @T.prim_func
    def program(X: T.Buffer((M, V), dtype), Label: T.Buffer((M,), "int32"),
                Loss: T.Buffer((M,), "float32")):  # fmt: skip
        T.device_entry()
        m = T.cta_id([M])
        x = wl.alloc_fragment((1, BV))
        softmax = wl.OnlineSoftmax(1)
        for v in T.serial(T.ceildiv(V, BV)):
            for i, j in T.grid(1, BV):
                logit: T.let = T.cast(X[m, v * BV + j], "float32")
                x[i, j] = T.if_then_else(v * BV + j < V, logit, T.float32("-inf"))
            softmax.weigh(x)
        for i in T.serial(1):
            Loss[m + i] = softmax.log_of_sum(i) - T.cast(X[m, Label[m]], "float32")

    return program


def inputs(rng, M, V):
    logits = rng.standard_normal((M, V)).astype(ml_dtypes.bfloat16)
    return [logits, rng.integers(0, V, M).astype(np.int32)]


def reference(x, label):
    x = x.astype(np.float64)
    return np.log(np.exp(x).sum(1)) - x[np.arange(len(x)), label]


def of_torch(torch, x, label):
    return torch.nn.functional.cross_entropy(x, label.long(), reduction="none")


KERNEL = gallery.Kernel(
    cross_entropy, inputs, reference,
    small={"M": 3, "V": 1700, "BV": 512},
    large={"M": 1024, "V": 128256},
    torch=of_torch,
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)

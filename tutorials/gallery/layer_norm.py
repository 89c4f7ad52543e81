"""LayerNorm forward: Y = (X - mean) / sqrt(variance + eps) W + B, and mean and 1/sqrt(...) for the
backward pass.
"""

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery

EPS = 1e-5


def layer_norm(M, N, R=4, dtype="float16"):
    @T.prim_func
    def program(X: T.Buffer((M, N), dtype), W: T.Buffer((N,), dtype), B: T.Buffer((N,), dtype),
                Y: T.Buffer((M, N), dtype), Mean: T.Buffer((M,), "float32"),
                Rstd: T.Buffer((M,), "float32")):  # fmt: skip
        T.device_entry()
        b = T.cta_id([T.ceildiv(M, R)])
        x = wl.load(X, (b, 0), (R, N), scope="fragment", dtype="float32")
        square = wl.alloc_fragment((R, N))
        mean = wl.alloc_fragment((R,))
        rstd = wl.alloc_fragment((R,))
        Tx.cta.sum(mean, x, axes=(1,))
        for i in T.serial(R):
            mean[i] = mean[i] / T.float32(N)
        for i, j in T.grid(R, N):
            x[i, j] = x[i, j] - mean[i]
            square[i, j] = x[i, j] * x[i, j]
        Tx.cta.sum(rstd, square, axes=(1,))
        for i in T.serial(R):
            rstd[i] = T.rsqrt(rstd[i] / T.float32(N) + T.float32(EPS))
        for i, j in T.grid(R, N):
            x[i, j] = x[i, j] * rstd[i] * T.cast(W[j], "float32") + T.cast(B[j], "float32")
        wl.store(Mean, (b,), mean)
        wl.store(Rstd, (b,), rstd)
        wl.store(Y, (b, 0), x)

    return program


def inputs(rng, M, N):
    return [rng.standard_normal(shape).astype(np.float16) for shape in ((M, N), (N,), (N,))]


def reference(x, w, b):
    x, w, b = (each.astype(np.float64) for each in (x, w, b))
    mean = x.mean(1, keepdims=True)
    rstd = 1 / np.sqrt(x.var(1, keepdims=True) + EPS)
    return (x - mean) * rstd * w + b, mean[:, 0], rstd[:, 0]


KERNEL = gallery.Kernel(
    layer_norm, inputs, reference,
    small={"M": 10, "N": 512},
    large={"M": 16384, "N": 4096},
    torch=lambda torch, x, w, b: torch.nn.functional.layer_norm(x, w.shape, w, b, EPS),
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)

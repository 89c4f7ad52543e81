"""RMSNorm: Y = X / sqrt(mean(X²) + eps) W, bfloat16 with sums in float32."""

import ml_dtypes
import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery

EPS = 1e-5


def rms_norm(M, N, R=4, dtype="bfloat16"):
    @T.prim_func
    def program(X: T.Buffer((M, N), dtype), W: T.Buffer((N,), dtype), Y: T.Buffer((M, N), dtype)):
        T.device_entry()
        b = T.cta_id([T.ceildiv(M, R)])
        x = wl.load(X, (b, 0), (R, N), scope="fragment", dtype="float32")
        square = wl.alloc_fragment((R, N))
        total = wl.alloc_fragment((R,))
        Tx.cta.mul(square, x, x)
        Tx.cta.sum(total, square, axes=(1,))
        for i, j in T.grid(R, N):
            factor: T.let = T.rsqrt(total[i] / T.float32(N) + T.float32(EPS))
            x[i, j] = x[i, j] * factor * T.cast(W[j], "float32")
        wl.store(Y, (b, 0), x)

    return program


def inputs(rng, M, N):
    return [rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((M, N), (N,))]


def reference(x, w):
    x, w = x.astype(np.float64), w.astype(np.float64)
    return x / np.sqrt((x * x).mean(1, keepdims=True) + EPS) * w


KERNEL = gallery.Kernel(
    rms_norm, inputs, reference,
    small={"M": 10, "N": 512},
    large={"M": 16384, "N": 4096},
    torch=lambda torch, x, w: torch.nn.functional.rms_norm(x, w.shape, w, EPS),
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)

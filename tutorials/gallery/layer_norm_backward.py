"""LayerNorm backward: dX, dW and dB from X, W, dY, mean and 1/sqrt(variance + eps).

Three kernels: dX row by row; zeros; sums of blocks of rows, which are added to dW and dB.
"""

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery


def layer_norm_backward(M, N, R=4, BM=64, BN=256, dtype="float16"):
    @T.prim_func
    def program(X: T.Buffer((M, N), dtype), W: T.Buffer((N,), dtype), dY: T.Buffer((M, N), dtype),
                Mean: T.Buffer((M,), "float32"), Rstd: T.Buffer((M,), "float32"),
                dX: T.Buffer((M, N), dtype), dW: T.Buffer((N,), "float32"),
                dB: T.Buffer((N,), "float32")):  # fmt: skip
        with wl.kernel():
            b = T.cta_id([T.ceildiv(M, R)])
            x = wl.load(X, (b, 0), (R, N), scope="fragment", dtype="float32")
            grad = wl.load(dY, (b, 0), (R, N), scope="fragment", dtype="float32")
            product = wl.alloc_fragment((R, N))
            sum_of_grads = wl.alloc_fragment((R,))
            sum_of_products = wl.alloc_fragment((R,))
            for i, j in T.grid(R, N):
                x[i, j] = (x[i, j] - Mean[b * R + i]) * Rstd[b * R + i]
                grad[i, j] = grad[i, j] * T.cast(W[j], "float32")
                product[i, j] = grad[i, j] * x[i, j]
            Tx.cta.sum(sum_of_grads, grad, axes=(1,))
            Tx.cta.sum(sum_of_products, product, axes=(1,))
            for i, j in T.grid(R, N):
                shared: T.let = (sum_of_grads[i] + x[i, j] * sum_of_products[i]) / T.float32(N)
                x[i, j] = (grad[i, j] - shared) * Rstd[b * R + i]
            wl.store(dX, (b, 0), x)
        with wl.kernel():
            n = T.cta_id([T.ceildiv(N, BN)])
            none = wl.alloc_fragment((BN,))
            Tx.cta.zero(none)
            wl.store(dW, (n,), none)
            wl.store(dB, (n,), none)
        with wl.kernel():
            m, n = T.cta_id([T.ceildiv(M, BM), T.ceildiv(N, BN)])
            x = wl.load(X, (m, n), (BM, BN), scope="fragment", dtype="float32")
            grad = wl.load(dY, (m, n), (BM, BN), scope="fragment", dtype="float32")
            dw = wl.alloc_fragment((BN,))
            db = wl.alloc_fragment((BN,))
            for i, j in T.grid(BM, BN):
                x[i, j] = grad[i, j] * (x[i, j] - Mean[m * BM + i]) * Rstd[m * BM + i]
            Tx.cta.sum(dw, x, axes=(0,))
            Tx.cta.sum(db, grad, axes=(0,))
            Tx.cta.atomic_add(dW[n * BN : n * BN + BN], dw)
            Tx.cta.atomic_add(dB[n * BN : n * BN + BN], db)

    return program


def inputs(rng, M, N):
    x, w, grad = (rng.standard_normal(shape).astype(np.float16) for shape in ((M, N), (N,), (M, N)))
    of_rows = x.astype(np.float64).mean(1), 1 / np.sqrt(x.astype(np.float64).var(1) + 1e-5)
    return [x, w, grad, *(each.astype(np.float32) for each in of_rows)]


def reference(x, w, grad, mean, rstd):
    x, w, grad, mean, rstd = (each.astype(np.float64) for each in (x, w, grad, mean, rstd))
    x = (x - mean[:, None]) * rstd[:, None]
    of_x = grad * w
    shared = of_x.mean(1, keepdims=True) + x * (of_x * x).mean(1, keepdims=True)
    return (of_x - shared) * rstd[:, None], (grad * x).sum(0), grad.sum(0)


def of_torch(torch, x, w, grad, mean, rstd):
    return torch.ops.aten.native_layer_norm_backward(
        grad, x, w.shape, mean[:, None], rstd[:, None], w, w, [True, True, True]
    )


KERNEL = gallery.Kernel(
    layer_norm_backward, inputs, reference,
    small={"M": 75, "N": 264},
    large={"M": 8192, "N": 4096},
    torch=of_torch,
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)

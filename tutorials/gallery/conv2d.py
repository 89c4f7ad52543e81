"""Convolution 3 x 3, NHWC, as an implicit GEMM: a matmul for each tap, whose pixels TMA finds.

X is ``(B, H, W, C)``, the weights ``(3, 3, KO, C)``, Y ``(B, H, W, KO)``. A tile is a rectangle of
BH x BW pixels; those outside of the picture read as 0.
"""

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery


def conv2d(B, H, W, C, KO, BH=8, BW=16, BN=64, BK=64, dtype="float16"):
    @T.prim_func
    def program(X: T.Buffer((B, H, W, C), dtype), F: T.Buffer((3, 3, KO, C), dtype),
                Y: T.Buffer((B, H, W, KO), dtype)):  # fmt: skip
        T.device_entry()
        j, x, y, b = T.cta_id([T.ceildiv(KO, BN), T.ceildiv(W, BW), T.ceildiv(H, BH), B])
        X_s = T.alloc_shared((BH * BW, BK), dtype)
        acc = wl.alloc_accumulator((BH * BW, BN))
        for t in wl.pipelined(9 * (C // BK)):
            k: T.let = t // 9
            r: T.let = y * BH + t % 9 // 3 - 1
            c: T.let = x * BW + t % 3 - 1
            pixels = X[b, r : r + BH, c : c + BW, k * BK : k * BK + BK]
            Tx.cta.copy_async(X_s, pixels, dispatch="tma_auto")
            F_s = wl.load(F, (t % 9 // 3, t % 3, j, k), (BN, BK))
            Tx.cta.gemm_async(acc, X_s, F_s, accum=t > 0)
        to = Y[b, y * BH : y * BH + BH, x * BW : x * BW + BW, j * BN : j * BN + BN]
        Tx.cta.copy_async(to, wl.cast(acc, dtype), dispatch="tma_auto")

    return program


def inputs(rng, B, H, W, C, KO):
    x = rng.standard_normal((B, H, W, C)).astype(np.float16)
    return [x, (rng.standard_normal((3, 3, KO, C)) * 0.1).astype(np.float16)]


def reference(x, weights):
    height, width = x.shape[1:3]
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    return sum(
        padded[:, r : r + height, s : s + width] @ weights[r, s].astype(np.float64).T
        for r in range(3)
        for s in range(3)
    )


def of_torch(torch, x, weights):
    x, weights = x.permute(0, 3, 1, 2), weights.permute(2, 3, 0, 1)
    return torch.nn.functional.conv2d(x, weights, padding=1).permute(0, 2, 3, 1)


KERNEL = gallery.Kernel(
    conv2d, inputs, reference,
    small={"B": 1, "H": 8, "W": 16, "C": 64, "KO": 64, "BH": 4},
    large={"B": 64, "H": 56, "W": 56, "C": 256, "KO": 256, "BN": 128},
    torch=of_torch,
    flops=lambda B, H, W, C, KO: 18 * B * H * W * C * KO,
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)

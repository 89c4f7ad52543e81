"""Depthwise convolution of NHWC images: each channel with a filter of its own, as ConvNeXt has."""

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery


def depthwise_conv2d(B, H, W, C, S, TH=4, TW=4, TC=64, dtype="float16"):
    @T.prim_func
    def program(X: T.Buffer((B, H, W, C), dtype), F: T.Buffer((S, S, C), dtype),
                Y: T.Buffer((B, H, W, C), dtype)):  # fmt: skip
        T.device_entry()
        c, h, w, b = T.cta_id([T.ceildiv(C, TC), T.ceildiv(H, TH), T.ceildiv(W, TW), B])
        y = wl.alloc_fragment((TH, TW, TC))
        Tx.cta.zero(y)
        for r, s in T.grid(S, S):
            for i, j, k in T.grid(TH, TW, TC):
                x: T.let = X[b, h * TH + i + r - S // 2, w * TW + j + s - S // 2, c * TC + k]
                f: T.let = F[r, s, c * TC + k]
                y[i, j, k] = y[i, j, k] + T.cast(x, "float32") * T.cast(f, "float32")
        wl.store(Y, (b, h, w, c), y)

    return program


def inputs(rng, B, H, W, C, S):
    shapes = (B, H, W, C), (S, S, C)
    return [rng.standard_normal(shape).astype(np.float16) for shape in shapes]


def reference(x, f, S):
    half, (height, width) = S // 2, x.shape[1:3]
    x = np.pad(x.astype(np.float64), ((0, 0), (half, half), (half, half), (0, 0)))
    return sum(
        x[:, r : r + height, s : s + width] * f[r, s].astype(np.float64)
        for r in range(S) for s in range(S)
    )  # fmt: skip


def of_torch(torch, x, f, S):
    images, filters = x.permute(0, 3, 1, 2), f.permute(2, 0, 1)[:, None]
    conv2d = torch.nn.functional.conv2d
    return conv2d(images, filters, padding=S // 2, groups=x.shape[3]).permute(0, 2, 3, 1)


KERNEL = gallery.Kernel(
    depthwise_conv2d, inputs, reference,
    small={"B": 1, "H": 9, "W": 10, "C": 72, "S": 3},
    large={"B": 64, "H": 56, "W": 56, "C": 128, "S": 7},
    torch=of_torch,
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)

"""Rotary embedding (RoPE), the halves of a head rotated against each other, as Llama has it.

X and Y are ``(S, H, D)``; ``Cos`` and ``Sin`` are ``(S, D // 2)``.
"""

import numpy as np
from tvm.script import tirx as T

from warploom import language as wl
from warploom.tutorials import gallery


def rope(S, H, D, R=16, dtype="float16"):
    half = D // 2

    @T.prim_func
    def program(X: T.Buffer((S, H, D), dtype), Cos: T.Buffer((S, half), "float32"),
                Sin: T.Buffer((S, half), "float32"), Y: T.Buffer((S, H, D), dtype)):  # fmt: skip
        T.device_entry()
        h, b = T.cta_id([H, T.ceildiv(S, R)])
        y = wl.alloc_fragment((R, D), dtype)
        for i, j in T.grid(R, D):
            x: T.let = T.cast(X[b * R + i, h, j], "float32")
            other: T.let = T.cast(X[b * R + i, h, (j + half) % D], "float32")
            sign: T.let = T.if_then_else(j < half, T.float32(-1), T.float32(1))
            turned: T.let = sign * other * Sin[b * R + i, j % half]
            y[i, j] = T.cast(x * Cos[b * R + i, j % half] + turned, dtype)
        wl.store(Y[b * R : b * R + R, h, 0:D], y)

    return program


def inputs(rng, S, H, D):
    angle = np.arange(S)[:, None] / 10000 ** (np.arange(D // 2) * 2 / D)
    x = rng.standard_normal((S, H, D)).astype(np.float16)
    return [x, np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)]


def reference(x, cos, sin):
    first, last = np.split(x.astype(np.float64), 2, 2)
    cos, sin = cos[:, None].astype(np.float64), sin[:, None].astype(np.float64)
    return np.concatenate([first * cos - last * sin, last * cos + first * sin], 2)


def of_torch(torch, x, cos, sin):
    first, last = x.chunk(2, 2)
    cos, sin = cos[:, None].to(x.dtype), sin[:, None].to(x.dtype)
    return torch.cat([first * cos - last * sin, last * cos + first * sin], 2)


KERNEL = gallery.Kernel(
    rope, inputs, reference,
    small={"S": 20, "H": 2, "D": 64},
    large={"S": 8192, "H": 32, "D": 128},
    torch=of_torch,
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)

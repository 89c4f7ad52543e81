"""Mamba 2's scan by chunks (SSD): h = exp(a) h + B ⊗ x, y = C h, for each head.

C and B are ``(H, S, N)``, X and Y ``(H, S, P)``. ``Decay`` has the sums of a since the begin of the
chunk. Within a chunk of BC tokens the scan is a masked matmul; a state of ``(N, P)`` carries what
was before it.
"""

import ml_dtypes
import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery


def mamba2_chunk_scan(H, S, N=64, P=64, BC=64, dtype="bfloat16"):
    @T.prim_func
    def program(C: T.Buffer((H, S, N), dtype), B: T.Buffer((H, S, N), dtype),
                X: T.Buffer((H, S, P), dtype), Decay: T.Buffer((H, S), "float32"),
                Y: T.Buffer((H, S, P), dtype)):  # fmt: skip
        T.device_entry()
        h = T.cta_id([H])
        state = wl.alloc_accumulator((N, P))
        y = wl.alloc_accumulator((BC, P))
        before = T.alloc_shared((N, P), dtype)
        decayed = T.alloc_shared((BC, P), dtype)
        Tx.cta.zero(state)
        for c in wl.pipelined(S // BC, stages=2):
            C_s = wl.load(C, (h, c, 0), (BC, N))
            B_s = wl.load(B, (h, c, 0), (BC, N))
            X_s = wl.load(X, (h, c, 0), (BC, P))
            Tx.cta.cast(before, state)
            Tx.cta.gemm_async(y, C_s, before, transB=True)
            for i, j in T.grid(BC, P):
                y[i, j] = y[i, j] * T.exp(Decay[h, c * BC + i])
            W = wl.gemm(C_s, B_s)
            for i, j in T.grid(BC, BC):
                factor: T.let = T.exp(Decay[h, c * BC + i] - Decay[h, c * BC + j])
                W[i, j] = T.if_then_else(j <= i, W[i, j] * factor, T.float32(0))
            Tx.cta.gemm_async(y, wl.cast(W, dtype), X_s, transB=True, accum=True)
            wl.store(Y, (h, c, 0), y)
            for i, j in T.grid(BC, P):
                left: T.let = T.exp(Decay[h, c * BC + BC - 1] - Decay[h, c * BC + i])
                decayed[i, j] = T.cast(T.cast(X_s[i, j], "float32") * left, dtype)
            for i, j in T.grid(N, P):
                state[i, j] = state[i, j] * T.exp(Decay[h, c * BC + BC - 1])
            Tx.cta.gemm_async(state, B_s, decayed, transA=True, transB=True, accum=True)

    return program


def inputs(rng, H, S, N=64, P=64, BC=64):
    c, b, x = ((rng.standard_normal((H, S, n)) * 0.3).astype(ml_dtypes.bfloat16) for n in (N, N, P))
    steps = -rng.uniform(0, 0.1, (H, S // BC, BC))
    return [c, b, x, np.cumsum(steps, 2).reshape(H, S).astype(np.float32)]


def reference(c, b, x, decay, BC=64):
    c, b, x, decay = (each.astype(np.float64) for each in (c, b, x, decay))
    state, y = np.zeros((len(c), b.shape[2], x.shape[2])), np.zeros(x.shape)
    for t in range(c.shape[1]):
        step = decay[:, t] - (decay[:, t - 1] if t % BC else 0)
        state = state * np.exp(step)[:, None, None] + b[:, t, :, None] * x[:, t, None]
        y[:, t] = np.einsum("hn,hnp->hp", c[:, t], state)
    return y


def of_torch(torch, c, b, x, decay, BC=64):
    chunks = c.shape[1] // BC
    c, b, x = (each.unflatten(1, (chunks, BC)).float() for each in (c, b, x))
    d = decay.unflatten(1, (chunks, BC))
    mask = torch.tril(torch.exp(d[..., None] - d[:, :, None]))
    y = ((c @ b.transpose(2, 3)) * mask) @ x
    added = b.transpose(2, 3) @ (x * torch.exp(d[..., -1:] - d)[..., None])
    state = torch.zeros_like(added[:, 0])
    for chunk in range(chunks):
        y[:, chunk] += torch.exp(d[:, chunk])[..., None] * (c[:, chunk] @ state)
        state = state * torch.exp(d[:, chunk, -1])[:, None, None] + added[:, chunk]
    return y.flatten(1, 2).bfloat16()


KERNEL = gallery.Kernel(
    mamba2_chunk_scan, inputs, reference,
    small={"H": 1, "S": 192},
    large={"H": 128, "S": 4096},
    torch=of_torch,
    flops=lambda H, S: 2 * H * S * 64 * 64 * 4,
    tolerance=2e-2,
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)

"""The gated delta rule of linear attention, token by token:
S = a S + b (v - a S k) ⊗ k, o = S q, for each head.

Q and K are ``(H, S, DK)``, V and O ``(H, S, DV)``, the gates ``(H, S)``. A CTA has DB rows of the
state of a head, in registers: the recurrence is along the tokens alone.
"""

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.tutorials import gallery


def gated_delta_rule(H, S, DK, DV, DB=32, dtype="float16"):
    @T.prim_func
    def program(Q: T.Buffer((H, S, DK), dtype), K: T.Buffer((H, S, DK), dtype),
                V: T.Buffer((H, S, DV), dtype), A: T.Buffer((H, S), "float32"),
                B: T.Buffer((H, S), "float32"), Out: T.Buffer((H, S, DV), dtype)):  # fmt: skip
        T.device_entry()
        d, h = T.cta_id([DV // DB, H])
        state = wl.alloc_fragment((DB, DK))
        product = wl.alloc_fragment((DB, DK))
        dot = wl.alloc_fragment((DB,))
        Tx.cta.zero(state)
        for t in T.serial(S):
            for i, j in T.grid(DB, DK):
                state[i, j] = state[i, j] * A[h, t]
                product[i, j] = state[i, j] * T.cast(K[h, t, j], "float32")
            Tx.cta.sum(dot, product, axes=(1,))
            for i, j in T.grid(DB, DK):
                error: T.let = T.cast(V[h, t, d * DB + i], "float32") - dot[i]
                state[i, j] = state[i, j] + B[h, t] * error * T.cast(K[h, t, j], "float32")
                product[i, j] = state[i, j] * T.cast(Q[h, t, j], "float32")
            Tx.cta.sum(dot, product, axes=(1,))
            for i in T.serial(DB):
                Out[h, t, d * DB + i] = T.cast(dot[i], dtype)

    return program


def inputs(rng, H, S, DK, DV):
    q, k, v = (rng.standard_normal((H, S, n)) for n in (DK, DK, DV))
    k /= np.linalg.norm(k, axis=2, keepdims=True)
    gates = [rng.uniform(low, 1, (H, S)).astype(np.float32) for low in (0.9, 0.1)]
    return [*(each.astype(np.float16) for each in (q, k, v)), *gates]


def reference(q, k, v, a, b):
    q, k, v, a, b = (each.astype(np.float64) for each in (q, k, v, a, b))
    state, out = np.zeros((len(q), v.shape[2], k.shape[2])), np.zeros(v.shape)
    for t in range(q.shape[1]):
        state = state * a[:, t, None, None]
        error = v[:, t] - np.einsum("hvk,hk->hv", state, k[:, t])
        state = state + (b[:, t, None] * error)[..., None] * k[:, t, None]
        out[:, t] = np.einsum("hvk,hk->hv", state, q[:, t])
    return out


def of_torch(torch, q, k, v, a, b):
    state = torch.zeros(len(q), v.shape[2], k.shape[2], device=q.device)
    out = torch.empty_like(v)
    for t in range(q.shape[1]):
        state = state * a[:, t, None, None]
        error = v[:, t] - (state @ k[:, t, :, None].float())[..., 0]
        state = state + (b[:, t, None] * error)[..., None] * k[:, t, None]
        out[:, t] = (state @ q[:, t, :, None].float())[..., 0]
    return out


KERNEL = gallery.Kernel(
    gated_delta_rule, inputs, reference,
    small={"H": 1, "S": 8, "DK": 64, "DV": 32},
    large={"H": 64, "S": 2048, "DK": 128, "DV": 128},
    torch=of_torch,
)  # fmt: skip

if __name__ == "__main__":
    gallery.check(KERNEL)

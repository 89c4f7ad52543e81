"""An operand in shared memory that all warpgroups compute and read, anew in each step."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.tile_programs.case import Case, poisoned, random_values, wide
from warploom import language as wl


def computed_operand(tiles: int = 2, steps: int = 3, k: int = 16, n: int = 16) -> Case:
    """C = sum over steps s of P_s^T D^T, P_s = A B_s^T in float16, for tiles of 128 rows of A.

    Each warpgroup computes 64 rows of P, and reads 64 columns of it: of what both have computed.
    """
    m = 128

    @T.prim_func
    def program(
        A: T.Buffer((tiles * m, k), "float16"), B: T.Buffer((steps * m, k), "float16"),
        D: T.Buffer((tiles * n, m), "float16"), C: T.Buffer((tiles * m, n), "float32"),
    ):  # fmt: skip
        T.device_entry()
        i = T.cta_id([tiles])
        A_s = wl.load(A, (i, 0), (m, k))
        D_s = wl.load(D, (i, 0), (n, m))
        P_s = T.alloc_shared((m, m), "float16")
        acc = wl.alloc_accumulator((m, n))
        for s in wl.pipelined(steps, stages=2):
            B_s = wl.load(B, (s, 0), (m, k))
            Tx.cta.copy(P_s, wl.cast(wl.gemm(A_s, B_s), "float16"))
            Tx.cta.gemm_async(acc, P_s, D_s, transA=True, accum=s > 0)
        wl.store(C, (i, 0), acc)

    def arguments(rng: np.random.Generator) -> list[Any]:
        shapes = [(tiles * m, k), (steps * m, k), (tiles * n, m)]
        made = [random_values(rng, shape, "float16") for shape in shapes]
        return [*made, poisoned((tiles * m, n), "float32")]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, b, d = (wide(one) for one in args[:3])
        p = a.reshape(tiles, 1, m, k) @ b.reshape(steps, m, k).swapaxes(1, 2)
        p = wide(p.astype(np.float16))
        sums = p.swapaxes(2, 3) @ d.reshape(tiles, 1, n, m).swapaxes(2, 3)
        return {3: sums.sum(1).reshape(tiles * m, n)}

    # A sum of float32 may be rounded to the other of two neighbours in float16.
    return Case(program, arguments, expected, 2e-4)

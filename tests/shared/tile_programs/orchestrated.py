"""Tile programs in which the author operates mbarriers himself, beside pipelined loops."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.tile_programs.case import Case, poisoned, precision, random_values, wide
from warploom import language as wl

DTYPE = "float16"


def _case(func: Any, m: int, n: int, k: int, shape: tuple[int, ...] | None) -> Case:
    """C = A B^T + the sum of all residual tiles of ``shape``, if there are any."""

    def arguments(rng: np.random.Generator) -> list[Any]:
        shapes = [(m, k), (n, k), *([shape] if shape else [])]
        return [*(random_values(rng, one, DTYPE) for one in shapes), poisoned((m, n), DTYPE)]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        result = wide(args[0]) @ wide(args[1]).T
        if shape:
            residual = wide(args[2])
            result += residual.sum(axis=tuple(range(residual.ndim - 2)))
        return {len(args) - 1: result}

    return Case(func, arguments, expected, precision(DTYPE))


def prefetched_residual(
    m: int = 256, n: int = 136, k: int = 192, stages: int | None = None,
    tile: tuple[int, int, int] = (128, 64, 64),
) -> Case:  # fmt: skip
    """C = A B^T + R; R is under way while the passes' pipeline runs."""
    bm, bn, bk = tile

    @T.prim_func
    def residual(
        A: T.Buffer((m, k), DTYPE), B: T.Buffer((n, k), DTYPE), R: T.Buffer((m, n), DTYPE),
        C: T.Buffer((m, n), DTYPE),
    ):  # fmt: skip
        T.device_entry()
        i, j = T.cta_id([-(-m // bm), -(-n // bn)])
        A_s = T.alloc_buffer((bm, bk), DTYPE, scope="shared")
        B_s = T.alloc_buffer((bn, bk), DTYPE, scope="shared")
        R_s = T.alloc_buffer((bm, bn), DTYPE, scope="shared")
        acc = T.alloc_buffer((bm, bn), "float32", scope="accumulator")
        out = T.alloc_buffer((bm, bn), DTYPE, scope="fragment")
        here = wl.mbarrier.alloc()
        wl.mbarrier.init(here, 1)
        wl.mbarrier.expect(here, 0, bm * bn * 2)
        Tx.cta.copy_async(
            R_s, R[i * bm : i * bm + bm, j * bn : j * bn + bn], mbar=wl.mbarrier.address(here)
        )
        Tx.cta.fill(acc, T.float32(0))
        for step in wl.pipelined(-(-k // bk), stages):
            Tx.cta.copy_async(A_s, A[i * bm : i * bm + bm, step * bk : step * bk + bk])
            Tx.cta.copy_async(B_s, B[j * bn : j * bn + bn, step * bk : step * bk + bk])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=True)
        wl.mbarrier.wait(here, 0, 0)
        for y, x in T.grid(bm, bn):
            out[y, x] = T.cast(acc[y, x] + T.cast(R_s[y, x], "float32"), DTYPE)
        Tx.cta.copy(C[i * bm : i * bm + bm, j * bn : j * bn + bn], out)

    return _case(residual, m, n, k, (m, n))


def ring_by_hand(
    count: int = 3, depth: int = 2, stages: int | None = None, k: int = 128
) -> Case:
    """C = A B^T + the sum of ``count`` tiles: one loop with a ring by hand, one by the passes."""
    bm, bn, bk = 64, 64, 64
    shape = (max(count, 1), bm, bn)

    @T.prim_func
    def sums(a: T.handle, b: T.handle, r: T.handle, c: T.handle):
        A, B = T.match_buffer(a, (bm, k), DTYPE), T.match_buffer(b, (bn, k), DTYPE)
        R, C = T.match_buffer(r, shape, DTYPE), T.match_buffer(c, (bm, bn), DTYPE)
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((bm, bk), DTYPE, scope="shared")
        B_s = T.alloc_buffer((bn, bk), DTYPE, scope="shared")
        R_s = T.alloc_buffer((depth, bm, bn), DTYPE, scope="shared")
        acc = T.alloc_buffer((bm, bn), "float32", scope="accumulator")
        total = T.alloc_buffer((bm, bn), "float32", scope="fragment")
        out = T.alloc_buffer((bm, bn), DTYPE, scope="fragment")
        full = wl.mbarrier.alloc(depth)
        empty = wl.mbarrier.alloc(depth)
        wl.mbarrier.init(full, 1)
        wl.mbarrier.init(empty, 1)
        Tx.cta.fill(total, T.float32(0))
        for t in T.serial(count):
            with wl.loading():
                wl.mbarrier.wait(empty, t % depth, (t // depth + 1) % 2)
                wl.mbarrier.expect(full, t % depth, bm * bn * 2)
                Tx.cta.copy_async(
                    R_s[t % depth, :, :], R[t, :, :], mbar=wl.mbarrier.address(full, t % depth)
                )
            wl.mbarrier.wait(full, t % depth, t // depth % 2)
            for y, x in T.grid(bm, bn):
                total[y, x] = total[y, x] + T.cast(R_s[t % depth, y, x], "float32")
            wl.mbarrier.arrive(empty, t % depth)
        for step in wl.pipelined(k // bk, stages):
            Tx.cta.copy_async(A_s, A[0:bm, step * bk : step * bk + bk])
            Tx.cta.copy_async(B_s, B[0:bn, step * bk : step * bk + bk])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=step > 0)
        for y, x in T.grid(bm, bn):
            out[y, x] = T.cast(acc[y, x] + total[y, x], DTYPE)
        Tx.cta.copy(C[0:bm, 0:bn], out)

    case = _case(sums, bm, bn, k, shape)

    def arguments(rng: np.random.Generator) -> list[Any]:
        a, b, r, c = case.arguments(rng)
        return [a, b, r if count else np.zeros_like(r), c]

    return Case(sums, arguments, case.expected, case.tolerance)


def resident_operand(stages: int | None = None, columns: int = 3) -> Case:
    """C = A B^T; all of A's rows are loaded by hand once, B's columns come through the pipeline."""
    m, n, k, bn, bk = 64, 64 * columns, 192, 64, 64

    @T.prim_func
    def product(
        A: T.Buffer((m, k), DTYPE), B: T.Buffer((n, k), DTYPE), C: T.Buffer((m, n), DTYPE)
    ):
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((k // bk, m, bk), DTYPE, scope="shared")
        B_s = T.alloc_buffer((bn, bk), DTYPE, scope="shared")
        acc = T.alloc_buffer((m, bn), "float32", scope="accumulator")
        out = T.alloc_buffer((m, bn), DTYPE, scope="fragment")
        here = wl.mbarrier.alloc()
        wl.mbarrier.init(here, 1)
        with wl.loading():
            wl.mbarrier.expect(here, 0, m * k * 2)
            for part in T.serial(k // bk):
                Tx.cta.copy_async(
                    A_s[part, :, :], A[:, part * bk : part * bk + bk],
                    mbar=wl.mbarrier.address(here),
                )  # fmt: skip
        wl.mbarrier.wait(here, 0, 0)
        for j in T.serial(n // bn):
            for step in wl.pipelined(k // bk, stages):
                Tx.cta.copy_async(B_s, B[j * bn : j * bn + bn, step * bk : step * bk + bk])
                Tx.cta.gemm_async(acc, A_s[step, :, :], B_s, accum=step > 0)
            Tx.cta.cast(out, acc)
            Tx.cta.copy(C[:, j * bn : j * bn + bn], out)

    return _case(product, m, n, k, None)

"""Grouped GEMMs as models have them: a kernel by hand, and a sum under a condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx
from tvm.script import tirx as T
from tvm.tirx import PrimFunc


def tiles_by_hand(groups: int, n: int, k: int, dtype: str, indptr: str = "int32") -> PrimFunc:
    """CTAs take tiles of 8 x 32 round-robin, and search the group of each."""
    rows, columns, ctas = 8, 32, 4
    zero = tirx.const(0, dtype)
    beside = -(-n // columns)

    @T.prim_func(private=True, s_tir=True)
    def group_gemm(x: T.handle, w: T.handle, p: T.handle, o: T.handle):
        T.func_attr({"tirx.is_scheduled": True, "tirx.noalias": True})
        m = T.int32()
        X = T.match_buffer(x, (m, k), dtype)
        W = T.match_buffer(w, (groups, n, k), dtype)
        P = T.match_buffer(p, (groups + 1,), indptr)
        C = T.match_buffer(o, (m, n), dtype)
        for cta in T.thread_binding(ctas, thread="blockIdx.x"):
            with T.sblock("CTA"):
                first = T.axis.spatial(ctas, cta)
                T.reads(P[:], X[:, :], W[:, :, :])
                T.writes(C[:, :])
                tiles = T.sblock_alloc_buffer((2,), "int32", scope="local")
                row = T.sblock_alloc_buffer((2,), "int32", scope="local")
                group = T.sblock_alloc_buffer((1,), "int32", scope="local")
                tile = T.sblock_alloc_buffer((1,), "int32", scope="local")
                tiles[0] = 0
                tiles[1] = T.ceildiv(T.cast(P[1] - P[0], "int32"), rows) * beside
                row[0] = 0
                row[1] = T.cast(P[1] - P[0], "int32")
                group[0] = 0
                tile[0] = first
                while T.tvm_thread_invariant(group[0] < groups):
                    while T.And(tiles[1] <= tile[0], group[0] < groups):
                        group[0] = group[0] + 1
                        if group[0] < groups:
                            g: T.int32 = group[0]
                            size: T.int32 = T.cast(P[g + 1] - P[g], "int32")
                            tiles[0] = tiles[1]
                            tiles[1] = tiles[1] + T.ceildiv(size, rows) * beside
                            row[0] = row[1]
                            row[1] = row[1] + size
                    T.tvm_storage_sync("shared")
                    if T.tvm_thread_invariant(group[0] < groups):
                        e: T.int32 = group[0]
                        number: T.int32 = tile[0] - tiles[0]
                        m0: T.int32 = rows * T.floordiv(number, beside) + row[0]
                        n0: T.int32 = columns * T.floormod(number, beside)
                        with T.sblock("gemm"):
                            T.reads(row[1], X[m0 : m0 + rows, :], W[e, n0 : n0 + columns, :])
                            T.writes(C[m0 : m0 + rows, n0 : n0 + columns])
                            X_s = T.sblock_alloc_buffer((rows, k), dtype, scope="shared")
                            W_s = T.sblock_alloc_buffer((columns, k), dtype, scope="shared")
                            acc = T.sblock_alloc_buffer((rows, columns), dtype, scope="local")
                            for a0, a1 in T.grid(rows, k):
                                with T.sblock("X_s"):
                                    i, j = T.axis.remap("SS", [a0, a1])
                                    X_s[i, j] = T.if_then_else(m0 + i < row[1], X[m0 + i, j], zero)
                            for a0, a1 in T.grid(columns, k):
                                with T.sblock("W_s"):
                                    i, j = T.axis.remap("SS", [a0, a1])
                                    W_s[i, j] = T.if_then_else(n0 + i < n, W[e, n0 + i, j], zero)
                            for a0, a1, a2 in T.grid(rows, columns, k):
                                with T.sblock("compute"):
                                    i, j, r = T.axis.remap("SSR", [a0, a1, a2])
                                    with T.init():
                                        acc[i, j] = zero
                                    acc[i, j] = acc[i, j] + X_s[i, r] * W_s[j, r]
                            for a0, a1 in T.grid(rows, columns):
                                with T.sblock("store"):
                                    i, j = T.axis.remap("SS", [a0, a1])
                                    if T.And(m0 + i < row[1], n0 + j < n):
                                        C[m0 + i, n0 + j] = acc[i, j]
                        tile[0] = tile[0] + ctas

    return group_gemm


def sum_of_all(
    groups: int, n: int, k: int, dtype: str, indptr: str = "int32", m: Any = None,
    order: str = "xwp", value: Callable[..., Any] | None = None,
    at: Callable[..., Any] | None = None,
) -> PrimFunc:  # fmt: skip
    """A sum over all groups, of products of rows that are theirs.

    Parameters
    ----------
    order : str
        Of the parameters.
    value : callable, optional
        ``(x, w) -> term``, instead of their product.
    at : callable, optional
        ``(p, group, row) -> condition``, instead of that the row is the group's.
    """
    m = te.var("m", "int64") if m is None else m
    x, w = te.placeholder((m, k), dtype, "x"), te.placeholder((groups, n, k), dtype, "w")
    p = te.placeholder((groups + 1,), indptr, "p")
    e, r = te.reduce_axis((0, groups), "e"), te.reduce_axis((0, k), "r")
    value = value or (lambda x, w: x * w)
    at = at or (lambda p, g, i: tirx.all(p[g] <= i, i < p[g + 1]))
    zero = tirx.const(0, dtype)
    o = te.compute(
        (m, n),
        lambda i, j: te.sum(
            tirx.if_then_else(at(p, e, i), value(x[i, r], w[e, j, r]), zero), [e, r]
        ),
        "o",
    )
    params = {"x": x, "w": w, "p": p}
    made = te.create_prim_func([*(params[name] for name in order), o])
    return made.without_attr("global_symbol")

"""Tile programs whose rows have an index each: gathered for MMAs, and scattered."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.tile_programs.case import Case, poisoned, precision, random_values, wide
from warploom import language as wl

#: Rows of tensors that rows are taken from.
TOKENS = 90


def rows_by_index(
    gathers: str = "a", scatters: bool = False, tile: tuple[int, int, int] = (64, 64, 64),
    steps: int = 2, dynamic: int | None = None, dtype: str = "float16", out_dtype: str = "float32",
    page: int = 1, primitive: bool = False, stages: int | None = 2, tiles: int = 2,
    outside: bool = True, ranks: int = 2,
) -> Case:  # fmt: skip
    """C[to] = A[of_a] B[of_b]^T, or A[of_a] B[of_k].

    Parameters
    ----------
    gathers : str
        Whose rows have an index each: ``"a"`` of A, ``"b"`` of B, ``"k"`` of B as ``[K, N]``.
    scatters : bool
        Whether rows of C have one.
    tile : (int, int, int)
        M, N and K of a tile.
    steps : int
        Steps of K.
    dynamic : int, optional
        As many of these as are done, which the kernel learns as an argument.
    page : int
        Rows of A that follow each other.
    primitive : bool
        Whether ``Tx.cta.gather`` and ``scatter`` say so; else loops of copies.
    outside : bool
        Whether some indices are outside of the tensors.
    ranks : int
        Dimensions of A; of more than 2 the others are of one row.
    """
    bm, bn, bk = tile
    m, k = tiles * bm, steps * bk
    by_k = "k" in gathers
    b_shape = (TOKENS, bn) if by_k else (TOKENS, k)
    a_shape = (TOKENS, *[1] * (ranks - 2), k)
    middle = ", 0" * (ranks - 2)
    lines = ["for s in wl.pipelined(n, stages):" if dynamic is not None else
             "for s in wl.pipelined(steps, stages):"]  # fmt: skip

    def load(tile: str, shape: tuple[int, int], tensor: str, index: str | None, columns: str,
             first: str, page: int = 1, rest: str = "", whole: str = "") -> None:  # fmt: skip
        rows, wide = shape
        if index is None:
            at = f"{first} : {first} + {rows}{rest}, {columns}"
            lines.append(f"    Tx.cta.copy_async({tile}, {tensor}[{at}])")
        elif primitive and page == 1:
            zero = ", lambda r: 0" * bool(rest)
            lines.append(f"    Tx.cta.gather({tile}, {tensor}[0:{TOKENS}{whole}, {columns}], "
                         f"lambda r: {index}[{first} + r]{zero})")  # fmt: skip
        else:
            lines.append(f"    for r in T.serial({rows // page}):")
            lines.append(f"        row: T.let = {index}[({first}) // {page} + r]")
            lines.append(f"        Tx.cta.copy_async({tile}[r * {page} : r * {page} + {page}, "
                         f"0:{wide}], {tensor}[row : row + {page}{rest}, {columns}])")  # fmt: skip

    along = f"s * {bk} : s * {bk} + {bk}"
    load("A_s", (bm, bk), "A", "OfA" if "a" in gathers else None, along, f"i * {bm}", page, middle,
         ", 0:1" * (ranks - 2))  # fmt: skip
    if by_k:
        load("B_s", (bk, bn), "B", "OfB", f"0:{bn}", f"s * {bk}")
    else:
        load("B_s", (bn, bk), "B", "OfB" if "b" in gathers else None, along, "0")
    lines.append(f"    Tx.cta.gemm_async(acc, A_s, B_s, transB={by_k}, accum=True)")
    lines.append("Tx.cta.cast(out, acc)")
    if not scatters:
        lines.append(f"Tx.cta.copy(C[i * {bm} : i * {bm} + {bm}, 0:{bn}], out)")
    elif primitive:
        lines.append(f"Tx.cta.scatter(C[0:{m}, 0:{bn}], out, lambda r: To[i * {bm} + r])")
    else:
        lines.append(f"for r in T.serial({bm}):")
        lines.append(f"    Tx.cta.copy(C[To[i * {bm} + r], 0:{bn}], out[r, 0:{bn}])")
    of_b = k if by_k else bn
    head = [
        "@T.prim_func",
        f"def program(A: T.Buffer({a_shape}, dtype), B: T.Buffer({b_shape}, dtype),",
        f"            OfA: T.Buffer(({m // page},), 'int32'), OfB: T.Buffer(({of_b},), 'int32'),",
        f"            To: T.Buffer(({m},), 'int32'){', n: T.int32' * (dynamic is not None)},",
        f"            C: T.Buffer(({m}, {bn}), out_dtype)):",
        "    T.device_entry()",
        f"    i = T.cta_id([{tiles}])",
        f"    A_s = T.alloc_shared(({bm}, {bk}), dtype)",
        f"    B_s = T.alloc_shared({(bk, bn) if by_k else (bn, bk)}, dtype)",
        f"    acc = T.alloc_buffer(({bm}, {bn}), {'int32' if dtype == 'int8' else 'float32'!r}, "
        "scope='accumulator')",
        f"    out = T.alloc_buffer(({bm}, {bn}), out_dtype, scope='fragment')",
        "    Tx.cta.zero(acc)",
    ]
    names = {
        "T": T, "Tx": Tx, "wl": wl, "steps": steps, "stages": stages, "dtype": dtype,
        "out_dtype": out_dtype,
    }  # fmt: skip
    func = tvm.script.from_source("\n".join([*head, *("    " + one for one in lines), ""]), names)

    def arguments(rng: np.random.Generator) -> list[Any]:
        of_a, of_b_ = (
            rng.integers(0, TOKENS - p + 1, size).astype(np.int32)
            for p, size in ((page, m // page), (1, of_b))
        )
        to = rng.permutation(m).astype(np.int32)
        if outside:
            of_a[rng.integers(0, len(of_a), 3)] = -TOKENS, TOKENS, TOKENS + 900
            of_b_[rng.integers(0, len(of_b_), 2)] = -1, TOKENS
        made = [random_values(rng, a_shape, dtype), random_values(rng, b_shape, dtype)]
        count = [] if dynamic is None else [dynamic]
        return [*made, of_a, of_b_, to, *count, poisoned((m, bn), out_dtype)]

    def taken(tensor: np.ndarray, rows: np.ndarray) -> np.ndarray:
        matrix = wide(tensor).reshape(TOKENS, -1)
        inside = ((rows >= 0) & (rows < TOKENS))[:, None]
        return np.where(inside, matrix[np.clip(rows, 0, TOKENS - 1)], 0)

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, b, of_a, of_b_, to = args[:5]
        rows_a = (of_a[:, None].astype(int) + np.arange(page)).ravel()
        left = taken(a, rows_a if "a" in gathers else np.arange(m))
        right = taken(b, of_b_ if {"b", "k"} & set(gathers) else np.arange(bn))
        right = right if by_k else right.T
        deep = (steps if dynamic is None else dynamic) * bk
        result = left[:, :deep] @ right[:deep]
        if not scatters:
            return {len(args) - 1: result}
        stored = np.empty_like(result)
        stored[to] = result
        return {len(args) - 1: stored}

    return Case(func, arguments, expected, precision(out_dtype) + 1e-5)

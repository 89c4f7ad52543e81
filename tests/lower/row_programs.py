"""Tile programs without an MMA: kernels of rows, element-wise kernels, transposes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.tile_programs.case import Case, poisoned, random_values, wide

#: Error of float32 sums, and of results rounded to 16 bits, as a fraction of the largest result.
_TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.5e-2}


def _inputs(
    shapes: list[tuple[int, ...]], outputs: list[tuple[tuple[int, ...], str]], dtype: str
) -> Callable[[np.random.Generator], list[Any]]:
    def arguments(rng: np.random.Generator) -> list[Any]:
        return [random_values(rng, shape, dtype) for shape in shapes] + [
            poisoned(shape, out) for shape, out in outputs
        ]

    return arguments


def softmax(m: int, n: int, rows: int, dtype: str) -> Case:
    @T.prim_func
    def func(X: T.Buffer((m, n), dtype), Y: T.Buffer((m, n), dtype)):
        T.device_entry()
        b = T.cta_id([T.ceildiv(m, rows)])
        x = T.alloc_buffer((rows, n), "float32", scope="fragment")
        y = T.alloc_buffer((rows, n), dtype, scope="fragment")
        largest = T.alloc_buffer((rows,), "float32", scope="fragment")
        total = T.alloc_buffer((rows,), "float32", scope="fragment")
        for i, j in T.grid(rows, n):
            x[i, j] = T.cast(X[b * rows + i, j], "float32")
        Tx.cta.max(largest, x, axes=(1,))
        for i, j in T.grid(rows, n):
            x[i, j] = T.exp(x[i, j] - largest[i])
        Tx.cta.sum(total, x, axes=(1,))
        for i, j in T.grid(rows, n):
            y[i, j] = T.cast(x[i, j] / total[i], dtype)
        Tx.cta.copy(Y[b * rows : b * rows + rows, 0:n], y)

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        x = wide(args[0])
        e = np.exp(x - x.max(1, keepdims=True))
        return {1: e / e.sum(1, keepdims=True)}

    inputs = _inputs([(m, n)], [((m, n), dtype)], dtype)
    return Case(func, inputs, expected, _TOLERANCE[dtype])


def layer_norm(m: int, n: int, rows: int, dtype: str, sum_first: bool = False) -> Case:
    """With a residual, whose sum is stored too, before or behind the result."""

    @T.prim_func
    def func(
        X: T.Buffer((m, n), dtype), R: T.Buffer((m, n), dtype), W: T.Buffer((n,), dtype),
        Y: T.Buffer((m, n), "float32"), S: T.Buffer((m, n), dtype),
    ):  # fmt: skip
        T.device_entry()
        b = T.cta_id([T.ceildiv(m, rows)])
        s = T.alloc_buffer((rows, n), dtype, scope="fragment")
        r = T.alloc_buffer((rows, n), dtype, scope="fragment")
        x = T.alloc_buffer((rows, n), "float32", scope="fragment")
        d = T.alloc_buffer((rows, n), "float32", scope="fragment")
        mean = T.alloc_buffer((rows, 1), "float32", scope="fragment")
        scale = T.alloc_buffer((rows, 1), "float32", scope="fragment")
        Tx.cta.copy(s, X[b * rows : b * rows + rows, 0:n])
        Tx.cta.copy(r, R[b * rows : b * rows + rows, 0:n])
        for i, j in T.grid(rows, n):
            s[i, j] = s[i, j] + r[i, j]
        if sum_first:
            Tx.cta.copy(S[b * rows : b * rows + rows, 0:n], s)
        Tx.cta.cast(x, s)
        Tx.cta.sum(mean, x, axes=(1,))
        for i in T.serial(rows):
            mean[i, 0] = mean[i, 0] * T.float32(1 / n)
        for i, j in T.grid(rows, n):
            d[i, j] = (x[i, j] - mean[i, 0]) * (x[i, j] - mean[i, 0])
        Tx.cta.sum(scale, d, axes=(1,))
        for i in T.serial(rows):
            scale[i, 0] = T.rsqrt(scale[i, 0] * T.float32(1 / n) + T.float32(1e-5))
        for i, j in T.grid(rows, n):
            Y[b * rows + i, j] = (x[i, j] - mean[i, 0]) * scale[i, 0] * T.cast(W[j], "float32")
        if not sum_first:
            Tx.cta.copy(S[b * rows : b * rows + rows, 0:n], s)

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        s = (args[0].astype(np.float32) + args[1].astype(np.float32)).astype(args[0].dtype)
        x = wide(s)
        c = x - x.mean(1, keepdims=True)
        y = c / np.sqrt((c * c).mean(1, keepdims=True) + 1e-5) * wide(args[2])
        return {3: y, 4: x}

    shapes = [(m, n), (m, n), (n,)]
    outputs = [((m, n), "float32"), ((m, n), dtype)]
    return Case(func, _inputs(shapes, outputs, dtype), expected, 2e-5)


def gated(m: int, n: int, rows: int, dtype: str) -> Case:
    """Each element and another of its row, half a row further: GeGLU without erf."""

    @T.prim_func
    def func(X: T.Buffer((m, 2 * n), dtype), Y: T.Buffer((m, n), "float32")):
        T.device_entry()
        b = T.cta_id([T.ceildiv(m, rows)])
        x = T.alloc_buffer((rows, 2 * n), dtype, scope="fragment")
        y = T.alloc_buffer((rows, n), "float32", scope="fragment")
        Tx.cta.copy(x, X[b * rows : b * rows + rows, 0 : 2 * n])
        for i, j in T.grid(rows, n):
            gate: T.let = T.cast(x[i, j], "float32")
            y[i, j] = gate / (T.float32(1) + T.exp(-gate)) * T.cast(x[i, j + n], "float32")
        Tx.cta.copy(Y[b * rows : b * rows + rows, 0:n], y)

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        gate, up = np.split(wide(args[0]), 2, axis=1)
        return {1: gate / (1 + np.exp(-gate)) * up}

    inputs = _inputs([(m, 2 * n)], [((m, n), "float32")], dtype)
    return Case(func, inputs, expected, 1e-5)


def masked_log_softmax(m: int, n: int, rows: int, dtype: str) -> Case:
    """Of the first elements of each row, as many as memory says; loaded by TMA."""
    m, tile = max(m, rows), -(-n // 8) * 8  # TMA takes no tile with more rows than the tensor

    @T.prim_func
    def func(
        X: T.Buffer((m, tile), dtype), Y: T.Buffer((m, tile), "float32"),
        L: T.Buffer((m,), "float32"), Length: T.Buffer((2,), "int32"),
    ):  # fmt: skip
        T.device_entry()
        b = T.cta_id([T.ceildiv(m, rows)])
        loaded = T.alloc_buffer((rows, tile), dtype, scope="shared")
        x = T.alloc_buffer((rows, tile), "float32", scope="fragment")
        e = T.alloc_buffer((rows, tile), "float32", scope="fragment")
        largest = T.alloc_buffer((rows,), "float32", scope="fragment")
        total = T.alloc_buffer((rows,), "float32", scope="fragment")
        length: T.int32 = Length[1]
        Tx.cta.copy_async(loaded, X[b * rows : b * rows + rows, 0:tile])
        for i, j in T.grid(rows, tile):
            x[i, j] = T.if_then_else(
                j < length, T.cast(loaded[i, j], "float32"), T.float32("-inf")
            )
        Tx.cta.max(largest, x, axes=(1,))
        for i, j in T.grid(rows, tile):
            e[i, j] = T.exp(x[i, j] - largest[i])
        Tx.cta.sum(total, e, axes=(1,))
        for i in T.serial(rows):
            total[i] = largest[i] + T.log(total[i])
        for i, j in T.grid(rows, tile):
            if j < length:
                Y[b * rows + i, j] = x[i, j] - total[i]
        Tx.cta.copy(L[b * rows : b * rows + rows], total)

    def arguments(rng: np.random.Generator) -> list[Any]:
        length = np.array([0, rng.integers(1, n + 1)], np.int32)
        x = random_values(rng, (m, tile), dtype)
        return [x, np.full((m, tile), 7, np.float32), poisoned((m,), "float32"), length]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        length = int(args[3][1])
        x = wide(args[0])[:, :length]
        total = np.log(np.exp(x).sum(1))
        y = np.full((m, tile), 7.0)
        y[:, :length] = x - total[:, None]
        return {1: y, 2: total}

    return Case(func, arguments, expected, 1e-5)


def sums_of_columns(m: int, n: int, rows: int, dtype: str) -> Case:
    """And the least of a part of each row."""
    m = -(-m // rows) * rows
    part = max(1, n // 2)

    @T.prim_func
    def func(
        X: T.Buffer((m, n), dtype), C: T.Buffer((m // rows, n), "float32"),
        R: T.Buffer((m,), "float32"),
    ):  # fmt: skip
        T.device_entry()
        b = T.cta_id([m // rows])
        x = T.alloc_buffer((rows, n), "float32", scope="fragment")
        c = T.alloc_buffer((n,), "float32", scope="fragment")
        r = T.alloc_buffer((rows,), "float32", scope="fragment")
        for i, j in T.grid(rows, n):
            x[i, j] = T.cast(X[b * rows + i, j], "float32")
        Tx.cta.sum(c, x, axes=(0,))
        Tx.cta.min(r, x[0:rows, 0:part], axes=(1,))
        Tx.cta.copy(C[b, 0:n], c)
        Tx.cta.copy(R[b * rows : b * rows + rows], r)

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        x = wide(args[0])
        return {1: x.reshape(-1, rows, n).sum(1), 2: x[:, :part].min(1)}

    outputs = [((m // rows, n), "float32"), ((m,), "float32")]
    return Case(func, _inputs([(m, n)], outputs, dtype), expected, 1e-5)


def transposed(m: int, n: int, rows: int, dtype: str, through: str = "fragment") -> Case:
    """Matrices of a batch, ``rows`` x 24 elements at a time."""
    columns = 24

    @T.prim_func
    def func(X: T.Buffer((2, m, n), dtype), Y: T.Buffer((2, n, m), dtype)):
        T.device_entry()
        i, j, batch = T.cta_id([T.ceildiv(m, rows), T.ceildiv(n, columns), 2])
        x = T.alloc_buffer((rows, columns), dtype, scope=through)
        y = T.alloc_buffer((columns, rows), dtype, scope="fragment")
        for r, c in T.grid(rows, columns):
            x[r, c] = X[batch, i * rows + r, j * columns + c]
        for c, r in T.grid(columns, rows):
            y[c, r] = x[r, c]
        Tx.cta.copy(
            Y[batch, j * columns : j * columns + columns, i * rows : i * rows + rows], y
        )

    inputs = _inputs([(2, m, n)], [((2, n, m), dtype)], dtype)
    return Case(func, inputs, lambda args: {1: wide(args[0]).transpose(0, 2, 1)}, 0)


def cast(m: int, n: int, rows: int, dtype: str) -> Case:
    """A vector of ``m * n`` elements, ``32 * rows`` at a time."""
    count, block = m * n, 32 * rows
    to = "float32" if dtype != "float32" else "float16"

    @T.prim_func
    def func(X: T.Buffer((count,), dtype), Y: T.Buffer((count,), to)):
        T.device_entry()
        b = T.cta_id([T.ceildiv(count, block)])
        x = T.alloc_buffer((block,), dtype, scope="fragment")
        y = T.alloc_buffer((block,), to, scope="fragment")
        Tx.cta.copy(x, X[b * block : b * block + block])
        Tx.cta.cast(y, x)
        Tx.cta.copy(Y[b * block : b * block + block], y)

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        return {1: wide(args[0].astype(args[1].dtype))}

    return Case(func, _inputs([(count,)], [((count,), to)], dtype), expected, 0)


def add_in_place(m: int, n: int, rows: int, dtype: str) -> Case:
    """A nest without tiles in registers, in a shared tile, beside a tile in registers."""

    @T.prim_func
    def func(X: T.Buffer((m, n), dtype), Y: T.Buffer((m, n), "float32")):
        T.device_entry()
        b = T.cta_id([T.ceildiv(m, rows)])
        s = T.alloc_buffer((rows, n), "float32", scope="shared")
        y = T.alloc_buffer((rows, n), "float32", scope="fragment")
        for i, j in T.grid(rows, n):
            s[i, j] = T.cast(X[b * rows + i, j], "float32")
        for i, j in T.grid(rows, n):
            s[i, j] = s[i, j] + s[i, j]
        for i, j in T.grid(rows, n):
            y[i, j] = s[rows - 1 - i, j]
        for i, j in T.grid(rows, n):
            Y[b * rows + i, j] = y[i, j] - s[i, j]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        padded = np.zeros((-(-m // rows) * rows, n))
        padded[:m] = 2 * wide(args[0])
        blocks = padded.reshape(-1, rows, n)
        return {1: (blocks[:, ::-1] - blocks).reshape(-1, n)[:m]}

    return Case(func, _inputs([(m, n)], [((m, n), "float32")], dtype), expected, 1e-6)


PROGRAMS = {
    program.__name__: program
    for program in (
        softmax, layer_norm, gated, masked_log_softmax, sums_of_columns, transposed, cast,
        add_in_place,
    )
}  # fmt: skip

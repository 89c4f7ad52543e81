"""Tile programs whose control flow and scalars are what is difficult about them."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.tile_programs.case import Case, poisoned, random_values, wide
from warploom import language as wl

BM, BN, BK = 64, 32, 32
TRIPS = 5
TOLERANCE = 2.0**-10


def _blocks(array: np.ndarray, rows: np.ndarray, height: int) -> list[np.ndarray]:
    return [wide(array)[r * height : (r + 1) * height] for r in rows]


def _data(rng: np.random.Generator, indices: int) -> list[Any]:
    """A of 4 blocks of rows, B of 4 blocks, an index for every iteration."""
    return [
        random_values(rng, (4 * BM, BK), "float16"),
        random_values(rng, (4 * BN, BK), "float16"),
        rng.integers(0, 4, (indices, 16)).astype("int32"),
        poisoned((BM, BN), "float32"),
    ]


def _products(a: np.ndarray, b: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> dict:
    pairs = zip(_blocks(a, rows, BM), _blocks(b, columns, BN), strict=True)
    return {3: sum(x @ y.T for x, y in pairs)}


def indexed(stages: int = 2) -> Case:
    """A scalar that tells where to load from changes between two loads."""

    @T.prim_func
    def program(
        A: T.Buffer((4 * BM, BK), "float16"), B: T.Buffer((4 * BN, BK), "float16"),
        Index: T.Buffer((TRIPS, 16), "int32"), C: T.Buffer((BM, BN), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
        B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
        acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        for k in wl.pipelined(TRIPS, stages):
            at: T.int32 = Index[k, 0] * BM
            Tx.cta.copy_async(A_s, A[at : at + BM, 0:BK])
            at = Index[k, 1] * BN
            Tx.cta.copy_async(B_s, B[at : at + BN, 0:BK])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        Tx.cta.copy(C[0:BM, 0:BN], acc)

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, b, index, _ = args
        return _products(a, b, index[:, 0], index[:, 1])

    return Case(program, lambda rng: _data(rng, TRIPS), expected, TOLERANCE)


def carried(stages: int = 2) -> Case:
    """Every iteration tells the next one where to load from."""

    @T.prim_func
    def program(
        A: T.Buffer((4 * BM, BK), "float16"), B: T.Buffer((4 * BN, BK), "float16"),
        Next: T.Buffer((4, 16), "int32"), C: T.Buffer((BM, BN), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
        B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
        acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        at: T.int32 = 1
        for k in wl.pipelined(TRIPS, stages):
            Tx.cta.copy_async(A_s, A[at * BM : at * BM + BM, 0:BK])
            Tx.cta.copy_async(B_s, B[at * BN : at * BN + BN, 0:BK])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
            at = Next[at, 0]
        Tx.cta.copy(C[0:BM, 0:BN], acc)

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, b, following, _ = args
        places = [1]
        for _ in range(TRIPS - 1):
            places.append(int(following[places[-1], 0]))
        return _products(a, b, np.array(places), np.array(places))

    return Case(program, lambda rng: _data(rng, 4), expected, TOLERANCE)


def from_tile(stages: int = 2) -> Case:
    """Where to load from is read from a tile, which only those that compute have."""

    @T.prim_func
    def program(
        A: T.Buffer((4 * BM, BK), "float16"), B: T.Buffer((4 * BN, BK), "float16"),
        Index: T.Buffer((TRIPS, 16), "int32"), C: T.Buffer((BM, BN), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        I_s = T.alloc_buffer((TRIPS, 16), "int32", scope="shared")
        A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
        B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
        acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        Tx.cta.copy_async(I_s, Index[0:TRIPS, 0:16])
        for k in wl.pipelined(TRIPS, stages):
            at: T.int32 = I_s[k, 3]
            Tx.cta.copy_async(A_s, A[at * BM : at * BM + BM, 0:BK])
            Tx.cta.copy_async(B_s, B[at * BN : at * BN + BN, 0:BK])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        Tx.cta.copy(C[0:BM, 0:BN], acc)

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, b, index, _ = args
        return _products(a, b, index[:, 3], index[:, 3])

    return Case(program, lambda rng: _data(rng, TRIPS), expected, TOLERANCE)


def in_place(stages: int = 2) -> Case:
    """A loaded tile is changed where it lies, and then multiplied."""

    @T.prim_func
    def program(
        A: T.Buffer((4 * BM, BK), "float16"), B: T.Buffer((4 * BN, BK), "float16"),
        Index: T.Buffer((TRIPS, 16), "int32"), C: T.Buffer((BM, BN), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
        B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
        acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        for k in wl.pipelined(TRIPS, stages):
            at: T.int32 = Index[k, 0]
            Tx.cta.copy_async(A_s, A[at * BM : at * BM + BM, 0:BK])
            Tx.cta.copy_async(B_s, B[at * BN : at * BN + BN, 0:BK])
            for i, j in T.grid(BM, BK):
                A_s[i, j] = T.max(A_s[i, j], T.float16(0))
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        Tx.cta.copy(C[0:BM, 0:BN], acc)

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, b, index, _ = args
        return _products(np.maximum(a, 0), b, index[:, 0], index[:, 0])

    return Case(program, lambda rng: _data(rng, TRIPS), expected, TOLERANCE)


def branches(stages: int = 2) -> Case:
    """Some iterations load and multiply twice, the last and the first do so elsewhere."""

    @T.prim_func
    def program(
        A: T.Buffer((4 * BM, BK), "float16"), B: T.Buffer((4 * BN, BK), "float16"),
        Index: T.Buffer((TRIPS, 16), "int32"), C: T.Buffer((BM, BN), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
        B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
        A_t = T.alloc_buffer((BM, BK), "float16", scope="shared")
        B_t = T.alloc_buffer((BN, BK), "float16", scope="shared")
        acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        Tx.cta.zero(acc)
        for k in wl.pipelined(TRIPS, stages):
            at: T.int32 = Index[k, 0]
            Tx.cta.copy_async(A_s, A[at * BM : at * BM + BM, 0:BK])
            Tx.cta.copy_async(B_s, B[at * BN : at * BN + BN, 0:BK])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=True)
            if Index[k, 1] > 1:
                Tx.cta.copy_async(A_t, A[0:BM, 0:BK])
                Tx.cta.copy_async(B_t, B[at * BN : at * BN + BN, 0:BK])
                Tx.cta.gemm_async(acc, A_t, B_t, accum=True)
            else:
                Tx.cta.mul(acc, acc, T.float32(0.5))
        Tx.cta.copy(C[0:BM, 0:BN], acc)

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, b, index, _ = args
        total = np.zeros((BM, BN))
        for at, chosen in index[:, :2]:
            right = wide(b)[at * BN : at * BN + BN].T
            total = total + wide(a)[at * BM : at * BM + BM] @ right
            total = total + wide(a)[:BM] @ right if chosen > 1 else total * 0.5
        return {3: total}

    return Case(program, lambda rng: _data(rng, TRIPS), expected, TOLERANCE)


def nested(stages: int = 2) -> Case:
    """A pipelined loop in a loop, of as many iterations as the device is told."""

    @T.prim_func
    def program(
        A: T.Buffer((4 * BM, BK), "float16"), B: T.Buffer((4 * BN, BK), "float16"),
        Index: T.Buffer((4, 16), "int32"), C: T.Buffer((4 * BM, BN), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
        B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
        acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        for block in T.serial(4):
            Tx.cta.zero(acc)
            for k in wl.pipelined(Index[block, 0], stages):
                Tx.cta.copy_async(A_s, A[block * BM : block * BM + BM, 0:BK])
                Tx.cta.copy_async(B_s, B[k * BN : k * BN + BN, 0:BK])
                Tx.cta.gemm_async(acc, A_s, B_s, accum=True)
            Tx.cta.copy(C[block * BM : block * BM + BM, 0:BN], acc)

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, b, index, _ = args
        rights = [wide(b)[k * BN : k * BN + BN].T for k in range(4)]
        lefts = [wide(a)[k * BM : k * BM + BM] for k in range(4)]
        zero = np.zeros((BM, BN))
        pairs = zip(lefts, index[:, 0], strict=True)
        return {3: np.concatenate([sum((x @ r for r in rights[:n]), zero) for x, n in pairs])}

    def arguments(rng: np.random.Generator) -> list[Any]:
        a, b, index, _ = _data(rng, 4)
        index[:, 0] = rng.permutation([0, 1, 2, 4])
        return [a, b, index, poisoned((4 * BM, BN), "float32")]

    return Case(program, arguments, expected, TOLERANCE)


def across(stages: int = 2) -> Case:
    """A sum over two loops, the inner one of as many iterations as the device is told, or none."""

    @T.prim_func
    def program(
        A: T.Buffer((4 * BM, BK), "float16"), B: T.Buffer((4 * BN, BK), "float16"),
        Index: T.Buffer((TRIPS, 16), "int32"), C: T.Buffer((BM, BN), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
        B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
        acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        Tx.cta.zero(acc)
        for block in T.serial(4):
            for k in wl.pipelined(Index[block, 0], stages):
                Tx.cta.copy_async(A_s, A[block * BM : block * BM + BM, 0:BK])
                Tx.cta.copy_async(B_s, B[k * BN : k * BN + BN, 0:BK])
                Tx.cta.gemm_async(acc, A_s, B_s, accum=True)
        Tx.cta.copy(C[:, :], acc)

    def arguments(rng: np.random.Generator) -> list[Any]:
        a, b, index, c = _data(rng, TRIPS)
        index[:4, 0] = rng.permutation([0, 1, 3, 4])
        return [a, b, index, c]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, b, index, _ = args
        counts = index[:4, 0]
        columns = np.concatenate([np.arange(count) for count in counts])
        return _products(a, b, np.repeat(np.arange(4), counts), columns)

    return Case(program, arguments, expected, TOLERANCE)


def shrinking(stages: int = 2) -> Case:
    """Loops whose extents their own bodies change: as many iterations as before the first one."""

    @T.prim_func
    def program(
        A: T.Buffer((4 * BM, BK), "float16"), B: T.Buffer((4 * BN, BK), "float16"),
        Index: T.Buffer((TRIPS, 16), "int32"), C: T.Buffer((BM, BN), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
        B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
        acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        blocks: T.int32 = 3
        inner: T.int32 = 0
        Tx.cta.zero(acc)
        for block in T.serial(blocks):
            inner = Index[0, block] + 1
            blocks = blocks - 1
            for k in wl.pipelined(inner + blocks, stages):
                inner = inner - 2
                Tx.cta.copy_async(A_s, A[block * BM : block * BM + BM, 0:BK])
                Tx.cta.copy_async(B_s, B[k % 4 * BN : k % 4 * BN + BN, 0:BK])
                Tx.cta.gemm_async(acc, A_s, B_s, accum=True)
        Tx.cta.copy(C[:, :], acc)

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, b, index, _ = args
        counts = [int(index[0, block]) + 1 + 2 - block for block in range(3)]
        rows = np.repeat(np.arange(3), counts)
        columns = np.concatenate([np.arange(count) % 4 for count in counts])
        return _products(a, b, rows, columns)

    return Case(program, lambda rng: _data(rng, TRIPS), expected, TOLERANCE)


CONTROL = {
    one.__name__: one
    for one in (indexed, carried, from_tile, in_place, branches, nested, across, shrinking)
}

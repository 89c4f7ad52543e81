"""Which stores go through shared memory by TMA, and which straight from registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared import tile_programs
from tests.shared.lowered_programs import after_passes, check, hinted, run
from tests.shared.tile_programs.case import Case, poisoned, random_values, wide
from warploom import language as wl
from warploom.errors import NoSharedMemory
from warploom.lower.lowerings import lower
from warploom.lower.passes.canonicalize import canonicalize
from warploom.lower.passes.infer_layouts import infer_layouts
from warploom.lower.passes.resolve_scopes import resolve_scopes
from warploom.lower.passes.stage_stores import stage_stores
from warploom.lower.smaller_choices import smaller_choice
from warploom.lower.stores.store_chunks import store_chunks
from warploom.target import chunk_buffers
from warploom.tile.program import allocations
from warploom.tile.read import read

PASSES = (canonicalize, infer_layouts, resolve_scopes, stage_stores)


def decisions(func: Any) -> tuple[str, ...]:
    before = after_passes(func, *PASSES[:-1])
    return stage_stores(before).decisions[len(before.decisions) :]


@pytest.mark.parametrize(
    ("n", "tile", "dtype", "expected"),
    [
        (256, 128, "float16", "by TMA, in chunks of 64 x 64 elements"),
        (256, 32, "bfloat16", "by TMA, in chunks of 64 x 32 elements"),
        (96, 48, "float16", "by TMA, in chunks of 64 x 32 or 16 elements"),
        (48, 24, "float16", "by TMA, in chunks of 64 x 16 or 8 elements"),
        (256, 128, "float32", "by TMA, in chunks of 64 x 32 elements"),
        # Of 8 bits a thread has too few neighbours, 50 elements are no multiple of 16 bytes.
        (256, 128, "float8_e4m3fn", "straight from registers"),
        (50, 64, "float16", "straight from registers"),
    ],
)
def test_tma_stores_what_it_can(n, tile, dtype, expected):
    case = tile_programs.gemm(128, n, 64, (128, tile, 64), out_dtype=dtype)
    assert decisions(case.func) == (f"store into C: {expected}",)


@pytest.mark.parametrize("store_buffers", [None, 1, 4])
@pytest.mark.parametrize(
    ("columns", "widths"), [(16, [16]), (128, [64, 64]), (176, [64, 64, 32, 16])]
)
def test_chunks_of_a_width_have_buffers_of_their_own(columns, widths, store_buffers):
    case = tile_programs.gemm(128, 2 * columns, 64, (128, columns, 64), out_dtype="float16")
    program = after_passes(hinted(case.func, store_buffers=store_buffers), *PASSES)
    found = [
        [int(e) for e in b.shape] for b in allocations(program.body) if b.name == "staging"
    ]
    slots = chunk_buffers(widths, store_buffers or 2)
    assert found == [[2, slots[one], 64, one] for one in dict.fromkeys(widths)]
    assert sum(one * count for one, count in slots.items()) <= max(128, 64 * (store_buffers or 2))


@given(
    widths=st.lists(st.sampled_from([64, 32, 16]), min_size=1, max_size=6),
    heights=st.lists(st.sampled_from([64, 32, 8]), min_size=1, max_size=3),
    buffers=st.integers(1, 4),
)
def test_no_buffer_is_written_before_its_store_has_ended(widths, heights, buffers):
    tile = store_chunks(heights, widths, buffers)
    assert sum(one.width * one.height for one in tile) == sum(heights) * sum(widths)
    under_way: list[tuple[int, int]] = []
    for one in [*tile, *tile]:  # two tiles in a row
        under_way = under_way[max(0, len(under_way) - one.pending) :]
        assert (one.width, one.slot) not in under_way
        assert one.slot < buffers
        under_way.append((one.width, one.slot))


@pytest.mark.parametrize("columns", [8, 40, 64, 112, 128])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.some(3)
def test_stored_tiles_are_right(columns, dtype, rng):
    case = tile_programs.gemm(200, 2 * columns - 8, 64, (128, columns, 32), out_dtype=dtype)
    check(case, rng)


@pytest.mark.parametrize(
    ("n", "columns", "dtype"), [(100, 64, "float16"), (64, 50, "float16"), (1, 1, "float32")]
)
def test_shared_tiles_that_tma_cannot_store_are_stored_by_threads(n, columns, dtype, rng):
    def arguments(rng: np.random.Generator) -> list:
        return [random_values(rng, (columns,), dtype), poisoned((128, n), dtype)]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        result = args[1].astype(np.float64)
        result[:, :columns] = wide(args[0]) + np.arange(128)[:, None]
        return {1: result}

    func = shared_tile(n, columns, dtype)
    before = arguments(rng)
    after = run(lower(func), [np.copy(one) for one in before])
    want = expected(before)[1]
    np.testing.assert_allclose(after[1].astype(np.float64), want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("tiles", "ctas"), [(2, None), (5, 1), (5, 2)])
def test_shared_tiles_are_stored(tiles, ctas, rng):
    """Tile after tile, where a CTA has several: none is rewritten before its store has read it."""

    def arguments(rng: np.random.Generator) -> list:
        return [random_values(rng, (36,), "float32"), poisoned((64 * tiles, 36), "float32")]

    def expected(args: list) -> dict[int, np.ndarray]:
        return {1: wide(args[0]) + np.arange(64 * tiles)[:, None]}

    case = Case(shared_tile(36, 36, "float32", tiles), arguments, expected, 1e-6)
    check(case, rng, ctas=ctas)


def shared_tile(n: int, columns: int, dtype: str, tiles: int = 2) -> Any:
    """A program whose CTAs compute 64 rows of C in shared memory."""

    @T.prim_func
    def func(V: T.Buffer((columns,), dtype), C: T.Buffer((64 * tiles, n), dtype)):
        T.device_entry()
        i = T.cta_id([tiles])
        out = T.alloc_buffer((64, columns), dtype, scope="shared")
        for y, x in T.grid(64, columns):
            out[y, x] = V[x] + T.cast(i * 64 + y, dtype)
        Tx.cta.copy(C[i * 64 : i * 64 + 64, 0:columns], out)

    return func


@pytest.mark.parametrize(
    ("first", "counted", "words"), [(0, "rows", True), (1, "rows", False), (0, "columns", False)]
)
def test_neighbours_that_may_part_are_stored_one_by_one(first, counted, words, rng):
    by_rows = counted == "rows"

    @T.prim_func
    def program(V: T.Buffer((32,), "float16"), N: T.Buffer((1,), "int32"),
                C: T.Buffer((64, 34), "float16")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        out = T.alloc_buffer((64, 32), "float16", scope="fragment")
        acc = T.alloc_buffer((64, 32), "float32", scope="accumulator")
        A_s = T.alloc_buffer((64, 16), "float16", scope="shared")
        B_s = T.alloc_buffer((32, 16), "float16", scope="shared")
        count: T.int32 = N[0]
        for i, j in T.grid(64, 16):
            A_s[i, j] = T.cast(i + j, "float16")
        for i, j in T.grid(32, 16):
            B_s[i, j] = V[i]
        Tx.cta.gemm_async(acc, A_s, B_s)
        Tx.cta.cast(out, acc)
        if by_rows:
            Tx.cta.copy(C[0:count, first : first + 32], out[0:count, 0:32])
        else:
            Tx.cta.copy(C[0:64, first : first + count], out[0:64, 0:count])

    assert ("C_words" in lower(program).script()) == words
    sums = np.add.outer(np.arange(64), np.arange(16)).sum(1)

    def arguments(rng: np.random.Generator) -> list:
        values = rng.integers(-4, 5, 32).astype(np.float16)
        return [values, np.array([13], np.int32), np.full((64, 34), 77, np.float16)]

    def expected(args: list) -> dict[int, np.ndarray]:
        c = np.full((64, 34), 77.0)
        rows, columns = (13, 32) if by_rows else (64, 13)
        c[:rows, first : first + columns] = np.outer(sums, wide(args[0]))[:rows, :columns]
        return {2: c}

    check(Case(program, arguments, expected, 1e-3), rng)


@pytest.mark.parametrize("store_buffers", [1, 4])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_buffers_serve_tile_after_tile(store_buffers, dtype, rng):
    case = tile_programs.gemm(320, 416, 64, (64, 208, 32), out_dtype=dtype)
    check(case, rng, ctas=2, store_buffers=store_buffers)


def updates(columns: int, keys: int = 64, rows: int = 64) -> Case:
    """C += P K_s^T for each step, where P is A B^T."""
    steps = 3

    @T.prim_func
    def func(A: T.Buffer((keys, 16), "float16"), B: T.Buffer((rows, 16), "float16"),
             K: T.Buffer((steps * keys, columns), "float16"),
             C: T.Buffer((steps * rows, columns), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = wl.load(A[0:keys, 0:16])
        B_s = wl.load(B[0:rows, 0:16])
        P_s = T.alloc_shared((keys, rows), "float16")
        Tx.cta.copy(P_s, wl.cast(wl.gemm(A_s, B_s), "float16"))
        for s in wl.pipelined(steps, stages=2):
            K_s = wl.load(K, (s, 0), (keys, columns))
            acc = wl.gemm(P_s, K_s, transA=True, transB=True)
            Tx.cta.atomic_add(wl.tile(C, (s, 0), (rows, columns)), acc)

    def arguments(rng: np.random.Generator) -> list[Any]:
        shapes = [(keys, 16), (rows, 16), (steps * keys, columns)]
        made = [random_values(rng, shape, "float16") for shape in shapes]
        return [*made, random_values(rng, (steps * rows, columns), "float32")]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, b, k, c = map(wide, args)
        p = wide((a @ b.T).astype(np.float16)).T
        return {3: c + (p @ k.reshape(steps, keys, columns)).reshape(c.shape)}

    return Case(func, arguments, expected, 1e-3)


@pytest.mark.parametrize(
    ("case", "staging"),
    [
        (updates(128), [1, 4, 64, 32]),  # 32 KiB: all of its chunks
        (updates(160), [1, 2, 64, 32]),  # more: two of them
        (updates(128, keys=128), [2, 1, 64, 64]),  # a transpose: in one piece
    ],
)
def test_updates_in_loops_have_buffers_for_all_chunks(case, staging, rng):
    program = after_passes(case.func, *PASSES)
    found = [[int(e) for e in b.shape] for b in allocations(program.body) if b.name == "staging"]
    assert found == [staging]
    check(case, rng)


def test_a_hint_says_how_many_buffers_there_are_in_loops():
    program = after_passes(hinted(updates(128).func, store_buffers=1), *PASSES)
    (staging,) = (b for b in allocations(program.body) if b.name == "staging")
    assert int(staging.shape[1]) == 1


@pytest.mark.parametrize(
    ("value", "in_loop", "smaller"),
    [(None, True, 2), (None, False, 1), (2, True, 1), (1, True, None)],
)
def test_buffers_become_fewer_where_there_is_no_room(value, in_loop, smaller):
    case = updates(128) if in_loop else tile_programs.gemm(128, 128, 64, (128, 128, 64), stages=1)
    tried = read(hinted(case.func, store_buffers=value))
    # The author has chosen the stages of the loop, and the columns of chunks.
    author = read(hinted(case.func, store_columns=64))
    reason = NoSharedMemory("no room")
    found = smaller_choice(author, tried, tried, reason, reason)
    assert found == (None if smaller is None else {"store_buffers": smaller})

"""What results add of global memory: through their own buffers, or in words and early."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared import tile_programs
from tests.shared.lowered_programs import after_passes, check, hinted
from tests.shared.tile_programs.case import Case, poisoned, precision, random_values, wide
from warploom import language as wl
from warploom.lower.lowerings import lower
from warploom.lower.passes.canonicalize import canonicalize
from warploom.lower.passes.infer_layouts import infer_layouts
from warploom.lower.passes.resolve_scopes import resolve_scopes
from warploom.lower.passes.stage_stores import stage_stores
from warploom.lower.stores.staged_inputs import fetches
from warploom.lower.stores.store_chunks import store_chunks

PASSES = (canonicalize, infer_layouts, resolve_scopes, stage_stores)


def test_the_trace_says_what_comes_through_buffers():
    for func, said in (
        (tile_programs.epilogue("residual").func, True),
        (two_inputs(64, 128, "float16", "float16", (64, 64, 32)).func, False),
        (hinted(tile_programs.epilogue("residual").func, slice_k=2), False),
    ):
        sentences = after_passes(func, *PASSES).decisions
        assert ("E: comes through the buffers of chunks" in sentences) == said


def staged(kind: str, **sizes: int) -> str:
    """A program after its stores were staged, as text."""
    case = tile_programs.epilogue(kind, tile=(64, 128, 32), **sizes)
    return str(after_passes(case.func, *PASSES).to_func())


def test_a_residual_comes_through_the_buffers_of_results():
    text = staged("residual", m=64, n=128)
    product, copies = text.index("gemm_async"), [m.start() for m in re.finditer('"cg"', text)]
    assert len(copies) == 2 * 4  # two chunks of 64 rows of 8 times 16 bytes, 128 threads
    assert max(copies) < product < text.index("E_chunk")
    assert text.count('"ldstmatrix"') == 4


def test_epilogue_inputs_in_registers_are_prefetched_before_the_mmas():
    func = two_inputs(100, 136, "float16", "float16", (64, 128, 32)).func
    text = str(after_passes(func, *PASSES).to_func())
    assert text.index('"prefetch"') < text.index("gemm_async")
    assert '"prefetch"' not in staged("residual", m=100, n=136)


def two_inputs(m: int, n: int, dtype: str, other: str, tile: tuple[int, int, int]) -> Case:
    """C = A Bᵀ + E + F: buffers of a result hold one, so threads load both."""
    k, (bm, bn, bk) = 72, tile

    @T.prim_func
    def program(a: T.handle, b: T.handle, e: T.handle, f: T.handle, c: T.handle):
        A, B = T.match_buffer(a, (m, k), dtype), T.match_buffer(b, (n, k), dtype)
        E, F = T.match_buffer(e, (m, n), dtype), T.match_buffer(f, (m, n), other)
        C = T.match_buffer(c, (m, n), dtype)
        T.device_entry()
        bi, bj = T.cta_id([-(-m // bm), -(-n // bn)])
        A_s = T.alloc_buffer((bm, bk), dtype, scope="shared")
        B_s = T.alloc_buffer((bn, bk), dtype, scope="shared")
        acc = T.alloc_buffer((bm, bn), "float32", scope="accumulator")
        out = T.alloc_buffer((bm, bn), dtype, scope="fragment")
        for step in wl.pipelined(-(-k // bk)):
            Tx.cta.copy_async(A_s, A[bi * bm : bi * bm + bm, step * bk : step * bk + bk])
            Tx.cta.copy_async(B_s, B[bj * bn : bj * bn + bn, step * bk : step * bk + bk])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=step > 0)
        for i, j in T.grid(bm, bn):
            first: T.let = T.cast(E[bi * bm + i, bj * bn + j], "float32")
            second: T.let = T.cast(F[bi * bm + i, bj * bn + j], "float32")
            out[i, j] = T.cast(acc[i, j] + first + second, dtype)
        Tx.cta.copy(C[bi * bm : bi * bm + bm, bj * bn : bj * bn + bn], out)

    def arguments(rng: np.random.Generator) -> list:
        inputs = [((m, k), dtype), ((n, k), dtype), ((m, n), dtype), ((m, n), other)]
        return [*(random_values(rng, *one) for one in inputs), poisoned((m, n), dtype)]

    def expected(args: list) -> dict[int, np.ndarray]:
        a, b, e, f = map(wide, args[:4])
        return {4: a @ b.T + e + f}

    return Case(program, arguments, expected, precision(dtype))


def test_a_chunk_is_loaded_while_the_one_before_it_is_stored():
    func = two_inputs(64, 128, "float16", "float32", (64, 128, 32)).func
    text = str(after_passes(func, *PASSES).to_func())
    places = [one.start() for one in re.finditer(r"[EF]_chunk\w* = T.alloc_local", text)]
    stores = [one.start() for one in re.finditer(r"copy_async\(C\[", text)]
    assert len(places) == 2 * len(stores) == 4
    product = text.index("gemm_async")
    assert product < places[0] < places[1] < text.index("warploom.orchestrated", product)
    assert places[3] < stores[0]


@given(
    widths=st.lists(st.sampled_from([64, 32, 16]), min_size=1, max_size=6),
    blocks=st.integers(1, 3),
    buffers=st.integers(1, 4),
)
def test_every_chunk_comes_once_into_a_free_buffer(widths, blocks, buffers):
    parts = store_chunks([64] * blocks, widths, buffers)
    order = fetches(parts)
    issued, held, stores = [], {}, []
    for number in order.ahead:
        held[parts[number].width, parts[number].slot] = number
        issued.append(number)
    for number, one in enumerate(parts):
        assert held[one.width, one.slot] == number
        # Loads end in order: all up to this one have, if so many are left.
        assert issued[len(issued) - 1 - order.pending(number)] == number
        stores.append(number)
        for other, under_way in order.after.get(number, ()):
            place = parts[other].width, parts[other].slot
            assert held[place] in stores[: len(stores) - under_way]
            held[place] = other
            issued.append(other)
    assert sorted(issued) == list(range(len(parts)))


@pytest.mark.parametrize("kind", ["bias row", "bias column", "scale"])
def test_what_serves_many_elements_stays_in_the_arithmetic(kind):
    text = staged(kind)
    assert "E_chunk" not in text and "prefetch" not in text


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_two_elements_are_one_load(dtype):
    text = str(lower(two_inputs(100, 136, dtype, dtype, (64, 64, 32)).func))
    assert re.search(r"E_chunk\w* = .*E_words\[|E_chunk\w*\[.*\] = .*E_words\[", text)
    assert not re.search(r"[^\w]E\[", text.replace("address_of(E[", ""))


@pytest.mark.in_turn(3)
@settings(max_examples=12, deadline=None)
@given(
    m=st.integers(2, 200),
    n=st.integers(1, 40).map(lambda n: 4 * n),
    tile=st.sampled_from([(64, 64, 32), (64, 96, 32), (128, 48, 32)]),
    dtype=st.sampled_from(["float16", "bfloat16"]),
    hints=st.sampled_from([{}, {"ping_pong": True}, {"store_buffers": 1}, {"store_buffers": 4}]),
    seed=st.integers(0, 2**16),
)
@example(m=129, n=152, tile=(128, 96, 32), dtype="float16", hints={"ping_pong": True}, seed=1)
@example(m=64, n=64, tile=(64, 64, 32), dtype="bfloat16", hints={}, seed=2)
@example(m=200, n=144, tile=(64, 112, 32), dtype="float16", hints={"store_buffers": 1}, seed=3)
def test_residuals_are_added_at_every_edge(m, n, tile, dtype, hints, seed):
    case = tile_programs.epilogue("residual", m, n, 72, tile, dtype)
    check(case, np.random.default_rng(seed), **hints)


@pytest.mark.parametrize("other", ["float16", "float32"])
@pytest.mark.parametrize(("m", "n"), [(64, 128), (130, 136), (3, 24)])
@pytest.mark.some(3)
def test_two_inputs_are_added(m, n, other, rng):
    check(two_inputs(m, n, "float16", other, (64, 64, 32)), rng)

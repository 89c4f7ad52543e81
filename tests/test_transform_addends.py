"""What results read of global memory: in words, before their arithmetic, and asked for ahead."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tile_programs
from lowered_programs import after_passes, check
from warploom.transform.canonicalize import canonicalize
from warploom.transform.infer_layouts import infer_layouts
from warploom.transform.lower import lower
from warploom.transform.resolve_scopes import resolve_scopes
from warploom.transform.stage_stores import stage_stores


def staged(kind: str, **sizes: int) -> str:
    """A program after its stores were staged, as text."""
    case = tile_programs.epilogue(kind, tile=(64, 128, 32), **sizes)
    passes = (canonicalize, infer_layouts, resolve_scopes, stage_stores)
    return str(after_passes(case.func, *passes).to_func())


def test_a_piece_is_loaded_while_the_one_before_it_is_stored():
    text = staged("residual", m=64, n=128)
    places = [one.start() for one in re.finditer(r"E_piece\w* = T.alloc_local", text)]
    stores = [one.start() for one in re.finditer(r"copy_async\(C\[", text)]
    assert len(places) == len(stores) == 2
    assert places[0] < text.index("warploom.orchestrated", text.index("gemm_async"))
    assert places[1] < stores[0]


def test_rows_are_asked_for_before_the_products():
    text = staged("residual", m=100, n=136)
    assert text.index('"prefetch"') < text.index("gemm_async")


@pytest.mark.parametrize("kind", ["bias row", "bias column", "scale"])
def test_what_serves_many_elements_stays_in_the_arithmetic(kind):
    text = staged(kind)
    assert "E_piece" not in text and "prefetch" not in text


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_two_elements_are_one_load(dtype):
    text = str(lower(tile_programs.epilogue("residual", dtype=dtype).func))
    assert re.search(r"E_piece\w* = .*E_words\[|E_piece\w*\[.*\] = .*E_words\[", text)
    assert not re.search(r"[^\w]E\[", text.replace("address_of(E[", ""))


@settings(max_examples=12, deadline=None)
@given(
    m=st.integers(2, 200),
    n=st.integers(1, 40).map(lambda n: 4 * n),
    tile=st.sampled_from([(64, 64, 32), (64, 96, 32), (128, 48, 32)]),
    dtype=st.sampled_from(["float16", "bfloat16"]),
    ping_pong=st.booleans(),
    seed=st.integers(0, 2**16),
)
@example(m=129, n=152, tile=(128, 96, 32), dtype="float16", ping_pong=True, seed=1)
@example(m=64, n=64, tile=(64, 64, 32), dtype="bfloat16", ping_pong=False, seed=2)
def test_residuals_are_added_at_every_edge(m, n, tile, dtype, ping_pong, seed):
    case = tile_programs.epilogue("residual", m, n, 72, tile, dtype)
    check(case, np.random.default_rng(seed), ping_pong=ping_pong)

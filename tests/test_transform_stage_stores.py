"""Which stores go through shared memory by TMA, and which straight from registers."""

from __future__ import annotations

from typing import Any

import pytest

import tile_programs
from lowered_programs import after_passes, check
from warploom.transform.canonicalize import canonicalize
from warploom.transform.infer_layouts import infer_layouts
from warploom.transform.program import allocations
from warploom.transform.resolve_scopes import resolve_scopes
from warploom.transform.stage_stores import stage_stores

PASSES = (canonicalize, infer_layouts, resolve_scopes, stage_stores)


def decisions(func: Any) -> tuple[str, ...]:
    before = after_passes(func, *PASSES[:-1])
    return stage_stores(before).decisions[len(before.decisions) :]


@pytest.mark.parametrize(
    ("n", "tile", "dtype", "expected"),
    [
        (256, 128, "float16", "by TMA, in pieces of 64 x 64 elements"),
        (256, 32, "bfloat16", "by TMA, in pieces of 64 x 32 elements"),
        (96, 48, "float16", "by TMA, in pieces of 64 x 16 elements"),
        (48, 24, "float16", "by TMA, in pieces of 64 x 8 elements"),
        # 8 and 32 bits have no stmatrix, 50 elements are no multiple of 16 bytes.
        (256, 128, "float32", "straight from registers"),
        (256, 128, "float8_e4m3fn", "straight from registers"),
        (50, 64, "float16", "straight from registers"),
    ],
)
def test_tma_stores_what_it_can(n, tile, dtype, expected):
    case = tile_programs.gemm(128, n, 64, (128, tile, 64), out_dtype=dtype)
    assert decisions(case.func) == (f"store into C: {expected}",)


@pytest.mark.parametrize("columns", [16, 64, 128])
def test_pieces_go_through_two_buffers_where_their_number_is_even(columns):
    case = tile_programs.gemm(128, 128, 64, (128, columns, 64), out_dtype="float16")
    program = after_passes(case.func, *PASSES)
    staging = next(b for b in allocations(program.body) if b.name == "staging")
    width = min(columns, 64)
    pieces = columns // width
    assert [int(e) for e in staging.shape] == [2, 2 if pieces % 2 == 0 else 1, 64, width]


@pytest.mark.parametrize("columns", [8, 40, 64, 96, 128])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_stored_tiles_are_right(columns, dtype, rng):
    case = tile_programs.gemm(200, 2 * columns - 8, 64, (128, columns, 32), out_dtype=dtype)
    check(case, rng)

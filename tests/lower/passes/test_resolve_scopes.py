"""Tiles become registers of warpgroups, which share them by rows."""

from __future__ import annotations

from typing import Any

import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared import tile_programs
from tests.shared.lowered_programs import after_passes
from warploom.errors import Decline
from warploom.lower.passes.canonicalize import canonicalize
from warploom.lower.passes.infer_layouts import infer_layouts
from warploom.lower.passes.resolve_scopes import resolve_scopes
from warploom.lower.passes.squeeze_vectors import squeeze_vectors
from warploom.tile.program import allocations

PASSES = (canonicalize, squeeze_vectors, infer_layouts, resolve_scopes)


@pytest.mark.parametrize(("rows", "warpgroups"), [(64, 1), (128, 2), (192, 3)])
def test_a_warpgroup_has_its_rows_of_every_tile(rows, warpgroups):
    program = after_passes(tile_programs.gemm(rows, 64, 64, (rows, 64, 64)).func, *PASSES)
    (count,) = program.id("warpgroup").extents
    tiles = {tile.name: tile for tile in allocations(program.body)}
    assert count == warpgroups
    assert tiles["acc"].scope() == "local"
    assert [int(e) for e in tiles["acc"].shape] == [rows // warpgroups, 64]
    # What is loaded belongs to nobody yet.
    assert [int(e) for e in tiles["A_s"].shape] == [rows, 64]
    script = program.to_func().script()
    assert "T.wg.gemm_async(acc[0:64, 0:64]" in script and "T.cta.copy_async(A_s[0:" in script


def test_vectors_along_columns_are_whole():
    program = after_passes(tile_programs.attention(200, tile=(128, 64)).func, *PASSES)
    shapes = {t.name: [int(e) for e in t.shape] for t in allocations(program.body)}
    assert shapes["S"] == [64, 64] and shapes["largest"] == [64]


def faulty(fault: str) -> Any:
    """A program that takes rows of a tile as no warpgroup has them."""

    @T.prim_func
    def program(A: T.Buffer((128, 64), "float16"), C: T.Buffer((128, 64), "float32")):
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((128, 64), "float16", scope="shared")
        acc = T.alloc_buffer((128, 128), "float32", scope="accumulator")
        out = T.alloc_buffer((128, 64), "float32", scope="fragment")
        Tx.cta.copy_async(A_s, A[0:128, 0:64])
        Tx.cta.gemm_async(acc, A_s, A_s)
        if fault == "index":
            for i, j in T.grid(64, 64):
                out[i + 64, j] = acc[i + 64, j]
        else:
            Tx.cta.zero(out)
        if fault == "rows":
            total = T.alloc_buffer((128,), "float32", scope="fragment")
            Tx.cta.sum(total[0:64], out[0:64, 0:64], axes=[-1])
        Tx.cta.copy(C[0:128, 0:64], out)

    return program


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("rows", "sum takes rows 0 to 64 of total; warpgroups share a tile by rows, so take all"),
        ("index", "A nest indexes the rows of (acc|out) by an expression; use a loop variable"),
    ],
)
def test_declines(fault, message):
    with pytest.raises(Decline, match=message):
        after_passes(faulty(fault), *PASSES)


def test_a_nest_without_tiles_in_registers_is_shared_out_too():
    @T.prim_func
    def program(C: T.Buffer((10, 64), "float16")):
        T.device_entry()
        T.cta_id([1])
        tile = T.alloc_buffer((10, 64), "float16", scope="shared")
        acc = T.alloc_buffer((192, 8), "float32", scope="fragment")
        Tx.cta.zero(acc)
        for i, j in T.grid(10, 64):
            tile[i, j] = T.float16(0)
        Tx.cta.copy(C[0:10, 0:64], tile)

    with pytest.raises(Decline, match="The nest over i has 10 iterations, which 3 warpgroups"):
        after_passes(program, *PASSES)

"""The table of effects: what statements read and write."""

from __future__ import annotations

import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import Decline
from warploom.tile.effects import accumulates, effects, known
from warploom.tile.read import read
from warploom.tile.statement import Nest, view


@T.prim_func
def program(A: T.Buffer((64, 64), "float16"), C: T.Buffer((64, 64), "float32")):
    T.device_entry()
    T.cta_id([1])
    A_s = T.alloc_buffer((64, 64), "float16", scope="shared")
    acc = T.alloc_buffer((64, 64), "float32", scope="accumulator")
    row = T.alloc_buffer((64,), "float32", scope="fragment")
    Tx.cta.copy_async(A_s, A[0:64, 0:64])
    Tx.cta.gemm_async(acc, A_s, A_s)
    Tx.cta.gemm_async(acc, A_s, A_s, accum=True)
    Tx.cta.sum(row, acc, axes=(1,))
    Tx.cta.max(row, acc, axes=(1,), accum=True)
    for i, j in T.grid(64, 64):
        acc[i, j] = acc[i, j] * row[i]
    if C[0, 0] > T.float32(0):
        Tx.cta.copy(C[0:64, 0:64], acc)
    Tx.cta.sqrt(acc, acc)


EXPECTED = [
    ({"A"}, {"A_s"}),
    ({"A_s"}, {"acc"}),
    ({"A_s", "acc"}, {"acc"}),
    ({"acc"}, {"row"}),
    ({"acc", "row"}, {"row"}),
    ({"acc", "row"}, {"acc"}),
    ({"acc", "C"}, {"C"}),
]
STATEMENTS = [one for one in read(program).body if not hasattr(one, "buffer")]


@pytest.mark.parametrize(("number", "expected"), list(enumerate(EXPECTED)))
def test_reads_and_writes(number, expected):
    found = effects(STATEMENTS[number])
    reads, writes = ({b.name for b in part} for part in (found.reads, found.writes))
    assert (reads, writes) == expected
    if isinstance(STATEMENTS[number], TilePrimitiveCall):
        assert known(STATEMENTS[number])


def test_accumulation():
    assert [accumulates(STATEMENTS[n]) for n in range(1, 5)] == [False, True, False, True]
    assert isinstance(view(STATEMENTS[5]), Nest) and not isinstance(view(STATEMENTS[0]), Nest)


def test_an_unknown_primitive_is_named():
    with pytest.raises(Decline, match="No pass knows the primitive sqrt; a tile program has"):
        effects(STATEMENTS[7])

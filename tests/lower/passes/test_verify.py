"""Nothing of the dialect survives lowering, and the verifier would notice."""

from __future__ import annotations

from functools import partial

import pytest
import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.tile_primitive import TilePrimitiveCall

from tests.shared import tile_programs
from tests.shared.lowered_programs import hinted
from warploom import language as wl
from warploom.errors import Decline
from warploom.lower.lowerings import lower
from warploom.lower.passes.strip_annotations import strip_annotations
from warploom.lower.passes.verify import verify
from warploom.ops.dispatch import LOWERED
from warploom.tile.hints import Hints
from warploom.tile.read import read
from warploom.tile.scopes import DIALECT_SCOPES

PROGRAMS = {
    "gemm": tile_programs.gemm,
    "cluster": lambda: tile_programs.gemm(256, 256, 64, (128, 128, 64), out_dtype="float16"),
    "two outputs": tile_programs.two_outputs,
    "row sums": tile_programs.row_sums,
    "dequantised": partial(tile_programs.dequantised, 4, tile=(64, 64, 64)),
    "grouped": tile_programs.grouped,
    "attention": tile_programs.attention,
}


@pytest.mark.parametrize("specialise", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_of_the_dialect_survives(name, specialise):
    cluster = (2, 1) if name == "cluster" else None
    func = lower(hinted(PROGRAMS[name]().func, specialise=specialise, cluster=cluster))
    # A search of the text finds what a walk over known nodes may miss.
    script = func.without_attr(LOWERED).script()
    for word in ("warploom.", "T.cta.", *(f'scope="{scope}"' for scope in DIALECT_SCOPES)):
        assert word not in script
    calls, buffers = [], []
    tvm_ffi.structural_walk(
        func.body,
        [(TilePrimitiveCall, calls.append), (tirx.Var, lambda v: buffers.append(v))],
    )
    assert calls and all(call.scope.name != "cta" for call in calls)
    scopes = {b.scope() for b in buffers if tirx.is_buffer_var(b)}
    assert scopes <= {"", "global", "local", "shared", "shared.dyn"}


def annotated():
    @T.prim_func
    def program(A: T.Buffer((64, 64), "float16"), C: T.Buffer((64, 64), "float16")):
        T.device_entry()
        wl.hints(persistent=False)
        T.cta_id([1])
        for k in wl.pipelined(2, stages=2):
            with T.attr({"warploom.orchestrated": 1}):
                C[0, k] = A[0, k]

    return read(program)


def test_the_verifier_names_a_hint():
    with pytest.raises(Decline, match=r"The hint warploom\.persistent is left"):
        verify(annotated())


def test_the_verifier_names_an_annotation():
    program = annotated().replace(hints=Hints())
    with pytest.raises(Decline, match=r"The annotation warploom\.\w+ is left after the last pass"):
        verify(program)


def test_stripping_leaves_the_rest():
    program = strip_annotations(annotated())
    assert verify(program) is program
    script = program.to_func().without_attr(LOWERED).script()
    assert "warploom" not in script and "for k in range(2)" in script.replace("T.serial", "range")


@pytest.mark.parametrize("scope", DIALECT_SCOPES)
def test_the_verifier_names_a_scope(scope):
    @T.prim_func
    def program(C: T.Buffer((64, 64), "uint64")):
        T.device_entry()
        T.cta_id([1])
        tile = T.alloc_buffer((64, 64), "uint64", scope=scope)
        C[0, 0] = tile[0, 0]

    with pytest.raises(Decline, match=f"The tile tile still has the scope {scope}"):
        verify(read(program))


def test_the_verifier_names_a_primitive_of_a_cta():
    @T.prim_func
    def program(C: T.Buffer((64, 64), "float16")):
        T.device_entry()
        T.cta_id([1])
        tile = T.alloc_buffer((64, 64), "float16", scope="shared")
        Tx.cta.fill(tile, T.float16(0))
        Tx.cta.copy(C[0:64, 0:64], tile)

    with pytest.raises(Decline, match="The primitive fill into tile is still that of a CTA"):
        verify(read(program))

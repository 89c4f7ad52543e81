"""What passes tell each other is gone in the end; all else stays as it was."""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T

from warploom import language as wl
from warploom.lower.passes.strip_annotations import strip_annotations
from warploom.tile.hints import PREFIX, Hints
from warploom.tile.read import read


def annotated():
    @T.prim_func
    def program(C: T.Buffer((64, 64), "float16")):
        T.device_entry()
        wl.hints(cluster=(2, 1), stages=3)
        T.attr({"tirx.launch_bounds_min_blocks_per_sm": 1})
        T.cta_id([1])
        with wl.loading():
            for k in T.serial(2, 6, step=2, annotations={"warploom.pipelined": 1, "other": 7}):
                with T.attr({"warploom.orchestrated": 1}):
                    C[0, k] = T.float16(1)
                    C[1, k] = T.float16(2)
        for k in T.unroll(3):
            C[2, k] = T.float16(0)

    return read(program)


def keys(program) -> set[str]:
    """All keys of attributes and annotations."""
    found: set[str] = set()
    callbacks = [
        (tirx.AttrStmt, lambda one: found.add(one.attr_key)),
        (tirx.For, lambda one: found.update(one.annotations)),
    ]
    for statement in program.body:
        tvm_ffi.structural_walk(statement, callbacks)
    return found


def loops(program) -> list[tirx.For]:
    found: list[tirx.For] = []
    for statement in program.body:
        tvm_ffi.structural_walk(statement, (tirx.For, found.append), order="pre")
    return found


def test_only_what_is_of_the_dialect_goes():
    before = annotated()
    own = {key for key in keys(before) if key.startswith(PREFIX)}
    assert own == {"warploom.loading", "warploom.pipelined", "warploom.orchestrated"}
    after = strip_annotations(before)
    assert keys(after) == keys(before) - own == {"other"}
    assert after.hints == Hints() and after.attrs == before.attrs != ()
    # The pass is a function: its argument is as it was.
    assert keys(before) > own and before.hints.stages == 3


def test_loops_keep_their_ranges_and_kinds():
    for old, new in zip(loops(annotated()), loops(strip_annotations(annotated())), strict=True):
        assert new.kind == old.kind
        for name in ("min", "extent", "step"):
            assert tvm_ffi.structural_equal(getattr(new, name), getattr(old, name))


def test_what_attributes_contained_stands_in_their_place():
    body = strip_annotations(annotated()).body
    assert all(isinstance(one, tirx.For) for one in body) and len(body) == 2
    assert len(body[0].body.seq) == 2


def test_a_plain_program_stays():
    program = strip_annotations(annotated())
    again = strip_annotations(program)
    assert len(again.body) == len(program.body)
    assert all(a.same_as(b) for a, b in zip(again.body, program.body, strict=True))

"""wl.pipelined and wl.hints: what they emit, what they refuse."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable

import pytest
import tvm
import tvm_ffi
from hypothesis import given
from hypothesis import settings as limit
from hypothesis import strategies as st
from tvm.script import tirx as T
from tvm.tirx.stmt import For

from warploom import language as wl
from warploom.errors import IllegalCombination
from warploom.tile.choices import RASTERS


def kernel(entry: Callable[[], object], stages: int | None = None):
    """A device function with hints, or none, and one pipelined loop."""

    @T.prim_func
    def func(a: T.handle):
        A = T.match_buffer(a, (8,), "int32")
        T.device_entry()
        entry()
        T.cta_id([1])
        x: T.int32 = 0
        for k in wl.pipelined(8, stages):
            x = x + A[k]

    return func


def only_loop(func) -> For:
    statement, found = [func.body], []
    while statement:
        each = statement.pop()
        found += [each] if isinstance(each, For) else []
        statement += [*getattr(each, "seq", []), getattr(each, "body", None)]
        statement = [s for s in statement if s is not None]
    (loop,) = found
    return loop


settings = st.fixed_dictionaries(
    {},
    optional={
        "cluster": st.sampled_from([(1, 1), (2, 1), (1, 2), (4, 2)]),
        "persistent": st.booleans(),
        "raster": st.sampled_from(RASTERS),
        "consumers": st.integers(1, 3),
        "registers": st.tuples(*[st.none() | st.integers(3, 32).map(lambda r: 8 * r)] * 2).filter(
            any
        ),
        "stages": st.integers(1, 12),
        "ctas_per_sm": st.integers(1, 32),
        "slice_k": st.integers(1, 3),
    },
).filter(bool)


@limit(max_examples=40)
@given(settings, st.integers(1, 16))
def test_hints_come_back_and_survive_printing(wanted, group):
    if wanted.get("raster") == "grouped":
        wanted["group"] = group
    func = kernel(lambda: wl.hints(**wanted))
    assert wl.read_hints(func) == wl.Hints(**wanted)
    parsed = tvm.script.from_source(func.script())
    assert tvm_ffi.structural_equal(parsed, func) and wl.read_hints(parsed) == wl.Hints(**wanted)


def test_a_program_without_hints_has_none():
    assert wl.read_hints(kernel(lambda: None)) == wl.Hints()


def test_attributes_of_others_are_no_hints():
    func = kernel(lambda: T.attr({"tirx.launch_bounds_min_blocks_per_sm": 1, "warploom.stages": 3}))
    assert wl.read_hints(func) == wl.Hints(stages=3)


def test_an_unknown_hint_is_named():
    func = kernel(lambda: T.attr({"warploom.speed": 11}))
    with pytest.raises(IllegalCombination, match=r"'warploom\.speed' is no hint"):
        wl.read_hints(func)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "at least one of stages, consumers"),
        ({"cluster": (3, 4)}, r"cluster \(3, 4\) has 12 CTAs; at most 8"),
        ({"cluster": (2, 1, 1)}, "must be a pair"),
        ({"cluster": 2}, "must be a pair"),
        ({"cluster": (0, 1)}, "cluster_m is 0; it must be an integer of at least 1"),
        ({"persistent": 1}, "persistent is 1; it must be a bool"),
        ({"raster": "hilbert"}, "'hilbert'; it must be one of 'rows'"),
        ({"group": 4}, "group 4 with raster None: groups are those of the raster 'grouped'"),
        ({"consumers": 4}, "consumers is 4; it must be at most 3, as a CTA has room"),
        ({"slice_k": 4}, "slice_k is 4; it must be at most 3, as a CTA has room"),
        ({"slice_k": 0}, "slice_k is 0; it must be an integer of at least 1"),
        ({"registers": (40, 260)}, "consumer_registers is 260; it must be at most 256"),
        ({"registers": (44, 232)}, "producer_registers is 44; it must be a multiple of 8"),
        ({"registers": (None, None)}, r"\(None, None\); its elements must be integers"),
        ({"registers": (None, 40), "set_registers": False}, "all warps keep those they start with"),
        ({"set_registers": 1}, "set_registers is 1; it must be a bool"),
        ({"stages": 2.0}, "stages is 2.0; it must be an integer"),
        ({"stages": True}, "stages is True"),
        ({"store_columns": 0}, "store_columns"),
        ({"store_buffers": 0}, "store_buffers"),
        ({"reduce_through": "mail"}, "reduce_through is 'mail'; it must be one of 'workspace'"),
        ({"reduce_through": "cluster"}, "split_k None: the CTAs of a tile are a cluster"),
        ({"reduce_through": "cluster", "split_k": 3}, "a power of two up to 8"),
        ({"reduce_through": "cluster", "split_k": 2, "cluster": (2, 1)}, "a cluster already"),
        ({"ctas_per_sm": 0}, "ctas_per_sm is 0; it must be an integer of at least 1"),
    ],
)
def test_illegal_hints(arguments, message):
    with pytest.raises(IllegalCombination, match=message):
        wl.hints(**arguments)


def test_a_hint_that_does_not_exist():
    with pytest.raises(TypeError, match="unexpected keyword argument 'speed'"):
        wl.hints(speed=11)


def test_the_table_documents_every_hint():
    parameters = inspect.signature(wl.hints).parameters
    assert [*parameters] == [field.name for field in dataclasses.fields(wl.Hints)]
    for name in parameters:
        assert f"    {name} : " in wl.hints.__doc__ and f"    {name} : " in wl.Hints.__doc__


@pytest.mark.parametrize("stages", [None, 1, 4])
def test_a_pipelined_loop_is_a_serial_one_with_annotations(stages):
    func = kernel(lambda: None, stages)
    loop = only_loop(func)
    expected = {"warploom.pipelined": 1} | ({} if stages is None else {"warploom.stages": stages})
    assert {str(k): int(v) for k, v in loop.annotations.items()} == expected
    assert loop.kind == tvm.tirx.ForKind.SERIAL and int(loop.extent) == 8
    assert tvm_ffi.structural_equal(tvm.script.from_source(func.script()), func)


@pytest.mark.parametrize("stages", [0, -1, 1.5, True, "4"])
def test_illegal_stages(stages):
    with pytest.raises(IllegalCombination, match=r"^stages is .+ an integer of at least 1"):
        wl.pipelined(4, stages)

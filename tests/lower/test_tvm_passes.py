"""Passes as TVM has them: alone, in a Sequential, under instruments, with options, with others."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.ir.instrument import pass_instrument
from tvm.script import tirx as T
from tvm.tirx.transform import prim_func_pass

import warploom
from tests.shared import tile_programs
from tests.shared.lowered_programs import hinted
from warploom import language as wl
from warploom.errors import IllegalCombination, TileProgramError, WarploomError
from warploom.lower import tvm_passes as passes
from warploom.lower.lowerings import LOWERINGS, WARP_SPECIALISED, lower
from warploom.lower.options import ADDED, OPTIONS
from warploom.lower.trace import LoweringTrace
from warploom.lower.tvm_passes import tile_pass
from warploom.target import cuda_target
from warploom.tile.hints import Hints
from warploom.tile.read import read
from warploom.tile.state import STATE

FUNC = tile_programs.gemm(130, 136, 160, (64, 64, 32), out_dtype="float16", stages=2).func


@T.prim_func
def other(A: T.Buffer((32,), "float32")):
    T.device_entry()
    T.cta_id([1])
    thread = T.thread_id([32])
    A[thread] = 1.0


def names_of(lowering: str) -> list[str]:
    return [factory.__name__ for factory in LOWERINGS[lowering]]


def test_every_pass_has_a_public_name_and_is_documented():
    for name in passes.__all__:
        assert getattr(warploom.transform, name) is getattr(passes, name)
        assert getattr(passes, name).__doc__
    assert set(passes.__all__) <= set(dir(warploom.transform))
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        warploom.transform.Nothing  # noqa: B018


def test_a_sequential_of_the_passes_is_the_lowering():
    """Functions of other kinds stay as they are."""
    factories = [lambda: warploom.transform.CheckProgram("sm_90a"), *LOWERINGS[WARP_SPECIALISED]]
    mod = tvm.IRModule({"main": FUNC, "other": other})
    lowered = tvm.transform.Sequential([make() for make in factories])(mod)
    tvm.ir.assert_structural_equal(lowered["main"], lower(FUNC, "sm_90a"), map_free_vars=True)
    assert lowered["other"].same_as(other)


def test_a_pass_works_alone():
    mod = tvm.IRModule({"main": FUNC})
    after = warploom.transform.Canonicalize()(mod)["main"]
    assert read(after).passes and not read(FUNC).passes
    assert read(after).arch == "sm_90a"


def test_instruments_see_every_pass():
    seen = []

    @pass_instrument
    class Names:
        def run_before_pass(self, mod, info):
            seen.append(info.name)

    with tvm.transform.PassContext(instruments=[Names()]):
        lower(FUNC, "sm_90a")
    expected = [f"warploom.{name}" for name in ("CheckProgram", *names_of(WARP_SPECIALISED))]
    assert seen == expected


def test_a_trace_of_a_whole_compilation():
    trace = LoweringTrace()
    with tvm.transform.PassContext(instruments=[trace]):
        tvm.compile(tvm.IRModule({"main": FUNC}), cuda_target("h200"), tir_pipeline="warploom")
    assert [step.name for step in trace.steps] == ["CheckProgram", *names_of(WARP_SPECIALISED)]
    again = warploom.lower_trace(FUNC, "sm_90a")
    for step, other_step in zip(trace.steps, again, strict=True):
        assert step.decisions == other_step.decisions


def test_a_pass_of_the_user_stands_between_two_of_ours():
    seen = []

    @prim_func_pass(opt_level=0, name="Look")
    def look(func, _mod, _context):
        seen.append("tile: T.int32" in func.script())
        return func

    note = tile_pass("Note", lambda program: program.decided("a note: é\n\"quoted\""))
    config = {ADDED: [("ChooseGrid", look), ("ChooseGrid", note), ("CheckProgram", look)]}
    with tvm.transform.PassContext(config=config):
        trace = warploom.lower_trace(FUNC, "sm_90a")
    assert seen == [False, True]
    (noted,) = (step for step in trace if step.name == "Note")
    assert noted.decisions == ('a note: é\n"quoted"',)
    parsed = tvm.script.from_source(noted.func.script())
    assert tvm_ffi.structural_equal(parsed, noted.func, map_free_vars=True)


def test_hints_are_options():
    assert {f"warploom.{name}" for name in Hints.__dataclass_fields__} | {ADDED} == set(OPTIONS)
    assert set(OPTIONS) <= set(tvm.transform.PassContext.list_configs())
    plain = tile_programs.gemm(256, 128, 192, (64, 64, 32)).func
    config = {"warploom.stages": 3, "warploom.cluster": (2, 1), "warploom.raster": "rows"}
    with tvm.transform.PassContext(config=config):
        by_options = lower(plain, "sm_90a")
    by_hints = lower(hinted(plain, stages=3, cluster=(2, 1), raster="rows"), "sm_90a")
    tvm.ir.assert_structural_equal(by_options, by_hints, map_free_vars=True)


def test_the_author_knows_better_than_an_option():
    by_author = hinted(FUNC, cluster=(1, 2))
    with tvm.transform.PassContext(config={"warploom.cluster": (2, 1)}):
        lowered = lower(by_author, "sm_90a")
    tvm.ir.assert_structural_equal(lowered, lower(by_author, "sm_90a"), map_free_vars=True)


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"warploom.stages": 0}, IllegalCombination, "stages is 0"),
        ({"warploom.raster": "spiral"}, IllegalCombination, "raster is 'spiral'"),
        ({"warploom.cluster": (4, 8)}, IllegalCombination, "has 32 CTAs"),
        ({"warploom.cluster": 2}, IllegalCombination, "must be a pair"),
        ({"warploom.stage": 2}, AttributeError, "Invalid config option 'warploom.stage'"),
        ({ADDED: [("ChooseGrid",)]}, WarploomError, "a list of pairs"),
        ({ADDED: 3}, WarploomError, "a list of pairs"),
    ],
)
def test_options_are_checked(config, error, message):
    with pytest.raises(error, match=message), tvm.transform.PassContext(config=config):
        pass


def test_options_are_part_of_what_is_kept_of_a_compilation(rng):
    """The same program with another option is another kernel."""
    mod, sources = tvm.IRModule({"main": tile_programs.gemm(64, 64, 256, (64, 64, 32)).func}), []
    for stages in (2, 3, 2):
        with tvm.transform.PassContext(config={"warploom.stages": stages}):
            built = tvm.compile(mod, cuda_target("h200"), tir_pipeline="warploom")
        sources.append(built.mod.imports[0].inspect_source())
    assert sources[0] == sources[2] != sources[1]


def test_errors_of_passes_keep_their_class_and_place():
    @T.prim_func
    def wrong(C: T.Buffer((64, 64), "float32")):
        T.device_entry()
        wl.hints(stages=2)
        T.cta_id([1])
        acc = T.alloc_buffer((64, 64), "float32", scope="acumulator")
        for y, x in T.grid(64, 64):
            C[y, x] = acc[y, x]

    with pytest.raises(TileProgramError, match="did you mean 'accumulator'") as error:
        warploom.transform.CheckProgram()(tvm.IRModule({"main": wrong}))
    assert f" --> {__file__}:" in str(error.value)


def test_an_assumption_is_checked_by_the_definition_and_costs_nothing():
    def program(limit: int):
        @T.prim_func
        def half(A: T.Buffer((64, 64), "float32"), C: T.Buffer((64, 64), "float32")):
            T.device_entry()
            i = T.cta_id([2])
            T.assume(i < limit)
            out = T.alloc_buffer((32, 64), "float32", scope="fragment")
            for y, x in T.grid(32, 64):
                out[y, x] = A[i * 32 + y, x] * T.float32(0.5)
            for y, x in T.grid(32, 64):
                C[i * 32 + y, x] = out[y, x]

        return half

    a = np.random.default_rng(1).standard_normal((64, 64)).astype("float32")
    c = np.full_like(a, np.nan)
    wl.interpret(program(2), [a, c])
    np.testing.assert_array_equal(c, a * np.float32(0.5))
    with pytest.raises(TileProgramError, match="the program assumes 'i < 1', which does not hold"):
        wl.interpret(program(1), [a, c])


def test_the_state_is_in_the_function_until_the_last_pass():
    trace = warploom.lower_trace(FUNC, "sm_90a")
    assert all(STATE in step.func.attrs for step in trace[:-2])
    assert STATE not in trace[-1].func.attrs

"""What is slower than a program asks for is one Python warning, with the reason and the fix."""

from __future__ import annotations

import dataclasses
import warnings

import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared import compiler_kernels, tile_programs
from tests.shared.compiler_kernels import SOURCES, TARGET
from tests.shared.control_programs import CONTROL
from tests.shared.lowered_programs import hinted
from warploom import language as wl
from warploom import lower_trace
from warploom.compiler.callback import cuda_compile
from warploom.compiler.warn_of_code import warn_of_code
from warploom.errors import (
    Decline,
    IllegalCombination,
    LoweringWarning,
    MachineCodeWarning,
    WarploomWarning,
)
from warploom.lower.lowerings import lower
from warploom.programs import gemm_grouped_block_scaled
from warploom.warn import deferred, remember_author, silenced

CASE = tile_programs.gemm(256, 256, 256, (128, 64, 64), out_dtype="float16", stages=2)


def warned(func, arch="sm_90a"):
    """Texts of the warnings of a lowering."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lower(func, arch)
    # Python warns of what earlier tests left open whenever it comes to collect it.
    ours = [one for one in caught if issubclass(one.category, WarploomWarning)]
    assert all(one.category is LoweringWarning for one in ours)
    return [str(one.message) for one in ours]


def test_a_program_that_is_followed_has_no_warning():
    for arch in ("sm_90a", "sm_100a"):
        assert warned(CASE.func, arch) == []
        assert warned(hinted(CASE.func, cluster=(2, 1), raster="rows", ctas=8), arch) == []
    assert warned(hinted(CASE.func, specialise=False)) == []


def test_a_fall_back_says_why_and_what_to_write():
    (text,) = warned(hinted(CASE.func, registers=(64, 240)))[:1]
    assert text.startswith("matmul is lowered by multistage, for warp specialisation declines: Reg")
    assert "would wait for ever" in text and "wl.hints(specialise=False)" in text


#: Hints, the architecture, and the warnings in order.
IGNORED = (
    ({"registers": (64, 240)}, "sm_90a", ["lowered by multistage", "The hint registers"]),
    ({"specialise": False, "registers": (40, 200)}, "sm_90a", ["The hint registers is not"]),
    ({"specialise": False, "order_mmas": True}, "sm_90a", ["The hint order_mmas is not"]),
    ({"specialise": False, "slice_k": 2, "consumers": 1}, "sm_90a", ["The hint slice_k is not"]),
    ({"specialise": False}, "sm_100a", ["The hint specialise is not followed: the tensor core"]),
    ({"ping_pong": True}, "sm_100a", ["The hint ping_pong is not followed: only warps of Hopper"]),
    ({"slice_k": 1}, "sm_100a", []),
    ({"persistent": False, "cluster": (2, 1)}, "sm_90a", ["The hint cluster is not followed: .* "
                                                         "a CTA for each tile, as the hint says"]),
    ({"persistent": False, "raster": "grouped", "group": 4}, "sm_90a", ["raster", "hint group"]),
    ({"persistent": False, "ctas": 4}, "sm_100a", ["The hint ctas is not followed"]),
    ({"scheduler": "clc", "ctas": 4}, "sm_100a", ["The hint ctas is not .* leave out either"]),
    ({"stages": 3}, "sm_90a", ["The hint stages is not followed: every pipelined loop has"]),
    ({"reduce_through": "workspace"}, "sm_90a",
     ["The hint reduce_through is not followed: no CTAs share"]),
    ({"reduce_through": "workspace", "split_k": 2}, "sm_90a", []),
)  # fmt: skip


@pytest.mark.parametrize(("hints", "arch", "expected"), IGNORED)
def test_a_hint_that_is_not_followed_is_a_warning(hints, arch, expected):
    found = warned(hinted(CASE.func, **hints), arch)
    assert len(found) == len(expected), found
    for text, part in zip(found, expected, strict=True):
        with pytest.warns(LoweringWarning, match=part):
            warnings.warn(text, LoweringWarning, stacklevel=1)


def test_hints_for_stores_need_a_store_in_chunks():
    case = tile_programs.gemm(128, 63, 64, (64, 64, 64), out_dtype="float16", stages=1)
    found = warned(hinted(case.func, store_columns=16, store_buffers=2))
    assert [text.split(" is")[0] for text in found] == ["The hint store_columns",
                                                        "The hint store_buffers"]  # fmt: skip


def _gemm(first=lambda: None, second=lambda: None, third=lambda: None):
    @T.prim_func
    def main(
        A: T.Buffer((128, 128), "float16"), B: T.Buffer((64, 128), "float16"),
        C: T.Buffer((128, 64), "float32"),
    ):  # fmt: skip
        T.device_entry()
        first()
        T.cta_id([1])
        second()
        A_s = T.alloc_buffer((128, 64), "float16", scope="shared")
        B_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        acc = T.alloc_buffer((128, 64), "float32", scope="accumulator")
        third()
        for k in wl.pipelined(2, 2):
            Tx.cta.copy_async(A_s, A[:, k * 64 : k * 64 + 64])
            Tx.cta.copy_async(B_s, B[:, k * 64 : k * 64 + 64])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        Tx.cta.copy(C[:, :], acc)

    return main


def budget():
    return wl.hints(registers=(24, 160))


@pytest.mark.parametrize("place", ["first", "second"])
def test_hints_before_all_other_statements_are_followed(place):
    func = _gemm(**{place: budget})
    assert wl.read_hints(func).registers == (24, 160) and warned(func) == []
    assert "setmaxnreg(24" in lower(func).script()


def test_hints_behind_other_statements_are_a_warning_with_their_line():
    with pytest.warns(LoweringWarning, match="hint registers .* directly after T.device") as caught:
        lower(_gemm(third=budget))
    assert len(caught) == 1 and caught[0].filename == __file__


def test_two_values_of_one_hint_are_refused():
    twice = _gemm(lambda: wl.hints(stages=2), lambda: wl.hints(stages=3))
    with pytest.raises(IllegalCombination, match="stages is there twice, as 2 and as 3"):
        lower(twice)


@pytest.mark.parametrize("place", [0, 1])
def test_hints_of_a_kernel_by_hand_are_not_ignored_in_silence(place):
    @T.prim_func
    def main(A: T.Buffer((128,), "float32")):
        T.device_entry()
        T.cta_id([1])
        if place == 0:
            wl.annotate_producer_reg_dealloc(24)
        t = T.thread_id([128])
        if A[t] > 0.0:
            if place == 1:
                wl.annotate_producer_reg_dealloc(24)
            A[t] = 1.0

    if place == 0:
        with pytest.raises(Decline, match="defines ids of threads and has the hint"):
            lower(main)
    else:
        assert ["The hint registers is not followed" in text for text in warned(main)] == [True]


HINTS = st.fixed_dictionaries({}, optional={
    "cluster": st.sampled_from([(1, 1), (2, 1), (1, 2)]), "persistent": st.booleans(),
    "raster": st.sampled_from(["rows", "columns", "grouped"]), "consumers": st.integers(1, 2),
    "registers": st.sampled_from([(24, 240), (40, 232), (24, 160), (64, 240)]),
    "stages": st.integers(1, 4), "specialise": st.booleans(), "ctas": st.sampled_from([4, 8]),
    "ctas_per_sm": st.integers(1, 2), "slice_k": st.integers(1, 2), "split_k": st.integers(1, 2),
    "set_registers": st.booleans(), "store_columns": st.sampled_from([16, 32]),
    "store_buffers": st.integers(1, 2), "ping_pong": st.booleans(),
    "order_mmas": st.booleans(), "pdl": st.booleans(), "prefetch_l2": st.booleans(),
})  # fmt: skip


@pytest.mark.in_turn(3)
@settings(max_examples=25)
@given(HINTS, st.sampled_from(["sm_90a", "sm_100a"]))
def test_warnings_and_the_record_of_decisions_agree(hints, arch):
    """Whatever the hints: a warning for each hint that the record calls not followed, no other."""
    try:
        func = hinted(tile_programs.gemm(256, 128, 128, (64, 64, 64), stages=2).func, **hints)
        found = warned(func, arch)
    except (Decline, IllegalCombination) as refused:
        assert str(refused).endswith((".", "specialise=False.)", ")"))
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error", WarploomWarning)  # inspection does not warn
        said = [d for step in lower_trace(func, arch) for d in step.decisions]
    declined = [text for text in found if "declines" in text]
    assert len(declined) == any(" declines: " in one for one in said)
    # A lowering that declines may have noted some, too.
    last = [d for step in lower_trace(func, arch) for d in step.decisions if "not followed" in d]
    assert {text.split()[2] for text in found if text not in declined} <= {
        one.split(":")[0] for one in last
    }


# --- machine code ---


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPLOOM_CACHE_DIR", str(tmp_path))
    return tmp_path


CODE = {
    "spills": "Kernel spilling: spill: .* bytes stored .* use smaller tiles",
    "setmaxnreg": "setmaxnreg ignored: .*C75.*launch bounds",
    "wgmma_touched_early": "Kernel hasty: wgmma serialised: .*C75.* do not touch accumulators",
    "wgmma": None,
    "shared": None,
}


@pytest.mark.usefixtures("machine_code")
@pytest.mark.parametrize("name", CODE)
def test_a_cached_kernel_gives_the_warnings_of_a_new_one(name, cache, monkeypatch):
    monkeypatch.setattr("warploom.emulator.is_enabled", lambda: False)
    seen = []
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught, TARGET, deferred():
            warnings.simplefilter("always")
            for symbol in ("spilling", "hasty", "patient", "plain"):
                remember_author(symbol, tvm.ir.Span(tvm.ir.SourceName("author.py"), 7, 7, 1, 2))
            cuda_compile(SOURCES[name])
        seen.append([(str(one.message), one.filename, one.lineno) for one in caught
                     if issubclass(one.category, WarploomWarning)])  # fmt: skip
    assert seen[0] == seen[1] and len(seen[0]) == (CODE[name] is not None)
    for text, filename, line in seen[0]:
        with pytest.warns(MachineCodeWarning, match=CODE[name]):
            warnings.warn(text, MachineCodeWarning, stacklevel=1)
        assert name == "setmaxnreg" or (filename, line) == ("author.py", 7)


def test_spills_of_tvms_own_schedules_are_no_warning(recwarn):
    log = ("ptxas info    : Compiling entry function 'stock_kernel' for 'sm_90a'\n"
           "ptxas info    : Function properties for stock_kernel\n"
           "    8 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads\n"
           "ptxas info    : Used 255 registers, used 0 barriers\n")  # fmt: skip
    warn_of_code(log)
    assert not recwarn.list
    with pytest.warns(MachineCodeWarning, match="8 bytes stored"), deferred():
        remember_author("stock", None)
        warn_of_code(log)


@pytest.mark.in_turn(3)
@pytest.mark.usefixtures("machine_code")
def test_a_spilling_tile_program_warns_from_compile_and_may_end_it(cache, monkeypatch):
    monkeypatch.setattr("warploom.emulator.is_enabled", lambda: False)
    # Two sums of 128 registers a thread, which has no more than 255.
    module = tvm.IRModule({"main": gemm_grouped_block_scaled(8, 384, 512, 4096, tile=(128, 256))})

    def build():
        tvm.compile(module, compiler_kernels.TARGET, tir_pipeline="warploom")

    for _ in range(2):
        with pytest.warns(MachineCodeWarning, match=r"scaled_\w*_kernel: spill: ") as caught:
            build()
        assert len(caught) == 1 and caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", MachineCodeWarning)
        with pytest.raises(MachineCodeWarning, match="spill"):
            build()
        with silenced():
            build()


def test_every_hint_is_known_to_the_reader():
    from warploom.tile.hints import HINT_OF_KEY

    assert {*HINT_OF_KEY.values()} == {field.name for field in dataclasses.fields(wl.Hints)}


@pytest.mark.parametrize(
    ("name", "tiles"),
    [("indexed", None), ("in_place", None), ("carried", "A_s, B_s"), ("from_tile", "I_s|A_s, B_s")],
)
def test_a_pipelined_loop_that_loads_nothing_ahead_is_a_warning(name, tiles):
    found = warned(hinted(CONTROL[name](3).func, specialise=False))
    found = [text for text in found if "wl.pipelined" in text]
    assert bool(found) == (tiles is not None), found
    for text in found:
        with pytest.warns(LoweringWarning, match=f"({tiles}) cannot be loaded ahead, as what is"):
            warnings.warn(text, LoweringWarning, stacklevel=1)

"""The choice of a lowering, the trace of passes, the time that they take."""

from __future__ import annotations

import time

import pytest
import tvm
import tvm_ffi
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

import warploom
from tests.shared import tile_programs
from tests.shared.control_programs import CONTROL
from tests.shared.lowered_programs import check, hinted
from warploom import language as wl
from warploom.errors import Decline
from warploom.lower.lowerings import LOWERINGS, MULTISTAGE, WARP_SPECIALISED, lower
from warploom.tile.read import is_tile_program
from warploom.tile.state import STATE


def names(steps: list) -> list[str]:
    return [step.name for step in steps]


def passes_of(lowering: str) -> list[str]:
    return [factory.__name__ for factory in LOWERINGS[lowering]]


def test_warp_specialisation_comes_first():
    steps = warploom.lower_trace(tile_programs.gemm().func)
    assert names(steps) == ["CheckProgram", *passes_of(WARP_SPECIALISED)]


@pytest.mark.parametrize(("wanted", "chosen"), [(True, WARP_SPECIALISED), (False, MULTISTAGE)])
def test_a_hint_chooses_the_lowering(wanted, chosen):
    steps = warploom.lower_trace(hinted(tile_programs.gemm().func, specialise=wanted))
    assert names(steps) == ["CheckProgram", *passes_of(chosen)]


def test_multistage_takes_what_warp_specialisation_declines(rng):
    case = CONTROL["from_tile"]()
    steps = warploom.lower_trace(case.func)
    (declined,) = (s for step in steps for s in step.decisions if "declines" in s)
    assert declined == (
        "warp specialisation declines: A scalar is computed from the tile I_s, which the thread "
        "that loads does not have; read it from global memory."
    )
    tried = passes_of(WARP_SPECIALISED)
    tried = tried[: tried.index("SpecializeWarps") + 1]
    assert names(steps) == ["CheckProgram", *tried, *passes_of(MULTISTAGE)]
    check(case, rng)
    with pytest.raises(Decline, match="which the thread that loads does not have"):
        lower(hinted(case.func, specialise=True))


def test_every_reason_is_in_the_error():
    @T.prim_func
    def program(
        A: T.Buffer((4, 256, 256), "float32"), I: T.Buffer((1, 16), "int32"),  # noqa: E741
        C: T.Buffer((256, 256), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        I_s = T.alloc_buffer((1, 16), "int32", scope="shared")
        A_s = T.alloc_buffer((256, 256), "float32", scope="shared")
        Tx.cta.copy_async(I_s, I[0:1, 0:16])
        for k in wl.pipelined(4):
            at: T.int32 = I_s[0, k]
            Tx.cta.copy_async(A_s, A[at, 0:256, 0:256])
            for i, j in T.grid(256, 256):
                C[i, j] = A_s[i, j]

    with pytest.raises(Decline) as error:
        lower(program)
    first, second, place, line = str(error.value).splitlines()
    assert first.startswith("warp specialisation: A scalar is computed from the tile I_s")
    assert second.startswith("multistage: The kernel needs ") and "of shared memory" in second
    assert "A_s: 1 x 256 x 256 float32, 262144 bytes" in second
    assert place.startswith(f" --> {__file__}:") and "I_s = T.alloc" in line


def test_one_reason_is_said_once():
    with pytest.raises(Decline) as error:
        lower(tile_programs.gemm(tile=(96, 48, 32)).func)
    reason, place, line = str(error.value).splitlines()
    assert reason == (
        "The tile acc has 96 rows; a warpgroup holds multiples of 64 rows in its registers, so "
        "give it such a number. Accumulators of fewer need a multiple of 64 columns, operands in "
        "shared memory, and no reduction of rows."
    )
    assert place.startswith(f" --> {tile_programs.gemm.__code__.co_filename}:")
    assert "acc = T.alloc_buffer" in line


def test_the_trace_shows_decisions_and_programs():
    case = tile_programs.gemm(256, 256, 192, (128, 128, 64), out_dtype="float16", stages=3)
    func = hinted(case.func, cluster=(2, 1))
    steps = warploom.lower_trace(tvm.IRModule({"main": func}))
    decisions = {step.name: step.decisions for step in steps}
    assert decisions["ChooseGrid"] == (
        "grid: as many persistent CTAs as the device holds (132 on an H200), clusters of 2 x 1, "
        "tiles in groups of 8 rows",
    )
    assert decisions["InferLayouts"] == (
        "consumers: 2 warpgroups, each 64 rows of a tile",
        "operand A_s: K-major, as A of the MMA into acc wants",
        "operand B_s: K-major, as B of the MMA into acc wants",
    )
    assert decisions["StageStores"] == ("store into C: by TMA, in chunks of 64 x 64 elements",)
    assert decisions["SpecializeWarps"] == (
        "roles: one loading warp with 40 registers a thread, 2 computing warpgroups with 232",
        "ring of A_s, B_s: 3 stages of 32768 bytes, B_s multicast to 2 CTAs",
    )
    assert decisions["AllocateShared"][0].startswith("shared memory: 1")
    for step in steps:
        text = str(step)
        script = step.func.without_attr(STATE).script()
        assert text.startswith(f"# after {step.name}\n") and text.endswith(script)
        assert all(f"#   {one}\n" in text for one in step.decisions)
    assert tvm_ffi.structural_equal(steps[-1].func, lower(func), map_free_vars=True)


def test_functions_of_other_kinds_have_no_trace():
    @T.prim_func
    def copy(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([32])
        B[thread] = A[thread]

    assert warploom.lower_trace(tvm.IRModule({"copy": copy})) == []


def test_a_kernel_is_no_tile_program():
    for case in (tile_programs.gemm(), tile_programs.attention()):
        assert is_tile_program(case.func) and not is_tile_program(lower(case.func))


@pytest.mark.parametrize("specialise", [True, False])
def test_lowering_a_gemm_takes_less_than_half_a_second(specialise):
    case = tile_programs.gemm(4096, 4096, 4096, (128, 256, 64), out_dtype="float16", stages=4)
    func = hinted(case.func, specialise=specialise)
    before = time.process_time()
    lower(func)
    assert time.process_time() - before < 0.5

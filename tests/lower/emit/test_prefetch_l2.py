"""What the first steps load is prefetched before the kernel waits, and results are the same."""

from __future__ import annotations

import contextlib
import re

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared import tile_programs
from tests.shared.control_programs import CONTROL
from tests.shared.lowered_programs import check, hinted, run, worst_error
from warploom import language as wl
from warploom import lower_trace
from warploom.errors import Decline, IllegalCombination
from warploom.lower.lowerings import lower
from warploom.target import cuda_target, default_target

WAIT = 'T.ptx.griddepcontrol("wait", "")'
#: Each with how many of its loads are prefetched before it waits.
PROGRAMS = {
    "gemm": lambda: (tile_programs.gemm(k=320, stages=3), 2),
    "ragged, symbolic": lambda: (tile_programs.gemm(100, 72, 200, stages=4, symbolic=True), 2),
    "transposed operands": lambda: (tile_programs.gemm(96, 64, 128, layout="TN", stages=2), 2),
    "attention": lambda: (tile_programs.attention(), 3),
    "int4": lambda: (tile_programs.packed(), 3),
    "two products": lambda: (tile_programs.swiglu(), 3),
}  # fmt: skip


#: Control flow that warp specialisation declines, with why; nothing else may be declined.
SPECIALISATION_DECLINES = {
    "from_tile": "A scalar is computed from the tile I_s, which the thread that loads does not have"
}


def parts(func, arch: str = "sm_90a") -> tuple[str, str]:
    """The text of a kernel before it waits, and after."""
    start, waits, rest = lower(func, arch).script().partition(WAIT)
    assert waits
    return start, rest


def decisions(func, arch: str = "sm_90a") -> list[str]:
    return [d for step in lower_trace(func, arch) for d in step.decisions if "prefetch_l2" in d]


@pytest.mark.parametrize("specialise", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.some(3)
def test_loads_are_prefetched_and_results_are_the_same(name, specialise, rng):
    case, loads = PROGRAMS[name]()
    hints = {"prefetch_l2": True, "specialise": specialise}
    start, rest = parts(hinted(case.func, **hints))
    assert len(re.findall(r'dispatch="l2_\w+"', start)) == loads
    assert 'dispatch="tma_' not in start and 'dispatch="l2_' not in rest
    check(case, rng, **hints)


@pytest.mark.parametrize("specialise", [True, False])
@pytest.mark.parametrize("name", CONTROL)
@pytest.mark.some(4)
def test_any_control_flow(name, specialise, rng):
    """Places of loads may come from scalars that loops change, and from tiles."""
    reason = SPECIALISATION_DECLINES.get(name) if specialise else None
    with pytest.raises(Decline, match=reason) if reason else contextlib.nullcontext():
        check(CONTROL[name](3), rng, specialise=specialise, prefetch_l2=True)


@pytest.mark.parametrize("cluster", [(1, 1), (2, 1)])
def test_on_blackwell(cluster, rng):
    case = tile_programs.gemm(256, 256, 160, (128, 128, 32), stages=2)
    start, _ = parts(hinted(case.func, prefetch_l2=True, cluster=cluster), "sm_100a")
    assert start.count('dispatch="l2_auto"') == 2
    check(case, rng, "sm_100a", prefetch_l2=True, cluster=cluster)


@T.prim_func
def one_is_dropped(
    A: T.Buffer((64, 256), "float16"), B: T.Buffer((64, 256), "float16"),
    C: T.Buffer((64, 64), "float32"),
):  # fmt: skip
    """A GEMM whose second operand the L2 cache drops first."""
    T.device_entry()
    wl.hints(prefetch_l2=True)
    T.cta_id([1])
    A_s = T.alloc_buffer((64, 32), "float16", scope="shared")
    B_s = T.alloc_buffer((64, 32), "float16", scope="shared")
    acc = T.alloc_buffer((64, 64), "float32", scope="accumulator")
    Tx.cta.zero(acc)
    for step in wl.pipelined(8, 3):
        Tx.cta.copy_async(A_s, A[0:64, step * 32 : step * 32 + 32])
        Tx.cta.copy_async(B_s, B[0:64, step * 32 : step * 32 + 32], cache_hint="evict_first")
        Tx.cta.gemm_async(acc, A_s, B_s, accum=True)
    Tx.cta.copy(C, acc)


@pytest.mark.parametrize("specialise", [True, False])
def test_what_is_read_once_alone_is_prefetched(specialise, rng):
    """If a policy says so; results are the same."""
    func = hinted(one_is_dropped, specialise=specialise)
    start, _ = parts(func)
    (line,) = (line for line in start.splitlines() if 'dispatch="l2_' in line)
    assert "B[" in line and "A[" not in line
    a, b = (rng.standard_normal((64, 256)).astype("float16") for _ in range(2))
    *_, got = run(lower(func), [a, b, np.full((64, 64), np.nan, "float32")])[:3]
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(got - exact).max() <= 1e-5 * np.abs(exact).max()


@T.prim_func
def some_steps(
    A: T.Buffer((64, 256), "float16"), B: T.Buffer((64, 256), "float16"),
    C: T.Buffer((64, 64), "float32"), steps: T.int32,
):  # fmt: skip
    """A GEMM of the first steps, whose number is dynamic."""
    T.device_entry()
    wl.hints(prefetch_l2=True)
    T.cta_id([1])
    A_s = T.alloc_buffer((64, 32), "float16", scope="shared")
    B_s = T.alloc_buffer((64, 32), "float16", scope="shared")
    acc = T.alloc_buffer((64, 64), "float32", scope="accumulator")
    Tx.cta.zero(acc)
    for step in wl.pipelined(steps, 3):
        Tx.cta.copy_async(A_s, A[0:64, step * 32 : step * 32 + 32])
        Tx.cta.copy_async(B_s, B[0:64, step * 32 : step * 32 + 32])
        Tx.cta.gemm_async(acc, A_s, B_s, accum=True)
    Tx.cta.copy(C, acc)


@pytest.mark.parametrize("specialise", [True, False])
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 7])
@pytest.mark.some(3)
def test_as_many_steps_as_there_are_at_launch(steps, specialise, rng):
    """Trip counts of 0, below, at and above the number of stages."""
    func = hinted(some_steps, specialise=specialise)
    assert re.search(r"for step in range\(T\.min\(steps, 3\)\)", parts(func)[0])
    a, b = (rng.standard_normal((64, 256)).astype("float16") for _ in range(2))
    *_, got, _ = run(lower(func), [a, b, np.full((64, 64), np.nan, "float32"), steps])
    used = slice(steps * 32)
    exact = a[:, used].astype(np.float64) @ b[:, used].astype(np.float64).T
    assert np.abs(got - exact).max() <= 1e-5 * max(1, np.abs(exact).max())


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7])
@pytest.mark.some(2)
def test_no_step_is_prefetched_that_is_not_loaded(steps, rng):
    """Numbers of steps that the compiler knows."""
    case = tile_programs.gemm(k=steps * 32, stages=3)
    start, _ = parts(hinted(case.func, prefetch_l2=True))
    assert f"for step in range({min(steps, 3)})" in start
    check(case, rng, prefetch_l2=True)


def test_what_the_kernel_before_may_write_is_not_read():
    """Groups of rows have sizes in global memory: tiles of them are known after the wait."""
    case = tile_programs.grouped(pdl=True)
    func = hinted(case.func, prefetch_l2=True)
    start, _ = parts(func)
    assert "l2_auto" not in start and "Indptr[" not in start.split("griddepcontrol")[-1]
    (why,) = decisions(func)
    sentence = "prefetch_l2: not followed, what is loaded first depends on global memory"
    assert why.startswith(sentence)


def test_a_value_that_loads_do_not_need_is_left_to_after_the_wait(rng):
    @T.prim_func
    def func(
        A: T.Buffer((64, 64), "float16"), B: T.Buffer((64, 64), "float16"),
        scale: T.Buffer((1,), "float32"), C: T.Buffer((64, 64), "float32"),
    ):  # fmt: skip
        T.device_entry()
        wl.hints(prefetch_l2=True)
        T.cta_id([1])
        factor: T.let = scale[0]
        A_s = T.alloc_buffer((64, 32), "float16", scope="shared")
        B_s = T.alloc_buffer((64, 32), "float16", scope="shared")
        acc = T.alloc_buffer((64, 64), "float32", scope="accumulator")
        out = T.alloc_buffer((64, 64), "float32", scope="fragment")
        for step in wl.pipelined(2):
            Tx.cta.copy_async(A_s, A[0:64, step * 32 : step * 32 + 32])
            Tx.cta.copy_async(B_s, B[0:64, step * 32 : step * 32 + 32])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=step > 0)
        for y, x in T.grid(64, 64):
            out[y, x] = acc[y, x] * factor
        Tx.cta.copy(C, out)

    start, rest = parts(func)
    assert start.count('dispatch="l2_auto"') == 2
    assert "factor" not in start and "factor" in rest


def test_the_instruction_is_a_prefetch_by_the_tensor_map_of_the_load():
    func = hinted(tile_programs.gemm(stages=2, out_dtype="float16").func, prefetch_l2=True)
    module = tvm.IRModule({"main": func})
    built = tvm.compile(module, cuda_target("h200"), tir_pipeline="warploom")
    source = built.mod.imports[0].inspect_source()
    kernel = source[source.index("launch_dependents();", source.index("__global__")) :]
    start, _, rest = kernel.partition("griddepcontrol_wait();")
    maps = {re.sub(r".*&\((\w+)\).*", r"\1", one) for one in start.splitlines() if "_L2_" in one}
    assert len(maps) == 2 and all(one in rest for one in maps), "A and B, each with one map"


def test_only_who_asks_for_a_prefetch_by_name_gets_one():
    from warploom.ops.copy_prefetch import SCHEDULES

    class Call:
        dispatch = None

    for schedule in SCHEDULES:
        named = dict(schedule.when)["named"]
        assert not named(Call, None)[0]
        assert named(type("Named", (), {"dispatch": schedule.variant}), None)[0]


def test_hints_that_exclude_each_other():
    with pytest.raises(IllegalCombination, match="prefetch_l2 True with pdl False"):
        wl.hints(prefetch_l2=True, pdl=False)
    with pytest.raises(IllegalCombination, match="prefetch_l2 is 2; it must be a bool"):
        wl.hints(prefetch_l2=2)


@pytest.mark.parametrize("specialise", [True, False])
def test_a_kernel_that_is_not_launched_early_need_not_wait(specialise, rng):
    case = tile_programs.gemm(stages=2)
    hints = {"pdl": False, "specialise": specialise}
    script = lower(hinted(case.func, **hints)).script()
    assert WAIT not in script and '"launch_dependents"' in script
    check(case, rng, **hints)


@pytest.mark.in_turn(3)
@pytest.mark.gpu
def test_a_gemm_of_results_of_the_kernel_before(rng):
    """The second GEMM prefetches operands that the first is still writing."""
    case = tile_programs.gemm(512, 512, 512, (64, 128, 64), stages=4, out_dtype="float16")
    func = hinted(case.func, prefetch_l2=True)
    run = tvm.compile(tvm.IRModule({"main": func}), default_target()[0], tir_pipeline="warploom")
    a, b, c = (tvm.runtime.tensor(one, tvm.cuda(0)) for one in case.arguments(rng))
    unit = tvm.runtime.tensor(np.eye(512, dtype=np.float16), tvm.cuda(0))
    first = tvm.runtime.tensor(np.full((512, 512), np.nan, np.float16), tvm.cuda(0))
    for _ in range(20):
        first.copyfrom(np.full((512, 512), np.nan, np.float16))
        run["main"](a, b, first)
        run["main"](first, unit, c)
        arguments = [a.numpy(), b.numpy(), c.numpy()]
        assert worst_error(case, arguments, arguments) <= 1

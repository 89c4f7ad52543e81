"""``wait=n`` of ``gemm_async`` and of ``WgmmaEmitter``: what is issued, and what may be in flight.

A loop multiplies stages that threads write themselves. With ``wait=n``, the stage that iteration
``i`` writes must not be one of the ``n`` matmuls before it: ``n + 1`` stages are enough, ``n`` are
a race.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import emulator
from warploom import language as wl
from warploom.errors import IllegalCombination
from warploom.intrin.wgmma_wait import pending_groups
from warploom.layout.fragment import wgmma_accumulator
from warploom.target import cuda_target

M, N, K, STEPS = 64, 8, 16, 5
TARGET = cuda_target("h200")
#: What an author writes -> what PTX has.
WAITS = [(False, None), (None, None), (True, 0), *((n, n) for n in range(8))]
GEMM_ASYNC, SS, RS = "gemm_async", "ss", "rs"


def kernel(form: str, wait: object, stages: int):
    """D = sum of A[i] B[i]^T, each matmul issued by ``form`` with ``wait``."""
    e = wl.WgmmaEmitter.of(M, N, K, "float16", a_in_registers=form == RS)
    a_shape, b_shape = (stages, M, K), (stages, N, K)
    a_layout = wl.WgmmaEmitter.of(M, N, K, "float16").a_shared_layout(stages)

    def multiply(acc, a, b, held, step):
        stage = step % stages if stages > 1 else 0
        if form == GEMM_ASYNC:
            Tx.wg.gemm_async(acc[:, :], a[stage, :, :], b[stage, :, :], accum=step > 0, wait=wait)
        elif form == SS:
            e.ss(acc, a[stage, :, :], b[stage, :, :], step > 0, wait=wait)
        else:
            part = held[stage * M : stage * M + M, :]
            e.rs(acc, part, b[stage, :, :], step > 0, wait=wait)

    def fill(a, b, held, A, B, step, thread):
        stage = step % stages if stages > 1 else 0
        for at in range(0, N * K, 128):
            place = at + thread
            T.buffer_store(b, B[step, place // K, place % K], [stage, place // K, place % K])
        if form == RS:
            Tx.wg.copy(held[stage * M : stage * M + M, :], A[step, :, :])
        else:
            for at in range(0, M * K, 128):
                place = at + thread
                T.buffer_store(a, A[step, place // K, place % K], [stage, place // K, place % K])

    def loop(acc, a, b, held, A, B, thread):
        for step in range(STEPS):  # unrolled: registers have no index that a loop computes
            fill(a, b, held, A, B, step, thread)
            T.evaluate(T.ptx.fence.proxy.async_.shared__cta())
            T.evaluate(T.cuda.cta_sync())
            multiply(acc, a, b, held, step)

    @T.prim_func
    def func(A: T.Buffer((STEPS, M, K), "float16"), B: T.Buffer((STEPS, N, K), "float16"),
             D: T.Buffer((M, N), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        T.warpgroup_id([1])
        thread = T.thread_id_in_wg([128])
        pool = T.SMEMPool()
        As = pool.alloc(a_shape, "float16", align=1024, layout=a_layout)
        Bs = pool.alloc(b_shape, "float16", align=1024, layout=e.b_shared_layout(stages))
        pool.commit()
        acc = T.alloc_buffer((M, N), "float32", scope="local", layout=wgmma_accumulator(M, N))
        held = T.alloc_buffer(
            (M * stages, K), "float16", scope="local",
            layout=wl.WgmmaEmitter.of(M * stages, N, K, "float16").a_layout,
        )  # fmt: skip
        loop(acc, As, Bs, held, A, B, thread)
        e.wait(0)
        e.fence_d(acc)
        Tx.wg.copy(D[:, :], acc[:, :])

    return func


@pytest.mark.parametrize(("wait", "groups"), WAITS)
@pytest.mark.some(3)
def test_wait_is_the_operand_of_wait_group(wait, groups):
    """The option says what PTX says: no rounding to 0, and nothing at all for ``False``."""
    assert pending_groups(wait) == groups
    calls = _instructions(kernel(GEMM_ASYNC, wait, 1))
    expected = ["mma_async"] if groups is None else [
        "fence", "mma_async", "commit_group", f"wait_group {groups}",
    ]  # fmt: skip
    assert calls == expected * STEPS + ["wait_group 0"]


@pytest.mark.parametrize("form", [SS, RS])
@pytest.mark.parametrize("wait", [None, True, 3])
@pytest.mark.some(3)
def test_the_emitter_issues_the_same(form, wait):
    assert _instructions(kernel(form, wait, 1)) == _instructions(kernel(GEMM_ASYNC, wait, 1))


def _instructions(func) -> list[str]:
    """wgmma's instructions in the kernel's CUDA source, in order."""
    module = tvm.compile(tvm.IRModule({"main": func}), TARGET, tir_pipeline="tirx").mod
    name = r"(fence|mma_async|commit_group|wait_group)_sync_aligned(?:_(\d))?"
    calls = re.compile(rf"^ +tvm_builtin_ptx_wgmma_\w*?{name}\w*\(", re.MULTILINE)
    found = calls.findall(module.imports[0].inspect_source())
    return [f"{name} {count}" if count else name for name, count in found]


@pytest.mark.parametrize("form", [GEMM_ASYNC, SS, RS])
@pytest.mark.parametrize(("wait", "stages"), [(0, 1), (1, 2), (2, 3)])
@pytest.mark.some(3)
def test_as_many_stages_as_groups_in_flight_are_clean(rng, form, wait, stages):
    a, b = (rng.integers(-3, 4, (STEPS, rows, K)).astype("float16") for rows in (M, N))
    d = np.full((M, N), np.nan, "float32")
    result = emulator.run(kernel(form, wait, stages), [a, b, d])
    expected = np.einsum("smk,snk->mn", a.astype("float64"), b.astype("float64"))
    np.testing.assert_array_equal(result.outputs[2], expected)


@pytest.mark.parametrize("form", [GEMM_ASYNC, SS, RS])
@pytest.mark.parametrize(("wait", "stages"), [(1, 1), (2, 2)])
@pytest.mark.some(3)
def test_a_stage_that_is_rewritten_under_its_mma_is_a_race(rng, form, wait, stages):
    a, b = (rng.integers(-3, 4, (STEPS, rows, K)).astype("float16") for rows in (M, N))
    d = np.full((M, N), np.nan, "float32")
    with pytest.raises(emulator.EmulatorError, match=r"(?s)race.*wgmma"):
        emulator.run(kernel(form, wait, stages), [a, b, d])


@pytest.mark.parametrize("groups", [-1, 8, True, 1.0, "0", None])
def test_the_emitter_refuses_waits_that_ptx_has_not(groups):
    e = wl.WgmmaEmitter.of(M, N, K, "float16")
    with pytest.raises(IllegalCombination, match=r"wait is .* a constant from 0 to 7"):
        e.wait(groups)

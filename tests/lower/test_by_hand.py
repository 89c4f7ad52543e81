"""Kernels orchestrated by hand: scopes of the dialect get places, everything else stays."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.script import tirx as T

from tests.lower import kernels_by_hand
from tests.shared.lowered_programs import run
from tests.shared.tensor_memory_order import assert_lifetime_is_fenced
from warploom import language as wl
from warploom.errors import Decline
from warploom.lower.lowerings import lower
from warploom.lower.trace import lower_trace
from warploom.target import cuda_target


def product(func, rng, m, n, k, arch="sm_90a"):
    """The error of C = A B^T, and the size of C."""
    a, b = (rng.standard_normal((rows, k)).astype("float16") for rows in (m, n))
    c = np.full((m, n), np.nan, np.float32)
    exact = a.astype(float) @ b.T.astype(float)
    return np.abs(run(lower(func, arch), [a, b, c], arch)[2] - exact).max(), np.abs(exact).max()


@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 3, 5])
@pytest.mark.some(3)
def test_a_ring_by_hand(steps, pool, rng):
    func = kernels_by_hand.sm90(steps, pool=pool)
    error, size = product(func, rng, kernels_by_hand.M, kernels_by_hand.N, steps * 64)
    assert error <= 4e-6 * size


def test_a_ring_by_hand_that_turns_zero_times(rng):
    func = kernels_by_hand.sm90(0)
    arrays = [rng.standard_normal((rows, 64)).astype("float16") for rows in (128, 72)]
    (_, _, c) = run(lower(func), [*arrays, np.full((128, 72), np.nan, np.float32)])
    assert not c.any()


def test_descriptors(rng):
    error, size = product(kernels_by_hand.descriptors(), rng, 64, 8, 64)
    assert error <= 4e-6 * size


@pytest.mark.parametrize("scope", ["tmem", "accumulator"])
@pytest.mark.parametrize("rows", [64, 128])
def test_tensor_memory(rows, scope, rng):
    func = kernels_by_hand.sm100(rows, scope)
    error, size = product(func, rng, rows, 64, 64, "sm_100a")
    assert error <= 4e-6 * size
    assert_lifetime_is_fenced(lower(func, "sm_100a").script())


@pytest.mark.parametrize(
    "func", [kernels_by_hand.descriptors(), kernels_by_hand.sm100(), kernels_by_hand.sm90(2)]
)
def test_kernels_print(func):
    assert tvm_ffi.structural_equal(tvm.script.from_source(func.script()), func)


@pytest.mark.parametrize("pipeline", ["warploom", "default"])
def test_kernels_compile(pipeline):
    module = tvm.IRModule({"main": kernels_by_hand.sm90(2)})
    options = {} if pipeline == "default" else {"tir_pipeline": pipeline}
    source = tvm.compile(module, cuda_target("h200"), **options).mod.imports[0].inspect_source()
    assert "mbarrier_init" in source and "wgmma" in source


def test_the_trace_has_the_places():
    trace = lower_trace(kernels_by_hand.sm90(2, pool=True))
    assert [step.name for step in trace] == [
        "CheckProgram", "ResolveByHand", "AllocateShared", "StripAnnotations", "Verify"
    ]  # fmt: skip
    decided = [sentence for step in trace for sentence in step.decisions]
    assert "roles: orchestrated by the author" in decided
    assert "empty: 2 uint64, 16 bytes" in decided
    assert any("bytes of the author's" in one for one in decided)


def declined(arch="sm_90a", hint=None, loop=None, **buffer):
    options = {"shape": (64, 64), "dtype": "float32", **buffer}
    turns = loop or (lambda: T.serial(2))
    shape, dtype = options.pop("shape"), options.pop("dtype")

    @T.prim_func
    def kernel(C: T.Buffer((64, 64), "float32")):
        T.device_entry()
        if bool(hint):
            hint()
        T.cta_id([1])
        thread = T.thread_id([128])
        if bool(options):
            T.alloc_buffer(shape, dtype, **options)
        for k in turns():
            C[thread, k] = T.float32(0)

    with pytest.raises(Decline) as caught:
        lower(kernel, arch)
    return str(caught.value)


def test_what_is_declined():
    assert "the pipelined loop over k" in declined(loop=lambda: wl.pipelined(2))
    assert "the hint warploom.stages" in declined(hint=lambda: wl.hints(stages=2))
    assert "which sm_90a does not have" in declined(scope="tmem")
    assert "it must be uint64" in declined(scope="wgmma.descriptor")
    assert "columns need an allocation of 1024" in declined(
        "sm_100a", shape=(128, 640), scope="tmem"
    )
    assert "64 or 128 rows" in declined("sm_100a", shape=(32, 64), scope="tmem")
    assert "write layout=" in declined(shape=(64,), scope="fragment")
    assert "multiple of 64" in declined(shape=(48, 64), scope="accumulator")
    assert "needs 262144 bytes" in declined(shape=(256, 256), scope="shared")

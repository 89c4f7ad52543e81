"""Kernels that wait by themselves for the one before them start without waiting for its end."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

from tests.shared import tile_programs
from tests.shared.lowered_programs import hinted, worst_error
from warploom.lower.lowerings import lower
from warploom.target import cuda_target, default_target

LAUNCH = "tirx.kernel_launch_params"
EARLY = "tirx.use_programtic_dependent_launch"


def kernels(func, pipeline: str = "warploom") -> tvm.IRModule:
    """The functions of device and host that one becomes."""
    target = cuda_target("h200").with_host("c")
    passes, _, _ = tvm.tirx.get_tir_pipeline(pipeline)
    with target:
        return passes(tvm.tirx.transform.BindTarget(target)(tvm.IRModule({"main": func})))


def launches(func, pipeline: str = "warploom") -> dict[str, list[str]]:
    """Tags of the launches of all kernels that a function becomes."""
    found = {v.name_hint: f.attrs for v, f in kernels(func, pipeline).functions.items()}
    return {name: list(map(str, at[LAUNCH])) for name, at in found.items() if LAUNCH in at}


def shared(**hints):
    case = tile_programs.gemm(128, 64, 512, (64, 64, 64), stages=3, out_dtype="float16")
    return case, hinted(case.func, stream_k=True, ctas=4, **hints)


@pytest.mark.parametrize("cluster", [(1, 1), (2, 1)])
def test_the_one_kernel_of_a_program_whose_tiles_are_shared(cluster):
    _, func = shared(cluster=cluster)
    (tags,) = launches(func).values()
    assert tags[-2:] == [EARLY, "tirx.use_dyn_shared_memory"], "TVM wants it last"
    assert all(EARLY not in tags for tags in launches(lower(func), "tirx").values())


@pytest.mark.parametrize("specialise", [True, False])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_every_tile_program_waits_before_it_touches_memory(specialise, arch):
    case = tile_programs.gemm(stages=2)
    func = hinted(case.func, specialise=specialise) if arch == "sm_90a" else case.func
    script = lower(func, arch).script()
    start, waits, rest = script.partition('T.ptx.griddepcontrol("wait", "")')
    assert waits and "griddepcontrol" not in rest
    assert 'T.ptx.griddepcontrol("launch_dependents", "")' in start and "mbarrier" in start
    for touches in ("copy_async", "copy(", "gemm_async", "ld.", "A["):
        assert touches not in start.split("device_entry")[-1], touches


def test_tensor_maps_are_fetched_before_the_wait():
    case = tile_programs.gemm(stages=2, out_dtype="float16")
    (kernel,) = (f for f in kernels(case.func).functions.values() if f.attrs.get(LAUNCH))
    script = kernel.script()
    fetched = re.findall(r'T\.ptx\.prefetch\(.*?address_of\((\w+)\)', script)
    assert fetched == [one.name for one in kernel.params if one.name.endswith("_tensormap")]
    assert len(fetched) == 3, "A, B and C"
    assert script.rindex("T.ptx.prefetch(") < script.index('T.ptx.griddepcontrol("wait"')


def test_other_kernels_wait_for_their_stream():
    @T.prim_func
    def func(A: T.Buffer((128,), "float32")):
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([128])
        T.ptx.griddepcontrol.launch_dependents()
        A[thread] = 1.0

    assert all(EARLY not in tags for tags in launches(func).values())


@pytest.mark.gpu
def test_results_are_right_launch_after_launch(rng):
    case, func = shared()
    run = tvm.compile(tvm.IRModule({"main": func}), default_target()[0], tir_pipeline="warploom")
    for _ in range(3):
        arguments = case.arguments(rng)
        tensors = [tvm.runtime.tensor(one, tvm.cuda(0)) for one in arguments]
        run["main"](*tensors)
        after = [one.numpy() for one in tensors]
        assert worst_error(case, arguments, after) <= 1
        assert np.isfinite(after[2].astype(np.float32)).all()

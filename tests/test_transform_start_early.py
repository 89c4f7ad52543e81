"""Kernels that wait by themselves for the one before them start without waiting for its end."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

import tile_programs
from lowered_programs import hinted, worst_error
from warploom.kernels import default_target
from warploom.target import cuda_target
from warploom.transform.lower import lower

EARLY = "tirx.use_programtic_dependent_launch"


def launches(func, pipeline: str = "warploom") -> dict[str, list[str]]:
    """Tags of the launches of all kernels that a function becomes."""
    target = cuda_target("h200").with_host("c")
    passes, _, _ = tvm.tirx.get_tir_pipeline(pipeline)
    with target:
        bound = tvm.tirx.transform.BindTarget(target)(tvm.IRModule({"main": func}))
        found = {v.name_hint: f.attrs for v, f in passes(bound).functions.items()}
    key = "tirx.kernel_launch_params"
    return {name: list(map(str, attrs[key])) for name, attrs in found.items() if key in attrs}


def shared(**hints):
    case = tile_programs.gemm(128, 64, 512, (64, 64, 64), stages=3, out_dtype="float16")
    return case, hinted(case.func, stream_k=True, ctas=4, **hints)


@pytest.mark.parametrize("cluster", [(1, 1), (2, 1)])
def test_the_kernel_after_the_one_that_clears_flags(cluster):
    _, func = shared(cluster=cluster)
    clearing, computing = sorted(launches(func).items())
    assert EARLY not in clearing[1] and computing[1][-2] == EARLY
    assert computing[1][-1] == "tirx.use_dyn_shared_memory", "TVM wants it last"
    assert all(EARLY not in tags for tags in launches(lower(func), "tirx").values())


def test_other_kernels_wait_for_their_stream():
    @T.prim_func
    def func(A: T.Buffer((128,), "float32")):
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([128])
        T.ptx.griddepcontrol.launch_dependents()
        A[thread] = 1.0

    assert all(EARLY not in tags for tags in launches(func).values())
    case = tile_programs.gemm(stages=2)
    assert all(EARLY not in tags for tags in launches(case.func).values())


def test_every_use_of_a_flag_comes_after_the_wait():
    # The emulator lets kernels follow each other, so it could not tell.
    _, func = shared()
    script = lower(func).script()
    waits = r'T\.ptx\.griddepcontrol\("wait", ""\)\n\s*'
    seen = r"seen: T\.uint32 = T\.uint32\(0\)\n\s*while seen == .*\n.*acquire"
    polled = re.findall(waits + seen, script)
    given = re.findall(waits + r"T\.ptx\.st\(T\.address_of\(sums_given.*release", script)
    assert len(polled) == len(given) == 1
    assert script.count("sums_given[") == 3, "and the kernel that clears them"
    assert script.count('griddepcontrol("launch_dependents", "")') == 1


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

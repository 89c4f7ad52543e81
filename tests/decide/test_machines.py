"""Decisions for every GPU with wgmma: its SMs, clusters, clock, memory and cache."""

from __future__ import annotations

import dataclasses
import json

import pytest
import tvm
from tvm.s_tir import dlight

import warploom
from tests.shared.gemm_functions import FUNCTIONS
from warploom import dlight as wdl
from warploom.decide import choose, plain_gemm, predict, ranked
from warploom.decide.draws import draws
from warploom.decide.families.attention import AttentionProblem
from warploom.decide.families.block_scaled import BlockScaledProblem
from warploom.decide.families.grouped_problem import GroupedProblem
from warploom.decide.families.quantised import QuantisedProblem
from warploom.decide.machine import H200
from warploom.decide.machines import machine_for, machine_of
from warploom.decide.repair import why_not_search
from warploom.gemm.annotations import decisions_of
from warploom.target import GPUS, SM90A, cuda_target
from warploom.target.gpus import Gpu

HOPPERS = sorted(name for name, gpu in GPUS.items() if gpu.arch is SM90A)


def test_an_h200_is_what_the_constants_were_found_on():
    assert machine_for() is machine_for(cuda_target("h200")) is machine_of(GPUS["h200"]) is H200
    assert machine_for(cuda_target("sm_90a")) is H200
    assert machine_for(tvm.target.Target("llvm")) is H200


@pytest.mark.parametrize("name", HOPPERS)
def test_a_machine_has_the_facts_of_its_gpu(name):
    gpu, machine = GPUS[name], machine_of(GPUS[name])
    assert machine.gpu is gpu and machine.sms == gpu.sms
    assert machine.clock == pytest.approx(gpu.clock / 1e6)
    assert machine.dram_bytes <= gpu.dram_bandwidth / 1e6
    assert machine.l2_capacity <= gpu.l2_bytes


@pytest.mark.parametrize("name", HOPPERS)
def test_choices_are_made_for_the_current_target(name):
    machine = machine_of(GPUS[name])
    problem = plain_gemm(1111, 2048, 1024)
    with cuda_target(name):
        config = choose(problem)
        assert config == choose(problem, machine) == ranked(problem)[0][1]
        assert draws(problem) is draws(problem, machine)
    assert why_not_search(problem, config, machine) is None and config.sms < machine.sms
    for other in (
        QuantisedProblem(1, 4096, 4096), BlockScaledProblem(4096, 2112, 7168),
        GroupedProblem(8, 512, 2048, 1024), AttentionProblem(2048, 128, 32, 32),
    ):  # fmt: skip
        assert choose(other, machine).stages >= 2


def test_fewer_sms_and_slower_memory_never_are_faster():
    problem = plain_gemm(2048, 4096, 4096)
    for _, config in ranked(problem, 10, H200):
        slower = [
            dataclasses.replace(H200, gpu=dataclasses.replace(H200.gpu, sms=sms))
            for sms in (114, 78, 60)
        ]
        times = [predict(problem, config, machine).total for machine in (H200, *slower)]
        assert times == sorted(times)


def test_some_gemm_gets_another_tile_on_a_gpu_with_fewer_sms():
    problems = [plain_gemm(m, 4096, 4096) for m in (256, 512, 1024, 1536, 2048)]
    pcie = machine_of(GPUS["h100-pcie"])
    assert any(choose(problem, pcie) != choose(problem, H200) for problem in problems)


@pytest.mark.parametrize("name", ["h100-pcie", "h20"])
def test_tvm_schedules_for_the_gpu_of_the_target(name):
    func = FUNCTIONS["layout NT"]().func
    with cuda_target(name):
        mod = dlight.ApplyDefaultSchedule(wdl.Matmul())(tvm.IRModule({"main": func}))
    (_, config), *_ = decisions_of(mod["main"])
    problem = warploom.gemm.recognise(func).problem
    assert config == choose(problem, machine_of(GPUS[name]))


def test_a_measured_gpu_that_is_unknown_has_its_own_constants(tmp_path, monkeypatch):
    facts = {"sms": 100, "l2_bytes": 40e6, "dram_bandwidth": 2e12, "clock": 1.5e9, "watts": 300}
    file = tmp_path / "gpu.json"
    constants = {"receive_bytes": 50.0, "l2_bytes": 3000.0, "latency": 1.25}
    file.write_text(json.dumps({
        "format": 1, "gpu": "NVIDIA H123", "facts": facts, "constants": constants,
    }))  # fmt: skip
    gpu = Gpu("NVIDIA H123", SM90A, **facts)
    assert machine_of(gpu).receive_bytes == H200.receive_bytes
    monkeypatch.setenv("WARPLOOM_MACHINE", str(file))
    machine = machine_of(gpu)
    assert machine.receive_bytes == 50 and machine.sms == 100 and machine.clock == 1500
    # The latency was found together with other constants, which a measurement does not give.
    assert machine.latency == H200.latency

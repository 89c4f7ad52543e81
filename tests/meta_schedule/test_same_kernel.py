"""Configs that generate equal kernels are measured once."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace

import pytest
import tvm

from tests.meta_schedule.tuned_factories import matmul
from tests.shared.lowered_programs import hinted
from warploom.decide import Config
from warploom.meta_schedule.artifact import Facts
from warploom.meta_schedule.measure import Measurement
from warploom.meta_schedule.runner import PooledRunner
from warploom.meta_schedule.same_kernel import kernel_digest
from warploom.programs import gemm
from warploom.target import cuda_target
from warploom.tile.kinds import pipeline_of

CONFIG = Config(64, 64, 64, stages=2, consumers=1)


def _digest(func) -> str:
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    return kernel_digest(tvm.compile(module, cuda_target("h200"), **pipeline_of(module)))


def test_other_code_or_another_grid_is_another_kernel() -> None:
    usual, deeper, smaller = (
        _digest(gemm(config, 256, 256, 128))
        for config in (CONFIG, replace(CONFIG, stages=3), replace(CONFIG, sms=4))
    )
    assert len(usual) == 64 and len({usual, deeper, smaller}) == 3


@pytest.mark.filterwarnings("ignore:.*The hint stages is not followed")
def test_a_hint_that_is_not_followed_makes_no_other_kernel() -> None:
    func = matmul(64, 64, 64, 64, 32)
    assert _digest(hinted(func, stages=5)) == _digest(func), "the loop has stages of its own"


class _Counting(PooledRunner):
    """Counts what it measures; a library of the name ``wrong`` computes something else."""

    def __init__(self) -> None:
        super().__init__(SimpleNamespace(), 1.0, None)
        self.measured: list[str] = []

    def submit(self, artifact, device_type, taken) -> Future[Measurement]:
        self.measured.append(artifact)
        done: Future[Measurement] = Future()
        done.set_result(Measurement((1.0,), None, "differs" if artifact == "wrong" else ""))
        return done


def test_a_kernel_is_measured_once_for_each_task_and_arguments() -> None:
    runner, shapes = _Counting(), (((64, 64), "float16"),)
    known = Facts("1", kernel="a")
    for artifact, facts, taken in (
        ("first", known, shapes),
        ("same", replace(known, config={"tile_m": 64}), shapes),
        ("other kernel", replace(known, kernel="b"), shapes),
        ("other task", replace(known, workload="2"), shapes),
        ("other arguments", known, ()),
        ("unknown", replace(known, kernel=""), shapes),
        ("unknown, too", replace(known, kernel=""), shapes),
        ("wrong", replace(known, kernel="c"), shapes),
        ("perhaps right", replace(known, kernel="c"), shapes),
    ):
        assert runner.submit_once(artifact, "cuda", taken, facts).done()
    assert runner.measured == [
        "first", "other kernel", "other task", "other arguments", "unknown", "unknown, too",
        "wrong", "perhaps right",
    ]  # fmt: skip

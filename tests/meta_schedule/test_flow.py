"""A model from its functions to its results, tuned without a GPU, in less than three minutes."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.frontend import nn
from tvm.s_tir import meta_schedule as ms

import warploom
from warploom import meta_schedule as wms
from warploom.decide.model import predict
from warploom.gemm.annotations import config_of, has_decisions
from warploom.gemm.recognition import recognise
from warploom.meta_schedule.records import records_of

ROWS, WIDTH, HIDDEN = 64, 64, 128


class _Block(nn.Module):
    def __init__(self) -> None:
        self.up = nn.Linear(WIDTH, HIDDEN, bias=True)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.down(nn.op.relu(self.up(x))) + x


def _functions(target) -> tvm.IRModule:
    block = _Block()
    block.to("float16")
    spec = {"forward": {"x": nn.spec.Tensor([ROWS, WIDTH], "float16")}}
    passes = [
        relax.transform.FuseTransposeMatmul(),
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]
    with target:
        return tvm.transform.Sequential(passes)(block.export_tvm(spec)[0])


@pytest.mark.gpu
def test_extract_tune_apply_build_and_run(tmp_path, rng):
    target = warploom.cuda_target("h200")
    plain = _functions(target)
    mod = wms.estimate_module(plain)

    estimated = wms.estimate_target(target)
    tasks = ms.relax_integration.extract_tasks(mod, estimated, {})
    assert len(tasks) == 2
    contexts, weights = ms.relax_integration.extracted_tasks_to_tune_contexts(
        tasks, str(tmp_path), space=wms.Space(), seed=1, num_threads=1,
        strategy=ms.search_strategy.EvolutionarySearch(population_size=32, genetic_num_iters=1),
    )  # fmt: skip
    database = ms.tune.tune_tasks(
        tasks=contexts, task_weights=weights, work_dir=str(tmp_path), max_trials_global=16,
        max_trials_per_task=8, num_trials_per_iter=8, builder=wms.EstimateBuilder(),
        runner=wms.EstimateRunner(), cost_model=wms.CostModel(),
    )  # fmt: skip
    records = records_of(database)
    assert len(records) == 16 and all(one.estimate for one in records)

    with target, ms.database.JSONDatabase(work_dir=str(tmp_path)):
        untouched = relax.transform.MetaScheduleApplyDatabase()(plain)
    assert not any(map(has_decisions, untouched.functions.values())), "estimates, and a real GPU"
    with target, wms.open_database(tmp_path):
        applied = relax.transform.MetaScheduleApplyDatabase()(mod)
    found = [one for one in applied.functions.values() if has_decisions(one)]
    assert len(found) == 2
    for one in found:
        problem = recognise(one).problem
        best = min(record.seconds for record in records if record.problem == problem)
        assert predict(problem, config_of(one)).total * 1e-6 == pytest.approx(best)

    executable = relax.build(applied, target, relax_pipeline="warploom")
    arrays = [
        (0.2 * rng.standard_normal(shape)).astype("float16")
        for shape in ((ROWS, WIDTH), (HIDDEN, WIDTH), (HIDDEN,), (WIDTH, HIDDEN))
    ]
    tensors = [tvm.runtime.tensor(one, tvm.cuda(0)) for one in arrays]
    result = relax.VirtualMachine(executable, tvm.cuda(0))["forward"](*tensors).numpy()
    x, up, bias, down = (one.astype("float64") for one in arrays)
    expected = np.maximum(x @ up.T + bias, 0) @ down.T + x
    assert np.abs(result - expected).max() < 0.01 * np.abs(expected).max()

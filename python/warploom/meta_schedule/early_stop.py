"""Ends the search for a task once measurements only confirm the cost model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule import TaskScheduler
from tvm.s_tir.meta_schedule.builder import BuilderResult
from tvm.s_tir.meta_schedule.measure_callback import PyMeasureCallback
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

from warploom.meta_schedule.cost_model import CostModel


@dataclass
class _Progress:
    best: float = float("inf")
    trials: int = 0
    since_best: int = 0


@derived_object
class EarlyStop(PyMeasureCallback):
    """A measure callback that ends tasks early; it follows recorder and model update.

    Parameters
    ----------
    model : CostModel
        Which says how far the last measurements were from its predictions.
    max_trials_global : int
        As the search has it. TVM ends all tasks itself once that many trials are begun, and fails
        if one has ended then.
    least_trials : int
        Measured before a task may end.
    patience : int
        Trials without improvement before it ends.
    surprise : float
        It does not end while half of the last measurements are further from the predictions than
        this, in parts of them.
    gain : float
        A smaller improvement is none, in parts of the best time.

    Examples
    --------
    >>> model = wms.CostModel()  # doctest: +SKIP
    >>> stop = wms.EarlyStop(model, max_trials_global=64)  # doctest: +SKIP
    >>> callbacks = [*ms.MeasureCallback.create("default"), stop]  # doctest: +SKIP
    >>> ms.tune_tir(mod, target, "work_dir", 64, space=wms.Space(), cost_model=model,
    ...             measure_callbacks=callbacks)  # doctest: +SKIP
    """

    def __init__(
        self,
        model: CostModel,
        max_trials_global: int,
        least_trials: int = 24,
        patience: int = 16,
        surprise: float = 0.05,
        gain: float = 0.005,
    ) -> None:
        super().__init__()
        self.model, self.max_trials_global = model, max_trials_global
        self.least_trials, self.patience = least_trials, patience
        self.surprise, self.gain = surprise, gain
        self.tasks: dict[int, _Progress] = {}

    def apply(
        self,
        task_scheduler: TaskScheduler,
        task_id: int,
        measure_candidates: list[MeasureCandidate],
        builder_results: list[BuilderResult],
        runner_results: list[RunnerResult],
    ) -> None:
        task = task_scheduler.tasks_[task_id]
        progress = self.tasks.setdefault(task_id, _Progress())
        for result in runner_results:
            seconds = [float(seconds) for seconds in result.run_secs or ()]
            progress.trials += 1
            progress.since_best += 1
            if seconds and sorted(seconds)[len(seconds) // 2] < progress.best * (1 - self.gain):
                progress.best = sorted(seconds)[len(seconds) // 2]
                progress.since_best = 0
        running = sum(
            len(task.measure_candidates or ())
            for number, task in enumerate(task_scheduler.tasks_)
            if number != task_id
        )
        begun = running + sum(task.trials for task in self.tasks.values())
        ends_anyway = task.is_terminated or begun >= self.max_trials_global
        if not ends_anyway and self.is_enough(progress, str(task.ctx.task_name)):
            task_scheduler.terminate_task(task_id)

    def is_enough(self, progress: Any, name: str) -> bool:
        """Whether further trials of a task would teach nothing."""
        surprise = self.model.surprise.get(name)
        return (
            surprise is not None
            and surprise <= self.surprise
            and progress.trials >= self.least_trials
            and progress.since_best >= self.patience
        )

"""A cost model that knows the analytic one and learns how far reality is from it.

Gradient boosting learns the logarithm of measured over predicted time. Without data that is
zero, so that the analytic model decides alone; and experience with one GEMM holds for
others, since it is about shares and not about microseconds.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.cost_model import PyCostModel, XGBModel
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate
from tvm.target import Target

from warploom.decide.machine import Machine
from warploom.decide.machines import machine_for
from warploom.decide.problem import GemmProblem
from warploom.errors import WarploomError
from warploom.gemm.annotations import config_of
from warploom.meta_schedule.estimates import is_estimate
from warploom.meta_schedule.features import features
from warploom.meta_schedule.lookup import Lookup
from warploom.meta_schedule.records import Record
from warploom.meta_schedule.stock import gemm_of

#: Fewer measurements than these say more about their noise than about the model.
_LEAST_SAMPLES = 8
_PARAMETERS = {
    "max_depth": 4, "eta": 0.15, "subsample": 0.9, "lambda": 2.0, "min_child_weight": 2.0,
    "objective": "reg:squarederror", "nthread": 1, "seed": 0, "verbosity": 0,
}  # fmt: skip
_ROUNDS = 80


@derived_object
class CostModel(PyCostModel):
    """``cost_model=warploom.meta_schedule.CostModel()``; other functions get TVM's XGBModel.

    Parameters
    ----------
    machine : Machine, optional
        The assumptions of the analytic model; by default those for the GPU of each task's target.
    known : Lookup, optional
        Configs that were the fastest when they were measured: they are tried before all others. By
        default the package's.

    Raises
    ------
    WarploomError
        If xgboost is not installed.

    Attributes
    ----------
    surprise : dict from str to float
        By name of the task: how far the last measurements were from what this model had predicted,
        as the median of ``|log(measured / predicted)|``.

    Examples
    --------
    >>> ms.tune_tir(mod, target, "work_dir", 64, space=wms.Space(),
    ...             cost_model=wms.CostModel())  # doctest: +SKIP
    """

    def __init__(self, machine: Machine | None = None, known: Lookup | None = None) -> None:
        if importlib.util.find_spec("xgboost") is None:
            raise WarploomError(
                "The cost model needs xgboost, which is not installed; install warploom[tune], or "
                "the package xgboost-cpu."
            )
        super().__init__()
        self.machine = machine
        self.known = Lookup.shipped() if known is None else known
        self.surprise: dict[str, float] = {}
        self._stock: Any = None
        self._rows: list[NDArray[np.float32]] = []
        self._errors: list[float] = []
        self._booster: Any = None
        self._problems: dict[str, GemmProblem | None] = {}

    def predict(
        self, context: TuneContext, candidates: list[MeasureCandidate]
    ) -> NDArray[np.float64]:
        problem = self._problem(context)
        if problem is None:
            return self._other().predict(context, candidates)
        rows, predicted = self._describe(context.target, problem, candidates)
        times = np.exp(predicted + self._correction(rows))
        first = None if is_estimate(context.target) else self.known.config(problem)
        for number, candidate in enumerate(candidates):
            if first is not None and config_of(candidate.sch.mod["main"], problem) == first:
                times[number] = times.min()
        return (times.min() / times).astype("float64")

    def update(
        self,
        context: TuneContext,
        candidates: list[MeasureCandidate],
        results: list[RunnerResult],
    ) -> None:
        problem = self._problem(context)
        if problem is None:
            self._other().update(context, candidates, results)
            return
        timed = [(c, r) for c, r in zip(candidates, results, strict=True) if r.run_secs]
        if not timed:
            return
        rows, predicted = self._describe(
            context.target, problem, [candidate for candidate, _ in timed]
        )
        seconds = [
            np.median([float(seconds) for seconds in result.run_secs]) for _, result in timed
        ]
        errors = np.log(np.array(seconds) * 1e6) - predicted
        wrong = np.abs(errors - self._correction(rows))
        self.surprise[str(context.task_name)] = float(np.median(wrong))
        self._rows.extend(rows)
        self._errors.extend(float(error) for error in errors)
        self._train()

    def learn(self, records: Iterable[Record]) -> None:
        """Learn from all records of the same GPU, of any GEMM."""
        for record in records:
            row, prediction = features(record.problem, record.config, self.machine or machine_for())
            self._rows.append(row)
            self._errors.append(float(np.log(record.seconds * 1e6 / prediction.total)))
        self._train()

    def save(self, path: str) -> None:
        """Write the measurements; the model is trained again from them."""
        rows = [row.tolist() for row in self._rows]
        Path(path).write_text(json.dumps({"rows": rows, "errors": self._errors}))

    def load(self, path: str) -> None:
        """Read a file of :meth:`save`."""
        state = json.loads(Path(path).read_text())
        self._rows = [np.array(row, "float32") for row in state["rows"]]
        self._errors = list(state["errors"])
        self._train()

    def _other(self) -> Any:
        if self._stock is None:
            self._stock = XGBModel(num_tuning_cores=1)
        return self._stock

    def _problem(self, context: TuneContext) -> GemmProblem | None:
        name = str(context.task_name)
        if name not in self._problems:
            gemm = gemm_of(context.mod)
            self._problems[name] = gemm.problem if gemm is not None else None
        return self._problems[name]

    def _describe(
        self, target: Target | None, problem: GemmProblem, candidates: list[MeasureCandidate]
    ) -> tuple[list[NDArray[np.float32]], NDArray[np.float64]]:
        """Features, and the logarithms of the analytic model's microseconds."""
        machine = self.machine or machine_for(target)
        parts = [
            features(problem, config_of(candidate.sch.mod["main"], problem), machine)
            for candidate in candidates
        ]
        return [row for row, _ in parts], np.log([prediction.total for _, prediction in parts])

    def _correction(self, rows: list[NDArray[np.float32]]) -> NDArray[np.float64]:
        """The logarithm of the factor of predictions."""
        if self._booster is None:
            return np.zeros(len(rows))
        import xgboost

        return self._booster.predict(xgboost.DMatrix(np.stack(rows))).astype("float64")

    def _train(self) -> None:
        if len(self._rows) < _LEAST_SAMPLES:
            return
        import xgboost

        target = np.array(self._errors)
        data = xgboost.DMatrix(np.stack(self._rows), target)
        start = {**_PARAMETERS, "base_score": float(np.median(target))}
        self._booster = xgboost.train(start, data, _ROUNDS)

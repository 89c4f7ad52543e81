"""A search strategy that proposes nothing that the database has already."""

from __future__ import annotations

import tvm_ffi
from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.cost_model import CostModel
from tvm.s_tir.meta_schedule.database import Database, TuningRecord
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import (
    EvolutionarySearch,
    MeasureCandidate,
    PySearchStrategy,
    SearchStrategy,
)
from tvm.target import Target

from warploom.errors import WarploomError
from warploom.gemm.annotations import config_of
from warploom.gemm.problem import GemmFunction
from warploom.meta_schedule.records import config_of_trace
from warploom.meta_schedule.stock import gemm_of


@derived_object
class Unmeasured(PySearchStrategy):
    """The candidates of another strategy, without those that have a record for the same target.

    TVM's strategies only know their own proposals: a search that goes on in the
    folder of an earlier search would compile and measure its best candidates again. A record of a
    candidate that failed counts as well: it would fail again.

    Parameters
    ----------
    strategy : SearchStrategy, optional
        The strategy that proposes candidates; by default ``EvolutionarySearch()`` of TVM.

    Examples
    --------
    >>> ms.tune_tir(mod, target, work_dir, 64, space=wms.Space(),
    ...             strategy=wms.Unmeasured())  # doctest: +SKIP
    """

    def __init__(self, strategy: SearchStrategy | None = None) -> None:
        super().__init__()
        self.strategy = EvolutionarySearch() if strategy is None else strategy
        self.context: TuneContext | None = None
        self.gemm: GemmFunction | None = None
        self.known: set[str] = set()
        self.waiting: list[MeasureCandidate] = []
        self.batch = self.left = 0

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        self.context, self.gemm = context, gemm_of(context.mod)
        self.strategy._initialize_with_tune_context(context)

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: list[Schedule],
        database: Database | None = None,
        cost_model: CostModel | None = None,
    ) -> None:
        self.left, self.batch, self.waiting = int(max_trials), int(num_trials_per_iter), []
        self.known = set() if database is None else self._recorded(database)
        self.strategy.pre_tuning(
            max_trials, num_trials_per_iter, design_spaces, database, cost_model
        )

    def post_tuning(self) -> None:
        self.strategy.post_tuning()

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        """A full batch, unless fewer trials are left or the other strategy has no more."""
        wanted = min(self.batch, self.left)
        while len(self.waiting) < wanted:
            candidates = self.strategy.generate_measure_candidates()
            if candidates is None:  # which TVM's strategies do once they find nothing new
                break
            self.waiting += [
                candidate
                for candidate in candidates
                if self._key(candidate.sch.mod) not in self.known
            ]
        chosen, self.waiting = self.waiting[:wanted], self.waiting[wanted:]
        self.left -= len(chosen)
        return chosen or None

    def notify_runner_results(
        self, measure_candidates: list[MeasureCandidate], results: list[RunnerResult]
    ) -> None:
        self.strategy.notify_runner_results(measure_candidates, results)

    def clone(self) -> SearchStrategy:
        return Unmeasured(self.strategy.clone())

    def _recorded(self, database: Database) -> set[str]:
        """The candidates of this task that a database has."""
        wanted = tvm_ffi.structural_hash(self.context.mod)
        return {
            self._key_of_record(record)
            for record in database.get_all_tuning_records()
            if record.target is not None
            and same_device(record.target, self.context.target)
            and tvm_ffi.structural_hash(record.workload.mod) == wanted
        }

    def _key(self, mod: IRModule) -> str:
        """The same for candidates that compile to the same kernel."""
        if self.gemm is not None:
            config = config_of(mod["main"], self.gemm.problem)
            if config is not None:
                return str(config)
        return str(tvm_ffi.structural_hash(mod))

    def _key_of_record(self, record: TuningRecord) -> str:
        if self.gemm is not None:
            try:
                config = config_of_trace(record.trace, self.gemm.problem)
            except WarploomError:  # config of another version: no candidate is like this
                return ""
            if config is not None:
                return str(config)
        return self._key(record.as_measure_candidate().sch.mod)


def same_device(first: Target, second: Target) -> bool:
    """Whether times for two targets are comparable; the host that calls a kernel does not count."""
    mine, theirs = (
        {name: str(value) for name, value in dict(target.export()).items() if name != "host"}
        for target in (first, second)
    )
    return mine == theirs

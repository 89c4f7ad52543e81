"""Which configs a search measures, and the design space that MetaSchedule sees of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.arg_info import TensorInfo
from tvm.s_tir.meta_schedule.cost_model import CostModel
from tvm.s_tir.meta_schedule.database import Database
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import (
    MeasureCandidate,
    PySearchStrategy,
    SearchStrategy,
)
from tvm.s_tir.meta_schedule.space_generator import PySpaceGenerator, SpaceGenerator

from warploom.language.tuning.space import Config, Space, encode
from warploom.meta_schedule.programs.candidates import Candidate, Candidates
from warploom.meta_schedule.programs.workload import config_of, sampled, schedule_of
from warploom.meta_schedule.records import FAILED_SECONDS


@derived_object
class ProgramSpace(PySpaceGenerator):
    """``space=`` of MetaSchedule for a stand-in: its parameters, each drawn by itself.

    Parameters
    ----------
    space : Space
    """

    def __init__(self, space: Space) -> None:
        super().__init__()
        self.space = space
        self.sch_rules, self.postprocs, self.mutator_probs = [], [], {}

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        pass

    def generate_design_space(self, mod: IRModule) -> list[Schedule]:
        return [sampled(mod, self.space)]

    def clone(self) -> SpaceGenerator:
        return ProgramSpace(self.space)


@derived_object
class Ranked(PySearchStrategy):
    """The most promising candidates first; then also neighbours of the fastest so far.

    A candidate that cannot be compiled, or whose record exists, is no trial.

    Parameters
    ----------
    candidates : Candidates
    mod : IRModule
        The stand-in.
    known : sequence of (dict, float)
        Configs with a record, and their seconds; failed ones have ``FAILED_SECONDS`` or more.
    trials : int
        Candidates to measure.
    """

    def __init__(
        self,
        candidates: Candidates,
        mod: IRModule,
        known: Sequence[tuple[Config, float]],
        trials: int,
    ) -> None:
        super().__init__()
        self.candidates, self.mod, self.left = candidates, mod, trials
        self.times = {encode(config): seconds for config, seconds in known}
        self.configs = {encode(config): config for config, _ in known}
        self.order: Iterator[Candidate] = iter(())
        self.batch, self.measured = 1, False

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        pass

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: list[Schedule],
        database: Database | None = None,
        cost_model: CostModel | None = None,
    ) -> None:
        self.batch, self.order = int(num_trials_per_iter), self.candidates.ranked()

    def post_tuning(self) -> None:
        pass

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        chosen: list[Candidate] = []
        wanted = min(self.batch, self.left)
        if self.measured:
            chosen += self._new(self._near_best(), (wanted + 1) // 2)
        chosen += self._new(self.order, wanted - len(chosen))
        return [self._measured(one) for one in chosen] or None

    def notify_runner_results(
        self, measure_candidates: list[MeasureCandidate], results: list[RunnerResult]
    ) -> None:
        self.measured = True
        for candidate, result in zip(measure_candidates, results, strict=True):
            text = encode(config_of(candidate.sch.mod))
            seconds = [float(value) for value in result.run_secs or ()]
            self.times[text] = statistics.median(seconds) if seconds else FAILED_SECONDS
            self.left -= text not in self.candidates.left_out

    def clone(self) -> SearchStrategy:
        known = [(config, self.times[text]) for text, config in self.configs.items()]
        return Ranked(self.candidates, self.mod, known, self.left)

    def _near_best(self) -> Iterator[Candidate]:
        fastest = min(self.times, key=self.times.__getitem__)
        if self.times[fastest] < FAILED_SECONDS and fastest in self.configs:
            yield from self.candidates.near(self.configs[fastest])

    def _new(self, candidates: Iterator[Candidate], count: int) -> list[Candidate]:
        """The first so many that have not been measured or chosen."""
        chosen: list[Candidate] = []
        while len(chosen) < count and (one := next(candidates, None)) is not None:
            text = encode(one.config)
            if text not in self.times:
                self.times[text] = FAILED_SECONDS
                self.configs[text] = one.config
                chosen.append(one)
        return chosen

    def _measured(self, one: Candidate) -> MeasureCandidate:
        config: Config = one.config
        sch = schedule_of(self.mod, self.candidates.task.space, config, one.digest)
        infos = [TensorInfo(parameter.dtype, list(shape))
                 for parameter, shape in self.candidates.shapes if shape is not None]  # fmt: skip
        return MeasureCandidate(sch, infos)

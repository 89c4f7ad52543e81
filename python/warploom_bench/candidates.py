"""Configs of one GEMM: the selection, their order, and their times."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import product, zip_longest
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir import Schedule
from tvm.tirx import PrimFunc

from warploom.decide.candidates import candidates, most_stages
from warploom.decide.config import Config
from warploom.decide.model import predict
from warploom.decide.old_records import read_config, with_new_key
from warploom.decide.problem import GemmProblem
from warploom.decide.repair import why_not_search
from warploom.errors import WarploomError, reading
from warploom.gemm.annotations import annotate
from warploom.gemm.recognition import recognise
from warploom.gemm.workloads import function
from warploom.gemm_shape import GemmShape
from warploom.meta_schedule import Builder, Runner
from warploom.meta_schedule.measure import Measurement, arguments_of
from warploom.meta_schedule.runner import outcome

#: Ways to share and to store tiles that the model is not fitted to, and so does not choose.
_OTHER = (
    {"reduce_through": "cluster"}, {"stream_k": True}, {"store_buffers": 4}, {"sms": 128},
    {"l2_policy": 2}
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One candidate as the output of ``bench exhaustive`` has it; microseconds, and MHz.

    Attributes
    ----------
    shape : dict
        As :class:`GemmShape` has it.
    config : dict
    predicted : float
    us : float or None
        The median of ``samples``; None if there is no time.
    samples : list of float
    clock : int or None
    error : str
        Why there is no time; empty if there is one.
    """

    shape: dict[str, Any]
    config: dict[str, int]
    predicted: float
    us: float | None
    samples: list[float]
    clock: int | None
    error: str


@dataclass(frozen=True)
class Selection:
    """Which candidates of a GEMM are measured.

    Attributes
    ----------
    count : int
        At most so many.
    within : float
        Only those that the model predicts to take at most so many times as long as its best.
    accept : mapping from str to int
        Only those with these choices.
    exactly : mapping from GemmShape to sequence of dict
        Configs by name of each GEMM: the legal ones of these and no others, whatever the model
        thinks of them; without ``stages``, with as many as fit.
    """

    count: int = 64
    within: float = math.inf
    accept: Mapping[str, int] | None = None
    exactly: Mapping[GemmShape, Sequence[Mapping[str, int]]] | None = None

    def __post_init__(self) -> None:
        if self.count < 1 or not self.within >= 1:
            raise WarploomError(
                f"A selection of {self.count} candidates within {self.within:g} times the best "
                "prediction is empty; use at least 1 of both."
            )
        Config.check_names(self.accept or {})

    def of(self, legal: Sequence[tuple[float, Config]]) -> list[tuple[float, Config]]:
        """Predictions with configs, in the order in which they are measured."""
        accepted = sorted(
            (
                (predicted, number)
                for number, (predicted, config) in enumerate(legal)
                if all(
                    getattr(config, name) == value for name, value in (self.accept or {}).items()
                )
            ),
        )
        limit = self.within * accepted[0][0] if accepted else 0.0
        near = [legal[number] for predicted, number in accepted if predicted <= limit]
        return list(varied(near))[: self.count]


class GemmCandidates:
    """A shape, its candidates, and their results.

    Parameters
    ----------
    shape : GemmShape
        Or other sizes, with ``func``.
    func : PrimFunc, optional
        That computes it; by default the GEMM of the shape.
    """

    def __init__(self, shape: Any, func: PrimFunc | None = None) -> None:
        self.shape = shape
        self.function = func or function(shape)
        self.mod = tvm.IRModule({"main": self.function})
        gemm = recognise(self.function)
        self.anchor, self.problem = gemm.anchor, gemm.problem
        self.arguments = arguments_of(self.function)
        self.chosen: list[tuple[float, Config]] = []
        self.built: list[Future[str]] = []
        self._begun: dict[Config, Future[str]] = {}

    def select(self, selection: Selection) -> None:
        """Decide which candidates are measured."""
        if selection.exactly is not None:
            wanted = [
                wanted_config(values, self.problem) for values in selection.exactly[self.shape]
            ]
            legal = [config for config in wanted if config.why_not(self.problem) is None]
            self.chosen = [(predict(self.problem, config).total, config) for config in legal]
            return
        legal = [
            (predict(self.problem, config).total, config) for config in everything(self.problem)
        ]
        self.chosen = selection.of(legal)

    def submit(self, config: Config, builder: Builder, target: Any) -> Future[str]:
        """Have one candidate compiled, once; the future's result is the path of its library."""
        begun = self._begun.get(config)
        if begun is not None and not begun.cancelled():
            return begun
        sch = Schedule(self.mod)
        annotate(sch, sch.get_sblock(self.anchor, "main"), config.values())
        self._begun[config] = builder.submit(sch.mod, target)
        return self._begun[config]

    def begin(self, builder: Builder, target: Any) -> None:
        """Have all that were selected compiled."""
        self.built = [self.submit(config, builder, target) for _, config in self.chosen]

    def measure(self, runner: Runner, until: float) -> Iterator[Line]:
        """Time the candidates, in order, until a moment of ``time.monotonic``."""
        running: list[tuple[int, Future[Measurement]]] = []
        for number, future in enumerate(self.built):
            if time.monotonic() > until:
                future.cancel()
                continue
            try:
                running.append((number, runner.submit(future.result(), "cuda", self.arguments)))
            except WarploomError as error:
                yield self._line(number, None, str(error))
            while len(running) > len(runner.pool.workers):  # one more than are being measured
                yield self._finish(*running.pop(0))
        for trial in running:
            yield self._finish(*trial)

    def _finish(self, number: int, future: Future[Measurement]) -> Line:
        return self._line(number, *outcome(future))

    def _line(self, number: int, measurement: Measurement | None, error: str) -> Line:
        predicted, config = self.chosen[number]
        shape = {**vars(self.shape)}
        samples = [second * 1e6 for second in measurement.seconds] if measurement else []
        median = sorted(samples)[len(samples) // 2] if samples else None
        clock = measurement.clock if measurement else None
        return Line(shape, config.values(), predicted, median, samples, clock, error)


def wanted_config(values: Mapping[str, int], problem: GemmProblem) -> Config:
    """Configs by name for a problem; with as many stages as fit, if it does not say."""
    config = read_config({"stages": 1, **values})
    return (
        config
        if "stages" in values
        else replace(config, stages=max(1, most_stages(config, problem)))
    )


def read_wanted(file: Path) -> dict[GemmShape, list[dict[str, int]]]:
    """Read the candidates that a file of JSON lines asks for, by shape.

    A line has ``shape`` and ``config`` as :class:`Line` has, so that the output of an earlier run
    can be measured again; or ``shapes``, a list of ``[M, N, K]``, with a ``dtype``, and ``config``
    with lists of values, all combinations of which are wanted. Lines without a config say nothing.

    Raises
    ------
    WarploomError
        If a line names a shape or a choice that does not exist.
    """
    wanted: dict[GemmShape, list[dict[str, int]]] = {}
    with reading(file, "list of candidates"):
        for text in file.read_text(encoding="utf-8").splitlines():
            line = with_new_key(json.loads(text))
            if "config" not in line:
                continue
            read_config({name: 1 for name in line["config"]})  # names alone
            shapes = [line["shape"]] if "shape" in line else [
                {"group": file.stem, "m": m, "n": n, "k": k, "dtype": line["dtype"]}
                for m, n, k in line["shapes"]
            ]  # fmt: skip
            values = [
                value if isinstance(value, list) else [value] for value in line["config"].values()
            ]
            config = [
                dict(zip(line["config"], values_of, strict=True)) for values_of in product(*values)
            ]
            for shape in shapes:
                mine = wanted.setdefault(GemmShape(**shape), [])
                mine += [name for name in config if name not in mine]
    return wanted


def everything(problem: GemmProblem) -> Iterator[Config]:
    """Yield the configs that the model chooses from, then each with other sharing or storing."""
    for candidate in candidates(problem):
        yield candidate
        for change in _OTHER:
            other = replace(candidate, **change, stages=1)
            other = replace(other, stages=max(1, most_stages(other, problem)))
            if why_not_search(problem, other) is None:
                yield other


def varied(ordered: Sequence[tuple[float, Config]]) -> Iterator[tuple[float, Config]]:
    """The same candidates, in turns the best and the best of a tile that has not been seen."""
    first: dict[tuple[int, int, bool], tuple[float, Config]] = {}
    for choice in ordered:
        first.setdefault((choice[1].tile_m, choice[1].tile_n, choice[1].swap_ab), choice)
    seen = set()
    for pair in zip_longest(ordered, first.values()):
        for choice in pair:
            if choice is not None and choice[1] not in seen:
                seen.add(choice[1])
                yield choice

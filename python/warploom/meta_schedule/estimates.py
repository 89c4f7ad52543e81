"""Tuning without a GPU: times that the analytic model estimates, and how they are told apart.

A record for a target with the key ``"estimate"`` is an estimate. The builder and runner of
this module take only such targets, those for real devices only others, so that no database can
have both for one target.

TVM's databases find records by the function alone, whatever target is asked for. Therefore
estimates are recorded for functions with an attribute of their own: neither ``query_schedule`` nor
``MetaScheduleApplyDatabase`` finds them for a function as a model has it.
"""

from __future__ import annotations

from pathlib import Path

from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult, PyBuilder
from tvm.s_tir.meta_schedule.runner import (
    PyRunner,
    PyRunnerFuture,
    RunnerFuture,
    RunnerInput,
    RunnerResult,
)
from tvm.target import Target
from tvm.tirx import PrimFunc

from warploom.decide.machine import H200, Machine
from warploom.decide.model import predict
from warploom.errors import Decline, WarploomError
from warploom.gemm.annotations import config_of
from warploom.gemm.recognition import recognise
from warploom.meta_schedule import artifact
from warploom.meta_schedule.measure import Listener, Measurement

#: The key of a target whose records are estimates.
KEY = "estimate"
#: The attribute of functions that estimates are recorded for.
MARK = "warploom.estimate"


def estimate_module(mod: IRModule | PrimFunc) -> IRModule:
    """A module whose functions estimates are recorded and found for; it computes the same.

    Parameters
    ----------
    mod : IRModule or PrimFunc
        A function becomes a module with the function ``main``.

    Examples
    --------
    >>> target = wms.estimate_target(cuda_target("h200"))  # doctest: +SKIP
    >>> mod = wms.estimate_module(mod)  # doctest: +SKIP
    >>> database = wms.tune_tir(mod, target, "work_dir", 16)  # doctest: +SKIP
    >>> database.query_schedule(mod, target, "main")  # doctest: +SKIP
    """
    if isinstance(mod, PrimFunc):
        mod = IRModule({"main": mod})
    functions = {
        gv: func.with_attr(MARK, True) if isinstance(func, PrimFunc) else func
        for gv, func in mod.functions.items()
    }
    return IRModule(functions, attrs=mod.attrs)


def estimate_target(target: Target) -> Target:
    """A target as another, for which times are estimated.

    Examples
    --------
    >>> target = wms.estimate_target(warploom.cuda_target("h200"))
    >>> "estimate" in list(target.keys)
    True
    """
    config = dict(target.export())
    return Target({**config, "keys": [*config["keys"], KEY]}, host=target.host)


def is_estimate(target: Target) -> bool:
    """Whether records of a target are estimates."""
    return KEY in [str(key) for key in target.keys]


def refuse_estimates(target: Target) -> None:
    """Raise if measured times would be recorded as estimates."""
    if is_estimate(target):
        raise WarploomError(
            "The target is marked for estimates, which are never mixed with measured times; use "
            "one without the key 'estimate', or EstimateBuilder and EstimateRunner."
        )


@derived_object
class EstimateBuilder(PyBuilder):
    """Estimates how long candidates take; compiles nothing.

    Parameters
    ----------
    machine : Machine
        The GPU that is imagined.

    Examples
    --------
    >>> ms.tune_tir(mod, target, "work_dir", 64, space=wms.Space(), builder=wms.EstimateBuilder(),
    ...             runner=wms.EstimateRunner())  # doctest: +SKIP
    """

    def __init__(self, machine: Machine = H200) -> None:
        super().__init__()
        self.machine = machine

    def build(self, build_inputs: list[BuilderInput]) -> list[BuilderResult]:
        return [self._build(build_input) for build_input in build_inputs]

    def _build(self, builder_input: BuilderInput) -> BuilderResult:
        try:
            if not is_estimate(builder_input.target):
                raise WarploomError("Estimates need a target from estimate_target().")
            func = builder_input.mod["main"]
            if MARK not in (func.attrs or {}):
                raise WarploomError(
                    "Estimates are recorded for functions of estimate_module(mod), so that nobody "
                    "finds them for a real device; tune that module."
                )
            config = config_of(func)
            if config is None:
                raise WarploomError("Only GEMMs can be estimated.")
            problem = recognise(func).problem
            microseconds = predict(problem, config, self.machine).total
        except (Decline, WarploomError) as error:
            return BuilderResult(None, str(error))
        path = artifact.new_folder() / artifact.ESTIMATE
        path.touch()
        facts = artifact.Facts("", str(problem), config.values(), microseconds)
        artifact.write_facts(path.parent, facts)
        return BuilderResult(str(path), None)


@derived_object
class EstimateRunner(PyRunner):
    """Returns the estimates of :class:`EstimateBuilder`.

    Parameters
    ----------
    listener : callable, optional
        As of :class:`warploom.meta_schedule.Runner`.

    Examples
    --------
    >>> ms.tune_tir(mod, target, "work_dir", 64, space=wms.Space(), builder=wms.EstimateBuilder(),
    ...             runner=wms.EstimateRunner())  # doctest: +SKIP
    """

    def __init__(self, listener: Listener | None = None) -> None:
        super().__init__()
        self.listener = listener

    def run(self, runner_inputs: list[RunnerInput]) -> list[RunnerFuture]:
        return [
            _Known(self._result(Path(str(runner_input.artifact_path))))
            for runner_input in runner_inputs
        ]

    def _result(self, path: Path) -> RunnerResult:
        if path.name != artifact.ESTIMATE:
            return RunnerResult(None, f"{path} is a compiled kernel, and no estimate.")
        facts = artifact.read_facts(path)
        seconds = facts.predicted * 1e-6
        if self.listener is not None:
            self.listener(facts, Measurement((seconds,), None), "")
        return RunnerResult([seconds], None)


@derived_object
class _Known(PyRunnerFuture):
    def __init__(self, known: RunnerResult) -> None:
        super().__init__()
        self.known = known

    def done(self) -> bool:
        return True

    def result(self) -> RunnerResult:
        return self.known

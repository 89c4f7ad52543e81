"""Tuning records of GEMMs, in both directions: configs from traces and back."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.database import Database, TuningRecord
from tvm.s_tir.schedule import Trace
from tvm.target import Target

from warploom.decide.config import Config
from warploom.decide.draws import draws
from warploom.decide.old_records import read_config
from warploom.decide.problem import GemmProblem
from warploom.errors import IllegalCombination, WarploomError
from warploom.gemm.annotations import PREFIX, annotate
from warploom.gemm.recognition import recognise
from warploom.meta_schedule.estimates import is_estimate
from warploom.meta_schedule.stock import gemm_of
from warploom.target.tvm_target import gpu_of

#: TVM records a time above this for a candidate that failed.
FAILED_SECONDS = 1e9


@dataclass(frozen=True)
class Record:
    """A tuning record of a GEMM.

    Attributes
    ----------
    problem : GemmProblem
    config : Config
    seconds : float
        The median.
    arch : str
        Of the target, such as ``"sm_90a"``.
    estimate : bool
        Whether the analytic model, and no GPU, said so.
    stock : TuningRecord or None
        As TVM has it; None for records that come with the package.
    gpu : str
        The GPU it was measured on, as :attr:`warploom.target.gpus.Gpu.model` has it; empty if that
        is not known.
    """

    problem: GemmProblem
    config: Config
    seconds: float
    arch: str
    estimate: bool
    stock: TuningRecord | None
    gpu: str = ""


def records_of(database: Database) -> list[Record]:
    """The successful records of GEMMs; all others are left out."""
    problems: dict[int, GemmProblem | None] = {}
    records = []
    for tuned in database.get_all_tuning_records():
        key = tvm_ffi.structural_hash(tuned.workload.mod)
        if key not in problems:
            gemm = gemm_of(tuned.workload.mod)
            problems[key] = gemm.problem if gemm is not None else None
        record = _record(tuned, problems[key])
        if record is not None:
            records.append(record)
    return records


def _record(tuned: TuningRecord, problem: GemmProblem | None) -> Record | None:
    seconds = median(tuned)
    if problem is None or seconds >= FAILED_SECONDS or tuned.target is None:
        return None
    try:
        config = config_of_trace(tuned.trace, problem)
    except WarploomError:
        return None
    if config is None:
        return None
    arch = str(tuned.target.attrs.get("arch", ""))
    estimate = is_estimate(tuned.target)
    return Record(problem, config, seconds, arch, estimate, tuned, _gpu(tuned.target))


def _gpu(target: Target) -> str:
    try:
        return gpu_of(target).model
    except IllegalCombination:
        return ""


def config_of_trace(trace: Trace, problem: GemmProblem) -> Config | None:
    """The config that a trace chooses; None if it is no trace of ours."""
    chosen: dict[Any, int] = {}
    values: dict[str, int] = {}
    for instruction in trace.insts:
        if instruction.kind.name == "SampleCategorical":
            index = int(trace.decisions[instruction])
            chosen[instruction.outputs[0]] = int(instruction.attrs[0][index])
        elif instruction.kind.name == "Annotate":
            name = str(instruction.attrs[0])
            value = instruction.inputs[1]
            if name.startswith(PREFIX):
                values[name.removeprefix(PREFIX)] = chosen[value] if value in chosen else int(value)
    return read_config(values, lambda: problem) if values else None


def trace_of(mod: IRModule, config: Config, short: bool = False) -> Trace:
    """A trace that chooses a certain config.

    Parameters
    ----------
    mod : IRModule
        With a GEMM as its function ``main``.
    config : Config
    short : bool
        Name the choices only, and no alternatives for a search, as it is done with configs
        that the design space does not have.

    Raises
    ------
    Decline
        If the function is no GEMM.
    """
    gemm = recognise(mod["main"])
    sch = Schedule(mod)
    block = sch.get_sblock(gemm.anchor, "main")
    allowed = draws(gemm.problem)
    if short or not allowed.has(config):
        annotate(sch, block, config.values())
        return sch.trace
    numbers = config.values()
    for name, values in allowed.values.items():
        weights, index = allowed.weights[name], values.index(numbers[name])
        annotate(sch, block, {name: sch.sample_categorical(list(values), list(weights), index)})
    return sch.trace


def median(record: TuningRecord) -> float:
    """Seconds of a record; a failed one has :data:`FAILED_SECONDS` or more."""
    return statistics.median([float(value) for value in record.run_secs or ()] or [FAILED_SECONDS])

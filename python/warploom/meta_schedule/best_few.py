"""The model's best few configs of each GEMM of a model, measured: seconds in place of a search."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tvm
from rich.console import Console
from tvm.s_tir.analysis import estimate_tir_flops
from tvm.s_tir.meta_schedule.database import Database, TuningRecord
from tvm.target import Target
from tvm.tirx import IntImm, PrimFunc, decl_buffer

from warploom import emulator
from warploom.decide.config import Config
from warploom.decide.problem import GemmProblem
from warploom.decide.ranking import choose_by_rows, ranked
from warploom.errors import Decline, WarploomError
from warploom.gemm.recognition import recognise
from warploom.meta_schedule.artifact import Facts, read_facts
from warploom.meta_schedule.builder import Builder
from warploom.meta_schedule.database import open_database, read_database
from warploom.meta_schedule.files import only_writer
from warploom.meta_schedule.lookup import MANY_ROWS, Lookup
from warploom.meta_schedule.measure import arguments_of
from warploom.meta_schedule.programs.workload import record_target
from warploom.meta_schedule.progress import Progress
from warploom.meta_schedule.records import records_of, trace_of
from warploom.meta_schedule.runner import Runner, outcome
from warploom.meta_schedule.unmeasured import same_device
from warploom.tile import ir

#: Operations of a function beyond which the emulator takes too long to run its candidates.
EMULATED_OPERATIONS = 1e8
#: Seconds for the first candidate of a function.
_TIMEOUT = 60.0


@dataclass
class Measured:
    """Configs of GEMMs that were measured in this way, before those of a look-up.

    Attributes
    ----------
    after : Lookup
        Asked for other problems.
    """

    after: Lookup
    exact: dict[GemmProblem, Config] = field(default_factory=dict)

    def config(self, problem: GemmProblem) -> Config | None:
        """The config of a problem; None if neither has one."""
        return self.exact.get(problem) or self.after.config(problem)


@dataclass(frozen=True)
class Work:
    """A GEMM to measure.

    Attributes
    ----------
    func : PrimFunc
        Of constant sizes.
    problem : GemmProblem
        What it computes.
    asked : GemmProblem
        What its config will be asked for: that, or the same without a number of rows.
    """

    func: PrimFunc
    problem: GemmProblem
    asked: GemmProblem


def measure_best(
    functions: Iterable[PrimFunc], target: Target, lookup: Lookup, count: int, folder: str | Path
) -> Measured:
    """Measure the most promising configs of GEMMs that have no record.

    Parameters
    ----------
    functions : iterable of PrimFunc
        Of a model, in S-TIR; those that are no GEMMs are left out. A number of rows that is known
        only at run time is measured for several numbers.
    target : Target
        Of the device.
    lookup : Lookup
        Records; what they have of the very same GEMM is not measured.
    count : int
        Configs of each GEMM.
    folder : path
        For the records, a database of MetaSchedule; those that it has are not measured again.

    Returns
    -------
    Measured
        The fastest config of each.

    Raises
    ------
    WarploomError
        If the database is damaged or cannot be written.
    """
    found = Measured(lookup)
    wanted = list(_work(functions, target, lookup))
    if not wanted:
        return found
    marked = record_target(target)
    with only_writer(folder, wait=True):
        known = _recorded(open_database(folder), marked)
        new = [one for one in wanted if one.problem not in known]
        if new:
            _measure(new, target, marked, lookup, count, Path(folder))
            known = _recorded(read_database(folder), marked)
    for one in wanted:
        if one.problem in known:
            found.exact[one.asked] = known[one.problem]
    return found


def _recorded(database: Database, target: Target) -> dict[GemmProblem, Config]:
    """The fastest config of each GEMM that a database has for a device."""
    best: dict[GemmProblem, Config] = {}
    for record in sorted(records_of(database), key=lambda record: record.seconds):
        if same_device(record.stock.target, target):
            best.setdefault(record.problem, record.config)
    return best


def _work(functions: Iterable[PrimFunc], target: Target, lookup: Lookup) -> Iterator[Work]:
    """The GEMMs among functions that have no record, each once."""
    arch, seen = str(target.attrs["arch"]), set()
    for func in functions:
        try:
            problem = recognise(func).problem
            if problem in seen:
                continue
            seen.add(problem)
            for work in _of_rows(func, problem, lookup):
                known = lookup.best(work.asked, arch)
                is_small = estimate_tir_flops(_module(work.func)) <= EMULATED_OPERATIONS
                if (known is None or not known.exact) and (is_small or not emulator.is_enabled()):
                    yield work
        except (Decline, WarploomError):  # no GEMM, or one without a kernel
            continue


def _of_rows(func: PrimFunc, problem: GemmProblem, lookup: Lookup) -> Iterator[Work]:
    """A function for each number of rows that gets a kernel of its own."""
    if problem.m is not None:
        yield Work(func, problem, problem)
        return
    for limit, _ in choose_by_rows(problem, known=lookup.config):
        bound = with_size(func, limit or MANY_ROWS)
        fixed = replace(problem, m=limit or MANY_ROWS)
        if bound is not None and recognise(bound).problem == fixed:
            yield Work(bound, fixed, problem if limit is None else fixed)


def with_size(func: PrimFunc, value: int) -> PrimFunc | None:
    """A function in S-TIR whose only variable size is a constant; None if it has none or several.

    Parameters
    ----------
    func : PrimFunc
    value : int
        Of the variable.
    """
    extents = [e for param in func.params if ir.is_buffer(param) for e in param.ty.shape]
    sizes = {v for extent in extents if not isinstance(extent, int) for v in ir.uses(extent)}
    if len(sizes) != 1:
        return None
    (size,) = sizes
    table: dict[Any, Any] = {size: IntImm(str(size.ty.dtype), value)}
    buffers = {v for v in (*ir.uses(func.body), *func.params) if ir.is_buffer(v)}
    table |= {old: _with_constants(old, table) for old in buffers}
    params = [table.get(param, param) for param in func.params]
    return PrimFunc(params, ir.substitute(func.body, table), func.ret_type, func.attrs)


def _with_constants(buffer: Any, table: Mapping[Any, Any]) -> Any:
    shape = [ir.substitute(e, table) if not isinstance(e, int) else e for e in buffer.ty.shape]
    return decl_buffer(shape, str(buffer.ty.dtype), buffer.name)


def _measure(
    works: list[Work], target: Target, marked: Target, lookup: Lookup, count: int, folder: Path
) -> None:
    """Measure and record the candidates of GEMMs; all are compiled ahead."""
    database = open_database(folder)
    with contextlib.ExitStack() as mine:
        builder = Builder()
        mine.callback(builder.close)
        trials = [
            (work, config, builder.submit(_scheduled(work, config), target))
            for work in works
            for config in _candidates(work.problem, lookup, count)
        ]
        runner = Runner(timeout_sec=_TIMEOUT)
        mine.callback(runner.close)
        console = Console(stderr=True)
        console.quiet = not console.is_terminal
        progress = mine.enter_context(Progress(len(trials), console))
        for work, config, built in trials:
            seconds = _seconds(runner, built, work, progress)
            if seconds:
                mod = _module(work.func)
                trace = trace_of(mod, config, short=True)
                stored = database.commit_workload(mod)
                record = TuningRecord(trace, stored, list(seconds), marked, None)
                database.commit_tuning_record(record)


def _candidates(problem: GemmProblem, lookup: Lookup, count: int) -> list[Config]:
    """The config of a record of a similar GEMM, and the model's best."""
    alike = lookup.config(problem)
    best = [config for _, config in ranked(problem)[:count]]
    return list(dict.fromkeys([*([alike] if alike else []), *best]))[:count]


def _seconds(
    runner: Runner, built: Future[str], work: Work, progress: Progress
) -> tuple[float, ...]:
    """The samples of a candidate; none if it fails or is wrong."""
    try:
        path = built.result()
    except WarploomError as error:  # no kernel for this config
        progress(Facts("", str(work.problem)), None, str(error))
        return ()
    facts = read_facts(path)
    running = runner.submit_once(path, "cuda", arguments_of(work.func), facts)
    measurement, error = outcome(running)
    progress(facts, measurement, error)
    return measurement.seconds if measurement is not None else ()


def _module(func: PrimFunc) -> tvm.IRModule:
    return tvm.IRModule({"main": func.with_attr("global_symbol", "main")})


def _scheduled(work: Work, config: Config) -> tvm.IRModule:
    """The function with the decisions of a config, as a builder takes it."""
    mod = _module(work.func)
    sch = tvm.s_tir.Schedule(mod)
    trace_of(mod, config, short=True).apply_to_schedule(sch, remove_postproc=False)
    return sch.mod

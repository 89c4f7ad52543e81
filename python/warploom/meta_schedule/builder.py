"""Compiles candidates in several processes, each of which may be lost without harm."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import tvm
from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult, PyBuilder
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock
from tvm.target import Target

from warploom import environ
from warploom.decide.model import predict
from warploom.errors import StockScheduleWarning, WarploomError
from warploom.gemm.annotations import PREFIX, annotations_of, config_of
from warploom.gemm.recognition import recognise
from warploom.meta_schedule import artifact
from warploom.meta_schedule.artifact import Facts
from warploom.meta_schedule.estimates import refuse_estimates
from warploom.meta_schedule.originals import key_of, original_of
from warploom.meta_schedule.processes import Pool
from warploom.meta_schedule.reference import (
    build_reference,
    outputs_of,
    rounds_sums,
    runs_on_host,
    updated_of,
)
from warploom.meta_schedule.same_kernel import kernel_digest
from warploom.warn import silenced


class PooledBuilder(PyBuilder):
    """Compiles candidates in processes.

    Parameters
    ----------
    max_workers : int or None
        Processes; by default one for each CPU that this process may use.
    timeout_sec : float
        After which a compilation is given up.
    ahead : bool
        Whether :meth:`build` returns at once, so that candidates are measured while others are
        being compiled. Only runners of this package wait for promised artifacts.
    """

    def __init__(self, max_workers: int | None, timeout_sec: float, ahead: bool) -> None:
        super().__init__()
        self.timeout_sec, self.ahead = timeout_sec, ahead
        self.folder = tempfile.mkdtemp(prefix="warploom-build-")
        # Without the warning of TemporaryDirectory: MetaSchedule drops its builders unclosed.
        self._remove = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        count = max_workers or len(os.sched_getaffinity(0))
        # Each process compiles one kernel at a time: threads of LLVM and OpenMP would compete.
        self.pool = Pool([{"OMP_NUM_THREADS": "1", "TVM_NUM_THREADS": "1"}] * count)

    def build(self, build_inputs: list[BuilderInput]) -> list[BuilderResult]:
        begun = [self.begin(build_input.mod, build_input.target) for build_input in build_inputs]
        if self.ahead:
            promises.update(begun)
            return [BuilderResult(path, None) for path, _ in begun]
        return [_result(future) for _, future in begun]

    def submit(self, mod: IRModule, target: Target) -> Future[str]:
        """Begin to compile a candidate; the path of its library is the future's result."""
        return self.begin(mod, target)[1]

    def begin(self, mod: IRModule, target: Target) -> tuple[str, Future[str]]:
        """As :meth:`submit`, with the path that the library will have."""
        raise NotImplementedError

    def close(self) -> None:
        """End the processes and remove their artifacts."""
        self.pool.close()
        self._remove()


@derived_object
class Builder(PooledBuilder):
    """``builder=warploom.meta_schedule.Builder()`` for MetaSchedule's tuning functions.

    Beside each library it leaves what :mod:`warploom.meta_schedule.measure` needs to check it: the
    function that all candidates of a task compute, compiled once in another way.

    Parameters
    ----------
    max_workers : int, optional
        Processes; by default one for each CPU that this process may use.
    timeout_sec : float
        After which a compilation is given up.
    ahead : bool
        Whether :meth:`build` returns at once, so that candidates are measured while others are
        being compiled. Only runners of this package wait for promised artifacts.

    Examples
    --------
    >>> with wms.Builder(max_workers=4) as builder, wms.Runner() as runner:  # doctest: +SKIP
    ...     ms.tune_tir(mod, target, "work_dir", 64, space=wms.Space(),
    ...                 builder=builder, runner=runner)
    """

    def __init__(
        self, max_workers: int | None = None, timeout_sec: float = 60.0, ahead: bool = False
    ) -> None:
        super().__init__(max_workers, timeout_sec, ahead)
        self.references: dict[str, Future[None]] = {}

    def begin(self, mod: IRModule, target: Target) -> tuple[str, Future[str]]:
        bare, folder = unscheduled(mod), self.folder
        workload = key_of(bare)
        if bare is not mod and workload not in self.references:
            self.references[workload] = self.pool.submit(
                build_workload, bare, target, workload, folder, timeout=self.timeout_sec
            )
        path = str(artifact.new_folder(folder) / artifact.LIBRARY)
        reference = str(_reference_path(folder, workload))
        built = self.pool.submit(
            build_candidate, mod, bare, target, workload, reference, path,
            timeout=self.timeout_sec,
        )  # fmt: skip
        return path, both(built, self.references.get(workload))


#: Libraries that are being compiled, by the path that they will have.
promises: dict[str, Future[str]] = {}


def both(built: Future[str], checked: Future[None] | None) -> Future[str]:
    """The result of the first, once the second is there or has failed as well."""
    if checked is None:
        return built
    both: Future[str] = Future()

    def settle(_: Future[None]) -> None:
        if both.cancelled():
            return
        if built.cancelled():  # the builder was closed
            both.cancel()
            return
        error = built.exception()
        if error is None:
            both.set_result(built.result())
        else:
            both.set_exception(error)

    built.add_done_callback(lambda _: checked.add_done_callback(settle))
    both.add_done_callback(lambda done: done.cancelled() and built.cancel())
    return both


def _result(future: Future[str]) -> BuilderResult:
    try:
        return BuilderResult(future.result(), None)
    except WarploomError as error:
        return BuilderResult(None, str(error))


def unscheduled(mod: IRModule) -> IRModule:
    """The module as it was before a search scheduled it; the same object if that is not known."""
    func = mod["main"]
    annotations = annotations_of(func)
    if not annotations:
        return original_of(mod) or mod
    sch = Schedule(mod)
    block = sch.get_sblock(recognise(func).anchor, "main")
    for name in annotations:
        sch.unannotate(block, PREFIX + name)
    return sch.mod


def _reference_path(folder: str, workload: str) -> Path:
    return Path(folder, f"reference-{workload}.so")


def build_workload(bare: IRModule, target: Target, workload: str, folder: str) -> None:
    """In a worker: compile the reference that candidates of a task are compared with."""
    path = _reference_path(folder, workload)
    unfinished = path.with_name(f"unfinished-{path.name}")
    build_reference(bare["main"], target, unfinished)
    unfinished.rename(path)


def build_candidate(
    mod: IRModule, bare: IRModule, target: Target, workload: str, reference: str, path: str
) -> str:
    """In a worker: compile a candidate to a path, beside the facts about it.

    Raises
    ------
    StockScheduleWarning
        If the function has decisions that no kernel can have.
    """
    refuse_estimates(target)
    with target:  # predictions are for its GPU
        facts = facts_of(mod, bare, workload, reference)
    artifact.write_facts(Path(path).parent, facts)
    # A search has thousands of candidates, and none is compiled twice.
    with silenced(StockScheduleWarning), environ.variable("WARPLOOM_MODULE_CACHE", "0"):
        # As TVM's default_build, which also imports all tensor intrinsics: that takes seconds.
        plain = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(mod)
        library = tvm.compile(plain, target)
    kernel = kernel_digest(library)
    artifact.write_facts(Path(path).parent, replace(facts, kernel=kernel))
    library.export_library(path)
    return path


def facts_of(mod: IRModule, bare: IRModule, workload: str, reference: str | None) -> Facts:
    """The facts about a candidate before it is compiled."""
    config = config_of(mod["main"])
    if config is None and bare is mod:
        return Facts(workload)
    func = bare["main"]
    written = outputs_of(func)
    checked = {"outputs": written, "reference": reference, "on_host": runs_on_host(bare)}
    if config is None:
        return Facts(workload, updated=written, exact=False, **checked)
    problem = recognise(mod["main"]).problem
    predicted = predict(problem, config).total
    checked["updated"] = updated_of(func)
    checked["rounded"] = any(problem.computed) and rounds_sums(func)
    return Facts(workload, str(problem), config.values(), predicted, **checked)

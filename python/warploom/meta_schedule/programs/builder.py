"""Compiles the program of a config, which a stand-in's decisions name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import tvm
from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.target import Target
from tvm.tirx import PrimFunc

from warploom import environ
from warploom.errors import WarploomError
from warploom.meta_schedule import artifact
from warploom.meta_schedule.artifact import Facts
from warploom.meta_schedule.builder import PooledBuilder
from warploom.meta_schedule.programs.candidates import Candidate, Candidates
from warploom.meta_schedule.programs.workload import config_of, device_target
from warploom.meta_schedule.same_kernel import kernel_digest
from warploom.tile.kinds import pipeline_of
from warploom.warn import silenced

#: The entry of a candidate's decisions that is the hash of its program.
DIGEST = "@program"


@derived_object
class ProgramBuilder(PooledBuilder):
    """``builder=`` of MetaSchedule for one task of :class:`Candidates`.

    Parameters
    ----------
    candidates : Candidates
        What cannot be compiled is noted in their ``left_out``.
    facts : callable
        Returns what all candidates have in common; called when the first is compiled.
    max_workers : int, optional
        As of :class:`warploom.meta_schedule.Builder`.
    timeout_sec : float
        After which a compilation is given up.
    """

    def __init__(
        self,
        candidates: Candidates,
        facts: Callable[[], Facts],
        max_workers: int | None = None,
        timeout_sec: float = 120.0,
    ) -> None:
        super().__init__(max_workers, timeout_sec, True)
        self.candidates, self._facts = candidates, facts
        self._common: Facts | None = None

    def begin(self, mod: IRModule, target: Target) -> tuple[str, Future[str]]:
        config = config_of(mod)
        candidate = self.candidates.of(config)
        path = str(artifact.new_folder(self.folder) / artifact.LIBRARY)
        if candidate is None:
            refused: Future[str] = Future()
            refused.set_exception(WarploomError(self._reason(config)))
            return path, refused
        if self._common is None:
            self._common = self._facts()
        built = self.pool.submit(
            build_program, candidate.program, device_target(target),
            facts_of(candidate, self._common), path, dict(self.candidates.task.options),
            timeout=self.timeout_sec,
        )  # fmt: skip
        built.add_done_callback(lambda done: self._note(config, done))
        return path, built

    def _reason(self, config: dict[str, Any]) -> str:
        return next(
            (reason for other, reason in self.candidates.left_out.values() if other == config),
            "There is no such config.",
        )

    def _note(self, config: dict[str, Any], done: Future[str]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            text = str(error).removeprefix("IllegalCombination: ").removeprefix("Decline: ")
            self.candidates.leave_out(config, text.strip().splitlines()[0])


def facts_of(candidate: Candidate, common: Facts) -> Facts:
    """The facts about a candidate of a task."""
    predicted = None if candidate.seconds is None else candidate.seconds * 1e6
    decisions = {**candidate.config, DIGEST: candidate.digest}
    return replace(common, config=decisions, predicted=predicted)


def build_program(
    program: PrimFunc, target: Target, facts: Facts, path: str, options: Mapping[str, Any]
) -> str:
    """In a worker: compile a program to a path, beside the facts about it."""
    artifact.write_facts(Path(path).parent, facts)
    # A tile program may have its config in its name, which makes no other kernel.
    module = tvm.IRModule({"main": program.with_attr("global_symbol", "main")})
    # A search has many candidates, and none is compiled twice.
    with (
        silenced(),
        environ.variable("WARPLOOM_MODULE_CACHE", "0"),
        tvm.transform.PassContext(config=dict(options)),
    ):
        library = tvm.compile(module, target, **pipeline_of(module))
    facts = replace(facts, kernel=kernel_digest(library))
    artifact.write_facts(Path(path).parent, facts)
    library.export_library(path)
    return path

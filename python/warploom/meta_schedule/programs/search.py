"""The best config of a task: from a record, or by a search."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import tvm
from rich.console import Console
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from warploom import emulator
from warploom.errors import EmulatedTimeWarning, WarploomError, WrongCandidateWarning
from warploom.language.tuning.space import Config, encode, text_of
from warploom.language.tuning.task import Best, Task
from warploom.language.tuning.tuner import Options
from warploom.meta_schedule.artifact import Facts
from warploom.meta_schedule.database import open_database, read_database
from warploom.meta_schedule.files import cached_folder, only_writer
from warploom.meta_schedule.intrinsics import import_intrinsics
from warploom.meta_schedule.journal import Journal, read_journal
from warploom.meta_schedule.measure import Listener, Measurement
from warploom.meta_schedule.originals import key_of
from warploom.meta_schedule.programs.builder import ProgramBuilder
from warploom.meta_schedule.programs.candidates import Candidates
from warploom.meta_schedule.programs.rank import with_rank
from warploom.meta_schedule.programs.records import (
    best_of,
    decisions,
    is_unfinished,
    note_search,
    of_today,
    records_of_task,
    recover,
)
from warploom.meta_schedule.programs.right import facts_of_task
from warploom.meta_schedule.programs.strategy import ProgramSpace, Ranked
from warploom.meta_schedule.programs.workload import record_target, stand_in
from warploom.meta_schedule.progress import Progress, several
from warploom.meta_schedule.runner import Runner
from warploom.target.tvm_target import arch_of, target_from_device
from warploom.warn import warn

#: Candidates that are proposed together.
_BATCH = 8
#: Trials that MetaSchedule may begin: the strategy ends the search, as what cannot be compiled is
#: none.
_ALL = 1 << 30
#: Seconds for the first candidate of a task, later ones get less; and for each on the emulator.
_TIMEOUT, _EMULATED_TIMEOUT = 60.0, 600.0


def find(task: Task, options: Options, go_on: bool) -> Best:
    """The best config of a task.

    Parameters
    ----------
    task : Task
    options : Options
    go_on : bool
        Whether to measure until ``trials`` configs are measured, although there is a record.

    Raises
    ------
    WarploomError
        If no config has a kernel that is right, or there is no GPU to measure with.
    """
    candidates = Candidates(with_rank(task), options.seed)
    mod, target = stand_in(task, candidates.shapes), record_target(task.target)
    with _folder(task, options) as folder:
        if not go_on and (best := _recorded(candidates, mod, target, folder)) is not None:
            return best
        _require_devices(task, options.devices)
        with only_writer(folder, wait=True):
            # Another process may have searched while this one waited.
            best = None if go_on else _recorded(candidates, mod, target, folder)
            return best or _Search(candidates, mod, target, folder, options, go_on).run()


def title_of(task: Task) -> str:
    """A task for people, with what its times are for."""
    emulated = ", emulated" if emulator.is_enabled() else ""
    return f"{task} on {arch_of(task.target).name}{emulated}"


class _Search:
    """A search for one task, in a folder that no other process tunes in."""

    def __init__(
        self, candidates: Candidates, mod: IRModule, target: Target, folder: Path,
        options: Options, is_asked_for: bool,
    ) -> None:  # fmt: skip
        self.candidates, self.mod, self.target = candidates, mod, target
        self.folder, self.options, self.is_asked_for = folder, options, is_asked_for
        self.title = title_of(candidates.task)

    def run(self) -> Best:
        """Search, and return the best."""
        open_database(self.folder)  # refuses a damaged one
        recover(
            self.folder, open_database(self.folder), self.candidates, self.mod, self.target,
            self.title,
        )  # fmt: skip
        database = open_database(self.folder)
        known = of_today(self.candidates, records_of_task(database, self.mod, self.target))
        trials = self.options.trials - sum(one.succeeded for one in known)
        if trials > 0:
            note_search(self.folder, self.mod, self.title, "begun")
            strategy = Ranked(
                self.candidates, self.mod, [(r.config, r.seconds) for r in known], trials
            )
            self._tune(database, strategy, trials)
            note_search(self.folder, self.mod, self.title, "ended")
        return self._result(trials > 0)

    def _tune(self, database: ms.Database, strategy: Ranked, trials: int) -> None:
        if emulator.is_enabled():
            warn(
                f"{self.candidates.task.name} is tuned on the emulator: results are checked, and "
                "the times mean nothing for a GPU.",
                EmulatedTimeWarning,
            )
        with contextlib.ExitStack() as mine:
            builder = self._builder(mine)
            seconds = _EMULATED_TIMEOUT if emulator.is_enabled() else _TIMEOUT
            runner = Runner(self.options.devices, seconds, environment=self._environment())
            mine.callback(runner.close)
            console = Console(stderr=True)
            console.quiet = not (self.options.verbose or self.is_asked_for or console.is_terminal)
            most = min(trials, len(self.candidates.task.space))
            progress = mine.enter_context(Progress(most, console))
            runner.listener = self._told(several(Journal(self.folder), progress))
            ms.tune_tasks(
                tasks=[self._context(strategy)],
                task_weights=[1.0],
                work_dir=str(self.folder),
                max_trials_global=_ALL,
                num_trials_per_iter=_BATCH,
                builder=builder,
                runner=runner,
                database=database,
                cost_model="random",
                task_scheduler="round-robin",
            )

    def _context(self, strategy: Ranked) -> ms.TuneContext:
        import_intrinsics()  # as the context does, in several times as long
        return ms.TuneContext(
            self.mod,
            target=self.target,
            space_generator=ProgramSpace(self.candidates.task.space),
            search_strategy=strategy,
            task_name=self.candidates.task.name,
            rand_state=self.options.seed,
            num_threads=1,
        )

    def _told(self, listener: Listener) -> Listener:
        """A listener of trials: what cannot be compiled is none."""

        def tell(facts: Facts, measurement: Measurement | None, error: str) -> None:
            if encode(decisions(facts.config)[0]) not in self.candidates.left_out:
                listener(facts, measurement, error)

        return tell

    def _builder(self, mine: contextlib.ExitStack) -> ProgramBuilder:
        files = Path(mine.enter_context(tempfile.TemporaryDirectory(prefix="warploom-right-")))
        builder = ProgramBuilder(
            self.candidates,
            lambda: facts_of_task(self.candidates, self.title, files),
            self.options.max_workers,
        )
        mine.callback(builder.close)
        return builder

    def _environment(self) -> dict[str, str]:
        """Variables of the measuring processes, whose first device is the target's."""
        if not emulator.is_enabled():
            return {}
        arch = arch_of(self.candidates.task.target).name
        return {"WARPLOOM_EMULATOR": "1", "WARPLOOM_EMULATOR_ARCH": arch}

    def _result(self, searched: bool) -> Best:
        records = of_today(
            self.candidates,
            records_of_task(read_database(self.folder), self.mod, self.target),
        )
        wrong = self._wrong()
        left_out = tuple(self.candidates.left_out.values())
        if not records or not records[0].succeeded:
            for config, reason in wrong:
                self.candidates.leave_out(config, reason)
            raise self.candidates.error("has a kernel that is right")
        best = Best(
            records[0].config, records[0].seconds, sum(one.succeeded for one in records), searched,
            emulator.is_enabled(), left_out, wrong,
        )  # fmt: skip
        self._tell(best)
        return best

    def _wrong(self) -> tuple[tuple[Config, str], ...]:
        """Configs that were compiled and failed, with the last reason of each."""
        found: dict[str, tuple[Config, str]] = {}
        for entry in read_journal(self.folder):
            if entry.workload != key_of(self.mod) or entry.problem != self.title:
                continue
            config, digest = decisions(entry.config)
            text = encode(config)
            found.pop(text, None)
            made = self.candidates.of(config) if config in self.candidates.task.space else None
            if entry.error and made is not None and made.digest == digest:
                found[text] = (config, entry.error)
        return tuple(found.values())

    def _tell(self, best: Best) -> None:
        if best.wrong:
            config, reason = best.wrong[0]
            warn(
                f"{self.title}: {len(best.wrong)} configs were compiled and failed, and are left "
                f"out; {text_of(config)}: {reason}",
                WrongCandidateWarning,
            )
        if not self.options.verbose:
            return
        print(f"{self.title}: {best}")
        for config, reason in (*best.left_out, *best.wrong):
            print(f"  left out {text_of(config)}: {reason}")


def _recorded(
    candidates: Candidates, mod: IRModule, target: Target, folder: Path
) -> Best | None:
    """The best record of a folder, unless the search of its task was killed."""
    records = records_of_task(read_database(folder), mod, target)
    if not records or is_unfinished(folder, mod, title_of(candidates.task)):
        return None
    best = best_of(candidates, records)
    if best is None:
        return None
    measured = sum(one.succeeded for one in records)
    return Best(best.config, best.seconds, measured, False, emulator.is_enabled())


def _folder(task: Task, options: Options) -> contextlib.AbstractContextManager[Path]:
    """The work directory: the user's, or one in the cache."""
    if options.work_dir is not None:
        return contextlib.nullcontext(options.work_dir)
    return cached_folder(re.sub(r"\W", "_", task.name))


def _require_devices(task: Task, devices: Sequence[int]) -> None:
    """Refuse to measure without GPUs of the target's architecture."""
    if not tvm.cuda(0).exist:
        raise WarploomError(
            f"{task} has no record, and to measure its configs needs a GPU, or the emulator "
            "(WARPLOOM_EMULATOR=1); give work_dir= of records that another machine has measured, "
            "or call the factory with a config."
        )
    if emulator.is_enabled():  # whose devices are of any architecture
        return
    wanted = arch_of(task.target).name
    for number in devices:
        device = tvm.cuda(number)
        if not device.exist:
            raise WarploomError(f"There is no GPU {number}; leave it out of devices=.")
        own = arch_of(target_from_device(device)).name
        if own != wanted:
            raise WarploomError(
                f"GPU {number} is {own} and the target {wanted}; leave target= out, or tune on "
                f"a GPU of {wanted}."
            )

"""``tune_tir`` as TVM's, with everything of this package that a search can have."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.builder import PyBuilder
from tvm.s_tir.meta_schedule.database import Database
from tvm.target import Target
from tvm.tirx import PrimFunc

from warploom.errors import WarploomError
from warploom.meta_schedule.builder import Builder
from warploom.meta_schedule.cost_model import CostModel
from warploom.meta_schedule.database import open_database, recover
from warploom.meta_schedule.early_stop import EarlyStop
from warploom.meta_schedule.estimates import (
    EstimateBuilder,
    EstimateRunner,
    estimate_module,
    is_estimate,
)
from warploom.meta_schedule.files import only_writer
from warploom.meta_schedule.journal import Journal
from warploom.meta_schedule.progress import Progress, several
from warploom.meta_schedule.records import records_of
from warploom.meta_schedule.runner import PooledRunner, Runner
from warploom.meta_schedule.space import Space
from warploom.meta_schedule.unmeasured import Unmeasured

#: The model, and not the size of batches and populations, finds the good candidates; TVM's own
#: sizes would have the GPU wait for the search.
_TRIALS_OF_A_BATCH = 16
_POPULATION, _UNMEASURED, _GENERATIONS = 128, 32, 3


def tune_tir(
    mod: IRModule | PrimFunc,
    target: Target,
    work_dir: str | Path,
    max_trials_global: int,
    *,
    max_trials_per_task: int | None = None,
    devices: Sequence[int] = (0,),
    max_workers: int | None = None,
    early_stop: bool = True,
    seed: int | None = None,
    builder: PyBuilder | None = None,
    runner: PooledRunner | None = None,
) -> Database:
    """Tune functions, and continue where an earlier run in the same folder ended.

    Parameters
    ----------
    mod : IRModule or PrimFunc
        Each of its functions is a task.
    target : Target
        One of :func:`warploom.meta_schedule.estimate_target` needs no GPU; what is recorded is
        found for the functions of :func:`warploom.meta_schedule.estimate_module` alone.
    work_dir : path
        For the database, the journal and TVM's logs.
    max_trials_global : int
        Of all tasks together.
    max_trials_per_task : int, optional
        Of each task, round-robin; by default a task may have all of them, and TVM
        gives them to those that gain most.
    devices : sequence of int
        GPUs that measure side by side.
    max_workers : int, optional
        Processes that compile; by default one for each CPU.
    early_stop : bool
        End a task once measurements only confirm the model.
    seed : int, optional
        Of the search.
    builder : PyBuilder, optional
        One that takes the place of :class:`Builder`, and is not closed.
    runner : PooledRunner, optional
        One that takes the place of :class:`Runner`, and is not closed; it gets another listener.

    Returns
    -------
    Database
        TVM's, of ``work_dir``.

    Raises
    ------
    WarploomError
        If the folder has estimates and the target is for measured times, or the reverse; if
        another process tunes in the folder; if the database there is damaged.
    NotSaved
        If the folder cannot be written, or the disk becomes full.

    Examples
    --------
    >>> database = wms.tune_tir(mod, target, "work_dir", 64)  # doctest: +SKIP
    >>> found = database.query_schedule(mod, target, "main")  # doctest: +SKIP
    >>> executable = tvm.compile(found.mod, target)  # doctest: +SKIP
    """
    with ExitStack() as mine:
        mine.enter_context(only_writer(work_dir))
        estimated = is_estimate(target)
        database = open_database(work_dir)
        _check_kind(database, estimated)
        if estimated:
            mod = estimate_module(mod)
        else:
            recover(work_dir, target)
            database = open_database(work_dir)
        model = CostModel()
        model.learn(record for record in records_of(database) if record.estimate == estimated)
        callbacks = list(ms.measure_callback.MeasureCallback.create("default"))
        if early_stop:
            callbacks.append(EarlyStop(model, max_trials_global))
        progress = mine.enter_context(Progress(max_trials_global))
        if estimated:
            builder, runner = EstimateBuilder(), EstimateRunner(progress)
        else:
            if builder is None:
                builder = Builder(max_workers, ahead=True)
                mine.callback(builder.close)
            if runner is None:
                runner = Runner(devices)
                mine.callback(runner.close)
            runner.listener = several(Journal(work_dir), progress)
        return ms.tune_tir(
            mod,
            target,
            str(work_dir),
            max_trials_global,
            max_trials_per_task=max_trials_per_task,
            num_trials_per_iter=_TRIALS_OF_A_BATCH,
            builder=builder,
            runner=runner,
            database=database,
            cost_model=model,
            measure_callbacks=callbacks,
            # Chosen by their gradients, a task is picked again and again while its own trials are
            # waited for, and the GPU waits for the search; that pays only where trials are shared.
            task_scheduler="gradient" if max_trials_per_task is None else "round-robin",
            space=Space(),
            strategy=Unmeasured(
                ms.search_strategy.EvolutionarySearch(
                    population_size=_POPULATION,
                    init_min_unmeasured=_UNMEASURED,
                    genetic_num_iters=_GENERATIONS,
                )
            ),
            num_tuning_cores=1,
            seed=seed,
        )


def _check_kind(database: Database, estimated: bool) -> None:
    kinds = {
        is_estimate(record.target) for record in database.get_all_tuning_records() if record.target
    }
    if kinds - {estimated}:
        raise WarploomError(
            "The work directory has "
            + ("measured times" if estimated else "estimates")
            + "; the two cannot be in one database, use another directory."
        )

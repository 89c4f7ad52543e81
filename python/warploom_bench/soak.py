"""``python -m warploom_bench soak``: a runner, and candidates that do all that they should not.

Right candidates, and between them ones that hang, that read an address which is not mapped, that
compute something wrong, and processes that are killed. The run is right if every right candidate is
measured, every bad one is told as such, and the run goes on. Exit status 1 if it is not. With
``--searches`` they are candidates of searches, which must have no record that is not right; then
``--out`` keeps the results after each of them. The GPU is the first that ``CUDA_VISIBLE_DEVICES``
names, and compiling processes are as many as the CPUs that this one may use.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir import Schedule
from tvm.target import Target

from warploom.command_line import Parser, duration, natural, output_file, positive, require_gpu
from warploom.decide.config import Config
from warploom.decide.ranking import ranked
from warploom.gemm.annotations import annotate
from warploom.gemm.recognition import recognise
from warploom.meta_schedule import Builder, Runner, tune_tir
from warploom.meta_schedule.artifact import LIBRARY, new_folder, read_facts, write_facts
from warploom.meta_schedule.database import replace_file
from warploom.meta_schedule.journal import Entry, read_journal
from warploom.meta_schedule.measure import Measurement, arguments_of
from warploom.meta_schedule.records import records_of
from warploom.meta_schedule.runner import outcome
from warploom.meta_schedule.workloads import matmul
from warploom.target.tvm_target import default_target
from warploom_bench.environment import environment
from warploom_bench.faults import (
    FaultyBuilder,
    build_bad_kernels,
    complaints,
    failed_but_right,
    faulty,
    kill,
)

#: Every so many trials is a fault of some kind, on average.
_ONE_IN = 4


class _Soak:
    """Libraries of each kind, and the results of their trials."""

    def __init__(self, size: tuple[int, int, int], builder: Builder, runner: Runner) -> None:
        self.runner = runner
        self.seen: Counter[str] = Counter()
        self.unexpected: list[str] = []
        target, _ = default_target()
        func = matmul(*size)
        self.right = _right_candidates(func, builder, target)
        self.arguments = arguments_of(func)
        double = matmul(*size, factor=2.0)
        wrong = _right_candidates(double, builder, target, count=1)[0]
        with tempfile.TemporaryDirectory() as folder:
            bad = build_bad_kernels(Path(folder), target)
            self.bad = {kind: self._disguised(path.read_bytes()) for kind, path in bad.items()}
        self.bad["another function"] = self._disguised(Path(wrong).read_bytes())

    def _disguised(self, content: bytes) -> str:
        """A library with the facts of a right candidate."""
        path = new_folder(str(Path(self.right[0]).parent.parent)) / LIBRARY
        path.write_bytes(content)
        write_facts(path.parent, read_facts(self.right[0]))
        return str(path)

    def step(self, rng: random.Random) -> None:
        """Run one trial, and judge its result."""
        kinds = [*self.bad, "killed"]
        kind = rng.choice(kinds) if rng.randrange(_ONE_IN) == 0 else "right"
        path = self.bad.get(kind) or rng.choice(self.right)
        future: Future[Measurement] = self.runner.submit(path, "cuda", self.arguments)
        if kind == "killed":
            time.sleep(rng.random() * 0.3)
            kill(self.runner.pool)
        measurement, error = outcome(future)
        self.seen[kind] += 1
        # A process that is killed at its first call takes the trial with it.
        if kind != "killed" and (measurement is None) == (kind == "right"):
            self.unexpected.append(f"{kind}: {error or measurement}")


def _right_candidates(func: Any, builder: Builder, target: Target, count: int = 6) -> list[str]:
    gemm = recognise(func)
    futures = []
    for _, config in ranked(gemm.problem)[:count]:
        sch = Schedule(tvm.IRModule({"main": func}))
        annotate(sch, sch.get_sblock(gemm.anchor), config.values())
        futures.append(builder.submit(sch.mod, target))
    return [future.result() for future in futures]


def soak(
    size: tuple[int, int, int], seconds: float, timeout_sec: float, seed: int, workers: int | None
) -> _Soak:
    """Run trials for as long; return the results, and the faults."""
    builder, runner = Builder(workers), Runner(timeout_sec=timeout_sec)
    try:
        run = _Soak(size, builder, runner)
        rng, end = random.Random(seed), time.monotonic() + seconds
        while time.monotonic() < end:
            run.step(rng)
        return run
    finally:
        runner.close()
        builder.close()


@dataclass(frozen=True)
class Searches:
    """Searches one after another, each with faults.

    Attributes
    ----------
    runs, trials : int
    seconds : float
    faults : dict from str to int
        By kind, each of them.
    failed_but_right : int
        Trials that have failed although nothing was wrong with their candidates.
    complaints : list of str
        The faults, with their trials; empty if all is right.
    """

    runs: int
    trials: int
    seconds: float
    faults: dict[str, int]
    failed_but_right: int
    complaints: list[str]

    def __str__(self) -> str:
        faults = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items()))
        return (
            f"{self.runs} searches, {self.trials} trials, {self.trials / self.seconds:.1f} a "
            f"second; faults: {faults}; {self.failed_but_right} failed but right, "
            f"{len(self.complaints)} complaints"
        )


def search_with_faults(
    sizes: Sequence[tuple[int, int, int]], trials: int, seconds: float, one_in: int, seed: int,
    workers: int | None, timeout_sec: float, tell: Callable[[Searches], None] = print,
) -> Searches:  # fmt: skip
    """Search for the GEMMs of some sizes, again and again, with a fault now and then.

    Parameters
    ----------
    sizes : sequence of (int, int, int)
        Each is a task.
    trials : int
        Of each task in each search.
    seconds : float
        No search begins after as many.
    one_in : int
        How many candidates there are for one fault, on average.
    seed : int
    workers : int, optional
        Compiling processes.
    timeout_sec : float
        After which the first candidate of a task hangs.
    tell : callable
        Gets the results so far after each search.
    """
    target, _ = default_target()
    names = ["gemm_{}_{}_{}".format(*size) for size in sizes]
    mod = tvm.IRModule(
        {name: matmul(*size).with_attr("global_symbol", name)
         for name, size in zip(names, sizes, strict=True)}
    )  # fmt: skip
    runner = Runner(timeout_sec=timeout_sec)
    builder: FaultyBuilder = faulty(target, runner, workers, one_in, seed)
    done = Searches(0, 0, 0.0, dict(builder.counts()), 0, [])
    begin = time.monotonic()
    try:
        while time.monotonic() < begin + seconds:
            with tempfile.TemporaryDirectory(prefix="warploom-soak-") as folder:
                database = tune_tir(
                    mod, target, folder, trials * len(sizes), max_trials_per_task=trials,
                    early_stop=False, seed=seed + done.runs, builder=builder, runner=runner,
                )  # fmt: skip
                entries = read_journal(folder)
                wrong = [*complaints(builder.injected, entries),
                         *_records_without_a_trial(database, entries)]  # fmt: skip
            if len(entries) != trials * len(sizes):
                wrong.append(f"search {done.runs}: {len(entries)} trials of {trials * len(sizes)}")
            failed = len(failed_but_right(builder.injected, entries))
            done = Searches(
                done.runs + 1, done.trials + len(entries), time.monotonic() - begin,
                dict(builder.counts()), done.failed_but_right + failed, [*done.complaints, *wrong],
            )  # fmt: skip
            builder.forget()
            tell(done)
        return done
    finally:
        runner.close()
        builder.close()


def _records_without_a_trial(database: Any, entries: Sequence[Entry]) -> Iterator[str]:
    """Records of configs that no trial has measured."""
    measured = {(entry.problem, str(Config.of(entry.config))) for entry in entries if entry.us}
    for record in records_of(database):
        if (str(record.problem), str(record.config)) not in measured:
            yield f"{record.problem}: a record of {record.config}, which was not measured"


def write(done: Searches, head: Mapping[str, Any], path: Path) -> None:
    """Replace a file by the results so far, as JSON; it is never there in part."""
    content = {"environment": dict(head), **asdict(done)}
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, (json.dumps(content, indent=1) + "\n").encode())


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = Parser(prog="warploom bench soak", description=__doc__)
    parser.add_argument("--minutes", type=duration, default=30.0)
    parser.add_argument("--size", type=positive, default=1024, help="M, N and K (default: 1024)")
    parser.add_argument("--timeout", type=duration, default=8.0,
                        help="seconds after which a candidate hangs (default: 8)")  # fmt: skip
    parser.add_argument("--workers", type=positive, help="compiling processes (default: all CPUs)")
    parser.add_argument("--seed", type=natural, default=0)
    parser.add_argument(
        "--searches", action="store_true",
        help="whole searches with faults between their candidates, and not single trials",
    )  # fmt: skip
    parser.add_argument("--trials", type=positive, default=32,
                        help="of a GEMM in a search (default: 32)")  # fmt: skip
    parser.add_argument("--one-in", type=positive, default=32,
                        help="candidates of a search for one fault (default: 32)")  # fmt: skip
    parser.add_argument("--out", type=output_file, metavar="FILE",
                        help="JSON of the searches so far, replaced after each")  # fmt: skip
    options = parser.parse_args(arguments)
    require_gpu("benchmarks measure one")
    size, seconds = options.size, 60 * options.minutes
    if options.searches:
        sizes = ((size, size, size), (max(16, size // 64), size, size), (size // 2, 2 * size, size))
        head = environment(["soak", *arguments])

        def tell(done: Searches) -> None:
            print(done, flush=True)
            if options.out is not None:
                write(done, head, options.out)

        done = search_with_faults(sizes, options.trials, seconds, options.one_in, options.seed,
                                  options.workers, options.timeout, tell)  # fmt: skip
        print("\n".join(done.complaints[:20]))
        return 1 if done.complaints else 0
    run = soak((size,) * 3, seconds, options.timeout, options.seed, options.workers)
    trials = ", ".join(f"{count} {kind}" for kind, count in sorted(run.seen.items()))
    print(f"{sum(run.seen.values())} trials: {trials}; {len(run.unexpected)} unexpected")
    print("\n".join(run.unexpected[:20]))
    return 1 if run.unexpected else 0

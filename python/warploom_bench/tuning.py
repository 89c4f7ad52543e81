"""``python -m warploom_bench tuning``: how far defaults and short searches are from the best.

For each GEMM of a suite, in one run: a search of so many trials (all GEMMs together, as
``tune_tir`` does it), then as many candidates as the time allows, then the fastest of all those
side by side with configs that are chosen without a trial. Ratios refer to the best of all of them.
With ``--minutes 0`` there are no candidates but those of the search: all the time goes to tuning.
GEMMs are those of ``bench gemm``, with its epilogues and dtypes. No PyTorch is needed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import tvm

from warploom.command_line import Parser, natural, output_folder, positive, require_gpu
from warploom.decide.config import Config
from warploom.decide.problem import GemmProblem
from warploom.decide.selector import choose
from warploom.errors import Decline, WarploomError
from warploom.gemm.workloads import function, problem_of
from warploom.gemm_shape import GemmShape
from warploom.meta_schedule import Builder, Runner, tune_tir
from warploom.meta_schedule.journal import read_journal
from warploom.meta_schedule.lookup import Lookup
from warploom.meta_schedule.progress import short
from warploom.meta_schedule.records import records_of
from warploom.target.tvm_target import default_target
from warploom_bench.candidates import GemmCandidates, Line
from warploom_bench.environment import environment
from warploom_bench.exhaustive import Budget, add_selection, search, selection_of
from warploom_bench.faults import complaints, faulty
from warploom_bench.options import (
    compiling_options,
    gemm_options,
    suite_options,
    wanted_shapes,
)
from warploom_bench.tuning_report import CHOICES, Row, Searched, means, write


def gemms_of(shapes: Iterable[GemmShape]) -> list[GemmShape]:
    """Products that there is a kernel for; prints why the others have none."""
    gemms = []
    for shape in shapes:
        try:
            problem_of(shape)
            gemms.append(shape)
        except Decline as reason:
            print(f"{shape} is left out: {reason}")
    return gemms


def tune_all(
    shapes: Sequence[GemmShape], target: Any, trials: int, work_dir: Path, workers: int | None,
    devices: Sequence[int], seed: int | None, one_in: int = 0,
) -> Searched:  # fmt: skip
    """One search, in which each GEMM is a task of so many trials, with one fault in so many.

    Raises
    ------
    WarploomError
        If there should be faults in other GEMMs than those that faults are made for.
    """
    if one_in and any((shape.dtype, shape.epilogue) != ("float16", "none") for shape in shapes):
        raise WarploomError("Faults are made for float16 GEMMs without an epilogue only.")
    names = {shape: f"gemm {shape}".replace(" ", "_") for shape in shapes}
    mod = tvm.IRModule(
        {name: function(shape).with_attr("global_symbol", name) for shape, name in names.items()}
    )
    target_trials = trials * len(mod.functions)
    begin = time.monotonic()
    with ExitStack() as stack:
        runner = Runner(devices)
        stack.callback(runner.close)
        builder = (faulty(target, runner, workers, one_in, seed or 0) if one_in
                   else Builder(workers, ahead=True))  # fmt: skip
        stack.callback(builder.close)
        database = tune_tir(
            mod, target, work_dir, target_trials, max_trials_per_task=trials, early_stop=False,
            seed=seed, builder=builder, runner=runner,
        )  # fmt: skip
        seconds = time.monotonic() - begin
        journal = read_journal(work_dir)
        wrong = tuple(complaints(builder.injected, journal)) if one_in else ()
    config: dict[GemmProblem, list[Config]] = {}
    for record in sorted(records_of(database), key=lambda record: record.seconds):
        config.setdefault(record.problem, []).append(record.config)
    failed = sum(line.us is None for line in journal)
    return Searched(config, len(journal), failed, seconds, wrong)


def chosen(problem: GemmProblem, searched: Searched, lookup: Lookup) -> dict[str, Config]:
    """The config of each of :data:`CHOICES` that there are."""
    model = choose(problem)
    known = lookup.best(problem)
    chosen_configs = {"model": model, "default": known.config if known is not None else model}
    if problem in searched.config:
        chosen_configs["tuned"] = searched.config[problem][0]
    return chosen_configs


def compared(
    gemm: GemmCandidates, lines: Sequence[Line], choices: Mapping[str, Config], finalists: int,
    rounds: int, builder: Builder, runner: Runner, target: Any,
    searched: Sequence[Config] = (),
) -> Row:  # fmt: skip
    """Measure choices and the fastest candidates side by side.

    Parameters
    ----------
    gemm : GemmCandidates
    lines : sequence of Line
        Candidates that were measured.
    choices : mapping from str to Config
        Of :data:`CHOICES`.
    finalists : int
        How many of the candidates, and of those of a search, are measured again.
    rounds : int
        Samples of each.
    builder, runner, target
        As of a search.
    searched : sequence of Config
        The configs that a search has measured, the fastest first.

    Raises
    ------
    WarploomError
        If none of them can be measured.
    """
    timed = sorted((line for line in lines if line.us is not None), key=lambda line: line.us)
    best = [Config.of(line.config) for line in timed[:finalists]]
    entered = entrants(choices, [*searched[:finalists], *best])
    built: dict[Config, str] = {}
    for config, future in [(config, gemm.submit(config, builder, target)) for config in entered]:
        try:
            built[config] = future.result()
        except WarploomError as error:
            print(f"{gemm.shape}: {short(config)} was not built: {error}")
    measurements = runner.compare(list(built.values()), "cuda", gemm.arguments, rounds).result()
    times = {
        config: [second * 1e6 for second in each.seconds]
        for config, each in zip(built, measurements, strict=True)
        if each.seconds
    }
    medians = {config: statistics.median(samples) for config, samples in times.items()}
    if not medians:
        raise WarploomError(f"{gemm.shape}: {measurements[0].wrong}")
    winner = min(medians, key=lambda config: medians[config])
    named = {name: config for name, config in choices.items() if config in medians} | {
        "best": winner
    }
    measured = {Config.of(line.config) for line in timed} | {*choices.values(), *searched}
    return Row(
        {**vars(gemm.shape)},
        len(measured),
        {name: medians[config] for name, config in named.items()},
        {name: config.values() for name, config in named.items()},
        {name: times[config] for name, config in named.items()},
    )


def entrants(choices: Mapping[str, Config], others: Sequence[Config]) -> list[Config]:
    """Configurations to measure side by side, each once."""
    return list(dict.fromkeys([*choices.values(), *others]))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--trials", type=positive, default=32, help="of a search (default: 32)")
    parser.add_argument(
        "--minutes", type=float, default=3.0,
        help="wall time of the exhaustive part (default: 3); 0: a search, and nothing else",
    )  # fmt: skip
    parser.add_argument(
        "--finalists", type=positive, default=4,
        help="fastest candidates that are measured again, side by side (default: 4)",
    )  # fmt: skip
    parser.add_argument("--rounds", type=positive, default=9, help="samples of each (default: 9)")
    add_selection(parser)
    parser.add_argument("--seed", type=natural, default=1, help="of the search (default: 1)")
    parser.add_argument(
        "--faults", type=natural, default=0, metavar="N",
        help="put a fault in the place of one in N candidates of the search (default: none)",
    )  # fmt: skip
    parser.add_argument(
        "--work-dir", type=output_folder, help="keep the search's database and journal here"
    )
    parser.add_argument(
        "--out", type=output_folder, default=Path("."), help="folder of the results"
    )
    parser.add_argument("--name", default="tuning", help="of the two files (default: tuning)")


def main(arguments: Sequence[str]) -> int:
    """Run the command; 1 if some GEMM could not be measured, or a fault was not noticed."""
    parser = Parser(
        prog="warploom bench tuning",
        description=__doc__,
        parents=[suite_options("public"), gemm_options(), compiling_options()],
    )
    add_arguments(parser)
    options = parser.parse_args(arguments)
    require_gpu("benchmarks measure one")
    shapes = gemms_of(dict.fromkeys(wanted_shapes(options)))
    target, _ = default_target()
    devices = options.device or (0,)
    with tempfile.TemporaryDirectory(prefix="warploom-bench-") as scratch:
        work_dir = options.work_dir or Path(scratch)
        searched = tune_all(
            shapes, target, options.trials, work_dir, options.workers, devices, options.seed,
            options.faults,
        )  # fmt: skip
    print(f"{searched.trials} trials, {searched.failed} failed, {searched.rate:.1f} a second",
          *searched.complaints, sep="\n", flush=True)  # fmt: skip
    head = environment(["tuning", *arguments])
    rows: list[Row] = []
    for row in _rows(shapes, searched, target, options):
        rows.append(row)
        write(rows, searched, options.trials, head, options.out / options.name)
    for name, mean in means(rows).items():
        print(f"{name}: geometric mean {mean:.4f} of the best")
    return 0 if len(rows) == len(shapes) and not searched.complaints else 1


def _rows(
    shapes: Sequence[GemmShape], searched: Searched, target: Any, options: argparse.Namespace
) -> Iterator[Row]:
    builder = Builder(options.workers)
    runner = Runner(options.device or (0,))
    lookup = Lookup.shipped()
    budget = Budget(time.monotonic() + 60 * options.minutes)
    try:
        if options.minutes > 0:
            searches = search(shapes, selection_of(options), budget, builder, runner, target)
        else:
            searches = _begun(shapes, searched, lookup, options.finalists, builder, target)
        for gemm, measured in searches:
            lines = list(measured)
            choices = chosen(gemm.problem, searched, lookup)
            try:
                row = compared(gemm, lines, choices, options.finalists, options.rounds, builder,
                               runner, target, searched.config.get(gemm.problem, ()))  # fmt: skip
            except WarploomError as error:
                print(f"{gemm.shape} was not measured: {error}", flush=True)
                continue
            ratios = ", ".join(f"{name} {row.ratio(name) or 0:.3f}" for name in CHOICES)
            print(f"{gemm.shape}: {row.candidates} candidates, best {row.us['best']:.2f} us, "
                  f"{ratios}", flush=True)  # fmt: skip
            yield row
    finally:
        runner.close()
        builder.close()


def _begun(
    shapes: Sequence[GemmShape], searched: Searched, lookup: Lookup, finalists: int,
    builder: Builder, target: Any,
) -> Iterator[tuple[GemmCandidates, Iterator[Line]]]:  # fmt: skip
    """Each GEMM without more candidates; their measured kernels are compiled ahead."""
    gemms = [GemmCandidates(shape) for shape in shapes]
    for gemm in gemms:
        best = searched.config.get(gemm.problem, ())[:finalists]
        for config in entrants(chosen(gemm.problem, searched, lookup), best):
            gemm.submit(config, builder, target)
    for gemm in gemms:
        yield gemm, iter(())

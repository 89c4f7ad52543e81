"""``python -m warploom_bench judge``: the model's choice compared with the best config of a search.

Each GEMM is searched in rounds: first the configs that the model likes and some near to them, then
configs near to the fastest ones, with one or two choices changed at random. In a final round, the
choice and the fastest four compete again, interleaved: every other sample selects the best, and the
samples between judge it, so that noise favours nobody. Random shapes of a seed that nothing was
fitted to (``--suite unseen:SEED:COUNT``) say how good the model is elsewhere. ``--family`` judges
convolutions and tile programs in the same way. ``--table`` prints the tables of earlier runs, and
needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from warploom.command_line import (
    Parser,
    duration,
    input_file,
    output_file,
    positive,
    require_gpu,
)
from warploom.meta_schedule import Builder, Runner
from warploom.target.tvm_target import default_target
from warploom_bench.environment import environment
from warploom_bench.judging.cases import FAMILIES, wanted_cases
from warploom_bench.judging.final import reserve, run_final
from warploom_bench.judging.line import JudgeLine
from warploom_bench.judging.search import Search, run_round
from warploom_bench.judging.verdict import Verdict, read_verdicts, tables, verdicts
from warploom_bench.options import compiling_options, gemm_options, suite_options

#: Between two reports of a round.
_PROGRESS_SECONDS = 20.0
#: Characters of an error that are printed; the output has all.
_SHOWN = 300


def _rounds(text: str) -> tuple[int, ...]:
    counts = tuple(int(part) for part in text.split(",") if part.isdecimal())
    if not counts or min(counts) < 1 or len(counts) != len(text.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r}: write counts of configs, such as 16,14,10")
    return counts


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    made = Parser(
        prog="warploom bench judge", description=__doc__,
        parents=[suite_options("unseen:1:30"), gemm_options(), compiling_options()],
    )  # fmt: skip
    made.add_argument(
        "--family", choices=FAMILIES, default=FAMILIES[0],
        help="kind of the kernels; other kinds than gemm take random cases (default: gemm)",
    )  # fmt: skip
    made.add_argument(
        "--minutes", type=duration, default=8.0,
        help="wall time, with the final round (default: 8)",
    )  # fmt: skip
    made.add_argument(
        "--rounds", type=_rounds, default=(16, 14, 10), metavar="COUNTS",
        help="configs of each case in each round (default: 16,14,10)",
    )  # fmt: skip
    made.add_argument(
        "--final", type=positive, default=5, metavar="COUNT",
        help="repetitions of the final round, of four samples of each config (default: 5)",
    )  # fmt: skip
    made.add_argument("--out", type=output_file, default=Path("judge.jsonl"),
                        help="file to append to (default: %(default)s)")  # fmt: skip
    made.add_argument(
        "--table", type=input_file, nargs="+", metavar="FILE",
        help="print the tables of these files, and measure nothing",
    )  # fmt: skip
    return made


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit status is 0 unless a result was wrong."""
    options = parser().parse_args(arguments)
    if options.table:
        print("\n".join(tables(read_verdicts(options.table))))
        return 0
    require_gpu("--table FILE prints earlier results")
    target, _ = default_target()
    with target, options.out.open("a") as file:  # the model's choice is that for this GPU
        output = _Output(file, environment(["judge", *arguments]))
        builder = Builder(options.workers)
        runners = [Runner((device,)) for device in dict.fromkeys(options.device or (0,))]
        _measure(options, output, builder, runners, target)
        for one in (builder, *runners):
            one.close()
    print("\n".join(tables(output.verdicts())))
    return 1 if output.wrong else 0


def _measure(
    options: argparse.Namespace, output: _Output, builder: Builder, runners: Sequence[Runner],
    target: Any,
) -> None:  # fmt: skip
    """All rounds, of which the last one has a part of the time for itself."""
    seconds = 60 * options.minutes
    end = time.monotonic() + seconds
    rng = random.Random(options.suite)
    cases = wanted_cases(options)
    rng.shuffle(cases)  # a run that ends early has measured all groups alike
    searches = [Search(case, rng, number % len(runners)) for number, case in enumerate(cases)]
    until = end - reserve(-(-len(searches) // len(runners)), seconds)
    common = (builder, runners, target)
    for number, count in enumerate(options.rounds, 1):
        phase = f"round {number}"
        output.measured(run_round(searches, count, phase, *common, until), phase, len(searches))
        searches.reverse()  # processes still have the tensors of the cases that were the last
    lines = (
        line for lines in run_final(searches, options.final, *common, end) for line in lines
    )
    output.measured(lines, "final round", len(searches))


class _Output:
    """Writes lines as they come, and keeps them for the table.

    Attributes
    ----------
    wrong : int
        Wrong results.
    """

    def __init__(self, file: TextIO, head: dict[str, Any]) -> None:
        self._file, self._lines, self.wrong = file, [head], 0
        self._write(head)

    def measured(self, lines: Iterable[JudgeLine], phase: str, cases: int) -> None:
        """Take the lines of a round, and print how long it took."""
        begin, count, failed = time.monotonic(), 0, 0
        shown = begin
        for line in lines:
            self._lines.append(asdict(line))
            self._write(self._lines[-1])
            count += 1
            failed += line.us is None
            self.wrong += "is wrong" in line.error
            if line.choice and line.us is None:
                print(f"the choice for {line.shape} has no time: {line.error[:_SHOWN]}", flush=True)
            if time.monotonic() - shown > _PROGRESS_SECONDS:
                shown = time.monotonic()
                print(f"{phase}: {count} configs in {shown - begin:.0f} s", flush=True)
        seconds = time.monotonic() - begin
        print(
            f"{phase}: {count} configs of {cases} cases, {failed} without a time; {seconds:.0f} s, "
            f"{seconds / max(1, cases):.1f} s a case",
            flush=True,
        )

    def verdicts(self) -> list[Verdict]:
        """The results so far."""
        return verdicts(self._lines)

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

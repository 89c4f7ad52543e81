"""``python -m warploom_bench exhaustive``: many configurations of each GEMM, measured.

The analytic model is fitted to these results, and its choice is compared with them. Candidates are
compiled side by side, ahead of the GPU, the most promising first; each one's result is checked.
Every line of the output is one of them, so that a run that is interrupted loses nothing. No PyTorch
is needed.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from warploom.command_line import Parser, duration, input_file, output_file, positive, require_gpu
from warploom.decide.config import Config
from warploom.gemm_shape import GemmShape
from warploom.meta_schedule import Builder, Runner
from warploom.target.tvm_target import default_target
from warploom_bench.candidates import GemmCandidates, Line, Selection, read_wanted
from warploom_bench.environment import environment
from warploom_bench.options import (
    compiling_options,
    gemm_options,
    suite_options,
    wanted_shapes,
)


@dataclass(frozen=True)
class Budget:
    """How long a search may take.

    Attributes
    ----------
    end : float
        A moment of ``time.monotonic``; what is left is shared evenly by the GEMMs to come.
    seconds : float
        Of one GEMM, at most.
    """

    end: float
    seconds: float = math.inf

    def until(self, gemms: int) -> float:
        """When the first of so many GEMMs that are to come has had its share."""
        now = time.monotonic()
        return now + min(self.seconds, (self.end - now) / gemms)


def search(
    shapes: Sequence[GemmShape], selection: Selection, budget: Budget, builder: Builder,
    runner: Runner, target: Any,
) -> Iterator[tuple[GemmCandidates, Iterator[Line]]]:  # fmt: skip
    """Each GEMM, with its candidates as they are measured.

    The candidates of one GEMM are compiled while those of the previous GEMM are measured, so that
    the GPU does not wait.
    """

    def prepare(shape: GemmShape) -> GemmCandidates:
        gemm = GemmCandidates(shape)
        gemm.select(selection)
        gemm.begin(builder, target)
        return gemm

    with ThreadPoolExecutor(1) as ahead:
        following = ahead.submit(prepare, shapes[0]) if shapes else None
        for number in range(len(shapes)):
            gemm = following.result()
            if number + 1 < len(shapes):
                following = ahead.submit(prepare, shapes[number + 1])
            wait(gemm.built[:1])  # the time that processes take to start counts for no GEMM
            yield gemm, gemm.measure(runner, budget.until(len(shapes) - number))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--minutes", type=duration, default=8.0, help="wall time (default: 8)")
    parser.add_argument(
        "--seconds", type=duration, default=math.inf, help="wall time of a shape at most"
    )
    add_selection(parser)
    parser.add_argument(
        "--exactly", type=input_file, metavar="FILE",
        help="these candidates of these shapes and no others: JSON lines with shape and config, as "
        "in the output",
    )  # fmt: skip
    parser.add_argument("--out", type=output_file, default=Path("exhaustive.jsonl"),
                        help="file to append to (default: %(default)s)")  # fmt: skip


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Options that say which candidates are measured."""
    parser.add_argument(
        "--count", type=positive, default=64, help="candidates of a shape at most (default: 64)"
    )
    parser.add_argument(
        "--within", type=float, default=math.inf, metavar="FACTOR",
        help="only candidates that the model predicts within this factor of its best",
    )  # fmt: skip
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="KNOB=INTEGER",
        help="only candidates with this choice, such as split_k=1; repeatable",
    )


def selection_of(options: argparse.Namespace) -> Selection:
    """The selection that options ask for."""
    words = (condition.partition("=") for condition in options.only)
    accept = {name: int(value) for name, _, value in words}
    return Selection(options.count, options.within, accept)


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit status is 0 unless a result was wrong."""
    parser = Parser(
        prog="warploom bench exhaustive",
        description=__doc__,
        parents=[suite_options("foundation"), gemm_options(), compiling_options()],
    )
    add_arguments(parser)
    options = parser.parse_args(arguments)
    require_gpu("benchmarks measure one")
    begin = time.monotonic()
    budget = Budget(begin + 60 * options.minutes, options.seconds)
    exactly = options.exactly and read_wanted(options.exactly)
    selection = replace(selection_of(options), exactly=exactly)
    shapes = list(selection.exactly or ()) or list(dict.fromkeys(wanted_shapes(options)))
    target, _ = default_target()
    builder = Builder(options.workers)
    runner = Runner(options.device or (0,))
    wrong = trials = 0
    with options.out.open("a") as file:
        file.write(json.dumps(environment(["exhaustive", *arguments])) + "\n")
        for gemm, measured in search(shapes, selection, budget, builder, runner, target):
            lines = []
            for line in measured:
                lines.append(line)
                file.write(json.dumps(vars(line)) + "\n")
                file.flush()
            trials += len(lines)
            wrong += sum("is wrong" in line.error for line in lines)
            rate = trials / (time.monotonic() - begin)
            print(f"{summary(gemm, lines)}; {rate:.1f} trials/s", flush=True)
    builder.close()
    runner.close()
    return 1 if wrong else 0


def summary(gemm: GemmCandidates, lines: Sequence[Line]) -> str:
    """Return the results for one GEMM, in a line."""
    timed = [line for line in lines if line.us is not None]
    head = f"{gemm.shape}: {len(timed)} timed, {len(lines) - len(timed)} failed"
    if not timed:
        return f"{head}; {lines[0].error[:200] if lines else 'none was tried'}"
    best = min(timed, key=lambda line: line.us)
    chosen = min(timed, key=lambda line: line.predicted)
    return (
        f"{head}; best {best.us:.2f} us {Config.of(best.config)}; the model's choice "
        f"{best.us / chosen.us:.3f} of it, {chosen.us:.2f} us, predicted {chosen.predicted:.2f}"
    )

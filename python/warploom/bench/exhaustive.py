"""``python -m warploom.bench exhaustive``: many configurations of each product, measured.

What the analytic model is fitted to, and what its choice is compared with. Candidates are compiled
side by side, ahead of the GPU, the most promising first; each one's result is checked. Every line
of the output is one of them, so that a run that is interrupted loses nothing. No PyTorch is needed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir import Schedule

from warploom.bench.environment import environment
from warploom.bench.suite import RESULT_DTYPE, GemmShape, load_suite, suite_names
from warploom.errors import WarploomError
from warploom.gemm.choose import candidates
from warploom.gemm.decisions import annotate
from warploom.gemm.knobs import GemmKnobs
from warploom.gemm.model import predict
from warploom.gemm.recognition import recognise
from warploom.meta_schedule import Builder, Runner
from warploom.meta_schedule.measure import Measurement
from warploom.meta_schedule.runner import outcome
from warploom.meta_schedule.workloads import matmul
from warploom.target.tvm_target import default_target


@dataclass(frozen=True)
class Line:
    """One candidate as the output has it; times in microseconds, the clock in MHz.

    Attributes
    ----------
    shape : dict
        ``m``, ``n``, ``k``, ``dtype`` and ``group``.
    knobs : dict
    predicted : float
    us : float or None
        The median of ``samples``; None if there is no time.
    samples : list of float
    clock : int or None
    error : str
        Why there is no time; empty if there is one.
    """

    shape: dict[str, Any]
    knobs: dict[str, int]
    predicted: float
    us: float | None
    samples: list[float]
    clock: int | None
    error: str


class _Product:
    """A shape, its candidates, and what has become of them."""

    def __init__(self, shape: GemmShape, count: int, accept: dict[str, int]) -> None:
        self.shape = shape
        func = matmul(shape.m, shape.n, shape.k, shape.dtype, shape.result_dtype)
        self.mod = tvm.IRModule({"main": func})
        gemm = recognise(func)
        self.anchor, self.problem = gemm.anchor, gemm.problem
        legal = [
            one
            for one in candidates(self.problem)
            if all(getattr(one, name) == value for name, value in accept.items())
        ]
        rated = sorted((predict(self.problem, one).total, number) for number, one in
                       enumerate(legal))  # fmt: skip
        ordered = [(time, legal[number]) for time, number in rated]
        self.chosen = list(varied(ordered))[:count]
        self.arguments = tuple(
            (size, dtype)
            for size, dtype in (
                ((shape.m, shape.k), shape.dtype), ((shape.n, shape.k), shape.dtype),
                ((shape.m, shape.n), shape.result_dtype),
            )
        )  # fmt: skip
        self.built: list[Future[str]] = []

    def begin(self, builder: Builder, target: Any) -> None:
        """Have all candidates compiled."""
        for _, knobs in self.chosen:
            sch = Schedule(self.mod)
            annotate(sch, sch.get_sblock(self.anchor, "main"), knobs.values())
            self.built.append(builder.submit(sch.mod, target))

    def measure(self, runner: Runner, until: float) -> Iterator[Line]:
        """Time the candidates, in order, until a moment of ``time.monotonic``."""
        running: list[tuple[int, Future[Measurement]]] = []
        for number, future in enumerate(self.built):
            if time.monotonic() > until:
                future.cancel()
                continue
            try:
                running.append((number, runner.submit(future.result(), "cuda", self.arguments)))
            except WarploomError as error:
                yield self._line(number, None, str(error))
            while len(running) > len(runner.pool.workers):  # one more than are being measured
                yield self._finish(*running.pop(0))
        for one in running:
            yield self._finish(*one)

    def _finish(self, number: int, future: Future[Measurement]) -> Line:
        return self._line(number, *outcome(future))

    def _line(self, number: int, found: Measurement | None, error: str) -> Line:
        predicted, knobs = self.chosen[number]
        one = self.shape
        shape = {"m": one.m, "n": one.n, "k": one.k, "dtype": one.dtype, "group": one.group}
        samples = [second * 1e6 for second in found.seconds] if found else []
        median = sorted(samples)[len(samples) // 2] if samples else None
        clock = found.clock if found else None
        return Line(shape, knobs.values(), predicted, median, samples, clock, error)


def varied(ordered: Sequence[tuple[float, GemmKnobs]]) -> Iterator[tuple[float, GemmKnobs]]:
    """The same candidates, in turns the best and the best of a tile that has not been seen."""
    first: dict[tuple[int, int, bool], tuple[float, GemmKnobs]] = {}
    for one in ordered:
        first.setdefault((one[1].tile_m, one[1].tile_n, one[1].swap_ab), one)
    seen = set()
    for pair in zip_longest(ordered, first.values()):
        for one in pair:
            if one is not None and one[1] not in seen:
                seen.add(one[1])
                yield one


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "--suite",
        default="foundation",
        help=f"{', '.join(suite_names())}, or a JSON file (default: %(default)s)",
    )
    parser.add_argument("--group", action="append", default=[], help="only this group; repeatable")
    parser.add_argument("--dtype", choices=sorted(RESULT_DTYPE), default="float16")
    parser.add_argument("--minutes", type=float, default=8.0, help="wall time (default: 8)")
    parser.add_argument(
        "--count", type=int, default=64, help="candidates of a shape at most (default: 64)"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="KNOB=INTEGER",
        help="only candidates with this knob, such as split_k=1; repeatable",
    )
    parser.add_argument("--workers", type=int, help="compiling processes (default: all CPUs)")
    parser.add_argument(
        "--device", type=int, action="append", default=[], help="GPU; repeatable (default: 0)"
    )
    parser.add_argument("--out", type=Path, default=Path("exhaustive.jsonl"),
                        help="file to append to (default: %(default)s)")  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit status is 0 unless a result was wrong."""
    parser = argparse.ArgumentParser(prog="warploom bench exhaustive", description=__doc__)
    add_arguments(parser)
    options = parser.parse_args(arguments)
    begin = time.monotonic()
    end = begin + 60 * options.minutes
    accept = {name: int(value) for name, _, value in (one.partition("=") for one in options.only)}
    shapes = list(dict.fromkeys(load_suite(options.suite, (options.dtype,), options.group)))
    target, _ = default_target()
    builder = Builder(options.workers)
    runner = Runner(options.device or (0,))

    def prepare(number: int) -> _Product:
        product = _Product(shapes[number], options.count, accept)
        product.begin(builder, target)
        return product

    # The next product is prepared while one is measured, so that the GPU does not wait.
    ahead = ThreadPoolExecutor(1)
    following = ahead.submit(prepare, 0)
    wrong = trials = 0
    with options.out.open("a") as file:
        file.write(json.dumps(environment(["exhaustive", *arguments])) + "\n")
        for number in range(len(shapes)):
            product = following.result()
            if number + 1 < len(shapes):
                following = ahead.submit(prepare, number + 1)
            left = end - time.monotonic()
            until = time.monotonic() + left / (len(shapes) - number)
            lines = []
            for line in product.measure(runner, until):
                lines.append(line)
                file.write(json.dumps(vars(line)) + "\n")
                file.flush()
            trials += len(lines)
            wrong += sum("is wrong" in line.error for line in lines)
            print(_summary(product, lines, trials / (time.monotonic() - begin)), flush=True)
    builder.close()
    runner.close()
    return 1 if wrong else 0


def _summary(product: _Product, lines: Sequence[Line], rate: float) -> str:
    timed = [line for line in lines if line.us is not None]
    failed = len(lines) - len(timed)
    head = f"{product.shape}: {len(timed)} timed, {failed} failed, {rate:.1f} trials/s"
    if not timed:
        return f"{head}; {lines[0].error[:200] if lines else 'none was tried'}"
    best = min(timed, key=lambda line: line.us)
    chosen = min(timed, key=lambda line: line.predicted)
    return (
        f"{head}; best {best.us:.2f} us {GemmKnobs.of(best.knobs)}; the model's choice "
        f"{best.us / chosen.us:.3f} of it, {chosen.us:.2f} us, predicted {chosen.predicted:.2f}"
    )

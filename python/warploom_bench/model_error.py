"""``warploom bench model-error``: the analytic model against results of the exhaustive benchmark.

Reads lines that :mod:`warploom_bench.exhaustive` has written; without a file those of an H200 that
the package brings, which the model's constants are fitted to. Needs no GPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from warploom import pictures
from warploom.command_line import Parser, input_file, output_file
from warploom.decide.machine import H200
from warploom.decide.model import predict
from warploom.decide.problem import GemmProblem
from warploom.pictures.calibration import calibration
from warploom.pictures.palette import BLUE
from warploom.pictures.shapes import LARGE
from warploom_bench.fit import by_gemm, described, fit
from warploom_bench.measured import NEAR, Candidate, by_problem, read_candidates
from warploom_bench.report import geometric_mean


@dataclass(frozen=True)
class Agreement:
    """How good the model is for one GEMM.

    Attributes
    ----------
    problem : GemmProblem
    count : int
        Candidates that were measured.
    best, chosen : Candidate
        The fastest, and the one that the model takes of those that it prices.
    error : float
        Root mean square of the logarithm of predicted over measured, of those that are no slower
        than :data:`NEAR` times the best.
    """

    problem: GemmProblem
    count: int
    best: Candidate
    chosen: Candidate
    error: float

    @property
    def ratio(self) -> float:
        """Time of the best over that of the model's choice: 1 if they are the same."""
        return self.best.us / self.chosen.us


def agreements(candidates: Iterable[Candidate]) -> list[Agreement]:
    """Return an agreement for each GEMM, in the order of their first candidates."""
    agreements_of = []
    for problem, mine in by_problem(candidates).items():
        best = min(mine, key=lambda candidate: candidate.us)
        near = [
            math.log(candidate.predicted / candidate.us)
            for candidate in mine
            if candidate.us <= NEAR * best.us
        ]
        error = math.sqrt(sum(x * x for x in near) / len(near))
        chosen = min(mine, key=lambda candidate: candidate.predicted)
        agreements_of.append(Agreement(problem, len(mine), best, chosen, error))
    return agreements_of


def main(arguments: Sequence[str]) -> int:
    """Print a table, and draw predicted against measured times."""
    parser = Parser(
        prog="warploom bench model-error", description="The analytic model against measured times."
    )
    parser.add_argument(
        "file", nargs="*", type=input_file,
        help="output of warploom bench exhaustive or tuning (default: that of the package)",
    )  # fmt: skip
    parser.add_argument(
        "--fit", action="store_true", help="also fit the model's constants to it, and print them"
    )
    parser.add_argument(
        "--plot", type=output_file, help="a picture of predicted against measured times"
    )
    options = parser.parse_args(arguments)
    if options.plot is not None:
        pictures.suffix_of(options.plot)  # before the candidates are read
    candidates = [
        candidate for file in options.file or [None] for candidate in read_candidates(file)
    ]
    _print(agreements(candidates))
    if options.plot is not None:
        _draw(candidates, options.plot)
    if options.fit:
        machine = fit(by_gemm(candidates), H200)
        print(f"fitted:\n{described(machine)}")
        _print(agreements(
            replace(one, predicted=predict(one.problem, one.config, machine).total)
            for one in candidates
        ))  # fmt: skip
    return 0


def _print(rows: Sequence[Agreement]) -> None:
    table = Table("GEMM", "candidates", "best us", "chosen us", "ratio", "error", box=None)
    for agreement in rows:
        problem = agreement.problem
        table.add_row(
            f"{problem.m} x {problem.n} x {problem.k}",
            str(agreement.count),
            f"{agreement.best.us:.1f}",
            f"{agreement.chosen.us:.1f}",
            f"{agreement.ratio:.3f}",
            f"{agreement.error:.0%}",
        )
    Console().print(table)
    ratio = geometric_mean([agreement.ratio for agreement in rows])
    error = math.sqrt(sum(agreement.error**2 for agreement in rows) / len(rows))
    print(f"geometric mean of the ratios {ratio:.3f}, error near the best {error:.0%}")


def _draw(candidates: Sequence[Candidate], file: Path) -> None:
    name = "The analytic model against measured times"
    made = pictures.Picture(600, 640, name)
    made.add(pictures.Words(16, 22, name, size=LARGE, bold=True))
    gemms = {candidate.problem for candidate in candidates}
    about = f"{len(candidates)} configs of {len(gemms)} GEMMs"
    points = [(candidate.us, candidate.predicted, BLUE) for candidate in candidates]
    calibration(made, (76, 86, 490, 490), points, about)
    pictures.write(made, file)

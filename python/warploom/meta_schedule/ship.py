"""What is worth shipping of measurements: products for which something beats the default.

Sources are databases of TVM, what ``warploom bench exhaustive`` has written, and what ``warploom
bench tuning`` has, which is best: there the default ran side by side with the others.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warploom.bench.suite import RESULT_DTYPE
from warploom.errors import WarploomError
from warploom.gemm.choose import choose
from warploom.gemm.knobs import GemmKnobs
from warploom.gemm.problem import GemmProblem
from warploom.gemm.recognition import recognise
from warploom.meta_schedule.database import RECORDS, open_database
from warploom.meta_schedule.records import Record, records_of
from warploom.meta_schedule.workloads import matmul
from warploom.target import SM90A

#: What must be gained, in parts of the default's time.
GAIN = 0.01


@dataclass(frozen=True)
class Measured:
    """A candidate, and how many microseconds it takes."""

    problem: GemmProblem
    knobs: GemmKnobs
    us: float


def worth_shipping(found: Iterable[Measured], gain: float = GAIN) -> Iterator[Record]:
    """The best of each product, unless the default is nearly as fast.

    Parameters
    ----------
    found : iterable of Measured
        Where the default was not measured, the best of what was is worth it: it is known.
    gain : float
        In parts of the default's time.
    """
    products: dict[GemmProblem, dict[GemmKnobs, float]] = {}
    for one in found:
        mine = products.setdefault(one.problem, {})
        mine[one.knobs] = min(one.us, mine.get(one.knobs, one.us))
    for problem, times in products.items():
        legal = [knobs for knobs in times if knobs.why_not(problem) is None]
        if not legal:
            continue
        best = min(legal, key=lambda knobs: times[knobs])
        default = choose(problem)
        if times[best] < (1 - gain) * times.get(default, math.inf):
            yield Record(problem, best, times[best] * 1e-6, SM90A.name, False, None)


def measurements(source: str | Path) -> Iterator[Measured]:
    """What a database or a file of a benchmark has.

    Raises
    ------
    WarploomError
        If it is none of those.
    """
    source = Path(source)
    if (source / RECORDS).exists():
        for one in records_of(open_database(source)):
            if not one.estimate and one.arch == SM90A.name:
                yield Measured(one.problem, one.knobs, one.seconds * 1e6)
    elif source.name.endswith((".jsonl", ".jsonl.gz")):
        for line in _text(source).splitlines():
            yield from _of_line(json.loads(line))
    elif source.suffix == ".json":
        for row in json.loads(_text(source))["rows"]:
            for name, us in row["us"].items():
                yield Measured(_problem(row["shape"]), GemmKnobs.of(row["knobs"][name]), us)
    else:
        raise WarploomError(
            f"{source} has no measurements; give the folder of a tuning database, the .jsonl of "
            "`bench exhaustive`, or the .json of `bench tuning`."
        )


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WarploomError(f"{path} cannot be read: {error.strerror}.") from None
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()


def _of_line(line: dict[str, Any]) -> Iterator[Measured]:
    if line.get("knobs") and line.get("us") is not None:
        yield Measured(_problem(line["shape"]), GemmKnobs.of(line["knobs"]), line["us"])


_problems: dict[tuple[Any, ...], GemmProblem] = {}


def _problem(shape: dict[str, Any]) -> GemmProblem:
    size = (shape["m"], shape["n"], shape["k"], shape["dtype"])
    if size not in _problems:
        _problems[size] = recognise(matmul(*size, RESULT_DTYPE[shape["dtype"]])).problem
    return _problems[size]

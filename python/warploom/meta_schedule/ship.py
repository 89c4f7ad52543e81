"""The records that are worth shipping.

``warploom bench records`` has judged the GEMMs of its file: their records are taken as they are,
the confirmed defaults among them. Other sources are databases of TVM, results of ``warploom bench
exhaustive``, and of ``warploom bench tuning``: of these a GEMM gets a record where a config beats
the default. Records that were shipped before are kept, unless their GEMM was measured again.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warploom.decide.config import Config
from warploom.decide.old_records import read_config, with_new_key
from warploom.decide.problem import GemmProblem
from warploom.decide.selector import choose
from warploom.errors import WarploomError, reading
from warploom.gemm.workloads import problem_of
from warploom.gemm_shape import GemmShape
from warploom.meta_schedule.database import is_database, read_database
from warploom.meta_schedule.lookup import Lookup
from warploom.meta_schedule.records import Record, records_of
from warploom.target import SM90A

#: The least gain, in parts of the default's time.
GAIN = 0.01


@dataclass(frozen=True)
class Measured:
    """A candidate, and how many microseconds it takes."""

    problem: GemmProblem
    config: Config
    us: float


def worth_shipping(
    measured: Iterable[Measured], gain: float = GAIN, before: Iterable[Record] = ()
) -> list[Record]:
    """The best config of each GEMM, unless the default config is nearly as fast.

    The default is the config of another shipped record, such as that of the same GEMM without an
    epilogue, and else the model's choice.

    Parameters
    ----------
    measured : iterable of Measured
        Where the default was not measured, the best measured config is worth it: it is known.
    gain : float
        In parts of the default's time.
    before : iterable of Record
        Records that were shipped before: kept as they are, unless the GEMM was measured again. Then
        their times count where the same config was not measured again.
    """
    gemms: dict[GemmProblem, dict[Config, float]] = {}
    for measurement in measured:
        mine = gemms.setdefault(measurement.problem, {})
        mine[measurement.config] = min(measurement.us, mine.get(measurement.config, measurement.us))
    kept: dict[GemmProblem, Record] = {}
    for record in before:
        if record.problem in gemms:
            gemms[record.problem].setdefault(record.config, record.seconds * 1e6)
        else:
            kept[record.problem] = record
    # Others take what is kept of plain GEMMs, so these come first. What one without a record
    # gets may be a record that is kept later: then its own is needed after all.
    ordered = sorted(gemms.items(), key=lambda item: _epilogue(item[0]))
    count = -1
    while count < len(kept):  # what is kept changes what others would get
        count = len(kept)
        for problem, times in ordered:
            record = None if problem in kept else _worth(problem, times, gain, kept.values())
            if record is not None:
                kept[problem] = record
    return list(kept.values())


def _worth(
    problem: GemmProblem, times: Mapping[Config, float], gain: float, before: Iterable[Record]
) -> Record | None:
    """The best of a GEMM, if it is worth it beside records of others."""
    legal = [config for config in times if config.why_not(problem) is None]
    if not legal:
        return None
    best = min(legal, key=lambda config: times[config])
    default = Lookup(before).config(problem) or choose(problem)
    if times[best] >= (1 - gain) * times.get(default, math.inf):
        return None
    return Record(problem, best, times[best] * 1e-6, SM90A.name, False, None)


def _epilogue(problem: GemmProblem) -> tuple[int, int]:
    """0 and 0 of a plain GEMM."""
    return problem.products - 1, len(problem.inputs)


def together(judged: Iterable[Record], others: Iterable[Record]) -> list[Record]:
    """One record for each GEMM: a judged one, of several the last, before any other."""
    return list({record.problem: record for record in (*others, *judged)}.values())


def measurements(source: str | Path) -> Iterator[Measured]:
    """Yield the measurements of a database or of a benchmark's file.

    Raises
    ------
    WarploomError
        If it is none of those.
    """
    source = Path(source)
    if is_database(source):
        for record in records_of(read_database(source)):
            if not record.estimate and record.arch == SM90A.name:
                yield Measured(record.problem, record.config, record.seconds * 1e6)
    elif source.name.endswith((".jsonl", ".jsonl.gz")):
        with reading(source, "output of `bench exhaustive`"):
            lines = [with_new_key(json.loads(line)) for line in _text(source).splitlines()]
            measured = [measurement for line in lines for measurement in _of_line(line)]
        yield from measured
    elif source.suffix == ".json":
        with reading(source, "output of `bench tuning`"):
            rows = [
                (GemmShape(**row["shape"]), with_new_key(row))
                for row in json.loads(_text(source))["rows"]
            ]
            measured = [
                Measured(problem_of(shape), read_config(row["config"][name]), us)
                for shape, row in rows
                for name, us in row["us"].items()
            ]
        yield from measured
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
    if line.get("config") and line.get("us") is not None:
        problem = problem_of(GemmShape(**line["shape"]))
        yield Measured(problem, read_config(line["config"]), line["us"])

"""The best known config for a GEMM, from measurements of it or of GEMMs like it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from warploom.decide.candidates import LEAST_STAGES, most_stages
from warploom.decide.config import Config
from warploom.decide.problem import GemmProblem
from warploom.meta_schedule.database import is_database, read_database
from warploom.meta_schedule.package_records import shipped
from warploom.meta_schedule.records import Record, records_of
from warploom.target.dtypes import bits_of

#: Dtypes that tensor cores multiply as fast as another.
_ALIKE = {"bfloat16": "float16"}
#: The least number of rows of a bucket; tiles have no fewer.
_LEAST_ROWS = 8


@dataclass(frozen=True)
class Found:
    """The record that a look-up has found.

    Attributes
    ----------
    config : Config
        Legal for the problem that was asked for.
    record : Record
        Where they are from.
    exact : bool
        Whether the record is of the very same problem.
    """

    config: Config
    record: Record
    exact: bool


class Lookup:
    """Records by GEMM, for the compilation of models.

    A record also serves GEMMs that differ from its own in the epilogue, in the kind of 16-bit
    floats, or in the number of rows within a factor of two: a config that is fast for one is fast
    for the other. Several GEMMs of n columns, such as the two of SwiGLU, are then one of all
    columns: a tile of it has as many of each. Of several records, the nearest number of rows goes
    first, and then the most similar epilogue.

    Parameters
    ----------
    records : iterable of Record
    estimates : bool
        Use estimates of the analytic model; measured times and they are never compared.
    after : Lookup, optional
        Asked for problems that these records do not have.
    """

    def __init__(
        self, records: Iterable[Record], estimates: bool = False, after: Lookup | None = None
    ) -> None:
        self.after = after
        self._exact: dict[tuple[str, GemmProblem], Record] = {}
        self._alike: dict[tuple[str, GemmProblem], list[Record]] = {}
        for record in sorted(records, key=lambda record: record.seconds):
            if record.estimate == estimates:
                self._exact.setdefault((record.arch, record.problem), record)
                self._alike.setdefault((record.arch, family(record.problem)), []).append(record)

    @classmethod
    def of_folders(
        cls, folders: Sequence[str | Path], estimates: bool = False, after: Lookup | None = None
    ) -> Lookup:
        """From databases of TVM, each a folder."""
        records = [
            record
            for folder in folders
            if is_database(folder)
            for record in records_of(read_database(folder))
        ]
        return cls(records, estimates, after)

    @classmethod
    def shipped(cls, after: Lookup | None = None) -> Lookup:
        """From the records of the package."""
        return cls(shipped().records, after=after)

    @classmethod
    def in_order(
        cls, folders: Sequence[str | Path] = (), use_shipped: bool = True, estimates: bool = False
    ) -> Lookup:
        """Return the records to compile a model with: the user's measurements before the package's.

        Parameters
        ----------
        folders : sequence of path
            Databases of TVM.
        use_shipped : bool
            Whether the records of the package serve problems that the folders do not have.
        estimates : bool
            Whether, where nothing was measured, estimates in ``folders`` are asked.
        """
        last = cls.of_folders(folders, estimates=True) if estimates else None
        return cls.of_folders(folders, after=cls.shipped(last) if use_shipped else last)

    def best(self, problem: GemmProblem, arch: str = "sm_90a") -> Found | None:
        """The config of the fastest record that fits; None if there is none."""
        exact = self._exact.get((arch, problem))
        if exact is not None and exact.config.why_not(problem) is None:
            return Found(exact.config, exact, True)
        alike = self._alike.get((arch, family(problem)), ())
        # Times of different GEMMs cannot be compared: the nearest one's fastest wins.
        for nearest in sorted(alike, key=lambda record: distance(record.problem, problem)):
            config = adapted(nearest.config, problem, nearest.problem.products)
            if config is not None:
                return Found(config, nearest, False)
        return None if self.after is None else self.after.best(problem, arch)

    def config(self, problem: GemmProblem) -> Config | None:
        """The config of :meth:`best`, adapted to the problem."""
        record = self.best(problem)
        return None if record is None else record.config


def family(problem: GemmProblem) -> GemmProblem:
    """Return the common part of the problems that share records."""
    kinds = {name: _ALIKE.get(getattr(problem, name)) for name in ("a_dtype", "b_dtype")}
    same = {name: kind for name, kind in kinds.items() if kind is not None}
    n = None if problem.n is None else problem.n * problem.products
    return replace(problem, m=bucket(problem.m), n=n, products=1, inputs=(), outputs=(), **same)


def distance(first: GemmProblem, second: GemmProblem) -> tuple[int, int]:
    """How many rows two of a family differ by, and in how many ways their epilogues do.

    The costs of a kernel are counted: GEMMs, tiles that it reads, and stores.
    """
    traits = zip(_epilogue(first), _epilogue(second), strict=True)
    return abs((first.m or 0) - (second.m or 0)), sum(mine != theirs for mine, theirs in traits)


def _epilogue(problem: GemmProblem) -> tuple[Any, ...]:
    shapes = [shape for _, shape in problem.inputs]
    stored = tuple(map(bits_of, problem.outputs))
    return problem.products, shapes.count("tile"), len(shapes) > 0, stored


def bucket(rows: int | None) -> int | None:
    """The smallest power of two that is not less than a number of rows."""
    return None if rows is None else max(_LEAST_ROWS, 1 << (rows - 1).bit_length())


def adapted(config: Config, problem: GemmProblem, products: int = 1) -> Config | None:
    """Configs with as many stages as a problem's epilogue leaves room for; None if they do not fit.

    Parameters
    ----------
    config : Config
        Legal for another problem of the same family.
    problem : GemmProblem
    products : int
        Of that other problem. A tile of several GEMMs has as many columns of each of them as
        make the same number together.

    Examples
    --------
    Stores of float32 take twice the shared memory that those of float16 do. A tile of 256 columns
    becomes 128 of the gate and 128 of what it multiplies.
    """
    columns, rest = divmod(config.tile_n * products, problem.products)
    if rest:
        return None
    config = replace(config, tile_n=columns)
    stages = min(config.stages, most_stages(config, problem))
    if stages < min(LEAST_STAGES, config.stages):
        return None
    changed = replace(config, stages=stages)
    return changed if changed.why_not(problem) is None else None

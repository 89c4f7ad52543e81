"""The best known config for a GEMM, from measurements of it or of GEMMs like it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from warploom.decide.candidates import LEAST_STAGES, most_stages
from warploom.decide.config import Config
from warploom.decide.gemv import is_beaten
from warploom.decide.machines import machine_for
from warploom.decide.problem import GemmProblem
from warploom.errors import IllegalCombination
from warploom.meta_schedule.database import is_database, read_database
from warploom.meta_schedule.package_records import Index, is_enabled, shipped_index
from warploom.meta_schedule.records import Record, records_of
from warploom.target.dtypes import bits_of
from warploom.target.gpus import Gpu, gpu_of_model

#: Dtypes that tensor cores multiply as fast as another.
_ALIKE = {"bfloat16": "float16"}
#: The least number of rows of a bucket; tiles have no fewer.
LEAST_ROWS = 8
#: Rows for which the kernel is measured that gets more of them than any limit, where their number
#: is known only at run time.
MANY_ROWS = 2048


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

    Examples
    --------
    >>> found = wms.Lookup(wms.shipped().records).best(problem)  # doctest: +SKIP
    >>> found.config, found.record.seconds, found.exact  # doctest: +SKIP
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

    Examples
    --------
    >>> known = wms.Lookup.of_folders(["work_dir"])  # doctest: +SKIP
    >>> space = wms.Space(known)  # doctest: +SKIP
    """

    def __init__(
        self, records: Iterable[Record], estimates: bool = False, after: Lookup | None = None
    ) -> None:
        self.after = after
        self._alike = _by_family(
            record for record in records if record.estimate == estimates
        )

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
        """From the records of the package; none if they are switched off in the environment."""
        return _Indexed(shipped_index, after)

    @classmethod
    def of_files(cls, paths: Iterable[str | Path], after: Lookup | None = None) -> Lookup:
        """From files that ``warploom tune db ship`` has written."""
        index = Index(paths)
        return _Indexed(lambda: index, after, always=True)

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

    def best(
        self, problem: GemmProblem, arch: str = "sm_90a", gpu: Gpu | None = None
    ) -> Found | None:
        """The config of the fastest record that fits; None if there is none.

        Parameters
        ----------
        problem : GemmProblem
        arch : str
        gpu : Gpu, optional
            The GPU that will run it; by default that of the current target, and without a target
            an H200.
        """
        gpu = gpu or machine_for().gpu
        for rows in (problem.m,) if problem.m is not None else (None, MANY_ROWS):
            found = self._found(replace(problem, m=rows), problem, arch, gpu)
            if found is not None:
                return found
        return None if self.after is None else self.after.best(problem, arch, gpu)

    def _found(
        self, like: GemmProblem, problem: GemmProblem, arch: str, gpu: Gpu
    ) -> Found | None:
        """A record of the family of one problem whose config another can have."""
        near = [
            (apart, record)
            for record in self._of_family(family(like))
            if record.arch == arch and (apart := difference(record.gpu, gpu)) is not None
        ]
        # Times of different GEMMs cannot be compared: the nearest one's fastest wins.
        near.sort(key=lambda pair: (distance(pair[1].problem, like), pair[0]))
        exact = [pair for pair in near if pair[1].problem == problem]
        for _, record in (*exact, *near):
            if record.problem == problem:
                config = record.config if record.config.why_not(problem) is None else None
            else:
                config = adapted(record.config, problem, record.problem.products)
            if config is not None:
                return Found(config, record, record.problem == problem)
        return None

    def _of_family(self, key: GemmProblem) -> Sequence[Record]:
        """The records of a family, the fastest first."""
        return self._alike.get(key, ())

    def config(self, problem: GemmProblem) -> Config | None:
        """The config of :meth:`best`, adapted to the problem.

        None where a GEMV is predicted to be faster: searches draw none.
        """
        record = self.best(problem)
        if record is None or is_beaten(problem, record.config, machine_for()):
            return None
        return record.config


class _Indexed(Lookup):
    """Records of files, read when a GEMM asks for those of its columns and depth."""

    def __init__(
        self, index: Callable[[], Index], after: Lookup | None, always: bool = False
    ) -> None:
        super().__init__((), after=after)
        self._index, self._always = index, always
        self._families: dict[tuple[int | None, int | None], dict[GemmProblem, list[Record]]] = {}

    def _of_family(self, key: GemmProblem) -> Sequence[Record]:
        if not (self._always or is_enabled()):
            return ()
        layer = (key.n, key.k)
        if layer not in self._families:
            self._families[layer] = _by_family(self._index().of(*layer))
        return self._families[layer].get(key, ())


def _by_family(records: Iterable[Record]) -> dict[GemmProblem, list[Record]]:
    """Records of each family, the fastest first."""
    families: dict[GemmProblem, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.seconds):
        families.setdefault(family(record.problem), []).append(record)
    return families


@lru_cache(maxsize=256)
def difference(model: str, gpu: Gpu) -> int | None:
    """How far the GPU of a record is from another one of its architecture.

    Parameters
    ----------
    model : str
        As :attr:`Record.gpu` has it.
    gpu : Gpu

    Returns
    -------
    int or None
        0 for the same GPU, or where it is not known; 1 for one with as many SMs, which fits as many
        clusters as well; None for any other, for which the record says nothing.
    """
    if model in ("", gpu.model):
        return 0
    try:
        other = gpu_of_model(model, gpu.arch)
    except IllegalCombination:  # of another architecture
        return None
    return 1 if other.sms == gpu.sms else None


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
    return None if rows is None else max(LEAST_ROWS, 1 << (rows - 1).bit_length())


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

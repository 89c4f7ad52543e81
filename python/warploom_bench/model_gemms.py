"""The GEMMs of the public models by layer, rows and operands, and how much of them records cover.

A model has its layers for any number of rows from 1 to :data:`MOST_ROWS`, which are drawn
log-uniformly: 1 to 2 rows are as likely as 4096 to 8192. The models count alike, and so do the
layers of a model. Rows are *fixed* where a function says their number; a *symbolic* number has a
kernel for each of ``ROW_LIMITS`` and one for more rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from warploom.decide.problem import GemmProblem
from warploom.decide.ranking import ROW_LIMITS
from warploom.meta_schedule.lookup import LEAST_ROWS, MANY_ROWS, Lookup
from warploom.meta_schedule.record_lines import KINDS, problem_of_line
from warploom.target.gpus import Gpu
from warploom_bench.public_models import MODELS, Model

MOST_ROWS = 8192
#: Operands that are measured, and the ones that their records serve: bfloat16 has those of float16.
SERVES: Mapping[str, tuple[str, ...]] = {
    "float16": ("float16", "bfloat16"), "float8_e4m3fn": ("float8_e4m3fn",), "int4": ("int4",)
}  # fmt: skip
#: Seconds of a GEMM in a run, but for its kernels, and times that a kernel is launched.
_SECONDS, _LAUNCHES = 0.3, 200
#: Operations that a GPU does in a second, about.
_RATE = 5e14


@dataclass(frozen=True)
class ModelGemm:
    """A GEMM to measure.

    Attributes
    ----------
    n, k, m : int
    kind : str
        Its operands, of :data:`record_lines.KINDS`.
    """

    n: int
    k: int
    m: int
    kind: str

    @property
    def problem(self) -> GemmProblem:
        """The key of its record."""
        return problem_of(self.n, self.k, self.m, self.kind)

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.m * self.n * self.k

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k} {self.kind}"


@cache
def problem_of(n: int, k: int, m: int | None, kind: str) -> GemmProblem:
    """A GEMM of a layer; None for rows that only the launch knows."""
    return problem_of_line({"n": n, "k": k, "m": m, "as": kind})


@cache
def buckets() -> dict[int, tuple[int, float]]:
    """By the most rows of each bucket of records: its fewest, and its share of all fixed rows.

    Examples
    --------
    >>> list(buckets())[:3], buckets()[8][0], buckets()[16][0], round(buckets()[8][1], 3)
    ([8, 16, 32], 1, 9, 0.283)
    """
    total, made, first = _weight(1, MOST_ROWS), {}, 1
    rows = LEAST_ROWS
    while rows <= MOST_ROWS:
        made[rows] = (first, _weight(first, rows) / total)
        first, rows = rows + 1, 2 * rows
    return made


@cache
def limits() -> dict[int | None, float]:
    """By the most rows of each kernel of a symbolic number of them: its share of all rows."""
    total, made, first = _weight(1, MOST_ROWS), {}, 1
    for limit in (*ROW_LIMITS, None):
        made[limit] = _weight(first, limit or MOST_ROWS) / total
        first = (limit or MOST_ROWS) + 1
    return made


def _weight(first: int, last: int) -> float:
    return sum(1 / rows for rows in range(first, last + 1))


def by_importance(models: Sequence[Model] = MODELS) -> list[ModelGemm]:
    """The GEMMs whose records cover all, those that cover most for their time first."""
    shares = layer_shares(models)
    found = [
        (share * rows * len(served) / _cost(gemm), gemm)
        for (n, k), share in shares.items()
        for m, rows in _row_shares().items()
        for kind, served in SERVES.items()
        for gemm in (ModelGemm(n, k, m, kind),)
    ]
    found.sort(key=lambda pair: (-pair[0], pair[1].n, pair[1].k, pair[1].m, pair[1].kind))
    return [gemm for _, gemm in found]


def layer_shares(models: Sequence[Model] = MODELS) -> dict[tuple[int, int], float]:
    """N and K of all layers, with their share of them."""
    shares: dict[tuple[int, int], float] = {}
    for model in models:
        layers = model.layers()
        for layer in layers:
            key = (layer.n, layer.k)
            shares[key] = shares.get(key, 0.0) + 1 / len(layers) / len(models)
    return shares


@cache
def _row_shares() -> dict[int, float]:
    """The share of rows that a record serves, fixed and symbolic ones on average."""
    symbolic = {limit or MANY_ROWS: share for limit, share in limits().items()}
    return {
        rows: (share + symbolic.get(rows, 0.0)) / 2 for rows, (_, share) in buckets().items()
    }


def _cost(gemm: ModelGemm) -> float:
    return _SECONDS + _LAUNCHES * gemm.operations / _RATE


@dataclass(frozen=True)
class Hits:
    """The share of rows for which a record is found, from 0 to 1.

    Attributes
    ----------
    fixed, symbolic : float
    """

    fixed: float
    symbolic: float


def hits_of(
    layers: Iterable[tuple[int, int]], kind: str, lookup: Lookup, gpu: Gpu | None = None
) -> Hits:
    """How often a compiled model finds a record, over layers that count alike.

    Parameters
    ----------
    layers : iterable of (int, int)
        N and K.
    kind : str
        Operands, of :data:`record_lines.KINDS`.
    lookup : Lookup
    gpu : Gpu, optional
        The GPU to compile for; by default that of the current target, or an H200.
    """
    found = [_layer_hits(n, k, kind, lookup, gpu) for n, k in layers]
    return Hits(*(sum(one) / len(found) for one in zip(*found, strict=True)))


def _layer_hits(
    n: int, k: int, kind: str, lookup: Lookup, gpu: Gpu | None
) -> tuple[float, float]:
    def found(m: int | None) -> bool:
        return lookup.best(problem_of(n, k, m, kind), gpu=gpu) is not None

    # Whether a config is legal may depend on the rows: both ends of a bucket count.
    fixed = sum(
        share * (found(first) + found(last)) / 2 for last, (first, share) in buckets().items()
    )
    return fixed, sum(share * found(limit) for limit, share in limits().items())


def model_hits(
    lookup: Lookup, gpu: Gpu | None = None, models: Sequence[Model] = MODELS
) -> Iterator[tuple[Model, dict[str, Hits]]]:
    """Each model with its hits, by operands."""
    for model in models:
        layers = [(layer.n, layer.k) for layer in model.layers()]
        yield model, {kind: hits_of(layers, kind, lookup, gpu) for kind in KINDS}


def mean(hits: Iterable[Hits]) -> Hits:
    """The mean of hits that count alike."""
    found = [(one.fixed, one.symbolic) for one in hits]
    return Hits(*(sum(one) / len(found) for one in zip(*found, strict=True)))

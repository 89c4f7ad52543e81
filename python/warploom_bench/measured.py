"""Candidates of GEMMs with measured times, which the analytic model is compared with and fitted to.

Lines are those that :mod:`warploom_bench.exhaustive` has written. The package brings those of an
H200, which the model's constants are fitted to.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from warploom.decide.config import Config
from warploom.decide.model import predict
from warploom.decide.old_records import read_config, with_new_key
from warploom.decide.problem import GemmProblem
from warploom.errors import reading
from warploom.gemm.workloads import problem_of
from warploom.gemm_shape import GemmShape

#: Results that come with the package: 40 shapes of the suite ``public``, and 210 random shapes of
#: the seeds 501, 502 and 777 of :mod:`warploom_bench.unseen`.
PUBLIC = "2026-11-22-h200-candidates.jsonl.gz"
RANDOM = "2026-11-24-h200-random.jsonl.gz"
#: Candidates that are slower than the best by more do not matter to a choice.
NEAR = 1.4
#: Families of lines of ``bench judge`` whose shape is that of a GEMM; other output has none.
_GEMMS = (None, "gemm")


@dataclass(frozen=True)
class Candidate:
    """A configuration of a GEMM, with measured and predicted microseconds."""

    problem: GemmProblem
    config: Config
    us: float
    predicted: float


def read_candidates(file: Path | None = None) -> list[Candidate]:
    """Candidates that were measured and right; without a file, those of the package."""
    if file is None:
        return [*packaged_candidates(PUBLIC), *packaged_candidates(RANDOM)]
    data = file.read_bytes()
    with reading(file, "output of `bench exhaustive` or `bench tuning`"):
        text = gzip.decompress(data) if file.suffix == ".gz" else data
        lines = (with_new_key(json.loads(line)) for line in text.decode().splitlines())
        return [
            _candidate(line)
            for line in lines
            if line.get("us") is not None and not line["error"] and line.get("family") in _GEMMS
        ]


def packaged_candidates(name: str) -> list[Candidate]:
    """Candidates of one of the files :data:`PUBLIC` and :data:`RANDOM`.

    Those whose CTAs share a tile through a workspace are left out: they were measured when the
    owner of a tile waited for one CTA after the other, with kernels that are no more.
    """
    found = read_candidates(Path(str(resources.files("warploom_bench"))) / "data" / name)
    return [one for one in found if not _sums_through_workspace(one.config)]


def _sums_through_workspace(config: Config) -> bool:
    return config.stream_k or (config.split_k > 1 and not config.through_cluster)


def _candidate(line: dict[str, Any]) -> Candidate:
    problem, config = problem_of(GemmShape(**line["shape"])), read_config(line["config"])
    return Candidate(problem, config, line["us"], predict(problem, config).total)


def by_problem(candidates: Iterable[Candidate]) -> dict[GemmProblem, list[Candidate]]:
    """The candidates of each GEMM, in the order of their first ones."""
    groups: dict[GemmProblem, list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault(candidate.problem, []).append(candidate)
    return groups

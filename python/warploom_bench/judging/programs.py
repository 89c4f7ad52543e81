"""Tile programs as cases of a search: worker processes make, price and compile them.

Results are compared with a reference that knows no config: of GEMMs all elements, with those of a
kernel that TVM schedules without tensor cores; of attention some queries of each head, with numpy.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm.target import Target

from warploom.decide.config import Config
from warploom.decide.machines import machine_for
from warploom.meta_schedule import Builder, artifact
from warploom.meta_schedule.artifact import Facts
from warploom.meta_schedule.builder import both
from warploom.meta_schedule.measure import inputs_of_check
from warploom.meta_schedule.programs.builder import build_program
from warploom.meta_schedule.reference import runs_on_host
from warploom_bench.judging.changes import near_to
from warploom_bench.judging.families import FAMILIES
from warploom_bench.judging.references import build


class ProgramCase:
    """A tile program of fixed sizes: see :class:`warploom_bench.judging.case.Case`.

    Parameters
    ----------
    family : str
        A key of :data:`~warploom_bench.judging.families.FAMILIES`.
    sizes : dataclass
        The sizes, as the family draws them.
    """

    def __init__(self, family: str, sizes: Any) -> None:
        self.family, self._row, self._sizes = family, FAMILIES[family], sizes
        self.shape = dict(vars(sizes))
        self.arguments = self._row.arguments(sizes)
        self.liked = self._row.liked(sizes, machine_for())
        self._begun: dict[Config, Future[str]] = {}
        self._facts: Facts | None = None
        self._reference: Future[None] | None = None

    def __str__(self) -> str:
        return f"{self.family} {self._sizes}"

    def neighbours(
        self, near: Sequence[Config], count: int, seen: set[Config], rng: random.Random
    ) -> list[Config]:
        """Configs that the model likes, and as many that differ from others by a change or two."""
        listed = [config for config in self.liked if config not in seen][: (count + 1) // 2]
        seen.update(listed)

        def fitted(config: Config) -> Config | None:
            return self._row.fitted(self._sizes, config)

        return listed + near_to(near, self._row.changes, fitted, count - len(listed), seen, rng)

    def predict(self, config: Config) -> float:
        """Microseconds by the model with which the family chooses."""
        return self._row.predicted(self._sizes, config, machine_for())

    def submit(self, config: Config, builder: Builder, target: Target) -> Future[str]:
        """Have a config compiled, once."""
        begun = self._begun.get(config)
        if begun is not None and not begun.cancelled():
            return begun
        if self._facts is None:
            self._prepare(builder, target)
        path = str(artifact.new_folder(builder.folder) / artifact.LIBRARY)
        built = builder.pool.submit(
            build_config, self.family, self._sizes, config, target, self._facts, path,
            timeout=builder.timeout_sec,
        )  # fmt: skip
        self._begun[config] = both(built, self._reference)
        return self._begun[config]

    def _prepare(self, builder: Builder, target: Target) -> None:
        """Begin to make the right results, and say what all configs have in common."""
        row, sizes = self._row, self._sizes
        name = hashlib.sha256(repr(self).encode()).hexdigest()[:16]
        given = {str(at): array for at, array in row.given(sizes).items()}
        tensors = Path(builder.folder, f"given-{name}.npz")
        if given:
            np.savez(tensors, **given)
        facts = Facts(
            name, str(self), outputs=(len(self.arguments) - 1,), exact=row.reference is not None,
            given=str(tensors) if given else None, is_program=True,
        )  # fmt: skip
        if row.reference is None:
            path = Path(builder.folder, f"right-{name}{artifact.RESULTS}")
            self._facts = replace(facts, reference=str(path), in_part=True)
            self._reference = builder.pool.submit(
                sample_results, self.family, sizes, self._facts, timeout=builder.timeout_sec
            )
            return
        func, path = row.reference(sizes), Path(builder.folder, f"reference-{name}.so")
        on_host = runs_on_host(tvm.IRModule({"main": func}))
        self._facts = replace(facts, reference=str(path), on_host=on_host)
        self._reference = builder.pool.submit(
            build, func, target, row.apart, str(path), timeout=builder.timeout_sec
        )

    def __repr__(self) -> str:
        return f"ProgramCase({self.family!r}, {self._sizes!r})"


def build_config(
    family: str, sizes: Any, config: Config, target: Target, facts: Facts, path: str
) -> str:
    """In a worker: compile the program of a config to a path, beside the facts about it."""
    row = FAMILIES[family]
    with target:
        program = row.program(sizes, config)
    predicted = row.predicted(sizes, config, machine_for(target))
    facts = replace(facts, config=config.values(), predicted=predicted)
    return build_program(program, target, facts, path, {})


def sample_results(family: str, sizes: Any, facts: Facts) -> None:
    """In a worker: write some of the right results to the file that the facts name."""
    row = FAMILIES[family]
    right = row.result(sizes, inputs_of_check(facts, row.arguments(sizes)))
    path = Path(facts.reference)
    unfinished = path.with_name(f"unfinished-{path.name}")
    np.savez(unfinished, **{str(facts.outputs[0]): right})
    unfinished.rename(path)

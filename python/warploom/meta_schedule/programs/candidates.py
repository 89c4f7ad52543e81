"""The configs of a task with their programs, in the order in which they are worth measuring."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import tvm_ffi
from tvm.tirx import PrimFunc

from warploom.errors import WarploomError
from warploom.language.calls.parameters import Parameter
from warploom.language.rules import check_program
from warploom.language.single_stores import with_single_stores
from warploom.language.tuning.space import Config, encode, text_of
from warploom.language.tuning.task import Task
from warploom.tile.kinds import is_program
from warploom.warn import silenced

#: Legal configs that are ranked, at most: each takes tens of milliseconds to make a program of.
_RANKED = 256
#: Configs that are drawn from a larger space, and that are tried for the first legal one.
_DRAWN = 8192
#: Reasons that an error shows, at most.
_SHOWN = 4


@dataclass(frozen=True)
class Candidate:
    """A config with its program.

    Attributes
    ----------
    config : dict
    program : PrimFunc
    digest : str
        Structural hash of the program, as hexadecimal digits.
    seconds : float or None
        That a kernel is expected to take; None if nothing predicts it.
    """

    config: Config
    program: PrimFunc
    digest: str
    seconds: float | None


class Candidates:
    """The candidates of a task; programs are made when they are first asked for.

    Attributes
    ----------
    left_out : dict from str to (dict, str)
        Configs for which there is no kernel, and why; by their text.
    """

    def __init__(self, task: Task, seed: int = 0) -> None:
        self.task, self._seed = task, seed
        self.left_out: dict[str, tuple[Config, str]] = {}
        self._made: dict[str, Candidate | None] = {}
        self._by_digest: dict[str, Config] = {}
        self._shapes: list[tuple[Parameter, tuple[int, ...] | None]] | None = None
        self._first: Candidate | None = None

    @property
    def first(self) -> Candidate:
        """The first legal config of the space.

        Raises
        ------
        WarploomError
            If there is none.
        """
        if self._first is None:
            for config in itertools.islice(self.task.space, _DRAWN):
                made = self.of(config)
                if made is not None:
                    return made
            raise self.error("is legal")
        return self._first

    @property
    def shapes(self) -> list[tuple[Parameter, tuple[int, ...] | None]]:
        """The parameters of the programs, with their shapes; None for numbers."""
        return self.task.shapes(self.first.program) if self._shapes is None else self._shapes

    def of(self, config: Config) -> Candidate | None:
        """The candidate of a config; None if it is illegal, for which ``left_out`` has the reason.

        A program that another config has made already is left out as well.
        """
        text = encode(config)
        if text not in self._made:
            try:
                program, digest = self._program(config)
            except Exception as error:  # of the factory: whatever it is
                self.leave_out(config, reason_of(error))
            else:
                made = Candidate(config, program, digest, self._predicted(program))
                self._made[text] = made
                self._first = self._first or made
        return self._made[text]

    def leave_out(self, config: Config, reason: str) -> None:
        """Note that there is no kernel for a config."""
        text = encode(config)
        self._made[text] = None
        self.left_out[text] = (config, reason)

    def ranked(self) -> Iterator[Candidate]:
        """Legal candidates, the most promising first."""
        legal = (made for made in map(self.of, self._pool()) if made is not None)
        if self.task.rank is None:
            yield from legal
            return
        yield from sorted(itertools.islice(legal, _RANKED), key=_expected)
        yield from legal

    def near(self, config: Config) -> list[Candidate]:
        """Legal candidates that differ from a config in one parameter, most promising first."""
        legal = [made for made in map(self.of, self.task.space.neighbours(config)) if made]
        return sorted(legal, key=_expected)

    def error(self, what: str) -> WarploomError:
        """The error for a task of which no config is as it should be."""
        found = list(self.left_out.values())
        reasons = "; ".join(f"{text_of(c)}: {reason}" for c, reason in found[:_SHOWN])
        more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        return WarploomError(f"{self.task}: no config {what}. {reasons}{more}")

    def _pool(self) -> Iterator[Config]:
        """Configs to rank, or to try in this order; of a large space, many at random."""
        space, rng = self.task.space, np.random.default_rng(self._seed)
        count = len(space)
        if count > _DRAWN:
            numbers = rng.choice(count, _DRAWN, replace=False)
        elif self.task.rank is None or count > _RANKED:
            numbers = rng.permutation(count)
        else:
            numbers = np.arange(count)
        for number in numbers:
            yield space.at(int(number))

    def _program(self, config: Config) -> tuple[PrimFunc, str]:
        """The program of a config, and its hash; an error says why there is none."""
        task = self.task
        reason = task.space.reason_against(config, task.arguments)
        if reason is not None:
            raise WarploomError(reason)
        program = task.make(config)
        if not isinstance(program, PrimFunc):
            raise WarploomError(f"the factory returns a {type(program).__name__}, no program")
        if is_program(program):
            with silenced():
                check_program(with_single_stores(program))
        shapes = task.shapes(program)
        if self._shapes is None:
            self._shapes = shapes
        elif _forms(shapes) != _forms(self._shapes):
            raise WarploomError("its program takes other parameters than that of the first config")
        digest = f"{tvm_ffi.structural_hash(program) % 2**64:016x}"
        same = self._by_digest.setdefault(digest, config)
        if same != config:
            raise WarploomError(f"its program is that of {text_of(same)}")
        return program, digest

    def _predicted(self, program: PrimFunc) -> float | None:
        if self.task.rank is None:
            return None
        try:
            return self.task.rank(program, self.task.target)
        except WarploomError:  # a program that the model does not know may still be fast
            return None


def reason_of(error: Exception) -> str:
    """The first line of an error; with its class, if it is none of warploom's."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
    return text if isinstance(error, WarploomError) else f"{type(error).__name__}: {text}"


def _expected(candidate: Candidate) -> float:
    return math.inf if candidate.seconds is None else candidate.seconds


def _forms(
    shapes: list[tuple[Parameter, tuple[int, ...] | None]],
) -> list[tuple[str, tuple[int, ...] | None]]:
    return [(parameter.dtype, shape) for parameter, shape in shapes]

"""The choices of one kernel, and whether a kernel for a problem can have them.

:class:`Config` does not depend on a problem; :meth:`Config.why_not` says whether a kernel for a
problem can be built with it, by :mod:`~warploom.decide.rules`: instruction shapes, shared memory,
registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from warploom.decide.problem import GemmProblem
from warploom.decide.resources import KernelChoices
from warploom.decide.rules import of_sharing, violations
from warploom.errors import IllegalCombination
from warploom.target import GPUS, SM90A
from warploom.target.arch import Arch
from warploom.tile.choices import BY_NAME, ROWS

#: Hints that are always written, and that a persistent grid alone has.
_ALWAYS, _OF_A_LOOP = ("cluster_m", "cluster_n", "consumers"), ("raster", "group")
#: Stages are those of the loop, and not a hint for all loops.
_NO_HINTS = ("stages",)


@dataclass(frozen=True)
class Config(KernelChoices):
    """Choices of one kernel; the defaults suit large 16-bit GEMMs.

    The attributes are the rows of :data:`warploom.tile.choices.ROWS`.

    Raises
    ------
    IllegalCombination
        If a choice cannot have its value, whatever the others are.

    Examples
    --------
    >>> Config(128, 256, 64, stages=4, cluster_m=2)
    """

    @classmethod
    def of(cls, values: Mapping[str, int | str]) -> Config:
        """A config from integers by name, as :meth:`values` gives them, or from words.

        Raises
        ------
        IllegalCombination
            If there is no choice of a name, or it cannot have the value.
        """
        cls.check_names(values)
        return cls(**{
            name: value if isinstance(value, str) else BY_NAME[name].kind.value(int(value))
            for name, value in values.items()
        })  # fmt: skip

    @classmethod
    def check_names(cls, names: Iterable[str]) -> None:
        """Raise :class:`IllegalCombination` if a name is not that of a choice."""
        known = [row.name for row in ROWS]
        for name in names:
            if name not in known:
                raise IllegalCombination(f"{name!r} is no choice; choices are {', '.join(known)}.")

    def values(self) -> dict[str, int]:
        """All choices as integers, by name."""
        return {row.name: row.kind.number(getattr(self, row.name)) for row in ROWS}

    def changed(self) -> dict[str, Any]:
        """The choices that differ from the default, by name."""
        return {
            row.name: value for row in ROWS if (value := getattr(self, row.name)) != row.default
        }

    def __str__(self) -> str:
        return f"Config({', '.join(f'{name}={value!r}' for name, value in self.changed().items())})"

    def hints(self, usual: bool = True) -> dict[str, Any]:
        """The choices that passes make, as arguments of ``wl.hints``.

        Parameters
        ----------
        usual : bool
            Whether cluster, consumers and raster are said where they are those of the default.
        """
        said = {*self.changed(), *(_ALWAYS if usual else ()), *(_OF_A_LOOP if usual else ())}
        if said & {"cluster_m", "cluster_n"}:
            said |= {"cluster_m", "cluster_n"}
        said -= {*_NO_HINTS, *(() if self.persistent else _OF_A_LOOP)}
        values: dict[str, Any] = {}
        for row in ROWS:
            if row.hint is None or row.name not in said:
                continue
            value = getattr(self, row.name)
            paired = row.hint != row.name
            values[row.hint] = (*values.get(row.hint, ()), value) if paired else value
        if self.sms:
            size = self.cluster_size
            wanted = self.sms * self.ctas_per_sm // size * size
            values["ctas"] = min(wanted, GPUS["h200"].resident(size, self.ctas_per_sm))
        return values

    def check(self, problem: GemmProblem, arch: Arch = SM90A) -> None:
        """Raise :class:`IllegalCombination` with :meth:`why_not`, if there is a reason."""
        reason = self.why_not(problem, arch)
        if reason is not None:
            raise IllegalCombination(reason)

    def why_not(self, problem: GemmProblem, arch: Arch = SM90A) -> str | None:
        """Why no kernel for a problem can have these choices; None if a kernel can."""
        return _first(violations(self, problem, arch))

    def why_not_shared(self, arch: Arch = SM90A) -> str | None:
        """Why CTAs and warpgroups of no kernel can share work like this; None if they can."""
        return _first(of_sharing(self, arch))


def _first(sentences: Iterator[str]) -> str | None:
    """The first sentence; a rule may raise its own."""
    try:
        return next(sentences, None)
    except IllegalCombination as reason:
        return str(reason)

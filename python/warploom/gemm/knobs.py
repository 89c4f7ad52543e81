"""The choices of one GEMM kernel, and whether a kernel for a problem can have them.

:class:`GemmKnobs` does not depend on a problem; :meth:`GemmKnobs.why_not` says whether a kernel
for one can be built with them, by :mod:`~warploom.gemm.knob_rules`: instruction shapes, shared
memory, registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from warploom.errors import IllegalCombination
from warploom.gemm.choices import SMS, STORE_BUFFERS, STORE_COLUMNS, SWITCHES, KernelChoices
from warploom.gemm.knob_rules import rules
from warploom.gemm.problem import GemmProblem
from warploom.target import GPUS, SM90A
from warploom.target.arch import Arch

#: Names that knobs had in databases of earlier versions, with those they have now.
_OLD_NAMES = {"keep_a": "l2_policy", "warm_l2": "prefetch_l2"}


def with_new_names(values: Mapping[str, int]) -> dict[str, int]:
    """Knobs as a database of any version holds them, by the names of this version."""
    return {_OLD_NAMES.get(name, name): value for name, value in values.items()}


@dataclass(frozen=True)
class GemmKnobs(KernelChoices):
    """Choices of one kernel; the defaults suit large 16-bit products.

    The attributes are those of :class:`~warploom.gemm.choices.KernelChoices`.
    """

    @classmethod
    def of(cls, values: Mapping[str, int]) -> GemmKnobs:
        """Knobs from integers by name, as annotations hold them.

        Raises
        ------
        IllegalCombination
            If there is no knob of a name.
        """
        cls.check_names(values)
        made = {name: int(value) for name, value in values.items()}
        return cls(**{**made, **{name: bool(made[name]) for name in SWITCHES if name in made}})

    @classmethod
    def check_names(cls, names: Iterable[str]) -> None:
        """Raise :class:`IllegalCombination` if one is no knob."""
        known = [field.name for field in fields(cls)]
        for name in names:
            if name not in known:
                raise IllegalCombination(f"{name!r} is no knob; knobs are {', '.join(known)}.")

    def values(self) -> dict[str, int]:
        """All knobs as integers, by name."""
        return {field.name: int(getattr(self, field.name)) for field in fields(self)}

    def hints(self) -> dict[str, Any]:
        """The choices that passes make, as arguments of ``wl.hints``."""
        values: dict[str, Any] = {
            "cluster": (self.cluster_m, self.cluster_n), "consumers": self.consumers,
        }  # fmt: skip
        if self.persistent:
            values |= {"raster": "grouped", "group": self.group}
        for name in ("split_k", "ctas_per_sm", "turns"):
            if getattr(self, name) > 1:
                values[name] = getattr(self, name)
        if self.sms != SMS[0]:
            size = self.cluster_m * self.cluster_n * (self.split_k if self.in_cluster else 1)
            wanted = self.sms * self.ctas_per_sm // size * size
            values["ctas"] = min(wanted, GPUS["h200"].resident(size, self.ctas_per_sm))
        if self.in_cluster:
            values["exchange"] = "cluster"
        flags = ("stream_k", "ping_pong", "prefetch_l2")
        values |= {name: True for name in flags if getattr(self, name)}
        stores = {"store_columns": STORE_COLUMNS[0], "store_buffers": STORE_BUFFERS[0]}
        values |= {k: getattr(self, k) for k, usual in stores.items() if getattr(self, k) != usual}
        values |= {name: False for name in ("specialise", "persistent") if not getattr(self, name)}
        return values

    def check(self, problem: GemmProblem, arch: Arch = SM90A) -> None:
        """Raise :class:`IllegalCombination` with :meth:`why_not`, if there is a reason."""
        reason = self.why_not(problem, arch)
        if reason is not None:
            raise IllegalCombination(reason)

    def why_not(self, problem: GemmProblem, arch: Arch = SM90A) -> str | None:
        """Why no kernel for a problem can have these choices; None if one can."""
        try:
            return next((text for holds, text in rules(self, problem, arch) if not holds), None)
        except IllegalCombination as reason:
            return str(reason)

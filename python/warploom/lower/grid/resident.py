"""As many CTAs as the device holds at a time: the host asks the device at each launch.

A kernel that is compiled for one GPU then runs on others, also from an exported library.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Stmt, Var

from warploom.target import Arch
from warploom.target.clusters_that_fit import MEASURED, fewest_clusters
from warploom.target.gpus import USUAL
from warploom.tile import ir
from warploom.tile.device_question import multiprocessors


@dataclass(frozen=True)
class Resident:
    """The CTAs of a grid that fills the device.

    Attributes
    ----------
    arch : Arch
    size : int
        CTAs of a cluster.
    per_sm : int
        CTAs that an SM holds at a time.
    clusters : Var
        How many clusters there are, a variable of the host.
    """

    arch: Arch
    size: int
    per_sm: int
    clusters: Var = field(default_factory=lambda: Var("clusters", "int32"))

    @property
    def example(self) -> str:
        """How many CTAs that are on the usual GPU of the architecture."""
        usual = USUAL[self.arch.name]
        return f"{usual.resident(self.size, self.per_sm)} on an {usual.name.upper()}"

    def statements(self) -> list[Stmt]:
        """What the host does before the launch."""
        sms = Var("multiprocessors", "int32")
        count = self._clusters_of(sms, self.size) * self.per_sm
        return [tirx.Bind(sms, multiprocessors()), tirx.Bind(self.clusters, count)]

    def _clusters_of(self, sms: Any, size: int) -> Any:
        """As :func:`~warploom.target.clusters_that_fit.clusters_that_fit`, of a variable."""
        if size == 1:
            return sms
        count: Any = T.max(fewest_clusters(self.arch, sms, size), 1)
        for (arch, known), sizes in MEASURED.items():
            if arch == self.arch.name and size in sizes:
                count = T.Select(T.EQ(sms, known), ir.as_expr(sizes[size]), count)
        return count

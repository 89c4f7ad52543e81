"""The supply of stages, which differs between lowerings with wgmma: by which role, and how."""

from __future__ import annotations

from typing import Any, Protocol

from tvm.tirx import Stmt

from warploom.lower.analysis.rings import Ring
from warploom.tile.statement import ForLoader, Load, Loop


class Supply(Protocol):
    """The role that fills the stages of rings.

    Attributes
    ----------
    refills_after_loops : bool
        Whether a stage that was read in a loop must be released when the loop is over too.
    """

    refills_after_loops: bool

    def start(self) -> list[Stmt]:
        """Statements before all others."""

    def loads_in_place(self, load: Load) -> bool:
        """Whether warpgroups that compute execute a load where the program has it."""

    def load(self, load: Load) -> list[Stmt]:
        """Statements in place of such a load."""

    def by_hand(self, statement: ForLoader) -> list[Stmt]:
        """Statements in place of one that the author left to the thread that loads."""

    def before_loop(self, loop: Loop) -> list[Stmt]:
        """Statements directly before a loop; no MMA is in flight."""

    def release(self, ring: Ring, stage: Any) -> list[Stmt]:
        """Statements of a warpgroup that has read a stage for the last time."""

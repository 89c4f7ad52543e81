"""A log of barrier events: who waits for what, in the order in which it happens.

One thread of each role of one tile prints a line for every event, on a GPU and on the emulator:

.. code-block:: text

    [producer] tile (0, 1) step 5: empty[1] wait, parity 0
    [producer] tile (0, 1) step 5: empty[1] passed
    [producer] tile (0, 1) step 5: full[1] expects 24576 bytes

Lines of one thread are in order, those of several are not. A GPU's printing is slow, and its
buffer of 1 MiB overflows silently: choose few steps. Without a log, no instruction is left of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm.script import tirx as T

from warploom.errors import IllegalCombination

PRODUCER, CONSUMER = "producer", "consumer"
_WARPGROUP = 128


@dataclass(frozen=True)
class BarrierLog:
    """Who prints.

    Attributes
    ----------
    tile : (int, int)
        Row and column of the tile of C, counted in tiles.
    consumer : int
        Which multiplying warpgroup.
    thread : int
        Which of its 128 threads. A producer is a single thread, and prints itself.
    steps : int
        Steps along K that are printed, the first ones.
    """

    tile: tuple[int, int] = (0, 0)
    consumer: int = 0
    thread: int = 0
    steps: int = 1 << 30

    def __post_init__(self) -> None:
        if len(self.tile) != 2 or min(self.tile) < 0:
            raise IllegalCombination(
                f"BarrierLog: tile = {self.tile}: it must be two numbers, 0 or more."
            )
        if not 0 <= self.thread < _WARPGROUP:
            raise IllegalCombination(
                f"BarrierLog: thread = {self.thread}: a warpgroup has threads 0 to "
                f"{_WARPGROUP - 1}."
            )
        for name, value, least in (("consumer", self.consumer, 0), ("steps", self.steps, 1)):
            if value < least:
                raise IllegalCombination(f"BarrierLog: {name} = {value}: at least {least}.")


class RoleLog:
    """What one role of a kernel tells; silent without a :class:`BarrierLog`.

    Parameters
    ----------
    log : BarrierLog or None
        Who prints.
    role : str
        Begins every line.
    tile : (Expr, Expr)
        The tile that this CTA computes.
    here : Expr or None
        Whether this is the thread that prints; None if the role has one thread.
    """

    def __init__(
        self, log: BarrierLog | None, role: str, tile: tuple[Any, Any], here: Any = None
    ) -> None:
        self.log, self.role, self.tile, self.here = log, role, tile, here

    def __call__(self, step: Any, event: str, *values: Any, when: Any = None) -> None:
        """Print one event of a step; ``event`` has a ``%d`` for each integer value.

        ``when`` is a condition under which the event happens.
        """
        if self.log is None:
            return
        row, column = self.log.tile
        conditions = [self.tile[0] == row, self.tile[1] == column, step < self.log.steps]
        conditions += [one for one in (self.here, when) if one is not None]
        line = f"[{self.role}] tile (%d, %d) step %d: {event}\n"
        with T.If(tvm.tirx.all(*conditions)), T.Then():
            numbers = (T.cast(value, "int32") for value in (*self.tile, step, *values))
            T.evaluate(T.cuda.printf(line, *numbers))

    def wait(self, step: Any, name: str, barriers: Any, stage: Any, phase: Any) -> None:
        """Emit a wait for one of several mbarriers, and print when it begins and ends."""
        self(step, f"{name}[%d] wait, parity %d", stage, phase)
        barriers.wait(stage, phase)
        self(step, f"{name}[%d] passed", stage)

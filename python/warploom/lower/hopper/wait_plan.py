"""The waits of a program for wgmma, as the analysis finds them and the emission asks for them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tvm.tirx import Buffer

from warploom.lower.hopper.mma_groups import Event, InFlight
from warploom.tile.statement import Loop, Statement


@dataclass
class Waits:
    """The waits around a statement.

    Attributes
    ----------
    before, after : list of Event
        Directly before and after it.
    ends : list of list of Event
        At the end of each of its blocks.
    operands : frozenset of Buffer
        Of an MMA: tiles of registers that threads have written and it uses.
    free : frozenset of Buffer
        Of a statement of threads: shared tiles of two copies that it writes, of which nobody reads
        this iteration's any more since threads met in the iteration before.
    """

    before: list[Event] = field(default_factory=list)
    after: list[Event] = field(default_factory=list)
    ends: list[list[Event]] = field(default_factory=list)
    operands: frozenset[Buffer] = frozenset()
    free: frozenset[Buffer] = frozenset()


@dataclass(frozen=True)
class Close:
    """The event that a stage has been read for the last time.

    Attributes
    ----------
    before : list of Event
        Waits before.
    at_once : bool
        Whether the stage is released here; otherwise a later :class:`Wait` says where.
    """

    before: list[Event]
    at_once: bool


@dataclass
class WaitPlan:
    """All waits of a program.

    Attributes
    ----------
    of : dict of Statement to Waits
    closes : dict of str to Close
        For each use of a ring by name, where it ends.
    end : list of Event
        After the last statement.
    heads : dict of Loop to InFlight
        The MMAs in flight where a loop begins anew.
    """

    of: dict[Statement, Waits] = field(default_factory=dict)
    closes: dict[str, Close] = field(default_factory=dict)
    end: list[Event] = field(default_factory=list)
    heads: dict[Loop, InFlight] = field(default_factory=dict)

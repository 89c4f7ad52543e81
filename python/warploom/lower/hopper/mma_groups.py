"""Groups of wgmma in flight at one place of a program, and the groups that a wait completes.

An MMA runs while the warpgroup goes on. Its result and its operands must be left alone until
``wgmma.wait_group`` has said that its group is complete. :class:`InFlight` keeps the groups and
finds the latest place for every wait: the MMA of an iteration is waited for after the next MMA has
been issued, unless something touches its result before.

Nothing here makes statements: a wait is a record, :class:`Wait` or :class:`Meet`, which the
emission carries out (:mod:`warploom.lower.hopper.consume`).

Source: PTX ISA, "Asynchronous wgmma instructions", "wgmma.wait_group".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tvm.tirx import Buffer

from warploom.tile.effects import Effects
from warploom.tile.statement import Loop


@dataclass(frozen=True, eq=False)
class Group:
    """An MMA that has been issued: its reads and writes. Another MMA may have the same."""

    reads: frozenset[Buffer]
    writes: frozenset[Buffer]

    def conflicts(self, effects: Effects) -> bool:
        """Whether a statement must not run while the group may."""
        return bool(self.writes & effects.touched or self.reads & effects.writes)

    def conflicts_with_mma(self, effects: Effects) -> bool:
        """Whether another MMA must not; it may add to the same accumulator.

        Parameters
        ----------
        effects : Effects
            Those of the other MMA; it reads its operands.
        """
        return bool(self.writes & effects.reads or self.reads & effects.writes)

    def repeats(self, other: Group) -> bool:
        """Whether it reads and writes the same tiles as another group."""
        return self.reads == other.reads and self.writes == other.writes


@dataclass(frozen=True)
class Guard:
    """Iterations of a loop that have left something to do.

    Attributes
    ----------
    loop : Loop
    later : bool
        True, within the loop: all iterations but the first. False, behind the loop: any.
    """

    loop: Loop
    later: bool

    @property
    def condition(self) -> Any:
        """The expression that tells whether there is such an iteration."""
        return self.loop.var > self.loop.start if self.later else self.loop.extent > 0


@dataclass(frozen=True)
class Release:
    """The release of a stage of a ring.

    Attributes
    ----------
    ring : str
        The name of the ring.
    guards : tuple of Guard
        The conditions under which there is such a stage, the outermost first.
    """

    ring: str
    guards: tuple[Guard, ...] = ()


@dataclass(frozen=True)
class Held:
    """A stage that is released as soon as a group is complete: at most one for each ring."""

    group: Group
    release: Release


@dataclass(frozen=True)
class Wait:
    """``wgmma.wait_group``.

    Attributes
    ----------
    pending : int
        How many groups may still be in flight after it.
    results : frozenset of Buffer
        Accumulators of the complete groups that no group in flight writes.
    releases : tuple of Release
        Stages to release after it.
    """

    pending: int
    results: frozenset[Buffer]
    releases: tuple[Release, ...]


@dataclass(frozen=True)
class Meet:
    """Threads of a warpgroup wait for each other when they have computed a tile of registers."""

    tile: Buffer


Event: TypeAlias = Wait | Meet


@dataclass
class InFlight:
    """The groups that may be in flight at one place of the program, oldest first.

    ``hidden`` is the last tile that was computed since an MMA was issued that is still in flight.
    """

    groups: list[Group] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    hidden: Buffer | None = None

    def copy(self) -> InFlight:
        """The same, to be changed by itself."""
        return InFlight(list(self.groups), list(self.held), self.hidden)

    def issue(self, group: Group) -> None:
        """An MMA becomes a group of its own."""
        self.groups.append(group)
        self.hidden = None

    def wait_all_but(self, count: int) -> list[Event]:
        """The wait after which at most ``count`` groups are in flight, if more are."""
        if len(self.groups) <= count:
            return []
        done = self.groups[: len(self.groups) - count]
        self.groups = self.groups[len(self.groups) - count :]
        written = {tile for group in done for tile in group.writes}
        under_way = {tile for group in self.groups for tile in group.writes}
        ready = [held for held in self.held if held.group in done]
        self.held = [held for held in self.held if held not in ready]
        releases = tuple(held.release for held in ready)
        return [Wait(count, frozenset(written - under_way), releases)]

    def _wait_for(self, group: Group) -> list[Event]:
        """The wait after which a group is complete, and as few others as can be."""
        return self.wait_all_but(len(self.groups) - 1 - self.groups.index(group))

    def before(self, effects: Effects) -> list[Event]:
        """Return the events that must come before a statement with these effects."""
        last = next((g for g in reversed(self.groups) if g.conflicts(effects)), None)
        return [] if last is None else self._wait_for(last)

    def before_mma(self, effects: Effects) -> list[Event]:
        """Return the events that must come before another MMA, which reads its operands."""
        last = next((g for g in reversed(self.groups) if g.conflicts_with_mma(effects)), None)
        return [] if last is None else self._wait_for(last)

    def before_computing(self, effects: Effects, tiles: Set[Buffer]) -> list[Event]:
        """Return the events before a statement of threads; earlier computations come before them.

        To ptxas computations and waits are independent: it was seen to wait first, and to compute
        the softmax of attention after the MMA that should hide it.

        Parameters
        ----------
        effects : Effects
        tiles : set of Buffer
            Tiles of registers that threads compute.
        """
        waits, computed = self.before(effects), self.hidden
        own = (tile for tile in effects.writes & tiles if str(tile.dtype) == "float32")
        self.hidden = next(own, self.hidden) if self.groups else None
        return [Meet(computed), *waits] if waits and computed is not None else waits

    def reader_of(self, tiles: Iterable[Buffer]) -> Group | None:
        """The latest group that reads one of these tiles."""
        wanted = frozenset(tiles)
        return next((g for g in reversed(self.groups) if g.reads & wanted), None)

    def read_no_more(self, tiles: Iterable[Buffer]) -> list[Event]:
        """The wait after which no group reads one of these tiles."""
        reader = self.reader_of(tiles)
        return [] if reader is None else self._wait_for(reader)

    def hold(self, group: Group, ring: str) -> None:
        """Give a stage back at the first wait that the group is complete after."""
        self.held.append(Held(group, Release(ring)))

    def finish(self, ring: str) -> list[Event]:
        """The wait after which no stage of a ring is left to release."""
        first = next((held for held in self.held if held.release.ring == ring), None)
        return [] if first is None else self._wait_for(first.group)

    def guarded(self, guard: Guard) -> InFlight:
        """The same at another place, where only some iterations have left something to do."""

        def guarded(held: Held) -> Held:
            release = Release(held.release.ring, (guard, *held.release.guards))
            return Held(held.group, release)

        return InFlight(list(self.groups), [guarded(held) for held in self.held])

    def without_repeated(self) -> InFlight:
        """The same without the oldest groups that newer groups repeat.

        Waits count from the newest group and find the newest conflict, so they stay the same. It
        bounds the number of groups: a loop repeats those of the iteration before.
        """
        start, kept = 0, {held.group for held in self.held}
        for number, oldest in enumerate(self.groups):
            newer = self.groups[number + 1 :]
            if oldest in kept or not any(oldest.repeats(group) for group in newer):
                break
            start = number + 1
        return InFlight(self.groups[start:], list(self.held), self.hidden)

    def alternated(self, tiles: Set[Buffer], other: Mapping[Buffer, Buffer]) -> InFlight:
        """The same in the next iteration of a loop, to which ``tiles`` are their other copies.

        Parameters
        ----------
        tiles : set of Buffer
            Tiles of which iterations use two copies in turn.
        other : mapping
            Tile -> what stands for the copy that an iteration does not use.
        """
        table = {tile: other[tile] for tile in tiles}
        return self._renamed(table | {copy: tile for tile, copy in table.items()})

    def forgetting(self, other: Mapping[Buffer, Buffer]) -> InFlight:
        """The same where statements may touch any copy of a tile."""
        return self._renamed({copy: tile for tile, copy in other.items()})

    def _renamed(self, table: Mapping[Buffer, Buffer]) -> InFlight:
        """The same with other tiles in place of those that groups read."""
        groups = {
            group: Group(frozenset(table.get(t, t) for t in group.reads), group.writes)
            for group in self.groups
        }
        held = [Held(groups[one.group], one.release) for one in self.held]
        return InFlight([groups[group] for group in self.groups], held, self.hidden)

    def same_as(self, other: InFlight) -> bool:
        """Whether the same groups are in flight and the same stages held, whatever is hidden."""
        if len(self.groups) != len(other.groups) or len(self.held) != len(other.held):
            return False
        pairs = zip(self.groups, other.groups, strict=True)
        held = zip(self.held, other.held, strict=True)
        return all(a.repeats(b) for a, b in pairs) and all(
            a.release == b.release and self.groups.index(a.group) == other.groups.index(b.group)
            for a, b in held
        )

"""Where a warpgroup waits for its products, and when it may give a stage back.

A product runs while the warpgroup goes on. Its result, and what it reads, must be left alone until
``wgmma.wait_group`` has said that its group is complete. This module keeps the list of groups that
may be under way and finds the latest place for every wait: a product of one iteration is waited
for after the next one has been issued, unless something touches its result before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from typing import Any

from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt

from warploom.tile import ir
from warploom.tile.effects import Effects
from warploom.transform.pin_registers import meet_after, pin


@dataclass(frozen=True, eq=False)
class Group:
    """A product that has been issued: what it reads and writes. Another one may do the same."""

    reads: frozenset[Buffer]
    writes: frozenset[Buffer]

    def conflicts(self, effects: Effects) -> bool:
        """Whether a statement must not run while the product may."""
        return bool(self.writes & effects.touched or self.reads & effects.writes)


@dataclass
class Held:
    """Something to do as soon as a group is complete, such as giving a stage back.

    ``what`` tells actions of one kind apart: there is at most one of each.
    """

    group: Group
    what: Any
    action: Callable[[], list[Stmt]]


@dataclass
class Products:
    """The groups that may be under way at one place of the program, oldest first.

    ``hidden`` is what was computed last since a product was issued that is still under way.
    """

    groups: list[Group] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    hidden: Buffer | None = None

    def issue(self, group: Group) -> list[Stmt]:
        """Statements after a product: it becomes a group of its own."""
        self.groups.append(group)
        self.hidden = None
        return [ir.evaluate(T.ptx.wgmma.commit_group.sync.aligned())]

    def wait_all_but(self, count: int) -> list[Stmt]:
        """Statements that wait until at most ``count`` groups are under way."""
        if len(self.groups) <= count:
            return []
        done = self.groups[: len(self.groups) - count]
        self.groups = self.groups[len(self.groups) - count :]
        statements = [ir.evaluate(T.ptx.wgmma.wait_group.sync.aligned(count))]
        under_way = {tile for group in self.groups for tile in group.writes}
        statements += pin({tile for group in done for tile in group.writes} - under_way)
        ready = [one for one in self.held if one.group in done]
        self.held = [one for one in self.held if one not in ready]
        return statements + [s for one in ready for s in one.action()]

    def before(self, effects: Effects) -> list[Stmt]:
        """Statements that must come before one with these effects."""
        last = max(
            (i for i, group in enumerate(self.groups) if group.conflicts(effects)), default=None
        )
        return [] if last is None else self.wait_all_but(len(self.groups) - 1 - last)

    def before_computing(
        self, effects: Effects, tiles: Set[Buffer], barrier: Any
    ) -> list[Stmt]:
        """The same for a statement that threads execute, after what they computed before it.

        To ptxas computations and waits are independent: it was seen to wait first, and to compute
        the softmax of attention after the product that should hide it.

        Parameters
        ----------
        effects : Effects
        tiles : set of Buffer
            Tiles of registers that threads compute.
        barrier : Expr
            The named barrier of the warpgroup.
        """
        waits, computed = self.before(effects), self.hidden
        own = (one for one in effects.writes & tiles if str(one.dtype) == "float32")
        self.hidden = next(own, self.hidden) if self.groups else None
        return [*meet_after(computed, barrier), *waits] if waits and computed is not None else waits

    def reader_of(self, tiles: Iterable[Buffer]) -> Group | None:
        """The latest group that reads one of these tiles."""
        wanted = frozenset(tiles)
        return next((g for g in reversed(self.groups) if g.reads & wanted), None)

    def when_done(self, group: Group, what: Any, action: Callable[[], list[Stmt]]) -> None:
        """Do something at the first wait that a group is complete after."""
        self.held.append(Held(group, what, action))

    def finish(self, what: Any) -> list[Stmt]:
        """Statements after which nothing of that kind is left to do."""
        one = next((held for held in self.held if held.what is what), None)
        if one is None:
            return []
        return self.wait_all_but(len(self.groups) - 1 - self.groups.index(one.group))

    def guarded(self, condition: Any) -> Products:
        """The same, but actions are done only where a condition holds."""

        def guard(one: Held) -> Held:
            return Held(one.group, one.what, lambda: [ir.when(condition, one.action())])

        return Products(list(self.groups), [guard(one) for one in self.held])


def fence(written: Iterable[Buffer]) -> list[Stmt]:
    """Before a product: what threads wrote to registers, these tiles, is what it reads."""
    return [*pin(written), ir.evaluate(T.ptx.wgmma.fence.sync.aligned())]

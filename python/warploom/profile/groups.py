"""Groups of spans: the contents of one record.

Recording costs the instructions on the way from one MMA to the next. So spans of statements
that follow each other without a loop or a branch with spans between them are recorded together,
once: their clocks stay in registers until then, and one that ends where the next begins is read
once for both. Which clocks are the begin and the end of which span is known when the kernel is
compiled; a record has the number of its group and the clocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from warploom.tile.scalar import ThreadScalar

#: Most clocks of a group: each stays in a register until the group is recorded.
MAX_CLOCKS = 7


@dataclass(frozen=True)
class GroupedSpan:
    """A span of a group.

    Attributes
    ----------
    name, category : str
    begin, end : int
        The clocks that they are, by their number in the group.
    """

    name: str
    category: str
    begin: int
    end: int


@dataclass(frozen=True)
class Group:
    """The meaning of a record of a group.

    Attributes
    ----------
    clocks : int
        How many of them follow the number of the group.
    spans : tuple of GroupedSpan
        In the order in which they end.
    """

    clocks: int
    spans: tuple[GroupedSpan, ...]

    @property
    def rows(self) -> int:
        """Words of 64 bits that a record takes."""
        return rows_of(self.clocks)


def rows_of(clocks: int) -> int:
    """Words of 64 bits that the number of a group and so many clocks take."""
    return (1 + clocks + 1) // 2


@dataclass
class OpenGroup:
    """The spans since the last record."""

    clocks: list[ThreadScalar] = field(default_factory=list)
    spans: list[GroupedSpan] = field(default_factory=list)

    def has_room(self, begin: ThreadScalar) -> bool:
        """Whether a span with that begin, and an end of its own, can be added."""
        return len(self.clocks) + (begin not in self.clocks) < MAX_CLOCKS

    def add(self, name: str, category: str, begin: ThreadScalar, end: ThreadScalar) -> None:
        """Add a span."""
        self.spans.append(GroupedSpan(name, category, self._number(begin), self._number(end)))

    def _number(self, clock: ThreadScalar) -> int:
        if clock not in self.clocks:
            self.clocks.append(clock)
        return self.clocks.index(clock)

    @property
    def closed(self) -> Group:
        """The group as it is now."""
        return Group(len(self.clocks), tuple(self.spans))

"""The records of a timeline, and where they lie in memory.

The records of a kernel are a matrix of 64-bit words, ``uint64[rows, streams]``. A stream has the
records of one thread of one CTA: its column. The first rows say when and where, the others are
records of groups of spans (:mod:`warploom.profile.groups`), one below the other.

===== ====================== ==============================
row   bits 0 to 31           bits 32 to 63
===== ====================== ==============================
0     nanoseconds at the begin of the stream, of the whole GPU
1     clock of the SM then   number of the CTA, plus 1
2     nanoseconds at the end of the stream
3     clock of the SM then   rows of records; from bit 20, number of the SM
4 ... number of a group      its first clock
5 ... its second clock       its third clock, and so on
===== ====================== ==============================

A stream whose row 1 is 0 has not been recorded. Clocks have 32 bits and wrap after two seconds. A
record of an even number of clocks leaves the upper half of its last row as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from warploom.errors import IllegalCombination
from warploom.profile.groups import MAX_CLOCKS, rows_of

#: Rows before the first span.
HEADER_ROWS = 4
#: Bits of the number of rows that a stream has recorded.
ROW_BITS = 20
#: Most rows that a span takes: the number of a group, begin and end.
_ROWS_PER_SPAN = 2
WORD_BYTES = 8


@dataclass(frozen=True)
class Recording:
    """How much of a kernel is recorded.

    A CTA that is not recorded only finds that out, span after span; one that is stops recording
    when its columns are full. So the fewer, the less the kernel is disturbed.

    Attributes
    ----------
    ctas : int
        CTAs that are recorded, evenly spread over the grid; all if the grid has fewer. 1 to 1024.
    capacity : int
        Spans of each stream that are kept, the first ones. 1 to 65535.

    Raises
    ------
    IllegalCombination
        If a number is out of its range.

    Examples
    --------
    >>> profile.Recording(ctas=4, capacity=128).capacity
    128
    """

    ctas: int = 16
    capacity: int = 512

    def __post_init__(self) -> None:
        for name, most in (("ctas", 1024), ("capacity", 0xFFFF)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
                raise IllegalCombination(
                    f"{name} of a recording is {value!r}; allowed are integers from 1 to {most}."
                )

    @property
    def full_rows(self) -> int:
        """Words of a stream after which nothing is recorded: they have room for all spans."""
        return HEADER_ROWS + _ROWS_PER_SPAN * self.capacity

    @property
    def rows(self) -> int:
        """Words of a stream; the last record may go beyond :attr:`full_rows`."""
        return self.full_rows + rows_of(MAX_CLOCKS) - 1

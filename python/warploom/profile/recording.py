"""What a timeline records, and where its records lie in memory.

The records of a kernel are a matrix of 64-bit words, ``uint64[rows, streams]``. A stream is what
one thread of one CTA records: its column. The first rows say when and where, the others are spans
in the order in which they end.

===== ====================== ==============================
row   bits 0 to 31           bits 32 to 63
===== ====================== ==============================
0     nanoseconds at the begin of the stream, of the whole GPU
1     clock of the SM then   number of the CTA, plus 1
2     nanoseconds at the end of the stream
3     clock of the SM then   spans; from bit 48, number of the SM
4 ... clock at the begin     clocks that it took, bits 0 to 23; number of its tag
===== ====================== ==============================

A stream whose row 1 is 0 has not been recorded. Clocks have 32 bits and wrap after two seconds; a
span that took more than 2**24 clocks (8 ms) says so many.
"""

from __future__ import annotations

from dataclasses import dataclass

from warploom.errors import IllegalCombination

#: Rows before the first span.
HEADER_ROWS = 4
#: Bits of the clocks that a span takes; the tag has the others of its upper half.
DURATION_BITS = 24
MAX_TAGS = 1 << (32 - DURATION_BITS)
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
    def rows(self) -> int:
        """Words of a stream."""
        return HEADER_ROWS + self.capacity

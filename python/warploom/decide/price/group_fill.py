"""How many groups have rows, and how many tiles these have, where only the device knows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

#: Probabilities below this one count as none.
_RARE = 1e-3


@dataclass(frozen=True)
class Fill:
    """What groups need of a kernel, as far as their number and that of all rows tell.

    Attributes
    ----------
    groups : int
        That have rows, whose weights are read.
    row_tiles : int
        Tiles of rows of all groups.
    """

    groups: int
    row_tiles: int


@lru_cache(maxsize=1024)
def fills(groups: int, m: int, rows: int) -> tuple[Fill, Fill]:
    """The two cases that a config is priced for: groups that have about as many rows, and not.

    Sizes are known on the device alone. Where every row belongs to any group with the same
    probability they are those of a binomial distribution; the least certain ones of a mean are
    those of a geometric distribution: more than n rows with the probability of
    ``more ** (n + 1)``.

    Parameters
    ----------
    groups, m : int
        And the rows of all together.
    rows : int
        Of a tile.

    Examples
    --------
    >>> fills(8, 1024, 128)
    (Fill(groups=8, row_tiles=12), Fill(groups=8, row_tiles=13))
    """
    mean = m / groups
    more = mean / (1 + mean)
    filled = groups * (1 - (1 - 1 / groups) ** m)
    deviation = math.sqrt(mean * (1 - 1 / groups)) or 1e-9
    tiles, above = filled, rows
    while above < m and (part := _above(above, mean, deviation)) > _RARE:
        tiles, above = tiles + groups * part, above + rows
    return (
        Fill(max(1, round(filled)), max(1, round(tiles))),
        Fill(max(1, round(groups * more)), max(1, round(groups * more / (1 - more**rows)))),
    )


def _above(count: int, mean: float, deviation: float) -> float:
    """The probability of more than so many rows, by a normal distribution."""
    return math.erfc((count + 0.5 - mean) / deviation / math.sqrt(2)) / 2

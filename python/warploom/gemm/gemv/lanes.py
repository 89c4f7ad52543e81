"""What each lane of a warp has of a step: its rows of the weights, and its part of K.

The MMA is ``m16n8k16`` with weights as its 16 rows and up to eight rows of X as its columns. It
adds over K, so K may be in any order that both operands have: a lane takes 16 bytes of packed
weights that lie together, and gives two weights at a time that are 16 bits apart in a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm.ir.expr import TensorLoad
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Var

from warploom.intrin.mma_sync import MMA_M
from warploom.tile import ir

_WORD_BITS = 32


@dataclass(frozen=True)
class Point:
    """One element of an operand, as :class:`~warploom.lower.nests.loads.LoadedWords` places it.

    Attributes
    ----------
    table : mapping
        The axes of the formulas, and the parameters -> their values.
    analyzer : Analyzer
    """

    table: Mapping[Var, Any]
    analyzer: Analyzer

    def expression(self, value: Any) -> Any:
        """An expression of the formulas, for this element."""

        def simple(load: TensorLoad) -> Any:
            return load.source[tuple(self.analyzer.simplify(index) for index in load.indices)]

        return ir.map_nodes(ir.substitute(value, self.table), {TensorLoad: simple}, {})


@dataclass(frozen=True)
class Lanes:
    """The rows and the K of lanes ``4 g + t``.

    Attributes
    ----------
    blocks : int
        Blocks of 16 rows of the weights that a warp multiplies.
    bits : int
        Of a weight.
    depth : int
        K of a step of the warp, a quarter for each t.
    together : bool
        Whether the rows of a lane are neighbours, as for words that lie along the rows; if not,
        its rows of a block are g and g + 8.

    Examples
    --------
    >>> lanes = Lanes(1, 4, 128, False)
    >>> [lanes.row(slot, 3) for slot in range(2)], lanes.pairs[:3]
    ([3, 11], [(0, 4), (1, 5), (2, 6)])
    """

    blocks: int
    bits: int
    depth: int
    together: bool

    @property
    def rows(self) -> int:
        """Rows that a lane has, two of each block."""
        return 2 * self.blocks

    @property
    def share(self) -> int:
        """K of a lane in a step."""
        return self.depth // 4

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """K of a lane, two for each word of an MMA: 16 bits apart in a word of weights."""
        word = _WORD_BITS // self.bits
        return [
            (first + low, first + low + word // 2)
            for first in range(0, self.share, word)
            for low in range(word // 2)
        ]

    def row(self, slot: int, group: Any) -> Any:
        """The row, from the first of the warp on, that lanes of group g have in a slot."""
        if self.together:
            return group * self.rows + slot
        block, half = divmod(slot, 2)
        return group + (block * MMA_M + half * (MMA_M // 2))

"""What a copy between a tile and a matrix in memory moves: bytes, rows, reuse, lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tvm.ir import TensorRegion
from tvm.tirx import Buffer, Var

from warploom.decide.price.values import Values
from warploom.decide.price.visits import Visits
from warploom.target.dtypes import bits_of
from warploom.target.swizzle import ATOM_ROWS
from warploom.tile import ir


@dataclass(frozen=True)
class Part:
    """A region of a matrix in memory, along the dimensions of the matrix.

    Attributes
    ----------
    size : float
        Bytes of an element.
    extents : tuple of int
        Elements of the region.
    shape : tuple of int
        Elements of the matrix.
    moves : tuple of frozenset of Var
        Ids of CTAs and loop variables that the region's place depends on.
    """

    size: float
    extents: tuple[int, ...]
    shape: tuple[int, ...]
    moves: tuple[frozenset[Var], ...]

    @classmethod
    def of(cls, region: TensorRegion, visits: Visits) -> Part:
        """A region of a matrix."""
        ranges, values = ir.ranges(region), visits.values
        return cls(
            bits_of(str(region.source.dtype)) / 8,
            tuple(values.number(extent) or 1 for _, extent in ranges),
            shape_of(region.source, values),
            tuple(visits.depends.of(start) for start, _ in ranges),
        )

    @classmethod
    def of_elements(
        cls, source: Buffer, indices: Sequence[Any], loops: dict[Var, int], visits: Visits
    ) -> Part:
        """Elements of a matrix that a nest reads or stores."""
        extents, moves = [], []
        for index in indices:
            own = [var for var in loops if not isinstance(index, int) and var in ir.uses(index)]
            extents.append(math.prod(loops[var] for var in own))
            moves.append(visits.depends.of(index))
        shape = shape_of(source, visits.values)
        extents = [min(extent, size) for extent, size in zip(extents, shape, strict=True)]
        return cls(bits_of(str(source.dtype)) / 8, tuple(extents), shape, tuple(moves))

    @property
    def outer(self) -> tuple[int, ...]:
        """Dimensions of several elements, without the last, which is contiguous."""
        return tuple(d for d, extent in enumerate(self.extents[:-1]) if extent > 1)

    def elements(self, dimensions: Sequence[int]) -> int:
        """Elements of the region along dimensions."""
        return math.prod(self.extents[d] for d in dimensions)

    def reach(self, dimensions: Sequence[int]) -> int:
        """Elements of the matrix along dimensions."""
        return math.prod(self.shape[d] for d in dimensions)

    @property
    def pitch(self) -> float:
        """Bytes from row to row."""
        return self.shape[-1] * self.size

    @property
    def moving(self) -> frozenset[Var]:
        """All that the region's place depends on."""
        return frozenset().union(*self.moves)

    def bytes_of(self, roots: set[Var] | frozenset[Var]) -> float:
        """Bytes of the region, of all places that ids and loop variables give it together."""
        count = 1
        for extent, size, moves in zip(self.extents, self.shape, self.moves, strict=True):
            count *= size if moves & roots else extent
        return count * self.size

    def along(self, ids: Sequence[Var]) -> tuple[bool, bool]:
        """Whether the region depends on the first two ids of CTAs."""
        first = [var in self.moving for var in ids[:2]]
        return (*first, False)[0], (*first, False)[1]


def shape_of(buffer: Buffer, values: Values) -> tuple[int, ...]:
    """The extents of a buffer; those that are symbolic as values have them."""
    return tuple(values.number(extent) or 1 for extent in buffer.shape)


@lru_cache(maxsize=1024)
def shared_by(along: tuple[bool, bool], cluster: tuple[int, int], rows: int) -> int:
    """CTAs of a cluster that load the same and each load a part: whole swizzle atoms of rows."""
    count = math.prod(ctas for moves, ctas in zip(along, cluster, strict=True) if not moves)
    return count if rows % (count * ATOM_ROWS) == 0 else 1

"""The walk of passes that make tiles for MMAs, each with a nest of threads that fills it.

MMAs that follow each other share the tile that is filled from the same regions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.tirx import Buffer, Stmt

from warploom.lower.analysis.scales import format_of
from warploom.target.scaled_formats import ScaledFormat
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.statement import Allocation, Block, Mma


@dataclass
class FilledTiles:
    """The walk, the tiles that it makes, and its decisions.

    A pass says in :meth:`wants` which MMAs it changes, and in :meth:`mma` what they are then.
    """

    program: TileProgram
    made: list[Buffer] = field(default_factory=list)
    decided: list[str] = field(default_factory=list)
    #: Regions, and the tiles that nests before have filled from them.
    ready: list[tuple[tuple[TensorRegion, ...], Buffer]] = field(default_factory=list)

    def run(self) -> TileProgram:
        """The program with other MMAs in place of those that it wants; itself if there is none."""
        body = self._block(self.program.block)
        if not self.decided:
            return self.program
        made = [tirx.AllocBuffer(tile) for tile in self.made]
        return self.program.replace(body=(*made, *body)).decided(*self.decided)

    def wants(self, mma: Mma) -> bool:
        """Whether the pass changes an MMA."""
        raise NotImplementedError

    def mma(self, mma: Mma) -> tuple[list[Stmt], Stmt]:
        """The nests for an MMA, and what it is then."""
        raise NotImplementedError

    def filled(
        self, regions: tuple[TensorRegion, ...], fill: Callable[[], tuple[Buffer, Stmt]]
    ) -> tuple[Buffer, list[Stmt]]:
        """The tile filled from regions, and its nest; no nest where one has filled it before."""
        for known, tile in self.ready:
            if len(known) == len(regions) and all(map(_same, known, regions)):
                return tile, []
        tile, nest = fill()
        self.made.append(tile)
        self.ready.append((regions, tile))
        return tile, [nest]

    def _block(self, statements: Block) -> list[Stmt]:
        body: list[Stmt] = []
        self.ready = []
        for statement in statements:
            if isinstance(statement, Mma) and self.wants(statement):
                nests, mma = self.mma(statement)
                body += [ir.written_at(nest, statement.raw.span) for nest in nests]
                body.append(mma)
            elif statement.blocks:
                body.append(statement.with_blocks(*map(self._block, statement.blocks)))
                self.ready = []
            else:
                body.append(statement.raw)
                if not isinstance(statement, Allocation):
                    self.ready = []
        return body


class ScaledOperands(FilledTiles):
    """The walk over MMAs with scales."""

    def wants(self, mma: Mma) -> bool:
        return bool(mma.scales)

    def mma(self, mma: Mma) -> tuple[list[Stmt], Stmt]:
        return self.scaled(format_of(mma), mma)

    def scaled(self, row: ScaledFormat, mma: Mma) -> tuple[list[Stmt], Stmt]:
        """The nests for an MMA of a format, and what it is then."""
        raise NotImplementedError


def _same(a: TensorRegion, b: TensorRegion) -> bool:
    """Whether two regions have the same elements; TVM takes buffers of one type for equal."""
    return ir.uses(a) == ir.uses(b) and tvm_ffi.structural_equal(a, b)

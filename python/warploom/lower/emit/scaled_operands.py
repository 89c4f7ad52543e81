"""The walk of passes that make tiles for MMAs with scales, each with a nest that fills it.

MMAs that follow each other share the tile of an operand that they have in common.
"""

from __future__ import annotations

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
class ScaledOperands:
    """The walk, the tiles that it makes, and its decisions.

    A pass says in :meth:`fill` which tile and which nest an operand or its scales need, and in
    :meth:`mma` what the MMA is then.
    """

    program: TileProgram
    made: list[Buffer] = field(default_factory=list)
    decided: list[str] = field(default_factory=list)
    #: Operands, their scales and the tiles that nests before have filled from them.
    ready: list[tuple[TensorRegion, TensorRegion, Buffer]] = field(default_factory=list)

    def run(self) -> TileProgram:
        """The program with other MMAs in place of those with scales; itself if there is none."""
        body = self._block(self.program.block)
        if not self.decided:
            return self.program
        made = [tirx.AllocBuffer(tile) for tile in self.made]
        return self.program.replace(body=(*made, *body)).decided(*self.decided)

    def fill(
        self, row: ScaledFormat, operand: TensorRegion, scales: TensorRegion
    ) -> tuple[Buffer, Stmt]:
        """The tile that an MMA reads for an operand, and the nest that fills it."""
        raise NotImplementedError

    def mma(self, row: ScaledFormat, mma: Mma) -> tuple[list[Stmt], Stmt]:
        """The nests for an MMA, and what it is then."""
        raise NotImplementedError

    def filled(
        self, row: ScaledFormat, operand: TensorRegion, scales: TensorRegion
    ) -> tuple[Buffer, list[Stmt]]:
        """As :meth:`fill`; no nest where one has filled the tile before."""
        for *known, tile in self.ready:
            if all(map(_same, known, (operand, scales))):
                return tile, []
        tile, nest = self.fill(row, operand, scales)
        self.made.append(tile)
        self.ready.append((operand, scales, tile))
        return tile, [nest]

    def _block(self, statements: Block) -> list[Stmt]:
        body: list[Stmt] = []
        self.ready = []
        for statement in statements:
            if isinstance(statement, Mma) and statement.scales:
                nests, mma = self.mma(format_of(statement), statement)
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


def _same(a: TensorRegion, b: TensorRegion) -> bool:
    """Whether two regions have the same elements; TVM takes buffers of one type for equal."""
    return ir.uses(a) == ir.uses(b) and tvm_ffi.structural_equal(a, b)

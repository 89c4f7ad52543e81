"""How many registers the accumulators of a program need at the same time.

An accumulator has its registers from the first statement that touches it to the last. One that a
loop uses, and that is allocated before the loop, keeps them through all of the loop.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tvm.tirx import Buffer

from warploom.lower.analysis.shared_tiles import tile_bytes
from warploom.tile.program import TileProgram
from warploom.tile.statement import Allocation, Block, Mma, walk

_REGISTER_BYTES = 4


@dataclass(frozen=True)
class Accumulators:
    """The accumulators for which a thread has the most registers at a time.

    Attributes
    ----------
    names : tuple of str
    registers : int
        Of a thread.
    """

    names: tuple[str, ...]
    registers: int


def live_accumulators(program: TileProgram, threads: int) -> Accumulators:
    """The accumulators that are alive together and need the most registers.

    Parameters
    ----------
    program : TileProgram
        Its tiles in registers are those of a warpgroup.
    threads : int
        Of a warpgroup, which share a tile.
    """
    lives = _Lives({mma.d for mma in walk(program.block) if isinstance(mma, Mma)})
    lives.block(program.block, ())
    size = {tile: tile_bytes(tile) // threads // _REGISTER_BYTES for tile in lives.spans}
    most: list[Buffer] = []
    for start, _ in lives.spans.values():
        alive = [tile for tile, (first, last) in lives.spans.items() if first <= start <= last]
        most = max(most, alive, key=lambda tiles: sum(size[tile] for tile in tiles))
    names = tuple(sorted(tile.name for tile in most))
    return Accumulators(names, sum(size[tile] for tile in most))


class _Lives:
    """The walk that numbers statements; ``spans`` has the first and the last that touch a tile."""

    def __init__(self, tiles: set[Buffer]) -> None:
        self.tiles = tiles
        self.spans: dict[Buffer, tuple[int, int]] = {}
        #: Tile -> how many blocks are around its allocation.
        self.depths: dict[Buffer, int] = {}
        self.numbers = itertools.count()

    def block(self, statements: Block, around: tuple[dict[Buffer, None], ...]) -> None:
        """Visit a block; each block around it collects the tiles that are touched in it."""
        for statement in statements:
            number = next(self.numbers)
            if isinstance(statement, Allocation):
                self.depths[statement.buffer] = len(around)
            elif not statement.blocks:
                for tile in statement.effects.touched & self.tiles:
                    self._touch(tile, number)
                    for touched in around[self.depths.get(tile, 0) :]:
                        touched[tile] = None
            else:
                touched: dict[Buffer, None] = {}
                for inner in statement.blocks:
                    self.block(inner, (*around, touched))
                for tile in touched:
                    self._touch(tile, number)
                    self._touch(tile, next(self.numbers))

    def _touch(self, tile: Buffer, number: int) -> None:
        first, last = self.spans.get(tile, (number, number))
        self.spans[tile] = min(first, number), max(last, number)

"""Tiles that a counter in global memory hands out, as the kernel runs.

As many CTAs as the device holds begin with the tiles of their own numbers. A thread of each draws
the next number from the counter (:mod:`~warploom.lower.emit.handed_out`): a CTA whose tiles are
short gets more of them, and tiles are begun in their order, so that CTAs side by side load the same
bytes at about the same time. It draws when all have begun the tile before: what is drawn earlier
may be a long tile for a CTA that is late.

The counter lies in a workspace, which holds anything before a launch, and no kernel prepares it.
The first CTA sets the counter to 0 and then a flag, for which the others wait before they draw for
the first time; they have a tile by then. As many numbers are drawn as there are tiles: each tile
lets its CTA draw once. Who draws the last one clears the flag, when all have seen it: so the next
launch finds none, nor does a CUDA graph that replays this one, or whoever gets the memory.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Stmt

from warploom.lower.emit import barriers
from warploom.lower.emit.barriers import Position
from warploom.lower.emit.given_word import FLAG_DTYPE, clear_flag, set_flag, wait_for_flag
from warploom.lower.emit.handed_out import HandedOut
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.scalar import ThreadScalar
from warploom.tile.statement import Loop


class TileCounter(HandedOut):
    """Tiles that CTAs draw from a counter; CTAs form no clusters."""

    def __init__(self, program: TileProgram, tiles: Loop, readers: int) -> None:
        super().__init__(program, tiles, readers)
        #: The flag, and the counter.
        self.words_of_all = tirx.decl_buffer((2,), FLAG_DTYPE, "tile_counter", scope="global")

    @property
    def workspace(self) -> tuple[Stmt, ...]:
        """What the host allocates."""
        return (tirx.AllocBuffer(self.words_of_all),)

    def describe(self) -> str:
        """A sentence for the record of decisions."""
        return "tiles: drawn by a warp from a counter, a tile ahead"

    def begin(self, tile: Any) -> list[Stmt]:
        """The first CTA sets the counter to 0; all others that have a tile wait for that."""
        start = ir.evaluate(T.ptx.st.global_.u64(self._counter, T.uint64(0)))
        first = T.EQ(self.program.var("cta"), 0)
        ready = ir.when(first, [start, set_flag(self._flag)], wait_for_flag(self._flag))
        return [ir.when(tile < self.tiles.extent, [ready])]

    def ask_for(self, at: Position) -> list[Stmt]:
        """Draw a number, and pass on the tile that it stands for."""
        drawn = ThreadScalar("drawn", "uint64")
        ctas = self.program.id("cta").extents[0]
        draw = T.ptx.atom.relaxed.gpu.global_.add.u64(drawn.value, self._counter, T.uint64(1))
        number = T.Cast("int32", drawn.value)
        tile = T.Cast("uint32", number + ctas)
        return [
            self.free(at),
            *drawn.define(T.uint64(0)),
            ir.evaluate(draw),
            ir.when(T.EQ(number, self.tiles.extent - 1), [clear_flag(self._flag)]),
            ir.evaluate(T.ptx.st.shared.u32(ir.address(self.answers, at.index, 0), tile)),
            barriers.arrive(self.full, at.index),
        ]

    def answered(self, at: Position, none: Any) -> tuple[list[Stmt], Any]:
        """The tile that was drawn; one beyond the last where there was no other."""
        tile = ThreadScalar("next_tile", "uint32")
        load = T.ptx.ld.shared.u32(tile.value, ir.address(self.answers, at.index, 0))
        return [tirx.AllocBuffer(tile.buffer), ir.evaluate(load)], T.Cast("int32", tile.value)

    @property
    def _flag(self) -> Any:
        return ir.address(self.words_of_all, 0)

    @property
    def _counter(self) -> Any:
        return ir.address(self.words_of_all, 1)

"""A tile of registers on its way to global memory: piece by piece through shared memory, by TMA.

While TMA drains one piece, the warpgroup writes the next; the last stores are still under way when
the next tile begins. A piece is computed just before it is stored, so that registers hold no more
than one; what it adds of global memory comes the same way, or ahead of its arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var

from warploom.lower.analysis.fragments import Fragments
from warploom.lower.emit.named_barriers import warpgroup_sync
from warploom.lower.emit.threads import leader, thread_in_warpgroup
from warploom.lower.nests.elements import WARPGROUP
from warploom.lower.stores.addends import split_addends
from warploom.lower.stores.pieces import Piece
from warploom.lower.stores.staged_addends import StagedAddend, fetches
from warploom.ops.copy_strided import knows_strides
from warploom.ops.register_tile import LANES
from warploom.target import Swizzle
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.statement import Nest, raws, view


def if_stored(statement: Stmt, program: TileProgram) -> Stmt:
    """A store to global memory, unless this CTA stores nothing."""
    return ir.when(True if program.stores is None else program.stores, [statement])


def by_tma(to: TensorRegion, place: TensorRegion) -> Stmt:
    """The store of a tile of shared memory, which one thread issues."""
    dispatch = "tma_auto" if knows_strides(to.source) else "tma_strided"
    return ir.primitive("copy_async", to, place, dispatch=dispatch)


def wait_group(count: int) -> Stmt:
    """Until TMA has read what all but so many groups of stores take."""
    return ir.evaluate(T.ptx.cp.async_.bulk.wait_group.read(count))


def computed(maker: Nest, places: list[Any]) -> tuple[list[Stmt], Any]:
    """Statements and value that a nest computes for the element at a place."""
    table = dict(zip((loop.loop_var for loop in maker.loops), places, strict=True))
    *before, store = ir.renewed(ir.substitute(part, table) for part in raws(maker.parts))
    return before, store.value


@dataclass(frozen=True)
class _Made:
    """The part of a nest that computes one piece, whose registers are the piece."""

    tile: Buffer
    loads: list[Stmt]
    compute: Stmt


@dataclass(frozen=True)
class PieceStore:
    """A store and the pieces that it consists of.

    Attributes
    ----------
    to : Buffer
        Global memory.
    tile : Buffer
        In registers.
    parts : tuple of Piece
    targets : tuple of list of (Expr, Expr)
        For each piece, the region of its rows in ``to``.
    buffers : mapping from int to Buffer
        By columns of a piece: shared memory ``(warpgroups, slots, rows, columns)``.
    kinds : Fragments
        How registers hold the tile, and a piece.
    program : TileProgram
    """

    to: Buffer
    tile: Buffer
    parts: tuple[Piece, ...]
    targets: tuple[list[tuple[Any, Any]], ...]
    buffers: Mapping[int, Buffer]
    kinds: Fragments
    program: TileProgram

    @property
    def has_matrices(self) -> bool:
        """Whether ``stmatrix`` writes pieces; else a thread writes pairs of elements, or a row."""
        return tvm.DataType(str(self.tile.dtype)).bits == 16 and not self.kinds.row_a_thread

    @property
    def _sync(self) -> Stmt:
        return warpgroup_sync(self.program.var("warpgroup"))

    def plainly(self, maker: Nest | None, apart: bool) -> tuple[list[Stmt], list[Stmt]]:
        """The pieces of the tile, or of what ``maker`` computes.

        What a piece adds is loaded into registers while the piece before it is stored; for the
        first, before the products are waited for: the statements that are given first. ``apart``
        means that no buffer was used since stores were waited for.
        """
        made = [] if maker is None else [self._made(maker, piece) for piece in self.parts]
        # Threads meet once for pieces that all have buffers of their own, else for each of them.
        together = all(piece.first for piece in self.parts)
        statements: list[Stmt] = []
        stores: list[Stmt] = []
        for number, piece in enumerate(self.parts):
            part = ir.region(self.tile, (piece.row, piece.height), (piece.column, piece.width))
            if made:
                part = ir.whole(made[number].tile)
                statements.append(made[number].compute)
                if number + 1 < len(made):
                    statements += made[number + 1].loads
            if not (together and (number or apart)):
                statements += self._left(piece.pending)
            statements.append(self._copy(self._place(piece), part))
            stores += self._issued(number)
            if together and number < len(self.parts) - 1:
                continue
            statements += self._published(stores)
            stores = []
        return made[0].loads if made else [], statements

    def with_addend(self, maker: Nest, addend: StagedAddend) -> tuple[list[Stmt], list[Stmt]]:
        """The pieces of what ``maker`` computes of an addend that comes through their buffers.

        Returns
        -------
        ahead : list of Stmt
            Loads that begin before the tile's products.
        statements : list of Stmt
        """
        order = fetches(list(self.parts))
        ahead = self._left(0)
        for number in order.ahead:
            ahead += self._fetched(addend, number)
        statements: list[Stmt] = []
        for number, piece in enumerate(self.parts):
            made = self._made(maker, piece)
            (allocated, _) = made.loads
            arrived = T.ptx.cp.async_.wait_group(order.pending(number))
            statements += [
                ir.evaluate(arrived), self._sync, allocated,
                self._copy(ir.whole(allocated.buffer), self._place(piece)), made.compute,
                self._copy(self._place(piece), ir.whole(made.tile)),
                *self._published(self._issued(number)),
            ]  # fmt: skip
            for load, under_way in order.after.get(number, ()):
                statements += [*self._left(under_way), *self._fetched(addend, load)]
        return ahead, statements

    def _made(self, maker: Nest, piece: Piece) -> _Made:
        i, j = Var("i", "int32"), Var("j", "int32")
        before, value = computed(maker, [i + piece.row, j + piece.column])
        tile = tirx.decl_buffer(
            (piece.height, piece.width), str(value.ty.dtype), "piece", scope="local",
            layout=self.kinds.matrix(piece.height, piece.width),
        )  # fmt: skip
        store = tirx.BufferStore(tile, value, [i, j], maker.parts[-1].raw.span)
        nest = view(ir.nest([i, j], [piece.height, piece.width], [*before, store]))
        loads, rest = split_addends(nest, tile)
        return _Made(tile, loads, ir.seq([tirx.AllocBuffer(tile), rest]))

    def _slot(self, piece: Piece) -> tuple[Any, int]:
        return self.program.var("warpgroup"), piece.slot

    def _place(self, piece: Piece, first: int = 0, width: int | None = None) -> TensorRegion:
        """Where a piece is in shared memory, or so many of its columns."""
        slot = [(index, 1) for index in self._slot(piece)]
        columns = first, width or piece.width
        return ir.region(self.buffers[piece.width], *slot, (0, piece.height), columns)

    def _copy(self, to: TensorRegion, source: TensorRegion) -> Stmt:
        dispatch = "ldstmatrix" if self.has_matrices else None
        return ir.primitive("copy", to, source, scope="warpgroup", dispatch=dispatch)

    def _left(self, under_way: int) -> list[Stmt]:
        """Threads meet when all but so many stores have left their buffers."""
        return [ir.when(leader(self.program), [wait_group(under_way)]), self._sync]

    def _fetched(self, addend: StagedAddend, number: int) -> list[Stmt]:
        piece, threads = self.parts[number], WARPGROUP.warps * LANES
        thread, buffer = thread_in_warpgroup(self.program), self.buffers[piece.width]
        return addend.fetch(buffer, self._slot(piece), piece, thread, threads)

    def _issued(self, number: int) -> list[Stmt]:
        """The store of a piece, a swizzled row at a time, as a group of its own."""
        piece, (*rows, (column, _)) = self.parts[number], self.targets[number]
        bits = tvm.DataType(str(self.tile.dtype)).bits
        width = min(piece.width, 8 * Swizzle.B128.row_bytes // bits)
        stores = []
        for first in range(0, piece.width, width):
            target = ir.region(self.to, *rows, (column + piece.column + first, width))
            stores.append(if_stored(by_tma(target, self._place(piece, first, width)), self.program))
        return [*stores, ir.evaluate(T.ptx.cp.async_.bulk.commit_group())]

    def _published(self, stores: list[Stmt]) -> list[Stmt]:
        """The TMA engine reads what these threads wrote."""
        fence = ir.evaluate(T.ptx.fence.proxy.async_.shared__cta())
        return [fence, self._sync, ir.when(leader(self.program), stores)]

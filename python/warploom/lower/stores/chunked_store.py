"""A tile of registers on its way to global memory: chunk by chunk through shared memory, by TMA.

While TMA drains one chunk, the warpgroup writes the next; the last stores are still under way when
the next tile begins. A chunk is computed just before it is stored, so that registers hold no more
than one; its epilogue inputs come the same way, or ahead of its arithmetic.
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
from warploom.lower.stores.epilogue_inputs import split_inputs
from warploom.lower.stores.staged_inputs import StagedInput, fetches
from warploom.lower.stores.store_chunks import StoreChunk
from warploom.ops.copy_strided import knows_strides
from warploom.ops.register_tile import LANES
from warploom.target import Swizzle
from warploom.tile import ir
from warploom.tile.primitives import primitive
from warploom.tile.program import TileProgram
from warploom.tile.statement import Nest, raws, view
from warploom.tile.updates import REDUCE


def if_stored(statement: Stmt, program: TileProgram) -> Stmt:
    """A store to global memory, unless this CTA stores nothing."""
    return ir.when(True if program.stores is None else program.stores, [statement])


def by_tma(to: TensorRegion, place: TensorRegion, reduce: str | None = None) -> Stmt:
    """The store of a tile of shared memory, or an update with it, which one thread issues."""
    dispatch = "tma_auto" if knows_strides(to.source) else "tma_strided"
    options = {} if reduce is None else {REDUCE: reduce}
    return primitive("copy_async", to, place, dispatch=dispatch, **options)


def wait_group(count: int) -> Stmt:
    """Wait until TMA has read the data of all but so many groups of stores."""
    return ir.evaluate(T.ptx.cp.async_.bulk.wait_group.read(count))


def computed(maker: Nest, places: list[Any]) -> tuple[list[Stmt], Any]:
    """Statements and value that a nest computes for the element at a place."""
    table = dict(zip((loop.loop_var for loop in maker.loops), places, strict=True))
    *before, store = ir.renewed(ir.substitute(part, table) for part in raws(maker.parts))
    return before, store.value


@dataclass(frozen=True)
class _Made:
    """The part of a nest that computes one chunk, whose registers are the chunk."""

    tile: Buffer
    loads: list[Stmt]
    compute: Stmt


@dataclass(frozen=True)
class ChunkedStore:
    """A store and the chunks that it consists of.

    Attributes
    ----------
    to : Buffer
        Global memory.
    tile : Buffer
        In registers.
    parts : tuple of StoreChunk
    targets : tuple of list of (Expr, Expr)
        For each chunk, the region of its rows in ``to``.
    buffers : mapping from int to Buffer
        By columns of a chunk: shared memory ``(warpgroups, slots, rows, columns)``.
    kinds : Fragments
        How registers hold the tile, and a chunk.
    program : TileProgram
    reduce : str or None
        How elements are combined with those of ``to``, if they do not replace them.
    """

    to: Buffer
    tile: Buffer
    parts: tuple[StoreChunk, ...]
    targets: tuple[list[tuple[Any, Any]], ...]
    buffers: Mapping[int, Buffer]
    kinds: Fragments
    program: TileProgram
    reduce: str | None = None

    @property
    def has_matrices(self) -> bool:
        """Whether ``stmatrix`` writes chunks; else a thread writes pairs of elements, or a row."""
        return tvm.DataType(str(self.tile.dtype)).bits == 16 and not self.kinds.row_a_thread

    @property
    def _sync(self) -> Stmt:
        return warpgroup_sync(self.program.var("warpgroup"))

    def plainly(self, maker: Nest | None, apart: bool) -> tuple[list[Stmt], list[Stmt]]:
        """The chunks of the tile, or of the tile that ``maker`` computes.

        The epilogue inputs of a chunk are loaded into registers while the previous chunk is stored;
        for the first, before the MMAs are waited for: the statements that are given first.
        ``apart`` means that no buffer was used since stores were waited for.
        """
        made = [] if maker is None else [self._made(maker, chunk) for chunk in self.parts]
        # Threads meet once for chunks that all have buffers of their own, else for each of them.
        together = all(chunk.first for chunk in self.parts)
        statements: list[Stmt] = []
        stores: list[Stmt] = []
        for number, chunk in enumerate(self.parts):
            part = ir.region(self.tile, (chunk.row, chunk.height), (chunk.column, chunk.width))
            if made:
                part = ir.whole(made[number].tile)
                statements.append(made[number].compute)
                if number + 1 < len(made):
                    statements += made[number + 1].loads
            if not (together and (number or apart)):
                statements += self._left(chunk.pending)
            statements.append(self._copy(self._place(chunk), part))
            stores += self._issued(number)
            if together and number < len(self.parts) - 1:
                continue
            statements += self._published(stores)
            stores = []
        return made[0].loads if made else [], statements

    def with_input(self, maker: Nest, staged: StagedInput) -> tuple[list[Stmt], list[Stmt]]:
        """The chunks of the tile that ``maker`` computes from an epilogue input in their buffers.

        Returns
        -------
        ahead : list of Stmt
            Loads that begin before the tile's MMAs.
        statements : list of Stmt
        """
        order = fetches(list(self.parts))
        ahead = self._left(0)
        for number in order.ahead:
            ahead += self._fetched(staged, number)
        statements: list[Stmt] = []
        for number, chunk in enumerate(self.parts):
            made = self._made(maker, chunk)
            (allocated, _) = made.loads
            arrived = T.ptx.cp.async_.wait_group(order.pending(number))
            statements += [
                ir.evaluate(arrived), self._sync, allocated,
                self._copy(ir.whole(allocated.buffer), self._place(chunk)), made.compute,
                self._copy(self._place(chunk), ir.whole(made.tile)),
                *self._published(self._issued(number)),
            ]  # fmt: skip
            for load, under_way in order.after.get(number, ()):
                statements += [*self._left(under_way), *self._fetched(staged, load)]
        return ahead, statements

    def _made(self, maker: Nest, chunk: StoreChunk) -> _Made:
        i, j = Var("i", "int32"), Var("j", "int32")
        before, value = computed(maker, [i + chunk.row, j + chunk.column])
        tile = tirx.decl_buffer(
            (chunk.height, chunk.width), str(value.ty.dtype), "chunk", scope="local",
            layout=self.kinds.matrix(chunk.height, chunk.width),
        )  # fmt: skip
        store = tirx.BufferStore(tile, value, [i, j], maker.parts[-1].raw.span)
        nest = view(ir.nest([i, j], [chunk.height, chunk.width], [*before, store]))
        loads, rest = split_inputs(nest, tile)
        return _Made(tile, loads, ir.seq([tirx.AllocBuffer(tile), rest]))

    def _slot(self, chunk: StoreChunk) -> tuple[Any, int]:
        return self.program.var("warpgroup"), chunk.slot

    def _place(self, chunk: StoreChunk, first: int = 0, width: int | None = None) -> TensorRegion:
        """Where a chunk is in shared memory, or so many of its columns."""
        slot = [(index, 1) for index in self._slot(chunk)]
        columns = first, width or chunk.width
        return ir.region(self.buffers[chunk.width], *slot, (0, chunk.height), columns)

    def _copy(self, to: TensorRegion, source: TensorRegion) -> Stmt:
        dispatch = "ldstmatrix" if self.has_matrices else None
        return primitive("copy", to, source, scope="warpgroup", dispatch=dispatch)

    def _left(self, under_way: int) -> list[Stmt]:
        """Threads meet when all but so many stores have left their buffers."""
        return [ir.when(leader(self.program), [wait_group(under_way)]), self._sync]

    def _fetched(self, staged: StagedInput, number: int) -> list[Stmt]:
        chunk, threads = self.parts[number], WARPGROUP.warps * LANES
        thread, buffer = thread_in_warpgroup(self.program), self.buffers[chunk.width]
        return staged.fetch(buffer, self._slot(chunk), chunk, thread, threads)

    def _issued(self, number: int) -> list[Stmt]:
        """The store of a chunk, a swizzled row at a time, as a group of its own."""
        chunk, (*rows, (column, _)) = self.parts[number], self.targets[number]
        bits = tvm.DataType(str(self.tile.dtype)).bits
        width = min(chunk.width, 8 * Swizzle.B128.row_bytes // bits)
        stores = []
        for first in range(0, chunk.width, width):
            target = ir.region(self.to, *rows, (column + chunk.column + first, width))
            store = by_tma(target, self._place(chunk, first, width), self.reduce)
            stores.append(if_stored(store, self.program))
        return [*stores, ir.evaluate(T.ptx.cp.async_.bulk.commit_group())]

    def _published(self, stores: list[Stmt]) -> list[Stmt]:
        """The TMA engine reads the data that these threads wrote."""
        fence = ir.evaluate(T.ptx.fence.proxy.async_.shared__cta())
        return [fence, self._sync, ir.when(leader(self.program), stores)]

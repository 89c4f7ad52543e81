"""A tile of registers whose rows go to places that have an index each, chunk by chunk.

As in :mod:`warploom.lower.stores.chunked_store` chunks go through shared memory. On Blackwell TMA
stores four rows by one instruction (``tile::scatter4``), and lanes of the first warp of a warpgroup
issue one each; each lane has bulk groups of its own, so all of them wait. On Hopper threads store
16 bytes at a time, neighbours a row together. Rows outside of the tensor are not stored. A chunk is
a ``scatter`` of a warpgroup until nests are lowered; then it becomes code of threads.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Stmt, Var
from tvm.tirx.tile_primitive import LambdaExpr

from warploom.language.builtins.device_code import assembly
from warploom.lower.emit.gather_rows import guarded
from warploom.lower.emit.threads import thread_in_warpgroup
from warploom.lower.nests.elements import WARPGROUP
from warploom.lower.stores.chunked_store import ChunkedStore, if_stored, wait_group
from warploom.ops.copy_gather import GATHERED, ROWS
from warploom.ops.register_tile import LANES
from warploom.target import TMA, Swizzle
from warploom.tile import ir
from warploom.tile.primitives import primitive
from warploom.tile.program import TileProgram
from warploom.tile.statement import Scatter
from warploom.tile_primitives import SCATTER

#: The op schedule of stores by TMA, which a chunk's ``scatter`` names where it goes so.
_FOURS = "tma_scatter4"
#: The row of a tensor that no tensor has.
_NOWHERE = -1


@dataclass(frozen=True)
class ScatteredStore(ChunkedStore):
    """A ``scatter`` and the chunks that it consists of; ``targets`` are empty.

    Attributes
    ----------
    rows : tuple of LambdaExpr
        From a row of the tile to an index, for each dimension of ``to`` before the last.
    column : Expr
        The first column of ``to``.
    """

    rows: tuple[LambdaExpr, ...] = ()
    column: Any = 0

    @property
    def _by_tma(self) -> bool:
        return self.program.tensor_memory

    def _left(self, under_way: int) -> list[Stmt]:
        """Threads meet when all but so many chunks have left their buffers."""
        if not self._by_tma:
            return [self._sync]
        return [ir.when(self._issuing, [wait_group(under_way)]), self._sync]

    @property
    def _issuing(self) -> Any:
        return self.program.var("warp_in_warpgroup") == 0

    def _published(self, stores: list[Stmt]) -> list[Stmt]:
        """Stores of chunks that these threads wrote."""
        if not self._by_tma:
            return [self._sync, *stores]
        fence = ir.evaluate(T.ptx.fence.proxy.async_.shared__cta())
        return [fence, self._sync, ir.when(self._issuing, stores)]

    def _issued(self, number: int) -> list[Stmt]:
        """The ``scatter`` of a chunk, which :func:`scatter_chunk` gives to threads."""
        chunk = self.parts[number]

        def of_chunk(row: LambdaExpr) -> LambdaExpr:
            return LambdaExpr(lambda r: row.apply([r + chunk.row]))

        whole = [(0, size) for size in self.to.shape[:-1]]
        to = ir.region(self.to, *whole, (self.column + chunk.column, chunk.width))
        places = map(of_chunk, self.rows)
        by_tma = _FOURS if self._by_tma else None
        store = primitive(
            SCATTER, to, self._place(chunk), *places, scope="warpgroup", dispatch=by_tma
        )
        group = [ir.evaluate(T.ptx.cp.async_.bulk.commit_group())] if self._by_tma else []
        return [if_stored(store, self.program), *group]


def scatter_chunk(scatter: Scatter, program: TileProgram) -> Stmt:
    """The code of threads for a ``scatter`` of a chunk in shared memory."""
    made = _in_fours if scatter.raw.dispatch == _FOURS else _by_threads
    return ir.written_at(ir.seq(made(scatter, program)), scatter.raw.span)


def _in_fours(scatter: Scatter, program: TileProgram) -> list[Stmt]:
    """Four rows a lane, a swizzled row at a time."""
    *slot, (_, height), (_, wide) = ir.ranges(scatter.source)
    tensor, (column, _) = scatter.to.source, ir.ranges(scatter.to)[-1]
    first = program.var("lane") * GATHERED
    bound, places = [], []
    (rows,) = scatter.rows
    for number in range(GATHERED):
        index = guarded(rows.apply([first + number]), [])
        if str(index.ty.dtype) != "int32":
            inside = T.And(index >= 0, index < tensor.shape[0])
            nowhere = tirx.const(_NOWHERE, str(index.ty.dtype))
            index = T.Cast("int32", T.Select(inside, index, nowhere))
        places.append(Var(f"row{number}", "int32"))
        bound.append(tirx.Bind(places[-1], index))
    bits = tvm.DataType(str(tensor.dtype)).bits
    width = min(int(wide), 8 * Swizzle.B128.row_bytes // bits)
    stores: list[Stmt] = []
    for start in range(0, int(wide), width):
        to = ir.region(tensor, (places[0], GATHERED), (column + start, width))
        own = ir.region(scatter.source.source, *slot, (first, GATHERED), (start, width))
        stores.append(
            primitive("copy_async", to, own, dispatch=_FOURS, **{ROWS: places[1:]})
        )
    return [ir.when(first < height, [*bound, *stores])]


def _by_threads(scatter: Scatter, program: TileProgram) -> list[Stmt]:
    """Pieces of 16 bytes, of which neighbouring threads store a row together."""
    *slot, (_, height), (_, wide) = ir.ranges(scatter.source)
    tensor, (column, _) = scatter.to.source, ir.ranges(scatter.to)[-1]
    unit = TMA.chunk_bytes * 8 // tvm.DataType(str(tensor.dtype)).bits
    across, threads = int(wide) // unit, WARPGROUP.warps * LANES
    pieces, thread = int(height) * across, thread_in_warpgroup(program)
    statements: list[Stmt] = []
    for start in range(0, pieces, threads):
        piece = thread + start
        row, within = T.truncdiv(piece, across), T.truncmod(piece, across) * unit
        bound, indices = [], []
        inside = [piece < pieces] if start + threads > pieces else []
        for rows in scatter.rows:
            index = guarded(rows.apply([row]), list(inside))
            indices.append(Var("row", str(index.ty.dtype)))
            bound.append(tirx.Bind(indices[-1], index))
        at = column + within
        for index, size in zip([*indices, at], tensor.shape, strict=True):
            inside += [index >= 0, index < size]
        own = ir.address(scatter.source.source, *(start for start, _ in slot), row, within)
        move = ir.evaluate(_move(ir.address(tensor, *indices, at), own))
        statements += [*bound, ir.when(functools.reduce(T.And, inside), [move])]
    return statements


def _move(to: Any, source: Any) -> Any:
    """Store 16 bytes of shared memory to global memory; both places are multiples of 16."""
    return assembly(
        "shared_to_global_128",
        "{ .reg .b32 r<4>; ld.shared.v4.b32 {r0, r1, r2, r3}, [%1]; "
        "st.global.v4.b32 [%0], {r0, r1, r2, r3}; }",
        [("void*", to), ("const void*", source)],
        [("l", "v0"), ("r", "(unsigned)__cvta_generic_to_shared(v1)")],
    )

"""Elements that other threads hold come through shared memory.

A nest may use an element of a tile in registers that lies with another thread: of a row and of its
half, of a tile and its transpose. Before such a nest, the tile is copied to shared memory, and the
nest reads it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, Stmt, Var

from warploom.errors import Decline
from warploom.layout.thread_grid import ThreadGrid
from warploom.lower.analysis.layouts import register_places
from warploom.lower.passes.infer_layouts import spread_over_banks
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.scopes import TILE_SCOPES
from warploom.tile.statement import Nest, Statement

_NAMES = "ij"


def fetch_elements(program: TileProgram, grid: ThreadGrid) -> TileProgram:
    """Copy tiles to shared memory before nests that use elements of other threads.

    Raises
    ------
    Decline
        If a nest stores a tile otherwise than it stores or counts others.
    """
    decided: dict[str, None] = {}

    def change(statement: Statement) -> Stmt:
        if not isinstance(statement, Nest):
            return statement.with_each(change)
        foreign = _foreign(statement, grid)
        if not foreign:
            return statement.raw
        decided.update(dict.fromkeys(sorted(tile.name for tile in foreign)))
        return _through_shared(statement, foreign, grid)

    body = [leaf for s in program.block for leaf in ir.flatten(change(s))]
    if not decided:
        return program
    return program.replace(body=tuple(body)).decided(
        *(f"{name}: elements of other threads come through shared memory" for name in decided)
    )


class _Directions:
    """Which loops of a nest count rows and which columns."""

    def __init__(self, nest: Nest, grid: ThreadGrid) -> None:
        self.grid, self.analyzer = grid, Analyzer()
        self.extents = {loop.loop_var: int(loop.extent) for loop in nest.loops}
        counted = [var for var, extent in self.extents.items() if extent > 1]
        stores = [
            (store.buffer, list(store.indices)) for store in nest.stores
            if store.buffer.scope() in TILE_SCOPES
        ]  # fmt: skip
        places = [
            [index if isinstance(index, Var) else None for index in at]
            for tile, at in (*stores, *register_places(nest.raw))
            if len(tile.shape) == 2 and _by_loops(tile, at)
        ]
        # An element of the only row or column says nothing of the other loops.
        matrices = sorted(places, key=lambda at: None in at)
        self.row, self.column = (*matrices, [None, None])[0]
        if len(counted) == 2:
            first, last = counted
            if self.row is None:
                self.row = first if self.column is not first else last
            if self.column is None:
                self.column = last if self.row is not last else first

    def own(self, tile: Buffer, indices: Sequence[Any]) -> bool:
        """Whether a thread holds the element of a tile that its iteration uses."""
        if len(indices) == 2:
            pairs = zip(
                indices, (self.row, self.column), (self.grid.down, self.grid.columns), tile.shape,
                strict=True,
            )  # fmt: skip
            return all(self._is_own(*pair) for pair in pairs)
        (index,), (extent,) = indices, tile.shape
        return int(extent) == 1 or isinstance(index, Var)

    def _is_own(self, index: Any, var: Any, step: int, extent: Any) -> bool:
        if int(extent) == 1 or (var is not None and var.same_as(index)):
            return True
        if var is None or self.extents.get(var, 1) == 1:
            return False
        start = self.analyzer.simplify(index - var)
        return isinstance(start, tirx.IntImm) and int(start) % step == 0


def _by_loops(tile: Buffer, indices: Sequence[Any]) -> bool:
    """Whether an element's indices are loop variables, but those of the only row or column."""
    return any(isinstance(index, Var) for index in indices) and all(
        isinstance(index, Var) or int(extent) == 1
        for index, extent in zip(indices, tile.shape, strict=True)
    )


def _foreign(nest: Nest, grid: ThreadGrid) -> set[Buffer]:
    """Tiles that a nest reads where other threads may hold the element."""
    directions = _Directions(nest, grid)
    for store in nest.stores:
        if store.buffer.scope() in TILE_SCOPES and not directions.own(store.buffer, store.indices):
            raise Decline(
                f"A nest stores {store.buffer.name} by {', '.join(map(str, store.indices))}, where "
                "threads do not hold it so; index it by loop variables, and read other tiles "
                "by expressions of them."
            )
    return {tile for tile, at in register_places(nest.raw) if not directions.own(tile, at)}


def _through_shared(nest: Nest, tiles: set[Buffer], grid: ThreadGrid) -> Stmt:
    """Copies of tiles to shared memory, and the nest that reads what is not its own there."""
    directions = _Directions(nest, grid)
    before: list[Stmt] = []
    copies: dict[Buffer, Buffer] = {}
    for tile in sorted(tiles, key=lambda tile: tile.name):
        copies[tile] = _shared_copy(tile)
        counters = [Var(name, "int32") for name in _NAMES[: len(tile.shape)]]
        store = tirx.BufferStore(copies[tile], tile[tuple(counters)], counters)
        before += [
            tirx.AllocBuffer(copies[tile]),
            ir.nest(counters, map(int, tile.shape), [store]),
        ]

    def load(node: TensorLoad) -> Any:
        tile = node.source
        if tile not in copies or directions.own(tile, node.indices):
            return node
        return copies[tile][tuple(node.indices)]

    return ir.seq([*before, tvm_ffi.structural_map(nest.raw, (TensorLoad, load), order="post")])


def _shared_copy(tile: Buffer) -> Buffer:
    name, dtype = f"{tile.name}_shared", str(tile.dtype)
    plain = tirx.decl_buffer(tile.shape, dtype, name, scope="shared")
    layout = spread_over_banks(plain)
    if layout is None:
        return plain
    return tirx.decl_buffer(tile.shape, dtype, name, scope="shared", layout=layout)

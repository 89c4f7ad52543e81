"""Stores and updates of global memory with tiles of shared memory, by TMA."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.tirx import Stmt

from warploom.lower.emit.fill_stages import require_tma
from warploom.lower.emit.threads import leader, orchestrated
from warploom.lower.stores.chunked_store import by_tma, if_stored, wait_group
from warploom.target import TMA
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.statement import Store
from warploom.tile.updates import reduce_of


def store_shared(copy: Store, program: TileProgram) -> Stmt:
    """Store or update by TMA with one thread; wait until the tile may be written again.

    Raises
    ------
    Decline
        If TMA cannot describe the region that is stored to.
    """
    to, source, reduce = copy.to, copy.source, reduce_of(copy.raw)
    require_tma(to, f"which {source.source.name} is stored to")
    chosen = T.And(program.var("warpgroup") == 0, leader(program))
    parts = [(to, source)] if reduce is None else _parts(to, source)
    store = [
        *(if_stored(by_tma(*part, reduce), program) for part in parts),
        ir.evaluate(T.ptx.cp.async_.bulk.commit_group()),
        wait_group(0),
    ]
    return orchestrated([ir.when(chosen, store)])


def in_boxes(region: TensorRegion) -> bool:
    """Whether TMA updates a region box by box: a vector, or what one box has."""
    extents = [int(extent) for _, extent in ir.ranges(region) if int(extent) != 1]
    return len(extents) <= 1 or max(extents) <= TMA.box_extent


def _parts(to: TensorRegion, source: TensorRegion) -> Iterator[tuple[TensorRegion, TensorRegion]]:
    """Boxes of a vector, of at most 256 elements; TVM cuts plain stores itself, and no updates."""
    extents = [int(extent) for _, extent in ir.ranges(source) if int(extent) != 1]
    if len(extents) != 1:
        yield to, source
        return
    for start in range(0, extents[0], TMA.box_extent):
        size = min(TMA.box_extent, extents[0] - start)
        yield _part(to, start, size), _part(source, start, size)


def _part(region: TensorRegion, start: int, size: int) -> TensorRegion:
    """So many elements of a vector."""
    ranges: list[tuple[Any, Any]] = [
        (first, extent) if int(extent) == 1 else (first + start if start else first, size)
        for first, extent in ir.ranges(region)
    ]
    return ir.region(region.source, *ranges)

"""Stores and updates of global memory with tiles of shared memory, by TMA."""

from __future__ import annotations

from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.tirx import Stmt

from warploom.lower.analysis.tma_boxes import boxes
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
    # TVM takes wide elements for plain stores, and no updates.
    parts = boxes(to, source, None if reduce is None else TMA.box_extent)
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

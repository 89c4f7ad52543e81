"""Registers to global memory: cast, stmatrix into shared memory, TMA store, overlapped."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom.layout.fragment import wgmma_accumulator
from warploom.target.wgmma import WGMMA_M


@T.meta_class
class TileStore:
    """Stores the accumulators of one consumer warpgroup piece by piece.

    While the TMA store of one piece drains a buffer, the warpgroup fills the next. The stores of
    a tile are still in flight when :meth:`store` returns, under the loads of the next tile.

    Parameters
    ----------
    staging : Buffer
        Shared memory, ``(consumers, buffers, 64, store_n)`` of the result dtype, swizzled.
    index : Expr
        Which consumer this is.
    rows, columns : int
        The accumulator tile of the warpgroup.
    barrier : Expr
        Id of a named barrier that no other warpgroup uses.
    leader : Expr
        Predicate, true for the one thread that issues TMA stores.
    """

    def __init__(
        self, staging: Any, index: Any, rows: int, columns: int, barrier: Any, leader: Any
    ) -> None:
        self.staging, self.index, self.barrier, self.leader = staging, index, barrier, leader
        self.buffers, self.width = int(staging.shape[1]), int(staging.shape[-1])
        self.across = columns // self.width
        self.pieces = rows // WGMMA_M * self.across
        self.piece = T.alloc_buffer(
            (WGMMA_M, self.width),
            str(staging.dtype),
            scope="local",
            layout=wgmma_accumulator(WGMMA_M, self.width),
        )

    @T.inline
    def store(self, c, accumulator, row, column):
        """Store ``accumulator`` to ``c`` from (row, column) on; TMA clips at the matrix edge."""
        for i in T.unroll(self.pieces):
            m = T.meta_var(i // self.across * WGMMA_M)
            n = T.meta_var(i % self.across * self.width)
            buffer = T.meta_var(
                self.staging[self.index, i % self.buffers, 0:WGMMA_M, 0 : self.width]
            )
            Tx.wg.cast(self.piece[:, :], accumulator[m : m + WGMMA_M, n : n + self.width])
            if self.leader:
                # The oldest store has left this buffer.
                T.ptx.cp.async_.bulk.wait_group.read(self.buffers - 1)
            T.cuda.warpgroup_sync(self.barrier)
            Tx.wg.copy(buffer, self.piece[:, :], dispatch="ldstmatrix")
            # The TMA engine reads what these threads wrote.
            T.ptx.fence.proxy.async_.shared__cta()
            T.cuda.warpgroup_sync(self.barrier)
            if self.leader:
                Tx.copy_async(
                    c[row + m : row + m + WGMMA_M, column + n : column + n + self.width],
                    buffer,
                    dispatch="tma_auto",
                )
                T.ptx.cp.async_.bulk.commit_group()

    @T.inline
    def drain(self):
        """Wait for the last stores, before the CTA gives up its shared memory."""
        if self.leader:
            T.ptx.cp.async_.bulk.wait_group(0)

"""Tensor memory to global memory: load, cast, shared memory, TMA store, overlapped."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx.layout import tcgen05_atom_layout

from warploom.kernels.sm100_config import TILE_M


@T.meta_class
class AccumulatorStore:
    """Stores the accumulators of a tile, piece by piece, by the warpgroup of the epilogue.

    Each thread holds a part of one row. While the TMA store of one piece drains a buffer, the
    warpgroup fills the next.

    Parameters
    ----------
    staging : Buffer
        Shared memory, ``(buffers, 128, store_n)`` of the result dtype, swizzled.
    accumulators : Buffer
        Tensor memory, ``(128, columns)`` of float32.
    columns : int
        Of one tile.
    barrier : int
        Id of a named barrier that no other warpgroup uses.
    leader : Expr
        Predicate, true for the one thread that issues TMA stores.
    """

    def __init__(
        self, staging: Any, accumulators: Any, columns: int, barrier: int, leader: Any
    ) -> None:
        self.staging, self.accumulators = staging, accumulators
        self.barrier, self.leader = barrier, leader
        self.buffers, self.width = int(staging.shape[0]), int(staging.shape[-1])
        self.pieces = columns // self.width
        shape = (TILE_M, self.width)
        # Thread i of the warpgroup holds row i, as tcgen05.ld gives it.
        layout = tcgen05_atom_layout("32x32b", shape, "float32")
        self.sums = T.alloc_buffer(shape, "float32", scope="local", layout=layout)
        self.piece = T.alloc_buffer(shape, str(staging.dtype), scope="local", layout=layout)

    @T.inline
    def store(self, c, row, column, first=0, emptied=None, slot=0):
        """Store the tile whose accumulators start at column ``first`` of tensor memory.

        Every thread arrives at ``emptied[slot]``, if given, as soon as it has read its last
        accumulator. TMA clips what lies beyond the edge of ``c``.
        """
        for i in T.unroll(self.pieces):
            n = T.meta_var(i * self.width)
            buffer = T.meta_var(self.staging[i % self.buffers, 0:TILE_M, 0 : self.width])
            Tx.wg.copy_async(
                self.sums[:, :], self.accumulators[:, first + n : first + n + self.width]
            )
            T.ptx.tcgen05.wait__ld.sync.aligned()
            if emptied is not None:
                last = T.meta_var(i == self.pieces - 1)
                if last:
                    # The next product may overwrite the accumulators.
                    T.ptx.tcgen05.fence__before_thread_sync()
                    emptied.arrive(slot)
            Tx.wg.cast(self.piece[:, :], self.sums[:, :])
            if self.leader:
                # The oldest store has left this buffer.
                T.ptx.cp.async_.bulk.wait_group.read(self.buffers - 1)
            T.cuda.warpgroup_sync(self.barrier)
            Tx.wg.copy(buffer, self.piece[:, :])
            # The TMA engine reads what these threads wrote.
            T.ptx.fence.proxy.async_.shared__cta()
            T.cuda.warpgroup_sync(self.barrier)
            if self.leader:
                Tx.copy_async(
                    c[row : row + TILE_M, column + n : column + n + self.width],
                    buffer,
                    dispatch="tma_auto",
                )
                T.ptx.cp.async_.bulk.commit_group()

    @T.inline
    def drain(self):
        """Wait for the last stores, before the CTA gives up its shared memory."""
        if self.leader:
            T.ptx.cp.async_.bulk.wait_group(0)

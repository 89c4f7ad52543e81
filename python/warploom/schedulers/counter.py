"""Tiles that are handed out as the kernel runs, from a counter in global memory."""

from __future__ import annotations

from typing import Any

from tvm.backend.cuda.lang.pipeline import MBarrier, PipelineState
from tvm.script import tirx as T

from warploom.schedulers.limits import require_positive
from warploom.schedulers.raster import grouped_tile


@T.meta_class
class TileCounterScheduler:
    """A CTA gets its next tile when it is about to need it: for tiles that differ in cost.

    One thread of each CTA draws numbers from a counter (:meth:`run`), one tile or more ahead of
    the others, and passes them on through shared memory, a ring with two barriers a slot. Every
    other role reads them with a :meth:`worker` of its own. Cluster launch control does the same
    on Blackwell, for GPUs that lack it.

    The first tile of a CTA is that of its own number. The counter is 0 before a launch, and again
    after it.

    Parameters
    ----------
    pool : SMEMPool
    counter : Buffer
        int32 of shape ``(1,)`` in global memory; no two launches may use it at one time.
    num_m_tiles, num_n_tiles : int
    num_ctas : int
    readers : int
        How many arrivals free a slot: single threads and warps that read, in one CTA.
    l2_group_size : int
        Rows of tiles that are visited together, column after column.
    slots : int
        Tiles that may be drawn ahead.

    Raises
    ------
    IllegalCombination
        If a size is below 1.

    Examples
    --------
    ``init`` before the barrier of the CTA, then each role with its own object::

        tiles = TileCounterScheduler(pool, counter, m_tiles, n_tiles, ctas, readers=1)
        tiles.init()
        ...
        if thread == 0:
            tiles.run()
        elif warp == 1:
            mine = tiles.worker()
            mine.init(cta)
            while mine.valid():
                ...  # the tile (mine.m_idx, mine.n_idx)
                mine.next_tile(lane == 0)
    """

    def __init__(
        self, pool: Any, counter: Any, num_m_tiles: int, num_n_tiles: int, num_ctas: int,
        readers: int, l2_group_size: int = 8, slots: int = 2,
    ) -> None:  # fmt: skip
        require_positive(
            "TileCounterScheduler", num_m_tiles=num_m_tiles, num_n_tiles=num_n_tiles,
            num_ctas=num_ctas, readers=readers, l2_group_size=l2_group_size, slots=slots,
        )  # fmt: skip
        self.counter, self.rows, self.columns = counter, num_m_tiles, num_n_tiles
        self.ctas, self.readers, self.group, self.slots = num_ctas, readers, l2_group_size, slots
        self.full = MBarrier(pool, slots)
        self.empty = MBarrier(pool, slots)
        self.drawn = pool.alloc((slots,), "int32", align=4)

    @property
    def tiles(self) -> int:
        """Tiles in all."""
        return self.rows * self.columns

    @property
    def draws(self) -> int:
        """How often the CTAs draw in all: each until there is nothing."""
        return max(self.tiles, self.ctas)

    def init(self) -> None:
        """Initialise the barriers; a barrier of the CTA must follow."""
        self.full.init(1)
        self.empty.init(self.readers)

    @T.inline
    def run(self):
        """Draw tiles until there are none; one thread of the CTA executes this."""
        ring = PipelineState(self.slots, 1)
        draw: T.int32 = 0
        more: T.int32 = 1
        while more != 0:
            self.empty.wait(ring.stage, ring.phase)
            draw = T.cuda.atomic_add(T.address_of(self.counter[0]), T.int32(1))
            # The last draw of all leaves the counter as it was.
            if draw == self.draws - 1:
                self.counter[0] = 0
            self.drawn[ring.stage] = draw + self.ctas
            self.full.arrive(ring.stage)
            ring.advance()
            if draw + self.ctas >= self.tiles:
                more = 0

    def worker(self) -> _Worker:
        """The reader of tiles of a role."""
        return _Worker(self)


@T.meta_class
class _Worker:
    """Walks over the tiles that a CTA has drawn: ``init``, ``valid``, ``next_tile``."""

    def __init__(self, tiles: TileCounterScheduler) -> None:
        self._tiles = tiles
        self._ring = PipelineState(tiles.slots)
        self.m_idx = T.local_scalar("int32")
        self.n_idx = T.local_scalar("int32")
        self._index = T.local_scalar("int32")

    @T.inline
    def init(self, cta):
        """Begin with the tile of this number."""
        self._ring.init(0)
        self._index = cta
        self._locate()

    def valid(self) -> Any:
        """Whether the current tile exists."""
        return self._index < self._tiles.tiles

    @T.inline
    def next_tile(self, leader=None):
        """Read the next tile: one thread, or a whole warp of which ``leader`` is one thread."""
        self._tiles.full.wait(self._ring.stage, self._ring.phase)
        self._index = self._tiles.drawn[self._ring.stage]
        if leader is None:
            self._tiles.empty.arrive(self._ring.stage)
        else:
            T.cuda.warp_sync()
            if leader:
                self._tiles.empty.arrive(self._ring.stage)
        self._ring.advance()
        self._locate()

    @T.inline
    def _locate(self):
        tiles = T.meta_var(self._tiles)
        row, column = T.meta_var(
            grouped_tile(self._index, tiles.rows, tiles.columns, tiles.group)
        )
        self.m_idx = row
        self.n_idx = column

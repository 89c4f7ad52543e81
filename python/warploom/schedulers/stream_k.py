"""Tiles of which the last ones are cut along K, so that no CTA is idle at the end: stream-K."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from warploom.schedulers.limits import require_positive
from warploom.schedulers.raster import grouped_tile


@T.meta_class
class StreamKScheduler:
    """Walks over *segments*: a tile of C and a range of its steps along K.

    As long as there is a tile for every CTA, each takes a whole one. The steps of the tiles that
    are left are dealt out evenly: a CTA gets a contiguous range of them, which ends one tile and
    may begin another. A CTA that computes only part of a tile has to add its sums to those of other
    CTAs; :attr:`begins` and :attr:`ends` say which part it has. All tiles being whole (their number
    is a multiple of the CTAs'), nothing is cut.

    The idea is from Osama et al., "Stream-K: Work-centric Parallel Decomposition for Dense
    Matrix-Matrix Multiplication on the GPU" (2023).

    Parameters
    ----------
    num_m_tiles, num_n_tiles : int
        Tiles of C.
    num_k_tiles : int
        Steps along K of each tile.
    num_ctas : int
    l2_group_size : int
        Rows of tiles that are visited together, column after column.

    Attributes
    ----------
    m_idx, n_idx : int32 scalars
        The tile of the current segment.
    k_begin, k_end : int32 scalars
        Its steps, at least one.

    Raises
    ------
    IllegalCombination
        If a size is below 1.

    Examples
    --------
    .. code-block:: python

        tiles = StreamKScheduler(
            "tiles", num_m_tiles=12, num_n_tiles=12, num_k_tiles=64, num_ctas=132
        )
        tiles.init(cta)
        while tiles.valid():
            for k in T.serial(tiles.k_begin, tiles.k_end):
                ...
            tiles.next_tile()
    """

    def __init__(
        self, num_m_tiles: int, num_n_tiles: int, num_k_tiles: int, num_ctas: int,
        l2_group_size: int = 8,
    ) -> None:  # fmt: skip
        require_positive(
            "StreamKScheduler", num_m_tiles=num_m_tiles, num_n_tiles=num_n_tiles,
            num_k_tiles=num_k_tiles, num_ctas=num_ctas, l2_group_size=l2_group_size,
        )  # fmt: skip
        self._rows, self._columns, self._steps = num_m_tiles, num_n_tiles, num_k_tiles
        self._ctas, self._group = num_ctas, l2_group_size
        tiles = num_m_tiles * num_n_tiles
        #: Tiles that are computed as a whole, and steps of the others.
        self.whole_tiles = tiles // num_ctas * num_ctas
        self.shared_steps = (tiles - self.whole_tiles) * num_k_tiles
        self.m_idx = T.local_scalar("int32")
        self.n_idx = T.local_scalar("int32")
        self.k_begin = T.local_scalar("int32")
        self.k_end = T.local_scalar("int32")
        # The next whole tile; then the next of the shared steps, and the end of this CTA's.
        self._tile = T.local_scalar("int32")
        self._step = T.local_scalar("int32")
        self._end = T.local_scalar("int32")
        self._more = T.local_scalar("int32")

    @T.inline
    def init(self, cta):
        """Begin with the first segment of this CTA."""
        self._tile = cta
        # In 64 bits: the product of CTAs and steps may be large.
        self._step = T.cast(
            T.truncdiv(T.cast(cta, "int64") * self.shared_steps, T.int64(self._ctas)), "int32"
        )
        self._end = T.cast(
            T.truncdiv((T.cast(cta, "int64") + 1) * self.shared_steps, T.int64(self._ctas)), "int32"
        )
        self.next_tile()

    @T.inline
    def next_tile(self):
        """Go to the next segment."""
        self._more = 1
        if self._tile < self.whole_tiles:
            self._place(self._tile)
            self.k_begin = 0
            self.k_end = self._steps
            self._tile = self._tile + self._ctas
        else:
            if self._step < self._end:
                self._place(self.whole_tiles + T.truncdiv(self._step, self._steps))
                self.k_begin = T.truncmod(self._step, self._steps)
                self.k_end = T.min(self._steps, self.k_begin + self._end - self._step)
                self._step = self._step + self.k_end - self.k_begin
            else:
                self._more = 0

    def valid(self) -> Any:
        """Whether the current segment exists."""
        return self._more != 0

    @property
    def begins(self) -> Any:
        """Whether the segment has the first step of its tile."""
        return self.k_begin == 0

    @property
    def ends(self) -> Any:
        """Whether the segment has the last step of its tile."""
        return self.k_end == self._steps

    @T.inline
    def _place(self, tile):
        row, column = T.meta_var(grouped_tile(tile, self._rows, self._columns, self._group))
        self.m_idx = row
        self.n_idx = column

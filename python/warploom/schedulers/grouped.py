"""Tiles of several GEMMs that differ in their number of rows: a grouped GEMM."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from warploom.schedulers.limits import require_positive


@T.meta_class
class GroupedScheduler:
    """Walks over the tiles of all groups, each a GEMM with rows of its own and the same N.

    The rows of the groups lie one after another in A and C, and no tile reaches from one group
    into the next. Sizes are read as the kernel runs; a group may be empty. Within a group the
    rows of tiles are the fast direction, so that CTAs that run at one time share columns of B.

    Parameters
    ----------
    offsets : Buffer
        int32 of shape ``(groups + 1,)`` in global memory: the first row of each group, and the
        number of rows in all. Ascending, beginning with 0.
    groups : int
    tile_m : int
        Rows of a tile.
    num_n_tiles : int
        Columns of tiles of every group.
    num_clusters : int
        CTAs, or clusters of them, that share the tiles.

    Attributes
    ----------
    group_idx, m_idx, n_idx : int32 scalars
        The group, and row and column of the tile in it.
    row, row_end : int32 scalars
        First row of the tile in A and C, and the row behind the last of its group.

    Raises
    ------
    IllegalCombination
        If a size is below 1.

    Examples
    --------
    .. code-block:: python

        tiles = GroupedScheduler(
            "tiles", Indptr, groups=8, tile_m=128, num_n_tiles=16, num_clusters=132
        )
        tiles.init(cta)
        while tiles.valid():
            ...  # rows tiles.row to tiles.row_end of group tiles.group_idx
            tiles.next_tile()
    """

    def __init__(
        self, offsets: Any, groups: int, tile_m: int, num_n_tiles: int, num_clusters: int
    ) -> None:
        require_positive(
            "GroupedScheduler", groups=groups, tile_m=tile_m, num_n_tiles=num_n_tiles,
            num_clusters=num_clusters,
        )  # fmt: skip
        self._offsets, self._groups = offsets, groups
        self._tile_m, self._columns, self._step = tile_m, num_n_tiles, num_clusters
        self.group_idx = T.local_scalar("int32")
        self.m_idx = T.local_scalar("int32")
        self.n_idx = T.local_scalar("int32")
        self.row = T.local_scalar("int32")
        self.row_end = T.local_scalar("int32")
        # Number of the tile among all, and what it is in this group.
        self._index = T.local_scalar("int32")
        self._within = T.local_scalar("int32")
        self._rows = T.local_scalar("int32")

    @T.inline
    def init(self, cluster_id):
        """Begin with the tile of this number."""
        self._index = cluster_id
        self._within = cluster_id
        self.group_idx = 0
        self._read_group()
        self._locate()

    @T.inline
    def next_tile(self):
        """Go to this cluster's next tile."""
        self._index = self._index + self._step
        self._within = self._within + self._step
        self._locate()

    def valid(self) -> Any:
        """Whether the current tile exists."""
        return self.group_idx < self._groups

    @T.inline
    def _read_group(self):
        self._rows = 0
        if self.group_idx < self._groups:
            self.row = self._offsets[self.group_idx]
            self.row_end = self._offsets[self.group_idx + 1]
            self._rows = T.truncdiv(self.row_end - self.row + (self._tile_m - 1), self._tile_m)

    @T.inline
    def _locate(self):
        while T.And(self.group_idx < self._groups, self._within >= self._rows * self._columns):
            self._within = self._within - self._rows * self._columns
            self.group_idx = self.group_idx + 1
            self._read_group()
        if self.group_idx < self._groups:
            self.m_idx = T.truncmod(self._within, self._rows)
            self.n_idx = T.truncdiv(self._within, self._rows)
            self.row = self._offsets[self.group_idx] + self.m_idx * self._tile_m

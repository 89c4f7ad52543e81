"""Schedulers and pipeline objects for kernels that are orchestrated by hand, Hopper or Blackwell.

TVM's own are re-exported where they serve, ours add the missing ones; all follow TVM's conventions:
``init(...)``, ``while valid():`` the tile is ``(m_idx, n_idx)``, ``next_tile()``. Every role of a
kernel has a scheduler of its own and walks through the same tiles.

=================================  ================================================================
``ClusterPersistentScheduler2D``   a fixed grid walks over groups of rows for the L2 cache (TVM)
``GroupedScheduler``               several GEMMs of different M, whose sizes a buffer has
``StreamKScheduler``               tiles left over at the end are cut along K and shared by all CTAs
``TileCounterScheduler``           tiles are handed out as the kernel runs, from a counter in memory
``ClusterLaunchControlScheduler``  the same by cancelling CTAs that have not begun (TVM, Blackwell)
``PipelineState``, ``Pipeline``    stage and parity of a ring; its pair of barriers (TVM)
``MBarrier``                       barrier that threads arrive at; ``remote_view`` is the one of
                                   another CTA of the cluster (TVM)
``TMABar``, ``TCGen05Bar``         the same for bytes that TMA brings, and for commits of GEMMs on
                                   Blackwell (TVM)
=================================  ================================================================
"""

from tvm.backend.cuda.lang.pipeline import MBarrier, Pipeline, PipelineState, TCGen05Bar, TMABar
from tvm.backend.cuda.lang.tile_scheduler import (
    ClusterLaunchControlScheduler,
    ClusterPersistentScheduler2D,
)

from warploom.schedulers.counter import TileCounterScheduler
from warploom.schedulers.grouped import GroupedScheduler
from warploom.schedulers.stream_k import StreamKScheduler

__all__ = [
    "ClusterLaunchControlScheduler",
    "ClusterPersistentScheduler2D",
    "GroupedScheduler",
    "MBarrier",
    "Pipeline",
    "PipelineState",
    "StreamKScheduler",
    "TCGen05Bar",
    "TMABar",
    "TileCounterScheduler",
]

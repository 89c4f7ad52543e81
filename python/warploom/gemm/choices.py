"""The choices of one GEMM kernel as data: what each may be, and what a kernel with them needs.

Shared memory and registers follow from the choices and the problem. It is cheap enough to be asked
for thousands of candidates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from warploom.errors import IllegalCombination
from warploom.gemm.memory import ALIGN
from warploom.gemm.problem import GemmProblem, has_chunks, kind_of
from warploom.target import (
    PRODUCER_REGISTERS,
    SM90A,
    WGMMA_M,
    chunk_buffers,
    tile_chunks,
)
from warploom.target.arch import Arch
from warploom.target.dtypes import bits_of
from warploom.target.swizzle import ATOM_ROWS
from warploom.tile.hints import PING_PONG_WARPGROUPS

#: Stores by TMA go through so many columns of each computing warpgroup: what swizzled rows of 128,
#: 64 and 32 bytes hold of 16-bit results.
STORE_COLUMNS = (64, 32, 16)
#: SMs that compute: all of an H200, or as many as divide tiles of powers of two evenly.
SMS = (132, 128)
#: Buffers that each computing warpgroup has for the widest of these chunks.
STORE_BUFFERS = (2, 1, 4)
#: What the L2 cache is told of A and B, by the knob ``l2_policy``: nothing, to drop B first, and to
#: drop A last as well.
POLICIES = ((None, None), (None, "evict_first"), ("evict_last", "evict_first"))
L2_POLICIES = tuple(range(len(POLICIES)))
#: CTAs that can exchange sums in a cluster.
CLUSTER_SPLITS = (2, 4, 8)
#: Bytes of the elements of results that are stored by TMA, as stage_stores does.
_STAGED_BYTES = (2, 4)
#: Bytes of an element of an accumulator.
_SUM_BYTES = 4
#: Knobs that are true or false.
SWITCHES = ("swap_ab", "in_cluster", "stream_k", "specialise", "persistent", "ping_pong",
             "prefetch_l2")  # fmt: skip
#: Knobs that may be 0, beside these.
_FROM_ZERO = (*SWITCHES, "l2_policy")
#: Bytes kept for mbarriers and alignment.
_BARRIER_BYTES = 1024


@dataclass(frozen=True)
class KernelChoices:
    """Choices of one kernel; the defaults suit large 16-bit products.

    Attributes
    ----------
    tile_m, tile_n, tile_k : int
        Rows and columns of the result that a CTA computes at a time, and the depth of a stage.
    stages : int
        Steps of K that are loaded ahead.
    consumers : int
        Warpgroups that multiply, each with an equal share of the accumulator's rows.
    swap_ab : bool
        Compute the transpose, so that columns are the side that is a multiple of 64: for few rows.
    cluster_m, cluster_n : int
        CTAs of a cluster along rows, which share tiles of B, and along columns, which share A.
    group : int
        Rows of clusters that are visited together, so that their operands stay in the L2 cache.
    split_k : int
        Parts of the sum that different CTAs compute.
    ctas_per_sm : int
        CTAs that share an SM.
    turns : int
        Warpgroups that take turns with the steps, each computing all rows of a tile; for tiles of
        few rows.
    in_cluster : bool
        Whether the CTAs that compute parts of a sum are a cluster, and exchange them through its
        shared memory, and not through the workspace.
    stream_k : bool
        Whether CTAs share the tiles that would not keep all of them busy.
    specialise : bool
        Whether warps of their own load, and not those that multiply.
    persistent : bool
        Whether a CTA computes tile after tile, and not one only.
    store_columns : int
        Columns, at most, of the chunks in which a tile leaves, one of :data:`STORE_COLUMNS`.
    store_buffers : int
        Chunks that a warpgroup has buffers for, one of :data:`STORE_BUFFERS`.
    sms : int
        SMs that compute, one of :data:`SMS`: where fewer take as many turns, power and the L2 cache
        are left to these.
    ping_pong : bool
        Whether two warpgroups compute alternate tiles, each all rows of its own.
    l2_policy : int
        How much longer the L2 cache keeps what is loaded of A, which tiles of a group share, than
        of B: one of :data:`L2_POLICIES`.
    prefetch_l2 : bool
        Whether what the first steps load is brought into the L2 cache while the kernel before still
        runs.
    """

    tile_m: int = 128
    tile_n: int = 256
    tile_k: int = 64
    stages: int = 4
    consumers: int = 2
    swap_ab: bool = False
    cluster_m: int = 1
    cluster_n: int = 1
    group: int = 8
    split_k: int = 1
    ctas_per_sm: int = 1
    turns: int = 1
    in_cluster: bool = False
    stream_k: bool = False
    specialise: bool = True
    persistent: bool = True
    store_columns: int = 64
    store_buffers: int = 2
    sms: int = 132
    ping_pong: bool = False
    l2_policy: int = 0
    prefetch_l2: bool = False

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if int(value) < (name not in _FROM_ZERO):
                raise IllegalCombination(f"{name} = {value}: it must be at least 1.")

    @property
    def accumulator(self) -> tuple[int, int]:
        """Rows, a multiple of 64, and columns of the accumulator."""
        return (self.tile_n, self.tile_m) if self.swap_ab else (self.tile_m, self.tile_n)

    @property
    def warpgroups(self) -> int:
        """Warpgroups that compute, of which each stores tiles, or its rows of them."""
        return PING_PONG_WARPGROUPS if self.ping_pong else self.consumers

    def multicast(self, problem: GemmProblem) -> tuple[int, int]:
        """CTAs that load a tile of A together, and of B: of a cluster, if parts are whole atoms.

        Parts are of the rows of the tile in memory, which are steps of K where those of A are
        columns.
        """
        a_rows = self.tile_m if problem.layout[0] == "N" else self.tile_k
        b_rows = self.tile_n if problem.layout[1] == "T" else self.tile_k
        a, b = self.cluster_n, self.cluster_m
        return 1 if a_rows % (a * ATOM_ROWS) else a, 1 if b_rows % (b * ATOM_ROWS) else b

    def shared_bytes(self, problem: GemmProblem) -> int:
        """Shared memory of a CTA: operands, what stores go through, sums of turns, barriers."""
        stores = {
            bits_of(dtype) // 8: self._store_bytes(problem, dtype) for dtype in problem.outputs
        }
        ring = self.stages * self.stage_bytes(problem)
        places = self.turns - 1 + self.in_cluster
        sums = places * self.tile_m * self.tile_n * problem.products * _SUM_BYTES
        return ring + sum(stores.values()) + sums + _BARRIER_BYTES

    def stage_bytes(self, problem: GemmProblem) -> int:
        """Bytes of operands that one step loads."""
        rows = zip((problem.a_bits, problem.b_bits), problem.computed, strict=True)
        a_row, b_row = (self._row_bytes(*row) for row in rows)
        return math.ceil(self.tile_m * a_row + self.tile_n * problem.products * b_row)

    def _row_bytes(self, bits: float, computed: bool) -> float:
        """Bytes that a step loads of a row; scales of a row may be less than TMA loads."""
        size = self.tile_k * bits / 8
        return math.ceil(size / ALIGN) * ALIGN if computed else size

    def stores_in_chunks(self, problem: GemmProblem, dtype: str) -> bool:
        """Whether results of a dtype leave by TMA in chunks.

        Of those that are computed as the transpose, the others go through a whole tile: bytes, of
        which a thread has too few neighbours; rows of other than whole 16 bytes, which TMA cannot
        store; and pixels of several taps, which chunks of 8 rows may be no box of.
        """
        size = bits_of(dtype) // 8
        if not self.swap_ab:
            return size in _STAGED_BYTES
        return size in _STAGED_BYTES and has_chunks(problem, dtype) and problem.taps == 1

    def _store_bytes(self, problem: GemmProblem, dtype: str) -> int:
        size = bits_of(dtype) // 8
        if not self.stores_in_chunks(problem, dtype):
            return self.tile_m * self.tile_n * size if self.swap_ab else 0
        rows, columns = self.accumulator
        return self.warpgroups * _buffer_bytes(
            rows // self.consumers, columns, size, self.swap_ab, self.store_columns,
            self.store_buffers,
        )  # fmt: skip

    def tile_registers(self, problem: GemmProblem) -> int:
        """Registers of a computing thread that hold its part of accumulators and operands."""
        rows, columns = self.accumulator
        share = rows // self.consumers // WGMMA_M
        held = kind_of(problem).d_registers(columns) * share * problem.products
        if any(problem.computed):
            # The operands that are computed, in pairs, for one step.
            count = problem.products if problem.computed[1] else 1
            held += count * share * WGMMA_M * self.tile_k // SM90A.warpgroup // 2
        return held

    def most_stages(self, problem: GemmProblem, arch: Arch = SM90A) -> int:
        """Stages that fit into the shared memory of a CTA."""
        bytes_ = replace(self, stages=1).shared_bytes(problem)
        left = arch.shared_bytes_of_each(self.ctas_per_sm) - bytes_
        return left // self.stage_bytes(problem) + 1

    def registers(self, arch: Arch) -> int:
        """Registers of a computing thread, once the loading ones have given theirs away."""
        loading = PRODUCER_REGISTERS * arch.warpgroup if self.specialise else 0
        left = arch.registers_per_sm // self.ctas_per_sm - loading
        share = left // (arch.warpgroup * self.warpgroups * self.turns)
        return min(share // arch.setmaxnreg.step * arch.setmaxnreg.step, arch.registers_per_thread)


@lru_cache(maxsize=1024)
def _buffer_bytes(
    rows: int, columns: int, size: int, transposed: bool, most_columns: int, most_buffers: int
) -> int:
    """Bytes of a warpgroup's buffers, by which so many rows of an accumulator leave in chunks."""
    tile = (columns, rows) if transposed else (rows, columns)
    cut = tile_chunks(*tile, size, WGMMA_M, transposed, most_columns)
    if cut is None:
        return 0
    heights, widths = cut
    buffers = chunk_buffers(widths * len(heights), most_buffers)
    return max(heights) * sum(width * count for width, count in buffers.items()) * size

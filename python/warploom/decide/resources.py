"""What a kernel needs with certain choices: warpgroups, shared memory, registers.

Shared memory and registers follow from the choices and the problem. It is cheap enough to be asked
for thousands of candidates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, make_dataclass
from functools import lru_cache
from typing import Any, Self

from warploom.decide.pixels import are_boxes, box_of
from warploom.decide.problem import ALIGN, GemmProblem, has_chunks, kind_of
from warploom.errors import IllegalCombination
from warploom.target import (
    PRODUCER_REGISTERS,
    SM90A,
    TMA,
    WGMMA_M,
    chunk_buffers,
    tile_chunks,
)
from warploom.target.arch import Arch
from warploom.target.dtypes import bits_of
from warploom.target.swizzle import ATOM_ROWS, transposed_chunks
from warploom.tile.choices import BY_NAME, PING_PONG_WARPGROUPS, ROWS

#: Bytes of the elements of results that are stored by TMA, as stage_stores does.
_STAGED_BYTES = (2, 4)
#: Bytes of an element of an accumulator.
_SUM_BYTES = 4
#: Bytes kept for mbarriers and alignment.
_BARRIER_BYTES = 1024



@dataclass(frozen=True)
class KernelChoices(
    make_dataclass("_Choices", [(row.name, Any, row.default) for row in ROWS], frozen=True)
):
    """The choices of one kernel, and what a kernel with them needs.

    The fields are the rows of :data:`warploom.tile.choices.ROWS`.

    Raises
    ------
    IllegalCombination
        If a choice cannot have its value, whatever the others are.
    """

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if (reason := _fault(name, value)) is not None:
                raise IllegalCombination(f"{name} = {value!r}: {reason}.")

    def replace(self, **changes: Any) -> Self:
        """A copy with other values, as of :func:`dataclasses.replace`, in a tenth of the time.

        Raises
        ------
        IllegalCombination
            If a choice cannot have its value.
        """
        unknown = changes.keys() - vars(self).keys()
        if unknown:
            raise TypeError(f"{', '.join(sorted(unknown))}: no such choice")
        for name, value in changes.items():
            if (reason := _fault(name, value)) is not None:
                raise IllegalCombination(f"{name} = {value!r}: {reason}.")
        copy = object.__new__(type(self))
        vars(copy).update(vars(self), **changes)
        return copy

    @property
    def accumulator(self) -> tuple[int, int]:
        """Rows, a multiple of 64, and columns of the accumulator."""
        return (self.tile_n, self.tile_m) if self.swap_ab else (self.tile_m, self.tile_n)

    @property
    def through_cluster(self) -> bool:
        """Whether the CTAs of a tile add their parts of the sum in a cluster."""
        return self.reduce_through == "cluster"

    @property
    def cluster_size(self) -> int:
        """CTAs of a cluster, whether they share loads or a sum."""
        return self.cluster_m * self.cluster_n * (self.split_k if self.through_cluster else 1)

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

    def box(self, problem: GemmProblem) -> tuple[int, ...] | None:
        """Extents of a tile along the axes of its pixels; None if no box has as many."""
        parts = 1 if self.swap_ab else self.consumers
        return box_of(problem.pixels, self.tile_m, parts, self.cluster_n)

    def shared_bytes(self, problem: GemmProblem) -> int:
        """Shared memory of a CTA: operands, what stores go through, sums of slice-K, barriers."""
        stores = {
            bits_of(dtype) // 8: self._store_bytes(problem, dtype) for dtype in problem.outputs
        }
        ring = self.stages * self.stage_bytes(problem)
        places = self.slice_k - 1 + self.through_cluster
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
        store; and pixels of which chunks are no boxes.
        """
        size = bits_of(dtype) // 8
        if not self.swap_ab or size not in _STAGED_BYTES:
            return size in _STAGED_BYTES
        box = self.box(problem) if problem.pixels else None
        return has_chunks(problem, dtype) and (box is None or _has_boxes(box, self.tile_m, size))

    def _store_bytes(self, problem: GemmProblem, dtype: str) -> int:
        size = bits_of(dtype) // 8
        if not self.stores_in_chunks(problem, dtype):
            return self.tile_m * self.tile_n * size if self.swap_ab else 0
        rows, columns = self.accumulator
        return self.warpgroups * _buffer_bytes(
            rows // self.consumers, columns, size, self.swap_ab, self.store_columns,
            self.store_buffers,
        )  # fmt: skip

    def is_side_by_side(self, problem: GemmProblem) -> bool:
        """Whether one MMA computes all products: see :mod:`warploom.gemm.generate`."""
        if problem.products == 1 or self.swap_ab or self.tile_n % ATOM_ROWS:
            return False
        fits = problem.products * self.tile_n <= TMA.box_extent
        return fits and problem.layout[1] == "T" and not problem.computed[1]

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

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return (self.warpgroups * self.slice_k + self.specialise) * SM90A.warpgroup

    def mma_registers(self, problem: GemmProblem) -> int:
        """Registers that ptxas must have for one MMA: its results, and what names its operands."""
        return kind_of(problem).launch_registers(self.mma_columns(problem))

    def mma_columns(self, problem: GemmProblem) -> int:
        """Columns of an MMA: of all products, where they share an accumulator."""
        products = problem.products if self.is_side_by_side(problem) else 1
        return self.accumulator[1] * products

    def launch_registers(self, arch: Arch) -> int:
        """Registers of a thread at the launch, which is what ptxas compiles every MMA for.

        ``setmaxnreg`` moves registers between warpgroups later; that does not help ptxas.
        """
        return _in_steps(arch.registers_per_sm // (self.threads * self.ctas_per_sm), arch)

    def most_stages(self, problem: GemmProblem, arch: Arch = SM90A) -> int:
        """Stages that fit into the shared memory of a CTA."""
        stage = self.stage_bytes(problem)
        bytes_ = self.shared_bytes(problem) - (self.stages - 1) * stage
        return (arch.shared_bytes_of_each(self.ctas_per_sm) - bytes_) // stage + 1

    def registers(self, arch: Arch) -> int:
        """Registers of a computing thread, once the loading ones have given theirs away."""
        loading = PRODUCER_REGISTERS * arch.warpgroup if self.specialise else 0
        left = arch.registers_per_sm // self.ctas_per_sm - loading
        share = left // (arch.warpgroup * self.warpgroups * self.slice_k)
        return _in_steps(share, arch)


@lru_cache(maxsize=4096, typed=True)
def _fault(name: str, value: Any) -> str | None:
    """What is wrong with a value; a search asks it of the same few values again and again."""
    return BY_NAME[name].kind.why_not(value)


@lru_cache(maxsize=1024)
def _has_boxes(box: tuple[int, ...], rows: int, size: int) -> bool:
    """Whether chunks of a transposed tile, the pixels of a box, are boxes."""
    return all(are_boxes(box, height) for height in transposed_chunks(rows, WGMMA_M, size))


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


def _in_steps(registers: int, arch: Arch) -> int:
    """Registers that a thread can have, of so many."""
    return min(registers // arch.setmaxnreg.step * arch.setmaxnreg.step, arch.registers_per_thread)

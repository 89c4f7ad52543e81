"""Columns of tensor memory: how many a kernel takes and where each buffer starts.

The layouts themselves are TVM's: ``tmem_mma_operand_layout`` and ``tmem_datapath_layout`` for what
``tcgen05.mma`` reads and writes, ``tcgen05_atom_layout`` for the registers of ``tcgen05.ld`` and
``st``. TVM leaves open the budget of the 512 columns that the blocks of a multiprocessor
share (PTX ISA, "Tensor Memory Allocation").
"""

from __future__ import annotations

from dataclasses import dataclass

from warploom.errors import IllegalCombination
from warploom.target.arch import SM100A
from warploom.target.dtypes import bits_of, with_dtype_names

_MEMORY = SM100A.tensor_memory
#: Bits of one cell: one lane of one column.
_CELL_BITS = 32


@dataclass(frozen=True)
class ColumnRange:
    """Consecutive columns of an allocation, all 128 lanes of them."""

    name: str
    start: int
    columns: int

    def __post_init__(self) -> None:
        if self.columns < 1:
            raise IllegalCombination(
                f"Tensor memory: {self.name} takes {self.columns} columns, it must take at least 1."
            )

    @property
    def stop(self) -> int:
        """First column behind the range."""
        return self.start + self.columns


@dataclass(frozen=True)
class TensorMemoryPlan:
    """Buffers side by side in one allocation of a block.

    Attributes
    ----------
    buffers : tuple of ColumnRange
        In the order of their columns, without gaps.
    blocks_per_sm : int
        Blocks that shall be resident on a multiprocessor at a time; each makes such an
        allocation, and ``tcgen05.alloc`` blocks until there is room.

    Raises
    ------
    IllegalCombination
        If the blocks together need more columns than there are.
    """

    buffers: tuple[ColumnRange, ...]
    blocks_per_sm: int = 1

    def __post_init__(self) -> None:
        starts = [0, *(buffer.stop for buffer in self.buffers)]
        assert [buffer.start for buffer in self.buffers] == starts[:-1], "side by side"
        if self.blocks_per_sm < 1:
            raise IllegalCombination(
                f"Tensor memory: blocks_per_sm is {self.blocks_per_sm}, it must be at least 1."
            )
        if self.allocation * self.blocks_per_sm > _MEMORY.columns:
            needs = " + ".join(f"{b.name} {b.columns}" for b in self.buffers)
            raise IllegalCombination(
                f"Tensor memory: {needs} columns need an allocation of {self.allocation} in each "
                f"of {self.blocks_per_sm} blocks, a multiprocessor has {_MEMORY.columns}."
            )

    @property
    def columns(self) -> int:
        """Columns that the buffers use."""
        return sum(buffer.columns for buffer in self.buffers)

    @property
    def allocation(self) -> int:
        """Columns to request from ``tcgen05.alloc``: a power of two, at least 32."""
        return max(_MEMORY.allocation, 1 << (self.columns - 1).bit_length())

    def __getitem__(self, name: str) -> ColumnRange:
        return next(buffer for buffer in self.buffers if buffer.name == name)


@with_dtype_names
def columns_of(dtype: str, elements: int) -> int:
    """Columns that ``elements`` elements of one lane take, packed into 32-bit cells.

    Parameters
    ----------
    dtype : str
        Element type of 4 to 32 bits.
    elements : int
        Elements along the contiguous dimension.

    Raises
    ------
    IllegalCombination
        If they do not fill whole cells, or the type is wider than a cell.
    """
    bits = bits_of(dtype)
    if bits > _CELL_BITS or elements < 1 or elements * bits % _CELL_BITS:
        raise IllegalCombination(
            f"Tensor memory: {elements} elements of {dtype} are no whole number of "
            f"{_CELL_BITS}-bit cells; allowed are multiples of {max(1, _CELL_BITS // bits)} "
            f"elements of at most {_CELL_BITS} bits."
        )
    return elements * bits // _CELL_BITS


def plan_columns(blocks_per_sm: int = 1, **columns: int) -> TensorMemoryPlan:
    """Put buffers side by side.

    Parameters
    ----------
    blocks_per_sm : int
        As in :class:`TensorMemoryPlan`.
    **columns : int
        Name of each buffer with its number of columns.

    Raises
    ------
    IllegalCombination
        If there is no buffer, one is empty, or they do not fit.

    Examples
    --------
    >>> plan = plan_columns(accumulators=2 * columns_of("float32", 128), scales=8)
    >>> plan["scales"].start, plan.columns, plan.allocation
    (256, 264, 512)
    """
    if not columns:
        raise IllegalCombination("Tensor memory: a plan needs at least one buffer, got none.")
    buffers: list[ColumnRange] = []
    for name, count in columns.items():
        start = buffers[-1].stop if buffers else 0
        buffers.append(ColumnRange(name, start, count))
    return TensorMemoryPlan(tuple(buffers), blocks_per_sm)

"""Tensor maps that the tensor memory accelerator can describe.

Sources: CUDA Driver API, ``cuTensorMapEncodeTiled``; PTX ISA, "Tensor-maps" and "Swizzling modes".
Dimensions are in TVM's order, the contiguous one last; the tensor map itself counts from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from warploom.errors import IllegalCombination
from warploom.target.dtypes import bits_of, with_dtype_names
from warploom.target.spelling import read_swizzle
from warploom.target.swizzle import Swizzle


@dataclass(frozen=True)
class TmaLimits:
    """The numbers of ``cuTensorMapEncodeTiled`` (interleave none)."""

    rank: int = 5
    box_extent: int = 256
    element_stride: int = 8
    extent: int = 1 << 32
    stride_bytes: int = 1 << 40
    chunk_bytes: int = 16
    shared_align: int = 128
    transaction_bytes: int = (1 << 20) - 1

    def __post_init__(self) -> None:
        assert self.shared_align % self.chunk_bytes == 0
        assert self.shared_align == Swizzle.B128.row_bytes


#: The limits of TMA, the same on both architectures.
TMA = TmaLimits()


@with_dtype_names
def tensor_error(
    dtype: str, shape: Sequence[int], strides: Sequence[int] | None = None, address: int = 0
) -> str | None:
    """Why no tensor map can describe a tensor in global memory, or None if one can.

    Parameters
    ----------
    dtype : str
        TVM dtype of an element.
    shape : sequence of int
        Extents in elements, the contiguous dimension last.
    strides : sequence of int, optional
        Distances in elements; by default those of a compact row-major tensor.
    address : int
        Address of the first element in bytes, as far as it is known.

    Examples
    --------
    >>> tensor_error("float16", (4096, 4096)) is None
    True
    >>> tensor_error("float16", (4096, 4095)) is None  # rows are no multiple of 16 bytes
    False
    """
    bits, rank = bits_of(dtype), len(shape)
    if not 1 <= rank <= TMA.rank:
        return f"TMA: the tensor has {rank} dimensions, allowed are 1 to {TMA.rank}."
    if strides is None:
        strides = [prod(shape[d + 1 :]) for d in range(rank)]
    if len(strides) != rank:
        return f"TMA: {len(strides)} strides for {rank} dimensions, there must be one for each."
    if strides[-1] != 1:
        return f"TMA: the last dimension must be contiguous, but its stride is {strides[-1]}."
    if address % TMA.chunk_bytes:
        return f"TMA: the tensor's address {address:#x} is no multiple of {TMA.chunk_bytes} bytes."
    for d, extent in enumerate(shape):
        if not 1 <= extent <= TMA.extent:
            return f"TMA: extent {extent} of dimension {d} is not within 1 to {TMA.extent}."
    for d, stride in enumerate(strides[:-1]):
        size = stride * bits
        if size % (8 * TMA.chunk_bytes) or not 0 < size < 8 * TMA.stride_bytes:
            return (
                f"TMA: stride {stride} of dimension {d} is {size / 8:g} bytes of {dtype}; it must "
                f"be a positive multiple of {TMA.chunk_bytes} bytes below {TMA.stride_bytes}."
            )
    return None


@with_dtype_names
def box_error(
    dtype: str,
    box: Sequence[int],
    swizzle: Swizzle | str | int = Swizzle.NONE,
    element_strides: Sequence[int] | None = None,
) -> str | None:
    """Why one TMA operation cannot move a box, or None if it can.

    Parameters
    ----------
    dtype : str
        TVM dtype of an element.
    box : sequence of int
        Extents in elements, the contiguous dimension last.
    swizzle : Swizzle
        How the box's 16-byte chunks are permuted in shared memory, in any spelling of
        :mod:`warploom.target.spelling`.
    element_strides : sequence of int, optional
        Traversal stride of each dimension; by default every element is taken.

    Examples
    --------
    >>> box_error("float16", (128, 64), "128B") is None
    True
    >>> box_error("float16", (128, 512)) is None
    False
    """
    swizzle = read_swizzle("swizzle", swizzle)
    rank, inner_bits = len(box), box[-1] * bits_of(dtype) if box else 0
    if not 1 <= rank <= TMA.rank:
        return f"TMA: the box has {rank} dimensions, allowed are 1 to {TMA.rank}."
    for d, extent in enumerate(box):
        if not 1 <= extent <= TMA.box_extent:
            return f"TMA: box extent {extent} of dimension {d} is not within 1 to {TMA.box_extent}."
    if inner_bits % (8 * TMA.chunk_bytes):
        return (
            f"TMA: a box row of {box[-1]} {dtype} is {inner_bits / 8:g} bytes, it must be a "
            f"multiple of {TMA.chunk_bytes}."
        )
    if swizzle is not Swizzle.NONE and inner_bits > 8 * swizzle.row_bytes:
        return (
            f"TMA: a box row of {box[-1]} {dtype} is {inner_bits // 8} bytes, swizzle "
            f"{swizzle.name} permutes rows of at most {swizzle.row_bytes}; split the row or widen "
            "the swizzle."
        )
    if element_strides is not None:
        if len(element_strides) != rank:
            return f"TMA: {len(element_strides)} element strides for a box of {rank} dimensions."
        for d, stride in enumerate(element_strides):
            if not 1 <= stride <= TMA.element_stride:
                return (
                    f"TMA: element stride {stride} of dimension {d} is not within 1 to "
                    f"{TMA.element_stride}."
                )
    return None


@with_dtype_names
def box_bytes(dtype: str, box: Sequence[int]) -> int:
    """Bytes that a full box adds to the tx-count of its mbarrier, whether in bounds or not.

    Raises
    ------
    IllegalCombination
        If the box is illegal without a swizzle, or larger than a tx-count.

    Examples
    --------
    >>> box_bytes("float16", (128, 64))
    16384
    """
    error = box_error(dtype, box)
    if error is not None:
        raise IllegalCombination(error)
    size = prod(box) * bits_of(dtype) // 8
    if size > TMA.transaction_bytes:
        raise IllegalCombination(
            f"TMA: a box of {size} bytes exceeds the tx-count of an mbarrier, at most "
            f"{TMA.transaction_bytes}; split the box."
        )
    return size


def shared_align(swizzle: Swizzle | str | int) -> int:
    """Bytes to which a box's address in shared memory is aligned.

    The hardware wants 128. A swizzle XORs bits of the absolute address, so a box starts on a whole
    swizzle atom wherever software computes offsets within it.

    Examples
    --------
    >>> shared_align("128B")
    1024
    """
    return max(TMA.shared_align, read_swizzle("swizzle", swizzle).atom_bytes)

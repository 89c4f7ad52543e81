"""Operands of the tensor core in shared memory: layout, matrix descriptor, legal offsets.

A buffer whose layout is TVM's ``mma_shared_layout(dtype, swizzle, shape)`` is a grid of swizzle
atoms, eight rows of ``swizzle.row_bytes`` each, stacked down the rows first. The tensor core walks
such a grid from a descriptor that holds a start address and two distances. This module derives
both distances, once for wgmma and tcgen05, which differ only in the bits around them.

Sources: PTX ISA, "Shared Memory Matrix Layout", "Strides" and "Matrix Descriptor Format" of
wgmma; "Shared memory descriptor" of tcgen05.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm.tirx.layout import Layout

from warploom.errors import IllegalCombination
from warploom.target.dtypes import name_dtypes
from warploom.target.spelling import read_swizzle
from warploom.target.swizzle import ATOM_ROWS, Major, Swizzle
from warploom.target.wgmma_descriptor import CHUNK_BYTES, FIELD_BITS, WgmmaDescriptor

#: Bytes of K that one wgmma or dense tcgen05.mma consumes.
STEP_BYTES = 32


@dataclass(frozen=True)
class SharedMatrix:
    """A shared-memory operand of the tensor core.

    Attributes
    ----------
    dtype : str
        Element type, 8, 16 or 32 bits wide; float32 stands for tf32.
    major : Major
        ``K``: the buffer's last two dimensions are ``[mn, k]``; ``MN``: ``[k, mn]``.
    swizzle : Swizzle
        Permutation of the buffer's 16-byte chunks; any spelling of
        :mod:`warploom.target.spelling`, such as ``"128B"``, becomes a member.
    mn, k : int
        Extents of the buffer's last two dimensions, in elements. Leading dimensions (pipeline
        stages) are contiguous copies and change nothing here.

    Raises
    ------
    IllegalCombination
        If the extents do not consist of whole swizzle atoms, or the dtype has no such operand.
    """

    dtype: str
    major: Major
    swizzle: Swizzle
    mn: int
    k: int

    def __post_init__(self) -> None:
        name_dtypes(self, "dtype")
        object.__setattr__(self, "swizzle", read_swizzle("swizzle", self.swizzle))
        bits = tvm.DataType(self.dtype).bits
        if bits not in (8, 16, 32):
            raise IllegalCombination(
                f"A shared-memory operand has elements of 8, 16 or 32 bits, got {self.dtype}."
            )
        if bits == 32 and self.major is Major.MN:
            raise IllegalCombination(
                f"An MN-major operand of {self.dtype} does not exist at swizzle "
                f"{self.swizzle.name}; store it K-major."
            )
        rows, columns = self.shape
        if rows <= 0 or rows % ATOM_ROWS or columns <= 0 or columns % self.atom_columns:
            raise IllegalCombination(
                f"A {self.dtype} operand with swizzle {self.swizzle.name} consists of atoms of "
                f"{ATOM_ROWS} x {self.atom_columns} elements, which do not divide its "
                f"{rows} x {columns}."
            )
        for name, distance in (("leading", self.leading_bytes), ("stride", self.stride_bytes)):
            if distance // CHUNK_BYTES >> FIELD_BITS:
                raise IllegalCombination(
                    f"The {name} byte offset of a {rows} x {columns} {self.dtype} operand is "
                    f"{distance}, a matrix descriptor holds less than "
                    f"{CHUNK_BYTES << FIELD_BITS}."
                )

    @classmethod
    def widest(cls, dtype: str, major: Major, mn: int, k: int) -> SharedMatrix:
        """The operand with the widest swizzle whose atoms divide its contiguous dimension.

        Wide atoms have the fewest bank conflicts.

        Raises
        ------
        IllegalCombination
            If not even atoms without a swizzle divide it.
        """
        for swizzle in (Swizzle.B128, Swizzle.B64, Swizzle.B32):
            try:
                return cls(dtype, major, swizzle, mn, k)
            except IllegalCombination:
                continue
        return cls(dtype, major, Swizzle.NONE, mn, k)

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return tvm.DataType(self.dtype).bits // 8

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the buffer."""
        return (self.mn, self.k) if self.major is Major.K else (self.k, self.mn)

    @property
    def atom_columns(self) -> int:
        """Elements of the contiguous dimension in one swizzle atom."""
        return self.swizzle.row_bytes // self.element_bytes

    @property
    def _atom_column_bytes(self) -> int:
        """Distance from an atom to its neighbour in the contiguous dimension."""
        return self.shape[0] * self.swizzle.row_bytes

    @property
    def leading_bytes(self) -> int:
        """The descriptor's leading dimension byte offset (LBO), in bytes.

        K-major: the next 16 bytes of K, not read by the hardware when it swizzles, since one step
        of K lies within an atom. MN-major: the next atom along MN if swizzled, else the next
        eight elements of K.
        """
        if self.swizzle is Swizzle.NONE:
            return self._atom_column_bytes if self.major is Major.K else self.swizzle.atom_bytes
        return CHUNK_BYTES if self.major is Major.K else self._atom_column_bytes

    @property
    def stride_bytes(self) -> int:
        """The descriptor's stride dimension byte offset (SBO), in bytes.

        K-major: the next eight elements of MN. MN-major: the next eight of K if swizzled, else
        the next 16 bytes of MN.
        """
        if self.swizzle is Swizzle.NONE and self.major is Major.MN:
            return self._atom_column_bytes
        return self.swizzle.atom_bytes

    @property
    def _distances(self) -> int:
        """Bits 16-29 and 32-45, which both descriptor formats share."""
        leading, stride = self.leading_bytes // CHUNK_BYTES, self.stride_bytes // CHUNK_BYTES
        return stride << 32 | leading << 16

    @property
    def wgmma(self) -> WgmmaDescriptor:
        """The fields of wgmma's descriptor of this operand."""
        return WgmmaDescriptor(
            self.major, self.swizzle, self.leading_bytes, self.stride_bytes, self.element_bytes
        )

    @property
    def descriptor(self) -> int:
        """The 64-bit wgmma descriptor of address 0; add ``address >> 4`` in bits 0-13."""
        return self.wgmma.encoded

    @property
    def tcgen05_descriptor(self) -> int:
        """The 64-bit tcgen05 descriptor of address 0: other swizzle codes, and bit 46 set."""
        return self.swizzle.tcgen05_code << 61 | 1 << 46 | self._distances

    @property
    def mn_align(self) -> int:
        """Elements of MN at whose multiples an instruction may start."""
        return ATOM_ROWS if self.major is Major.K else self.atom_columns

    @property
    def k_align(self) -> int:
        """Elements of K at whose multiples an instruction may start.

        Within a swizzle atom, a step of K may start at any multiple of its own 32 bytes: the
        permutation acts on address bits, which the start address carries.
        """
        if self.major is Major.MN:
            return ATOM_ROWS
        step = CHUNK_BYTES if self.swizzle is Swizzle.NONE else STEP_BYTES
        return step // self.element_bytes

    def byte_offset(self, mn: Any, k: Any) -> Any:
        """Bytes from the buffer's start to the element ``(mn, k)``, a multiple of 16.

        Parameters
        ----------
        mn, k : int or tvm Expr
            Multiples of :attr:`mn_align` and :attr:`k_align` (not checked: they may be symbolic).
            There the swizzle permutes nothing that the hardware would not permute itself.
        """
        row, column = (mn, k) if self.major is Major.K else (k, mn)
        atom, within = column // self.atom_columns, column % self.atom_columns
        return (
            atom * self._atom_column_bytes
            + row * self.swizzle.row_bytes
            + within * self.element_bytes
        )

    def layout(self, lead: Sequence[int] = ()) -> Layout:
        """TVM's layout of a buffer of shape ``(*lead, *self.shape)``."""
        return _mma_layout(self.dtype, self.swizzle, (*lead, *self.shape))

    @classmethod
    def from_buffer(cls, buffer: tvm.tirx.Buffer, major: Major) -> SharedMatrix:
        """Recognise the operand that a buffer holds.

        Parameters
        ----------
        buffer : tvm.tirx.Buffer
            A shared buffer of constant shape; its last two dimensions are the matrix.
        major : Major
            Which of the two is contiguous in memory.

        Raises
        ------
        IllegalCombination
            If the shape is symbolic or the layout is none that the tensor core can read.
        """
        extents = list(buffer.shape)
        if len(extents) < 2 or any(not isinstance(e, tvm.tirx.IntImm) for e in extents):
            raise IllegalCombination(
                f"{buffer.name} has shape ({', '.join(map(str, extents))}); an operand needs at "
                "least two dimensions, all of them constant."
            )
        *lead, rows, columns = (int(e) for e in extents)
        mn, k = (rows, columns) if major is Major.K else (columns, rows)
        dtype, reasons = str(buffer.dtype), []
        actual = buffer.layout.canonicalize() if buffer.layout is not None else None
        for swizzle in reversed(Swizzle):
            try:
                matrix = cls(dtype, major, swizzle, mn, k)
            except IllegalCombination as error:
                reasons.append(str(error))
                continue
            if actual is not None and tvm_ffi.structural_equal(
                actual, matrix.layout(lead).canonicalize()
            ):
                return matrix
        if len(reasons) == len(Swizzle):
            raise IllegalCombination(reasons[-1])
        raise IllegalCombination(
            f"{buffer.name} has layout {buffer.layout}, which the tensor core cannot read; "
            f"allocate it with mma_shared_layout({dtype!r}, mode, {[*lead, rows, columns]}), "
            "mode 0 to 3 for swizzles of none, 32, 64 or 128 bytes."
        )


def _mma_layout(dtype: str, swizzle: Swizzle, shape: Sequence[int]) -> Layout:
    # Imported late: the module pulls in all of TVM's CUDA op schedules.
    from tvm.backend.cuda.tile_primitive.tma_utils import mma_shared_layout

    return mma_shared_layout(dtype, swizzle.bits, list(shape))

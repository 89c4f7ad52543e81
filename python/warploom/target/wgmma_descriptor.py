"""The matrix descriptor of wgmma as data (PTX ISA, "Matrix Descriptor Format").

A descriptor is a 64-bit number: where an operand starts, two distances, and how its bytes are
swizzled. Everything but the start is known when a kernel is written.
"""

from __future__ import annotations

from dataclasses import dataclass

from warploom.errors import IllegalCombination
from warploom.target.spelling import read_swizzle
from warploom.target.swizzle import Major, Swizzle
from warploom.target.wgmma import WGMMA_K_BYTES

#: Unit of every address and distance in a descriptor.
CHUNK_BYTES = 16
#: Bits of an address or a distance, in units of ``CHUNK_BYTES``.
FIELD_BITS = 14
#: Bits of a shared address that a descriptor holds. Those above them are not zero: in a cluster
#: they name the block, and would spill into the distances.
ADDRESS_MASK = CHUNK_BYTES * (1 << FIELD_BITS) - 1


@dataclass(frozen=True)
class WgmmaDescriptor:
    """The fields of an operand's descriptor beside its address.

    Attributes
    ----------
    major : Major
        Which dimension is contiguous in shared memory. The instruction says it, not the
        descriptor, but the distances depend on it.
    swizzle : Swizzle
        Permutation of 16-byte chunks, in any spelling of :mod:`warploom.target.spelling`.
    leading_bytes, stride_bytes : int
        Leading and stride dimension byte offsets (LBO and SBO).
    element_bytes : int
        Bytes of one element.

    Raises
    ------
    IllegalCombination
        If a distance is no multiple of 16 bytes or does not fit into its 14 bits, or elements have
        another size. Which operands may be MN-major is a rule of the instruction
        (``WgmmaKind.majors``).
    """

    major: Major
    swizzle: Swizzle
    leading_bytes: int
    stride_bytes: int
    element_bytes: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "swizzle", read_swizzle("swizzle", self.swizzle))
        if self.element_bytes not in (1, 2, 4):
            raise IllegalCombination(
                f"An operand has elements of 1, 2 or 4 bytes, got {self.element_bytes}."
            )
        for name, distance in (("leading", self.leading_bytes), ("stride", self.stride_bytes)):
            if distance % CHUNK_BYTES or not 0 <= distance <= ADDRESS_MASK:
                raise IllegalCombination(
                    f"The {name} byte offset of a matrix descriptor is {distance}; allowed are "
                    f"multiples of {CHUNK_BYTES} from 0 to {ADDRESS_MASK + 1 - CHUNK_BYTES}."
                )

    @property
    def encoded(self) -> int:
        """The descriptor of address 0; add ``address >> 4``."""
        leading, stride = self.leading_bytes // CHUNK_BYTES, self.stride_bytes // CHUNK_BYTES
        return self.swizzle.wgmma_code << 62 | stride << 32 | leading << 16

    @property
    def atom_elements(self) -> int:
        """Elements of the contiguous dimension in one swizzle atom."""
        return self.swizzle.row_bytes // self.element_bytes

    @property
    def steps_per_atom(self) -> int:
        """K steps of an instruction in one swizzle atom of a K-major operand; at least 1."""
        return max(self.swizzle.row_bytes // WGMMA_K_BYTES, 1)

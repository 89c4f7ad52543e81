"""Tensor maps as data: arguments of ``cuTensorMapEncodeTiled``, checked before a GPU sees them.

Sources: CUDA Driver API, ``cuTensorMapEncodeTiled``; PTX ISA, "Tensor-maps", "Interleave layout".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from warploom.errors import IllegalCombination
from warploom.target.dtypes import bits_of, name_dtypes
from warploom.target.spelling import (
    Interleave,
    L2Promotion,
    OobFill,
    read_interleave,
    read_l2_promotion,
    read_oob_fill,
    read_swizzle,
)
from warploom.target.swizzle import Swizzle
from warploom.target.tma import TMA, box_error, tensor_error

#: Element types that a tensor map can fill with NaN.
NAN_DTYPES = ("float16", "float32", "float64", "bfloat16")
_INTERLEAVED_RANK = 3
#: Options that have several spellings, and the functions that read them.
_SPELLED = {
    "swizzle": read_swizzle, "l2_promotion": read_l2_promotion, "oob_fill": read_oob_fill,
    "interleave": read_interleave,
}  # fmt: skip


@dataclass(frozen=True)
class TensorMap:
    """A tensor map: a tensor in global memory, and the box of it that one copy moves.

    Attributes
    ----------
    dtype : str
        TVM dtype of an element.
    shape : tuple of (int or None)
        Extents, the contiguous dimension last; None for one that only a launch knows. Interleaved:
        ``(images, slices of channels, ..., width)`` in pixels, 3 to 5 dimensions.
    box : tuple of int
        Extents of one copy; interleaved, one slice of channels.
    swizzle : Swizzle
        Permutation of 16-byte chunks in shared memory. This and the next three may be given in any
        spelling of :mod:`warploom.target.spelling`, such as ``"128B"``.
    l2_promotion : L2Promotion
        Bytes of L2 that are filled at once.
    oob_fill : OobFill
        The value of elements outside of the tensor.
    interleave : Interleave
        Slices of channels.
    strides : tuple of int, optional
        Distances in elements (pixels if interleaved) of all dimensions; compact without.
    element_strides : tuple of int, optional
        Steps within the box: every n-th element of a dimension.

    Raises
    ------
    IllegalCombination
        If the hardware has no such map.
    """

    dtype: str
    shape: tuple[int | None, ...]
    box: tuple[int, ...]
    swizzle: Swizzle = Swizzle.NONE
    l2_promotion: L2Promotion = L2Promotion.B128
    oob_fill: OobFill = OobFill.ZERO
    interleave: Interleave = Interleave.NONE
    strides: tuple[int, ...] | None = None
    element_strides: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        name_dtypes(self, "dtype")
        for name, read in _SPELLED.items():
            object.__setattr__(self, name, read(name, getattr(self, name)))
        for error in self._errors():
            if error is not None:
                raise IllegalCombination(error)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def unit_bits(self) -> int:
        """Bits of the unit of the map: an element, or a pixel of one slice."""
        return 8 * self.interleave.slice_bytes or bits_of(self.dtype)

    @property
    def box_elements(self) -> tuple[int, ...]:
        """Extents of the tile in shared memory: the box, thinned by element strides."""
        steps = self.element_strides or (1,) * self.rank
        return tuple(-(-extent // step) for extent, step in zip(self.box, steps, strict=True))

    @property
    def box_bytes(self) -> int:
        """Bytes that one copy adds to its mbarrier's tx-count, in bounds or not."""
        return prod(self.box_elements) * self.unit_bits // 8

    @property
    def alignment(self) -> int:
        """Bytes to which the tensor's address and strides are aligned."""
        return 32 if self.interleave is Interleave.B32 else TMA.chunk_bytes

    @property
    def copy_options(self) -> dict[str, object]:
        """The options of ``Tx.copy_async`` that ask for such a map.

        ``tma_auto`` of TVM fills with zeros; its ``tma_explicit`` with NaN, too.

        Raises
        ------
        IllegalCombination
            If that copy cannot: it has no slices or element strides.
        """
        if self.interleave is not Interleave.NONE or self.element_strides is not None:
            raise IllegalCombination(
                "TMA: Tx.copy_async makes no tensor maps with slices of channels or element "
                "strides; use warploom.intrin.tensor_map."
            )
        options = {"dispatch": "tma_auto", "tensormap_l2_promotion": self.l2_promotion.value}
        if self.oob_fill is OobFill.NAN:
            options |= {"dispatch": "tma_explicit", "oob": "nan"}
        return options

    def _errors(self) -> Iterator[str | None]:
        """The rules in order; one may rely on those before it."""
        sliced = self.interleave is not Interleave.NONE
        if len(self.box) != self.rank:
            yield f"TMA: a box of {len(self.box)} dimensions for a tensor of {self.rank}."
        if sliced and not _INTERLEAVED_RANK <= self.rank <= TMA.rank:
            yield (
                f"TMA: an interleaved tensor has {_INTERLEAVED_RANK} to {TMA.rank} dimensions "
                f"(images, slices of channels, ..., width), got {self.rank}."
            )
        # A pixel of a slice has no dtype; one of as many bits serves the rules.
        dtype = f"uint{self.unit_bits}" if sliced else self.dtype
        known = [1 if extent is None else extent for extent in self.shape]
        strides = self.strides
        if strides is None and None in self.shape[1:]:
            # Those of a launch are the driver's to check; here, any that are legal.
            unit = max(1, 8 * self.alignment // self.unit_bits)
            strides = (*[unit] * (self.rank - 1), 1)
        yield tensor_error(dtype, known, strides)
        swizzle = Swizzle.NONE if sliced else self.swizzle  # that of slices is no limit to rows
        yield box_error(self.dtype, self.box, swizzle, self.element_strides)
        if self.oob_fill is OobFill.NAN and self.dtype not in NAN_DTYPES:
            allowed = ", ".join(NAN_DTYPES)
            yield f"TMA: {self.dtype} has no NaN to fill with; allowed are {allowed}."
        if sliced:
            yield from self._interleave_errors()

    def _interleave_errors(self) -> Iterator[str | None]:
        if self.interleave is Interleave.B32 and self.swizzle is not Swizzle.B32:
            yield f"TMA: slices of 32 bytes need the swizzle B32, got {self.swizzle.name}."
        if self.box[1] != 1:
            yield f"TMA: a box holds one slice of channels, got {self.box[1]}."
        if self.interleave.slice_bytes * 8 % bits_of(self.dtype):
            yield f"TMA: a slice holds no whole number of {self.dtype}."

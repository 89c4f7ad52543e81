"""Block-scaled formats: 8- and 4-bit floats, a block of which along K shares a scale.

A :class:`ScaledFormat` is a row of the OCP "Microscaling Formats (MX)" specification, or NVIDIA's
nvfp4, as ``tcgen05.mma`` with ``.block_scale`` multiplies it (PTX ISA, "tcgen05.mma", "Block
scaling"). A scale of ``float8_e8m0fnu`` is a power of two.

Scales lie in one of two orders:

* rows ``[M, K / block]``, as the formats are defined;
* blocks ``[M / 128, K / (4 block), 32, 16]``, rounded up, of 128 rows by 4 scales, as the tensor
  core and cuBLAS read them: row ``r`` and scale ``s`` are at ``[r // 128, s // 4, r % 32,
  r % 128 // 32 * 4 + s % 4]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warploom.errors import IllegalCombination
from warploom.target.dtypes import bits_of
from warploom.target.tcgen05 import TCGEN05_KINDS, Tcgen05Kind

#: Rows and scales of a block of the second order, and how it lies in memory.
SCALE_ROWS, SCALE_COLUMNS = 128, 4
SCALE_BLOCK = (32, SCALE_ROWS * SCALE_COLUMNS // 32)


@dataclass(frozen=True)
class ScaledFormat:
    """A format of both operands of a matmul.

    Attributes
    ----------
    name : str
        As its specification has it.
    elements : tuple of str
        TVM dtypes of an element.
    stored : tuple of str
        Dtypes of the buffers: those of elements, or ``uint8`` with two elements of 4 bits in a
        byte, the even one in the low bits.
    scale : str
        Dtype of a scale.
    scales : tuple of str
        Dtypes of the buffers of scales: that, or ``uint8`` with the bits of it.
    block : int
        Elements along K that share a scale.
    kind : str
        The qualifier ``.kind::`` of the instruction.
    """

    name: str
    elements: tuple[str, ...]
    stored: tuple[str, ...]
    scale: str
    scales: tuple[str, ...]
    block: int
    kind: str

    def __post_init__(self) -> None:
        kind = self.instruction
        assert set(self.elements) <= set(kind.operands)
        assert (self.scale, self.block) in {(one.dtype, one.vector) for one in kind.scales}
        assert self.scale in self.scales or self.scales == ("uint8",)
        assert all(bits_of(one) in (8, 8 // self.packed) for one in self.elements)
        assert kind.container_bits * self.packed == 8, "elements of a byte are packed densely"

    @property
    def instruction(self) -> Tcgen05Kind:
        """The MMAs of this format."""
        return next(one for one in TCGEN05_KINDS if one.kind == self.kind)

    @property
    def packed(self) -> int:
        """Elements in an element of a buffer."""
        return 2 if bits_of(self.elements[0]) == 4 else 1

    @property
    def scales_of_step(self) -> int:
        """Scales of a row that one instruction applies: ``.scale_vec::NX``."""
        return self.instruction.k // self.block


def scale_blocks(rows: int, scales: int) -> tuple[int, int, int, int]:
    """The extents of the scales of a tile, ``scales`` of each of its rows, in blocks.

    The last blocks may have more rows and more scales than the tile.
    """
    return (-(-rows // SCALE_ROWS), -(-scales // SCALE_COLUMNS), *SCALE_BLOCK)


def are_in_blocks(extent: Sequence[int | None], rows: int | None, scales: int) -> bool:
    """Whether a region with such extents has the scales of a tile in blocks; else in rows.

    Extents that are not known are None. Extents of 1 of the first two dimensions may be left out.
    """
    in_rows = tuple(extent[-2:]) == (rows, scales) and all(one == 1 for one in extent[:-2])
    return not in_rows and tuple(extent[-2:]) == SCALE_BLOCK


_E8M0 = "float8_e8m0fnu"
_FP8, _FP4 = ("float8_e4m3fn", "float8_e5m2"), ("float4_e2m1fn",)
SCALED_FORMATS: tuple[ScaledFormat, ...] = (
    ScaledFormat("mxfp8", _FP8, _FP8, _E8M0, (_E8M0, "uint8"), 32, "mxf8f6f4"),
    ScaledFormat("mxfp4", _FP4, ("uint8",), _E8M0, (_E8M0, "uint8"), 32, "mxf4"),
    ScaledFormat("nvfp4", _FP4, ("uint8",), "float8_e4m3fn", ("float8_e4m3fn",), 16, "mxf4nvf4"),
)  # fmt: skip


def scaled_format(a: str, b: str, scale_a: str, scale_b: str) -> ScaledFormat:
    """The format of operands, by the dtypes of the buffers of A, of B and of their scales.

    Raises
    ------
    IllegalCombination
        If there is none; the message names the dtypes, and those of all formats.

    Examples
    --------
    >>> scaled_format("uint8", "uint8", "float8_e4m3fn", "float8_e4m3fn").name
    'nvfp4'
    """
    for row in SCALED_FORMATS:
        if {a, b} <= set(row.stored) and {scale_a, scale_b} <= set(row.scales):
            return row
    formats = "; ".join(
        f"{row.name} has operands {' or '.join(row.stored)} and scales {' or '.join(row.scales)}"
        for row in SCALED_FORMATS
    )
    raise IllegalCombination(
        f"no block-scaled format has A of {a}, B of {b}, and scales of {scale_a} and {scale_b}; "
        f"{formats}"
    )

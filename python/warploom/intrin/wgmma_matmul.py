"""An MMA of one warpgroup as data: how many instructions, which registers, which layouts.

The matmul D = A Bᵀ (+ D) is a grid of *atoms*, one ``wgmma.mma_async`` each: ``blocks`` of 64
rows, ``widths`` of columns, ``steps`` of 32 bytes of K. Several warpgroups share the matmul of a
CTA: each has an equal part of its rows, of its columns, or of K.

Sources: PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from tvm.tirx.layout import Layout, TileLayout

from warploom.errors import IllegalCombination
from warploom.layout.fragment import wgmma_accumulator, wgmma_register_a
from warploom.layout.smem_matrix import SharedMatrix
from warploom.target.dtypes import with_dtype_names
from warploom.target.swizzle import Major, Swizzle
from warploom.target.wgmma import WGMMA_M, WgmmaKind, wgmma_kind

#: Warps of a warpgroup.
WARPS = 4


@dataclass(frozen=True)
class WgmmaMatmul:
    """Shape and types of one matmul, and how its operands lie.

    Attributes
    ----------
    kind : WgmmaKind
        Element types.
    m, n, k : int
        Extents of the matmul of one warpgroup: rows and columns of D, and K.
    b : SharedMatrix
        The buffer in shared memory of which B is a part: its extents are at least those of
        :attr:`block`.
    a : SharedMatrix, optional
        The same of A; None if A is only ever in registers.
    negate : (bool, bool)
        Whether A and B enter with the opposite sign (floating point only).
    satfinite : bool
        Whether sums are clamped to the range of int32 (integers only).
    warpgroups : (int, int, int)
        Warpgroups that share the rows, the columns and K of the CTA's matmul.

    Raises
    ------
    IllegalCombination
        If the hardware has no such matmul; the message names the operand, the rule and the fix.
    """

    kind: WgmmaKind
    m: int
    n: int
    k: int
    b: SharedMatrix
    a: SharedMatrix | None = None
    negate: tuple[bool, bool] = (False, False)
    satfinite: bool = False
    warpgroups: tuple[int, int, int] = (1, 1, 1)

    def __post_init__(self) -> None:
        for holds, sentence in self._rules():
            if not holds:
                raise IllegalCombination(f"wgmma: {sentence}")

    def _rules(self) -> Iterator[tuple[bool, str]]:
        kind = self.kind
        yield (
            self.m > 0 and self.m % WGMMA_M == 0,
            f"M = {self.m} is not a positive multiple of {WGMMA_M}, the rows of one instruction.",
        )
        yield (
            self.k > 0 and self.k % kind.k == 0,
            f"K = {self.k} is not a positive multiple of {kind.k}, the K of one {kind.a} "
            "instruction; pad K with zeros.",
        )
        for name, operand, dtype, extent, depth in (
            ("A", self.a, kind.a, self.block[0], self.a_columns(self.block[2])),
            ("B", self.b, kind.b, self.block[1], self.block[2]),
        ):
            if operand is None:
                continue
            yield operand.dtype == dtype, f"{name} has elements of {operand.dtype}, not {dtype}."
            yield (
                operand.major in kind.majors,
                f"{name} is {dtype} and MN-major; the hardware reads only 16-bit operands "
                "MN-major, store it K-major.",
            )
            yield (
                operand.mn >= extent and operand.k >= depth,
                f"{name} is {extent} x {depth}, more than its buffer's {operand.mn} x "
                f"{operand.k}.",
            )
        if self.a is not None:
            yield (
                WGMMA_M % self.a.mn_align == 0,
                f"A's swizzle atoms of {self.a.mn_align} rows do not divide {WGMMA_M}.",
            )
        kind.split_n(self.n, self.b.mn_align)  # raises with a sentence of its own
        yield (
            self.warpgroups[1] == 1 or self.n % self.b.mn_align == 0,
            f"{self.n} columns of each warpgroup are no multiple of {self.b.mn_align}, the columns "
            "of a swizzle atom of B; use a narrower swizzle, or fewer warpgroups along N.",
        )
        yield (
            kind.negate or not any(self.negate),
            f"negate_a and negate_b exist for floating point only, A is {kind.a}.",
        )
        yield (
            kind.d == "int32" or not self.satfinite,
            f"satfinite exists for integers only, A is {kind.a}.",
        )

    @classmethod
    @with_dtype_names
    def of(
        cls,
        m: int,
        n: int,
        k: int,
        dtype: str,
        d_dtype: str | None = None,
        *,
        b_dtype: str | None = None,
        a_major: Major | str = Major.K,
        b_major: Major | str = Major.K,
        a_swizzle: Swizzle | str | int | None = None,
        b_swizzle: Swizzle | str | int | None = None,
        a_in_registers: bool = False,
        sparse: bool = False,
        negate_a: bool = False,
        negate_b: bool = False,
        satfinite: bool = False,
        a_shape: tuple[int, int] | None = None,
        b_shape: tuple[int, int] | None = None,
        block_row_warps: int = WARPS,
        block_col_warps: int = 1,
        reduce_k: int = 1,
    ) -> Self:
        """The matmul of operands in shared buffers, of one warpgroup or of several.

        Parameters
        ----------
        m, n, k : int
            Extents of the matmul, of all warpgroups together.
        dtype, b_dtype : str
            TVM dtypes of A and of B, by default the same; float32 is multiplied as tf32.
        d_dtype : str, optional
            Of the accumulator; by default int32 for integers and float32 else.
        a_major, b_major : Major or str
            ``"K"``: the buffer is [mn, k]; ``"MN"``: [k, mn], for 16-bit types.
        a_swizzle, b_swizzle : Swizzle, str or int, optional
            ``"none"``, ``"32B"``, ``"64B"``, ``"128B"`` or the bytes; by default the widest whose
            atoms divide the contiguous dimension.
        a_in_registers : bool
            Whether A never is in shared memory.
        sparse : bool
            Whether A holds half of the elements of K (:mod:`warploom.sparse`): its buffer is
            ``[m, k / 2]``.
        negate_a, negate_b, satfinite : bool
            As the attributes.
        a_shape, b_shape : (int, int), optional
            The last two dimensions of the shared buffer of which the operand is a part, as the
            buffer has them (``[k, mn]`` if MN-major); by default those of the operand.
        block_row_warps : int
            Warps that share the rows, a multiple of 4: each four are a warpgroup.
        block_col_warps : int
            Warpgroups that share the columns.
        reduce_k : int
            Warpgroups that share K: each sums its part, and the author adds the sums.

        Raises
        ------
        IllegalCombination
            If the hardware has no such matmul, or the warpgroups cannot share it equally.

        Examples
        --------
        Four warpgroups of 64 x 128 each, of a B in the left half of its buffer:

        >>> e = WgmmaMatmul.of(
        ...     128, 256, 64, "float16", b_shape=(256, 128), block_row_warps=8, block_col_warps=2
        ... )
        >>> (e.m, e.n, e.k), e.block, e.warpgroups
        ((64, 128, 64), (128, 256, 64), (2, 2, 1))
        """
        b_dtype = b_dtype or dtype
        d_dtype = d_dtype or ("int32" if "int" in dtype else "float32")
        kind = wgmma_kind(dtype, b_dtype, d_dtype, sparse)
        warpgroups = _warpgroups(block_row_warps, block_col_warps, reduce_k)
        own = []
        for name, extent, count in zip("MNK", (m, n, k), warpgroups, strict=True):
            if extent % count:
                raise IllegalCombination(
                    f"wgmma: {name} = {extent} is no multiple of {count}, the warpgroups that "
                    "share it."
                )
            own.append(extent // count)
        held = k // 2 if sparse else k
        a = None if a_in_registers else _shared_matrix(dtype, a_major, a_swizzle, m, held, a_shape)
        b = _shared_matrix(b_dtype, b_major, b_swizzle, n, k, b_shape)
        return cls(kind, *own, b, a, (negate_a, negate_b), satfinite, warpgroups)

    @property
    def block(self) -> tuple[int, int, int]:
        """M, N and K of all warpgroups together."""
        rows, columns, depth = self.warpgroups
        return self.m * rows, self.n * columns, self.k * depth

    def a_columns(self, k: int) -> int:
        """Elements of a row of A for ``k`` elements of K: half of them if A is sparse."""
        return k // self.kind.k * self.kind.a_k

    # --- how many ---

    @property
    def blocks(self) -> int:
        """Instructions along M."""
        return self.m // WGMMA_M

    @property
    def widths(self) -> tuple[int, ...]:
        """N of the instructions along N."""
        return self.kind.split_n(self.n, self.b.mn_align)

    @property
    def steps(self) -> int:
        """Instructions along K."""
        return self.k // self.kind.k

    @property
    def instructions(self) -> int:
        """Instructions of the whole matmul."""
        return self.blocks * len(self.widths) * self.steps

    @property
    def a_registers(self) -> int:
        """32-bit registers of a thread that hold A, where it is in registers."""
        return self.blocks * self.steps * self.kind.a_registers

    @property
    def d_registers(self) -> int:
        """32-bit registers of a thread that hold D."""
        return self.blocks * self.kind.d_registers(self.n)

    def atoms(self) -> Iterator[tuple[int, int, int]]:
        """Indices (i, j, k) of all atoms, in the order in which they are issued.

        K is outermost, so that consecutive instructions are independent.
        """
        for k in range(self.steps):
            for i in range(self.blocks):
                for j in range(len(self.widths)):
                    yield i, j, k

    # --- where ---

    @property
    def d_layout(self) -> TileLayout:
        """Which thread holds which element of D, a ``local`` buffer of shape (m, n)."""
        return wgmma_accumulator(self.m, self.n)

    @property
    def a_layout(self) -> TileLayout:
        """Which thread holds which element of A in registers, of shape (m, k).

        Of a sparse A, (m, k / 2).
        """
        return wgmma_register_a(self.kind.a, self.a_columns(self.k), self.m)

    def a_shared_layout(self, *lead: int) -> Layout:
        """Layout of A's buffer in shared memory, with ``lead`` dimensions in front (stages)."""
        if self.a is None:
            raise IllegalCombination("wgmma: A is only in registers in this matmul.")
        return self.a.layout(lead)

    def b_shared_layout(self, *lead: int) -> Layout:
        """Layout of B's buffer in shared memory, with ``lead`` dimensions in front (stages)."""
        return self.b.layout(lead)


def _warpgroups(row_warps: int, columns: int, depth: int) -> tuple[int, int, int]:
    if row_warps < 1 or row_warps % WARPS:
        raise IllegalCombination(
            f"wgmma: block_row_warps is {row_warps}; it must be a multiple of {WARPS}, the warps "
            "of a warpgroup."
        )
    for name, count in (("block_col_warps", columns), ("reduce_k", depth)):
        if count < 1:
            raise IllegalCombination(f"wgmma: {name} is {count}; it must be at least 1.")
    return row_warps // WARPS, columns, depth


def _shared_matrix(
    dtype: str,
    major: Major | str,
    swizzle: Swizzle | str | int | None,
    mn: int,
    k: int,
    shape: tuple[int, int] | None,
) -> SharedMatrix:
    major = Major(major)
    if shape is not None:
        mn, k = shape if major is Major.K else shape[::-1]
    if swizzle is None:
        return SharedMatrix.widest(dtype, major, mn, k)
    return SharedMatrix(dtype, major, swizzle, mn, k)

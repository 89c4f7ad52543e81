"""Register fragments: which thread holds which element of a tile, as TVM layouts.

Every function returns a ``tvm.tirx.layout.TileLayout`` from a logical tile to thread axes
(``laneid``, ``wid_in_wg`` or ``warpid``) and the index ``m`` into the thread's registers, counted
in elements. Give it to a ``local`` buffer: ``T.alloc_buffer(shape, dtype, scope="local",
layout=wgmma_accumulator(64, 256))``.

All fragments here are made of the same 8 x 4 pattern. A warp is a grid of eight groups of four
lanes: lane ``l`` belongs to row ``g = l // 4`` of an 8-row block and to column group ``t = l % 4``,
and holds neighbouring elements that fill one 32-bit register.

Sources: PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk8/k16/k32", "Matrix Fragments for
mma.m16n8k16" and the sections of ``ldmatrix`` and ``stmatrix``.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.tirx.layout import Axis, Iter, TileLayout

from warploom.errors import IllegalCombination
from warploom.target.dtypes import with_dtype_names
from warploom.target.wgmma import WGMMA_K_BYTES, WGMMA_M

#: Warps of one warpgroup.
_WARPS = 4


@dataclass(frozen=True)
class _Warps:
    """The warps that share a tile, and the axis that numbers them."""

    warpgroups: int
    first_warp: int

    def __post_init__(self) -> None:
        if self.warpgroups < 1:
            raise IllegalCombination(
                f"A fragment needs at least one warpgroup, got warpgroups={self.warpgroups}."
            )
        if self.first_warp % _WARPS or self.first_warp < 0:
            raise IllegalCombination(
                f"A warpgroup starts at a multiple of {_WARPS} warps, "
                f"got first_warp={self.first_warp}."
            )
        if self.warpgroups == 1 and self.first_warp:
            raise IllegalCombination(
                f"The fragment of one warpgroup counts warps from its own first warp, so "
                f"first_warp must be 0, got {self.first_warp}."
            )

    @property
    def axis(self) -> Axis:
        """Warps of one warpgroup count from its start, those of several from the block's."""
        return Axis.wid_in_wg if self.warpgroups == 1 else Axis.warpid

    @property
    def offset(self) -> dict[Axis, int]:
        return {self.axis: self.first_warp} if self.first_warp else {}

    def row_iters(self, m: int, block_stride: int, half_stride: int) -> list[Iter]:
        """Iterators over ``m`` rows: each warpgroup owns consecutive 64-row blocks.

        ``block_stride`` and ``half_stride`` are the distances, in elements of a thread's
        registers, of 64-row blocks and of the two 8-row halves of a warp's 16 rows.
        """
        return [
            Iter(self.warpgroups, _WARPS, self.axis),
            Iter(m // WGMMA_M // self.warpgroups, block_stride, "m"),
            Iter(_WARPS, 1, self.axis),
            Iter(2, half_stride, "m"),
            Iter(8, 4, Axis.laneid),
        ]


def _require_multiple(value: int, of: int, noun: str, why: str) -> None:
    if value <= 0 or value % of:
        raise IllegalCombination(
            f"{noun} must be a positive multiple of {of} ({why}), got {value}."
        )


def _layout(
    shard: list[Iter], replica: tuple[Iter, ...] = (), offset: dict[Axis, int] | None = None
) -> TileLayout:
    """A layout without iterators of extent one, so that equal tiles have equal layouts."""
    return TileLayout.from_iters([it for it in shard if int(it.extent) > 1], replica, offset)


def _require_rows(m: int, warps: _Warps) -> None:
    why = "64 for each warpgroup"
    _require_multiple(m, WGMMA_M * warps.warpgroups, "The rows of a fragment", why)


def wgmma_accumulator(m: int, n: int, warpgroups: int = 1, first_warp: int = 0) -> TileLayout:
    """Layout of an ``(m, n)`` accumulator D of ``wgmma.mma_async``, any accumulator dtype.

    A thread holds ``m * n / 128 / warpgroups`` elements. Its registers are ordered by 64-row
    block, then by 8 columns, so an instruction of any width owns consecutive ones. A 16-bit A
    operand in registers has the same fragment.

    Parameters
    ----------
    m, n : int
        Extents of the tile; ``m`` a multiple of ``64 * warpgroups``, ``n`` of 8.
    warpgroups : int
        Warpgroups that share the tile by rows, ``m / warpgroups`` consecutive rows each. One:
        the tile of a warpgroup-scope call (axis ``wid_in_wg``). More: that of a CTA-scope call
        (axis ``warpid``).
    first_warp : int
        First warp of the block that takes part, with several warpgroups.

    Raises
    ------
    IllegalCombination
        If ``m``, ``n``, ``warpgroups`` or ``first_warp`` breaks one of these rules.
    """
    warps = _Warps(warpgroups, first_warp)
    _require_rows(m, warps)
    _require_multiple(n, 8, "The columns of an accumulator", "one core tile")
    block = WGMMA_M * n // (32 * _WARPS)
    columns = [Iter(n // 8, 4, "m"), Iter(4, 1, Axis.laneid), Iter(2, 1, "m")]
    return _layout([*warps.row_iters(m, block, 2), *columns], offset=warps.offset)


@with_dtype_names
def wgmma_register_a(
    dtype: str, k: int, m: int = WGMMA_M, warpgroups: int = 1, first_warp: int = 0
) -> TileLayout:
    """Layout of an ``(m, k)`` A operand that is read from registers.

    A thread's elements are ordered by 64-row block, K step, register 0 to 3 and position within
    the register, so that each instruction reads four consecutive 32-bit registers: rows ``g`` and
    ``g + 8`` of the first 16 bytes of K, then both rows of the last 16 bytes.

    Parameters
    ----------
    dtype : str
        Element type of 8, 16 or 32 bits; float32 stands for tf32.
    k : int
        Columns, a multiple of the 32 bytes of K that one instruction consumes.
    m : int
        Rows, a multiple of ``64 * warpgroups``.
    warpgroups, first_warp : int
        As for :func:`wgmma_accumulator`.

    Raises
    ------
    IllegalCombination
        If the dtype has another width, or ``k`` or ``m`` is no such multiple.
    """
    bits = tvm.DataType(dtype).bits
    if bits not in (8, 16, 32):
        raise IllegalCombination(
            f"wgmma reads A from registers in elements of 8, 16 or 32 bits, got {dtype}."
        )
    step, per_register = 8 * WGMMA_K_BYTES // bits, 32 // bits
    warps = _Warps(warpgroups, first_warp)
    _require_rows(m, warps)
    _require_multiple(k, step, f"The columns of A in {dtype}", "the K of one instruction")
    columns = [
        Iter(k // step, 4 * per_register, "m"),
        Iter(2, 2 * per_register, "m"),
        Iter(4, 1, Axis.laneid),
        Iter(per_register, 1, "m"),
    ]
    block = WGMMA_M * k // (32 * _WARPS)
    iters = [*warps.row_iters(m, block, per_register), *columns]
    return _layout(iters, offset=warps.offset)


def row_fragment(m: int, warpgroups: int = 1, first_warp: int = 0) -> TileLayout:
    """Layout of an ``(m,)`` vector with one value for each row of :func:`wgmma_accumulator`.

    The four lanes that share a row all hold its value, so ``acc[i, j] * scale[i]`` and row
    reductions need no further shuffle. A thread holds ``m / 32 / warpgroups`` elements: rows
    ``g`` and ``g + 8`` of its warp, block after block.

    Raises
    ------
    IllegalCombination
        As for :func:`wgmma_accumulator`.
    """
    warps = _Warps(warpgroups, first_warp)
    _require_rows(m, warps)
    same_row = Iter(4, 1, Axis.laneid)
    return _layout(warps.row_iters(m, 2, 1), (same_row,), warps.offset)


def column_fragment(n: int, warpgroups: int = 1, first_warp: int = 0) -> TileLayout:
    """Layout of an ``(n,)`` vector with one value for each column of :func:`wgmma_accumulator`.

    All threads that hold a part of a column hold its value: the eight row groups of every warp.
    A thread holds ``n / 4`` elements, in the order of its accumulator columns.

    Raises
    ------
    IllegalCombination
        As for :func:`wgmma_accumulator`.
    """
    warps = _Warps(warpgroups, first_warp)
    _require_multiple(n, 8, "The columns of a fragment", "one core tile")
    columns = [Iter(n // 8, 2, "m"), Iter(4, 1, Axis.laneid), Iter(2, 1, "m")]
    same_column = (Iter(8, 4, Axis.laneid), Iter(_WARPS * warpgroups, 1, warps.axis))
    return _layout(columns, same_column, warps.offset)


def single_fragment(warpgroups: int = 1, first_warp: int = 0) -> TileLayout:
    """Layout of a ``(1,)`` tile, of which every thread holds a copy.

    Raises
    ------
    IllegalCombination
        As for :func:`wgmma_accumulator`.
    """
    warps = _Warps(warpgroups, first_warp)
    threads = (Iter(32, 1, Axis.laneid), Iter(_WARPS * warpgroups, 1, warps.axis))
    return TileLayout.from_iters([Iter(1, 1, "m")], threads, warps.offset)


def mma_accumulator(m: int, n: int) -> TileLayout:
    """Layout of an ``(m, n)`` accumulator of one warp, made of ``mma.sync.m16n8k*`` results.

    The 16 rows of a warp in :func:`wgmma_accumulator` are the case ``m == 16``. Registers are
    ordered by 16-row block, then by 8 columns.

    Raises
    ------
    IllegalCombination
        If ``m`` is no multiple of 16 or ``n`` none of 8.
    """
    _require_multiple(m, 16, "The rows of an mma.sync accumulator", "one instruction")
    _require_multiple(n, 8, "The columns of an mma.sync accumulator", "one instruction")
    rows = [Iter(m // 16, n // 2, "m"), Iter(2, 2, "m"), Iter(8, 4, Axis.laneid)]
    columns = [Iter(n // 8, 4, "m"), Iter(4, 1, Axis.laneid), Iter(2, 1, "m")]
    return _layout([*rows, *columns])


def matrix_fragment(rows: int, columns: int, transposed: bool = False) -> TileLayout:
    """Layout of a ``(rows, columns)`` 16-bit tile of one warp moved by ``ldmatrix``/``stmatrix``.

    The tile is cut into 8 x 8 matrices of one 32-bit register each, numbered down the rows first;
    ``.x4`` of a 16 x 16 tile therefore gives the registers of one mma.sync A operand.

    Parameters
    ----------
    rows, columns : int
        Multiples of 8.
    transposed : bool
        The form with ``.trans``: a register holds two elements of a column instead of a row.

    Raises
    ------
    IllegalCombination
        If an extent is no multiple of 8.
    """
    for extent, noun in ((rows, "rows"), (columns, "columns")):
        _require_multiple(extent, 8, f"The {noun} of an ldmatrix tile", "one 8 x 8 matrix")
    group = [Iter(8, 4, Axis.laneid)]
    pairs = [Iter(4, 1, Axis.laneid), Iter(2, 1, "m")]
    down, across = (pairs, group) if transposed else (group, pairs)
    iters = [Iter(rows // 8, 2, "m"), *down, Iter(columns // 8, rows // 4, "m"), *across]
    return _layout(iters)

"""Rules of scans, positions of extremes, sorts and atomic updates."""

from __future__ import annotations

from collections.abc import Sequence

from warploom.errors import TileProgramError
from warploom.language.rules.operands import Operand, equal, squeezed
from warploom.language.rules.scopes import shape_text

#: Dtypes of elements that have an order, of which 32 bits hold all values.
ORDERED = (
    "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2",
    "int32", "int16", "int8", "uint16", "uint8",
)  # fmt: skip
#: Dtypes whose elements can be updated in memory: GPUs do it, or compare and swap.
ATOMIC_DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int32", "uint32", "int64", "uint64",
)  # fmt: skip


def require_scan(name: str, dst: Operand, src: Operand, axis: int) -> int:
    """Tiles of one dtype and shape; gives the axis as a number from 0."""
    for operand, noun in ((dst, "the destination"), (src, "the source")):
        operand.require_tile(f"{noun} of {name}")
    if dst.dtype != src.dtype:
        raise TileProgramError(
            f"{name} of {src.name} of dtype {src.dtype} into {dst.name} of dtype {dst.dtype}; they "
            "must have one dtype."
        )
    _require_ordered(name, src)
    if not equal(squeezed(dst.extent), squeezed(src.extent)):
        raise TileProgramError(
            f"{name} of extents {shape_text(src.extent)} of {src.name} into extents "
            f"{shape_text(dst.extent)} of {dst.name}; without extents of 1 they must be equal."
        )
    return _axis(name, src, axis)


def require_position(name: str, dst: Operand, src: Operand, axis: int) -> int:
    """An int32 tile of the shape that is left without the axis."""
    for operand, noun in ((dst, "the destination"), (src, "the source")):
        operand.require_tile(f"{noun} of {name}")
    _require_ordered(name, src)
    if dst.dtype != "int32":
        raise TileProgramError(
            f"{name} of {src.name} into {dst.name} of dtype {dst.dtype}; places are int32."
        )
    along = _axis(name, src, axis)
    kept = tuple(extent for d, extent in enumerate(src.extent) if d != along)
    if not equal(squeezed(dst.extent), squeezed(kept)):
        raise TileProgramError(
            f"{dst.name} has a region of extents {shape_text(dst.extent)}; {name} of "
            f"{shape_text(src.extent)} along axis {along} gives {shape_text(kept)}."
        )
    return along


def require_sort(operands: Sequence[Operand], axis: int) -> int:
    """Tiles of one dtype and shape, and perhaps one of int32 for places."""
    dst, src, *indices = operands
    for places in indices:
        places.require_tile("the indices of sort")
        if places.dtype != "int32" or not equal(squeezed(places.extent), squeezed(src.extent)):
            raise TileProgramError(
                f"the indices of sort, {places.name}, have dtype {places.dtype} and extents "
                f"{shape_text(places.extent)}; they must be int32, of the extents "
                f"{shape_text(src.extent)} of {src.name}."
            )
        if places.name in (dst.name, src.name):
            raise TileProgramError(f"sort writes both values and indices to {places.name}.")
    return require_scan("sort", dst, src, axis)


def require_atomic(name: str, dst: Operand, src: Operand) -> None:
    """A tile updates global memory of its dtype."""
    if dst.scope != "global":
        raise TileProgramError(
            f"{name} updates {dst.name} in {dst.scope} memory; it must be in global memory, since "
            "a tile belongs to one CTA: use add, maximum or minimum there."
        )
    src.require_tile(f"the source of {name}")
    if dst.dtype != src.dtype:
        raise TileProgramError(
            f"{name} of {src.name} of dtype {src.dtype} into {dst.name} of dtype {dst.dtype}; cast "
            "the tile first."
        )
    require_atomic_dtype(name, dst.name, dst.dtype)
    if not equal(squeezed(dst.extent), squeezed(src.extent)):
        raise TileProgramError(
            f"{name} of extents {shape_text(src.extent)} of {src.name} into extents "
            f"{shape_text(dst.extent)} of {dst.name}; without extents of 1 they must be equal."
        )


def require_atomic_dtype(name: str, buffer: str, dtype: str) -> None:
    """GPUs have the update for the dtype."""
    if dtype not in ATOMIC_DTYPES:
        raise TileProgramError(
            f"{name} updates {buffer} of dtype {dtype}; GPUs update {', '.join(ATOMIC_DTYPES)} so, "
            "so use a buffer of one of these."
        )


def _require_ordered(name: str, src: Operand) -> None:
    if src.dtype not in ORDERED:
        raise TileProgramError(
            f"{name} takes {src.name} of dtype {src.dtype}; it computes in float32 or int32, so "
            f"cast it to one of {', '.join(ORDERED)}."
        )


def _axis(name: str, src: Operand, axis: int) -> int:
    rank = len(src.extent)
    if not -rank <= axis < rank:
        raise TileProgramError(
            f"axis {axis} of {name} is no dimension of {src.name}, which has {rank}."
        )
    return axis % rank

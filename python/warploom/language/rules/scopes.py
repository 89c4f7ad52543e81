"""Scopes of tiles, and the allowed allocations."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from warploom.errors import TileProgramError
from warploom.tile.mbarriers import SCOPE as MBARRIER

SHARED = ("shared", "shared.dyn")
REGISTERS = ("accumulator", "fragment", "tmem")
#: Scopes of tiles, which belong to one CTA.
TILES = SHARED + REGISTERS
#: Scopes of the destination of ``gemm_async``.
ACCUMULATORS = ("accumulator", "tmem")
_ACCUMULATOR_DTYPES = ("float32", "float16", "int32")
#: Allowed scopes of allocations: tiles, mbarriers, scalars, and workspaces in global memory.
_ALLOWED = (*TILES, MBARRIER, "local", "global")


def require_allocation(name: str, scope: str, dtype: str, shape: Sequence[int | None]) -> None:
    """Check the buffer of ``T.alloc_buffer``; an extent is None where it is not known.

    Raises
    ------
    TileProgramError
        If there is no such tile.
    """
    if scope == "wgmma.descriptor":
        raise TileProgramError(
            f"{name} is a matrix descriptor, which only a kernel with threads of its own makes; "
            "gemm_async of a tile program takes the tiles."
        )
    if scope not in _ALLOWED:
        close = difflib.get_close_matches(scope, _ALLOWED, n=1)
        meant = f"; did you mean {close[0]!r}?" if close else "."
        raise TileProgramError(
            f"{name} is allocated in scope {scope!r}; allowed are "
            f"{', '.join((*TILES, MBARRIER))}{meant}"
        )
    if scope == MBARRIER and dtype != "uint64":
        raise TileProgramError(f"the mbarriers {name} have dtype {dtype}; it must be uint64.")
    if scope == "local" and tuple(shape) != (1,):
        raise TileProgramError(
            f"{name} is an array of shape {shape_text(shape)} in local memory, which each thread "
            "has its own of; allocate a tile in scope shared or fragment."
        )
    if scope in ACCUMULATORS and (len(shape) != 2 or dtype not in _ACCUMULATOR_DTYPES):
        raise TileProgramError(
            f"accumulator {name} has dtype {dtype} and shape {shape_text(shape)}; it must have two "
            f"dimensions and one of the dtypes {', '.join(_ACCUMULATOR_DTYPES)}."
        )
    if scope == "fragment" and not shape:
        raise TileProgramError(
            f"fragment {name} has no dimension; give a single value the shape (1, 1)."
        )
    if any(extent is not None and extent < 1 for extent in shape):
        raise TileProgramError(f"{name} has shape {shape_text(shape)}; extents must be at least 1.")


def shape_text(shape: Sequence[int | None]) -> str:
    """A shape as Python writes it, with ``?`` for unknown extents."""
    parts = ["?" if extent is None else str(extent) for extent in shape]
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"

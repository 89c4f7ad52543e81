"""Which regions of global memory TMA can describe, and which only the launch knows."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer

from warploom.ops.copy_strided import knows_strides
from warploom.target import TMA
from warploom.tile import ir

#: Dtypes of whole bytes that tensor maps of TVM lack, and those of the same size that they have.
_OTHER_DTYPES = {"bool": "uint8", "int16": "uint16", "float8_e8m0fnu": "uint8"}


def why_not_tma(region: TensorRegion, use: str, stored: bool = False) -> str | None:
    """Why TMA cannot describe a region, as a sentence; None if it can, or the launch will know.

    TMA steps over rows by multiples of 16 bytes; TVM knows no step of a single row. What it stores
    or updates ends at such a multiple, too: behind the last element of a vector it would write.

    Parameters
    ----------
    region : TensorRegion
    use : str
        Of its buffer, such as ``"which A_s is loaded from"``.
    stored : bool
        Whether the region is stored or updated, and not loaded.
    """
    buffer = region.source
    bits = tvm.DataType(str(buffer.dtype)).bits
    if (instead := _OTHER_DTYPES.get(str(buffer.dtype))) is not None:
        return (
            f"{buffer.name}, {use}, is {buffer.dtype}, of which TVM makes no tensor maps; view it "
            f"as {instead}."
        )
    for part, extent in (("", _pitch(region, stored)), ("the part of ", ir.ranges(region)[-1][1])):
        if isinstance(extent, int | tirx.IntImm) and int(extent) * bits % (8 * TMA.chunk_bytes):
            return (
                f"Rows of {part}{buffer.name}, {use}, have {int(extent) * bits // 8} bytes; TMA "
                f"wants multiples of {TMA.chunk_bytes}, so pad them."
            )
    for extent, (_, part) in zip(buffer.shape[:-1], ir.ranges(region)[:-1], strict=True):
        if ir.is_constant(extent, 1) and not ir.is_constant(part, 1):
            return (
                f"{buffer.name}, {use}, has an extent of 1 where the tile has {part}; TVM "
                "describes no such copy, so give the buffer a symbolic extent."
            )
    return None


def tma_updates(name: str, buffer: Buffer) -> bool:
    """Whether TMA combines elements of a buffer with those of a tile: ``"add"``, ``"max"``, ...

    It has no maximum and no minimum of float32 and float64, and no sum of int64 (PTX ISA,
    "cp.reduce.async.bulk").
    """
    without = ("int64",) if name == "add" else ("float32", "float64")
    return knows_strides(buffer) and str(buffer.dtype) not in without


def at_launch(region: TensorRegion, stored: bool = False) -> Any:
    """Whether TMA can describe a region, as a condition of the host; None if it is known before."""
    pitch = _pitch(region, stored)
    if isinstance(pitch, int | tirx.IntImm):
        return None
    chunk = 8 * TMA.chunk_bytes // tvm.DataType(str(region.source.dtype)).bits
    fits = T.floormod(pitch, chunk) == 0
    return None if Analyzer().can_prove(fits) else fits


def _pitch(region: TensorRegion, stored: bool) -> Any:
    """Elements from a row to the next; 0 of a vector that is loaded, which has one row."""
    shape = region.source.shape
    return shape[-1] if stored or len(shape) > 1 else 0

"""Elements of the metadata of a sparse A, which is in bytes of rows or in words."""

from __future__ import annotations

from typing import Any

from tvm.ir import TensorRegion
from tvm.script import tirx as T

from warploom.layout.metadata_words import WORD, word_of_byte
from warploom.tile import ir


def is_words(metadata: TensorRegion) -> bool:
    """Whether metadata is in words (:mod:`warploom.layout.metadata_words`), not in bytes."""
    return str(metadata.source.dtype) == WORD


def byte_at(metadata: TensorRegion, row: Any, byte: Any, dtype: str) -> Any:
    """A byte of the metadata of a row, as an int32; A has ``dtype``."""
    if not is_words(metadata):
        return T.Cast("int32", element_at(metadata, row, byte))
    lane, word, bit = word_of_byte(row, byte, dtype)
    return T.Cast("int32", element_at(metadata, lane, word) >> T.Cast(WORD, bit) & T.uint32(0xFF))


def element_at(region: TensorRegion, row: Any, column: Any) -> Any:
    """An element of a matrix that is a region."""
    *lead, (first, _), (second, _) = ir.ranges(region)
    return region.source[(*(start for start, _ in lead), first + row, second + column)]

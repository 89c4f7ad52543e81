"""Sparse operands on Blackwell: metadata in words for ``tcgen05.mma.sp``, or a dense A.

The tensor core reads metadata from tensor memory, in words whose order depends on the width of
elements (:mod:`warploom.layout.metadata_words`). Threads write these words to shared memory; they
also put ``0x4`` for four bits that are zero, which loads over the edges of a matrix bring. The
thread that multiplies copies words to tensor memory (:mod:`.emit_sparse_mmas`). Words that are
loaded are used as they are.

Where no instruction fits, threads write the dense A instead, and the MMA becomes a dense one.
"""

from __future__ import annotations

import functools
import operator
from functools import partial
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, Stmt, Var

from warploom.errors import IllegalCombination
from warploom.layout.metadata_words import (
    COPY_COLUMNS,
    WORD,
    WORD_BYTES,
    bytes_of_word,
)
from warploom.layout.smem_matrix import ATOM_ROWS, SharedMatrix
from warploom.lower.analysis.layouts import has_layout
from warploom.lower.emit.filled_tiles import FilledTiles
from warploom.lower.emit.metadata import byte_at, element_at, is_words
from warploom.sparse import FIRST, SPARSITY
from warploom.target import SM100A, Major, Swizzle
from warploom.target.tcgen05 import tcgen05_kinds
from warploom.tile import ir
from warploom.tile.primitives import tile_call
from warploom.tile.program import TileProgram, allocations
from warploom.tile.statement import Mma

#: The lowest bit of every four of a word.
_LOWEST = 0x11111111


def sparse_operands(program: TileProgram) -> TileProgram:
    """Give every MMA with a sparse A words of metadata, or a dense A."""
    return _SparseOperands(program).run()


class _SparseOperands(FilledTiles):
    def wants(self, mma: Mma) -> bool:
        return mma.metadata is not None

    def mma(self, mma: Mma) -> tuple[list[Stmt], Stmt]:
        reason = _why_dense(mma, self.program)
        if reason is not None:
            return self._dense(mma, reason)
        metadata = mma.metadata
        if is_words(metadata) and _are_copied(metadata):
            self.decided.append(
                f"MMA into {mma.d.name}: {_name(mma)}, metadata as {metadata.source.name} has it"
            )
            return [], mma.raw
        tile, nests = self.filled((metadata,), partial(_words, mma))
        self.decided.append(
            f"MMA into {mma.d.name}: {_name(mma)}, metadata by threads into {tile.name}"
        )
        words = ir.region(tile, *((0, extent) for extent in _rows_and_words(metadata)))
        return nests, tile_call(mma.raw, *mma.raw.args[:3], words, *mma.raw.args[4:])

    def _dense(self, mma: Mma, reason: str) -> tuple[list[Stmt], Stmt]:
        a, b = mma.operands
        tile, nests = self.filled((a, mma.metadata), partial(_dense, mma))
        self.decided.append(
            f"operand {tile.name}: a sparse A, made dense by threads, for {reason}"
        )
        flags = (tirx.const(False, "bool"), *mma.raw.args[-2:])
        return nests, tile_call(mma.raw, mma.raw.args[0], ir.whole(tile), b, *flags)


def _name(mma: Mma) -> str:
    return f"tcgen05.mma.sp, kind {tcgen05_kinds(*_dtypes(mma))[0].kind}"


def _dtypes(mma: Mma) -> list[str]:
    return [str(tile.dtype) for tile in (*(r.source for r in mma.operands), mma.d)]


def _why_dense(mma: Mma, program: TileProgram) -> str | None:
    """Why no instruction with a sparse A computes an MMA; None if one does."""
    rows, n = (int(extent) for _, extent in ir.ranges(mma.raw.args[0]))
    height = SM100A.warpgroup
    tallest = max(
        int(tile.shape[0]) for tile in allocations(program.body)
        if tile.scope() in ("accumulator", "tmem")
    )  # fmt: skip
    warpgroups = program.hints.consumers or -(-tallest // height)
    if rows != warpgroups * height:
        return (
            f"tcgen05.mma.sp has {height} rows for each of {warpgroups} computing warpgroups, and "
            f"{mma.d.name} has {rows}"
        )
    (a, b), (trans_a, trans_b) = mma.operands, mma.transposed
    try:
        kind = tcgen05_kinds(*_dtypes(mma))[0]
        kind.check_shape(height, n)
    except IllegalCombination as error:
        return str(error).rstrip(".")
    k = 2 * int(ir.ranges(a)[-2 if trans_a else -1][1])
    if k % kind.sparse_k:
        return f"K = {k} is no multiple of {kind.sparse_k}, that of an instruction"
    for region, transposed in ((a, trans_a), (b, trans_b)):
        name = region.source.name
        if transposed and Major.MN not in kind.majors(str(region.source.dtype)):
            return f"{name} is {region.source.dtype} along {'M' if region is a else 'N'}"
    return _why_unaligned(a, trans_a, kind.k) or _why_unaligned(b, trans_b, kind.sparse_k)


def _why_unaligned(operand: TensorRegion, transposed: bool, step: int) -> str | None:
    """Why no instruction reads an operand, ``step`` elements of K at a time."""
    tile = operand.source
    if transposed:
        return None
    (start, _) = ir.ranges(operand)[-1]
    if not Analyzer().can_prove_equal(tvm.tirx.floormod(start, step), 0):
        return f"the part of {tile.name} begins at {start}, not known to be a multiple of {step}"
    if not has_layout(tile):
        return None
    try:
        matrix = SharedMatrix.from_buffer(tile, Major.K)
    except IllegalCombination as error:
        return str(error).rstrip(".")
    wide = matrix.swizzle.row_bytes
    if matrix.swizzle is not Swizzle.NONE and wide < step * matrix.element_bytes:
        return (
            f"{tile.name} has a swizzle of {wide} bytes, and an instruction reads rows of "
            f"{step * matrix.element_bytes}"
        )
    return None


def _rows_and_words(metadata: TensorRegion) -> tuple[int, int]:
    rows, size = (int(extent) for _, extent in ir.ranges(metadata)[-2:])
    return rows, size if is_words(metadata) else -(-size // WORD_BYTES)


def _are_copied(words: TensorRegion) -> bool:
    """Whether copies to tensor memory read words from where they are."""
    tile, prove = words.source, Analyzer().can_prove_equal
    starts = [start for start, _ in ir.ranges(words)[-2:]]
    return (
        not has_layout(tile)
        and int(tile.shape[-1]) % COPY_COLUMNS == int(tile.shape[-2]) % ATOM_ROWS == 0
        and all(
            prove(tvm.tirx.floormod(start, unit), 0)
            for start, unit in zip(starts, (ATOM_ROWS, COPY_COLUMNS), strict=True)
        )
    )


def _words(mma: Mma) -> tuple[Buffer, Stmt]:
    """A tile of words, and the nest that fills it."""
    metadata, dtype = mma.metadata, str(mma.operands[0].source.dtype)
    rows, words = _rows_and_words(metadata)
    whole = -(-words // COPY_COLUMNS) * COPY_COLUMNS
    tile = tirx.decl_buffer((rows, whole), WORD, f"{metadata.source.name}_words", scope="shared")
    lane, word = Var("lane", "int32"), Var("word", "int32")
    if is_words(metadata):
        value = element_at(metadata, lane, word)
    else:
        first, *others = (
            T.Cast(WORD, element_at(metadata, *place)) for place in bytes_of_word(lane, word, dtype)
        )
        parts = (part << T.uint32(8 * number) for number, part in enumerate(others, 1))
        value = functools.reduce(operator.or_, parts, first)
    value = _first_of_zeros(value)
    if whole != words:  # copies write columns that no instruction reads
        value = T.if_then_else(word < words, value, T.uint32(FIRST * _LOWEST))
    store = tirx.BufferStore(tile, value, [lane, word])
    return tile, ir.nest([lane, word], [rows, whole], [store])


def _first_of_zeros(word: Any) -> Any:
    """A word with ``0x4`` for every four bits that are zero."""
    some = word | word >> T.uint32(1)
    some = some | some >> T.uint32(2)
    return word | (T.bitwise_not(some) & T.uint32(_LOWEST)) << T.uint32(FIRST.bit_length() - 1)


def _dense(mma: Mma) -> tuple[Buffer, Stmt]:
    """A tile for the dense A, and the nest that fills it."""
    a, metadata = mma.operands[0], mma.metadata
    transposed = mma.transposed[0]
    shape = [int(extent) for _, extent in ir.ranges(a)[-2:]]
    rows, held = shape[::-1] if transposed else shape
    dtype = str(a.source.dtype)
    tile = tirx.decl_buffer((rows, 2 * held), dtype, f"{a.source.name}_dense", scope="shared")
    i, k = Var("i", "int32"), Var("k", "int32")

    def value(place: Any) -> Any:
        return element_at(a, *((place, i) if transposed else (i, place)))

    store = tirx.BufferStore(tile, _value(value, metadata, i, k, dtype), [i, k])
    return tile, ir.nest([i, k], [rows, 2 * held], [store])


def _value(value: Any, metadata: TensorRegion, i: Var, k: Var, dtype: str) -> Any:
    """Element ``[i, k]`` of the dense matrix; ``value`` gives an element of a row that A holds."""
    rule = SPARSITY[dtype]
    group, place = T.truncdiv(k, rule.group), T.truncmod(k, rule.group)
    byte = byte_at(metadata, i, T.truncdiv(k, rule.metadata_unit), dtype)
    nibble = (byte >> (T.truncmod(group, 2) * 4)) & 15
    nibble = T.Select(nibble == 0, tirx.const(FIRST, "int32"), nibble)
    low, high = nibble & 3, nibble >> 2
    zero = tirx.const(0, dtype)
    if rule.held == 1:
        return T.if_then_else(place == T.truncdiv(low, 2), value(group), zero)
    second = T.Select(place == high, tirx.const(1, "int32"), tirx.const(0, "int32"))
    is_held = T.Or(place == low, place == high)
    return T.if_then_else(is_held, value(group * 2 + second), zero)

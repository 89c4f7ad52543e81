"""Fragments of bytes in the order of an operand A of wgmma, from the order of accumulators.

Thread t of four holds columns 2t, 2t + 1, 8 + 2t and 9 + 2t of a block of 16 of an accumulator, in
two registers with two rows each; wgmma wants columns 4t to 4t + 3 of a row in one. Where the
columns may come in the order in which threads hold them, ``prmt`` makes two words of two. Else each
lane gets two words of others before: of the four lanes, two give their first word while the other
two give their second, so two exchanges do.

Source: PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk32".
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import IntImm, Stmt
from tvm.tirx.layout import S, TileLayout

from warploom.intrin.half_pairs import permute
from warploom.intrin.matrices import from_lane
from warploom.layout.fragment import wgmma_accumulator, wgmma_register_a
from warploom.lower.analysis.byte_order import byte_move
from warploom.lower.nests.elements import NestContext
from warploom.tile import ir
from warploom.tile.statement import Nest

#: Columns of a block, and rows of an instruction.
_BLOCK, _ROWS = 16, 64
#: Lower halves of two words, and upper ones; the same where the words are exchanged.
_LOW, _HIGH, _LOW_OF_EXCHANGED, _HIGH_OF_EXCHANGED = 0x5410, 0x7632, 0x1054, 0x3276


def ordered_bytes(nest: Nest, context: NestContext) -> Stmt | None:
    """The code of a nest that copies such a fragment; None for other nests."""
    move = byte_move(nest)
    if move is None or move.transposed or {move.to.scope(), move.of.scope()} != {"local"}:
        return None
    rows, columns = move.extents
    shape = [int(extent) for extent in move.of.shape]
    if not all(isinstance(start, IntImm) for start in (*move.starts, *move.to_starts)):
        return None
    *firsts, column = map(int, (*move.to_starts, *move.starts))
    if any(firsts) or column % _BLOCK or shape[0] != rows:
        return None
    wanted = wgmma_register_a(str(move.to.dtype), columns, rows), wgmma_accumulator(*shape)
    if not all(map(_equal, (move.to.layout, move.of.layout), wanted)):
        return None
    to, of = (context.registers(tile, "uint32") for tile in (move.to, move.of))
    statements: list[Stmt] = []
    for block in range(rows // _ROWS):
        for number in range(columns // _BLOCK):
            first = block * shape[1] // 8 + (column + number * _BLOCK) // 8
            at = (block * columns // _BLOCK + number) * 2
            words = [of[first], of[first + 1]]
            if move.ordered:
                low, high = (permute(*words, selector) for selector in (_LOW, _HIGH))
            else:
                before, (low, high) = _exchanged(words, context.lane)
                statements += before
            statements += [
                tirx.BufferStore(to, low, [at]), tirx.BufferStore(to, high, [at + 1]),
            ]  # fmt: skip
    return ir.seq(statements)


def _equal(a: Any, b: Any) -> bool:
    return a is not None and tvm_ffi.structural_equal(a.canonicalize(), b.canonicalize())


def _exchanged(words: list[Any], lane: Any) -> tuple[list[Stmt], list[Any]]:
    """Statements that bring columns 4t to 4t + 3 of two rows, and the words that hold them.

    Lane t wants the first words of lanes 0 and 1, 2 and 3 if t < 2, else their second ones. Even
    lanes give their first word first, odd ones their second.
    """
    odd, late = T.truncmod(lane, 2) == 1, T.truncmod(T.truncdiv(lane, 2), 2) == 1
    of_four = T.truncdiv(lane, 4) * 4 + T.truncmod(lane, 2) * 2
    got = tirx.decl_buffer((2,), "uint32", "from_lanes", scope="local", layout=TileLayout(S[(2,)]))
    first = from_lane(tirx.Select(odd, words[1], words[0]), of_four + tirx.Select(late, 1, 0))
    second = from_lane(tirx.Select(odd, words[0], words[1]), of_four + tirx.Select(late, 0, 1))
    statements = [
        tirx.AllocBuffer(got), tirx.BufferStore(got, first, [0]), tirx.BufferStore(got, second, [1])
    ]  # fmt: skip
    selectors = ((_LOW, _LOW_OF_EXCHANGED), (_HIGH, _HIGH_OF_EXCHANGED))
    return statements, [
        permute(got[0], got[1], tirx.Select(late, T.uint32(exchanged), T.uint32(plain)))
        for plain, exchanged in selectors
    ]

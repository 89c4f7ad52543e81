"""Transposes shared tiles of bytes: ``ldmatrix``, ``prmt`` and ``stmatrix``.

``ldmatrix.trans`` takes pairs of bytes for elements: a register then holds two neighbours along M
or N of two rows of K. Of two such registers ``prmt`` makes four rows of K of each of the two, which
``stmatrix`` writes as they shall lie, 16 bytes for each of eight rows at a time. A warp transposes
32 x 16 bytes with one of both instructions.

Rows that lie 128 bytes apart differ in the 16 bytes that a swizzle moves them to, if their numbers
differ modulo 8. Each matrix has eight such rows here: lanes 16 to 31 exchange the two registers
that they write, and, where rows come one after the other, so do lanes with t > 1 those that they
read.

Sources: PTX ISA, "ldmatrix", "stmatrix", "prmt".
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import ForKind, Stmt, Var
from tvm.tirx.layout import S, TileLayout

from warploom.intrin.half_pairs import permute
from warploom.intrin.matrices import load_transposed, store_matrices
from warploom.lower.analysis.byte_order import ByteMove, byte_move, in_fragment_order
from warploom.lower.nests.elements import NestContext
from warploom.lower.nests.loads import has_chunks
from warploom.tile import ir
from warploom.tile.scopes import is_shared
from warploom.tile.statement import Nest

#: Rows along K, and columns along M or N, that a warp transposes at a time.
_K, _MN = 32, 16
#: Transpositions whose loads come before their stores.
_AT_ONCE = 4
#: Bytes of two registers: those of the first of two neighbours, of the second; and both where the
#: registers are exchanged.
_SELECTORS = (0x6420, 0x7531, 0x2064, 0x3175)


def transposed_bytes(nest: Nest, context: NestContext) -> Stmt | None:
    """The code of a nest that transposes bytes between shared tiles; None for other nests."""
    move = byte_move(nest)
    if move is None or not move.transposed or not (is_shared(move.to) and is_shared(move.of)):
        return None
    mn, k = move.extents
    starts = (move.starts[1], *move.to_starts)
    chunks = has_chunks(move.to) and has_chunks(move.of) and all(map(_aligned, starts))
    if mn % _MN or k % _K or not chunks:
        return None
    warps = context.threads.warps
    parts = (mn // _MN) * (k // _K)
    rounds = -(-parts // warps)
    at_once = next(n for n in range(min(_AT_ONCE, rounds), 0, -1) if rounds % n == 0)
    outer = Var("round", "int32")
    numbers = [(outer * at_once + i) * warps + context.warp for i in range(at_once)]
    body = _parts(move, numbers, context.lane, parts if parts % warps else None)
    if rounds == at_once:
        return ir.substitute(ir.seq(body), {outer: tirx.const(0, "int32")})
    return ir.loop(outer, rounds // at_once, body, kind=ForKind.SERIAL)


def _aligned(start: Any) -> bool:
    """Whether 16 bytes from a column on are one of the chunks that a swizzle moves."""
    return Analyzer().can_prove(tirx.FloorMod(ir.as_expr(start), _MN) == 0)


def _parts(move: ByteMove, numbers: list[Any], lane: Any, limit: int | None) -> list[Stmt]:
    """The transposition of some parts by one warp: all their loads, then their stores."""
    count = 4 * len(numbers)
    words = tirx.decl_buffer(
        (count,), "uint32", "rows_of_k", scope="local", layout=TileLayout(S[(count,)])
    )
    loads, stores = [], []
    for number, part in enumerate(numbers):
        own = [words[4 * number + i] for i in range(4)]
        loads.append(_guarded(part, limit, _load(move, own, part, lane)))
        stores.append(_guarded(part, limit, _store(move, own, part, lane)))
    return [tirx.AllocBuffer(words), *loads, *stores]


def _guarded(part: Any, limit: int | None, statement: Stmt) -> Stmt:
    return statement if limit is None else ir.when(part < limit, [statement])


def _start(move: ByteMove, part: Any) -> tuple[Any, Any]:
    """The first column along M or N, and the first row along K, of a part."""
    along_k = move.extents[1] // _K
    return T.truncdiv(part, along_k) * _MN, T.truncmod(part, along_k) * _K


def _matrix_row(lane: Any) -> tuple[Any, Any, Any]:
    """The row of a matrix that a lane gives the address of; and of which matrix."""
    return T.truncmod(lane, 8), T.truncdiv(lane, 16), T.truncmod(T.truncdiv(lane, 8), 2)


def _load(move: ByteMove, words: list[Any], part: Any, lane: Any) -> Stmt:
    """Lane ``8 j + r`` tells where row r of matrix j is: matrices 2 h and 2 h + 1 are 16 of K."""
    mn, k = _start(move, part)
    row, half, second = _matrix_row(lane)
    if not move.ordered:
        second = second ^ T.truncdiv(row, 4)
    place = T.truncdiv(row, 2) * 4 + T.truncmod(row, 2) + second * 2
    within = in_fragment_order(place) if move.ordered else place
    at_k, at_mn = move.starts
    address = ir.address(move.of, *move.of_lead, at_k + k + half * 16 + within, at_mn + mn)
    return ir.evaluate(load_transposed(words, address))


def _store(move: ByteMove, words: list[Any], part: Any, lane: Any) -> Stmt:
    """Lane ``8 j + r`` tells where row r of matrix j goes: 2 h and 2 h + 1 are 16 bytes of K."""
    mn, k = _start(move, part)
    row, half, second = _matrix_row(lane)
    column = row * 2 + (second ^ T.truncdiv(row, 4))
    at_mn, at_k = move.to_starts
    address = ir.address(move.to, *move.to_lead, at_mn + mn + column, at_k + k + half * 16)
    first = tirx.Select(lane < 16, *_both(move, lane, _SELECTORS[0], _SELECTORS[1]))
    other = tirx.Select(lane < 16, *_both(move, lane, _SELECTORS[1], _SELECTORS[0]))
    values = [
        permute(words[2 * h], words[2 * h + 1], selector) for h in range(2)
        for selector in (first, other)
    ]  # fmt: skip
    return ir.evaluate(store_matrices(address, values))


def _both(move: ByteMove, lane: Any, *selectors: int) -> list[Any]:
    """Selectors, of exchanged registers in the lanes that have exchanged them."""
    if move.ordered:
        return [T.uint32(selector) for selector in selectors]
    exchanged = {_SELECTORS[0]: _SELECTORS[2], _SELECTORS[1]: _SELECTORS[3]}
    swapped = T.truncmod(T.truncdiv(lane, 2), 2) == 1
    return [tirx.Select(swapped, T.uint32(exchanged[s]), T.uint32(s)) for s in selectors]

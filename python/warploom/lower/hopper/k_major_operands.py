"""Operands in the form that wgmma reads: along K, and bytes in the order of its registers.

In shared memory wgmma reads elements of 8 and of 32 bits along K alone. A tile of them that lies
along M or N is therefore transposed by the threads that compute, into a tile of its own: a nest,
which becomes ``ldmatrix``, ``prmt`` and ``stmatrix`` if its elements are bytes
(:mod:`warploom.lower.nests.transposed_bytes`). It stands directly behind the MMA before, so that it
runs while that MMA does, or before the loop where the loop does not load the tile anew.

A thread holds two neighbours of a row of an accumulator, and wgmma wants four bytes of an operand
A. A fragment that nests compute from others is therefore copied into registers of that order
(:mod:`warploom.lower.nests.byte_fragments`). Lanes exchange bytes for that, unless B is transposed
here: then its rows come in the order in which threads hold the columns of A, since a sum over K
does not depend on its order.

Source: PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk32", "Matrix A: K-major".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.tirx import Buffer, Stmt, Var

from warploom.lower.analysis.byte_order import in_fragment_order
from warploom.lower.analysis.fragments import byte_operands_of
from warploom.lower.analysis.layouts import has_layout
from warploom.tile import ir
from warploom.tile.primitives import tile_call
from warploom.tile.program import TileProgram
from warploom.tile.scopes import is_shared
from warploom.tile.statement import (
    Allocation,
    Block,
    Copy,
    Loop,
    Mma,
    Nest,
    Reduction,
    Scalar,
    Statement,
    view,
    walk,
)

#: Bits of the elements that wgmma reads along M or N, too (PTX ISA, "wgmma", imm-trans).
_EITHER_WAY = 16


def k_major_operands(program: TileProgram) -> TileProgram:
    """Transpose operands that wgmma does not read, and order 8-bit ones in registers."""
    work = _Rewriting(program, _computed(program.block))
    body = work.block(program.block)
    if not work.decided:
        return program
    made = [tirx.AllocBuffer(buffer) for buffer in work.made]
    return program.replace(body=(*made, *body)).decided(*work.decided)


def _computed(block: Block) -> frozenset[Buffer]:
    """Fragments of 8 bits that are operand A, and hold elements of other fragments.

    All others can have the order of the operand from the start.
    """
    operands = byte_operands_of(block)
    from_others = set()
    for statement in walk(block):
        if statement.blocks or isinstance(statement, (Mma, Allocation)):
            continue
        used = {
            tile for tile in ir.uses(statement.raw)
            if ir.is_buffer(tile) and tile.scope() in ("fragment", "accumulator")
        }  # fmt: skip
        own = used & operands
        if own and (len(used) > 1 or not isinstance(statement, Nest)):
            from_others |= own
    return frozenset(from_others | {tile for tile in operands if has_layout(tile)})


@dataclass
class _Rewriting:
    """The walk, and the tiles that it makes."""

    program: TileProgram
    computed: frozenset[Buffer]
    made: list[Buffer] = field(default_factory=list)
    decided: list[str] = field(default_factory=list)
    #: Regions that the current block has transposed, how, and into what.
    ready: list[tuple[TensorRegion, bool, Buffer]] = field(default_factory=list)

    def block(self, statements: Block) -> list[Stmt]:
        """The statements of a block, with nests before the MMAs that need them."""
        result: list[Stmt] = []
        #: Position in ``result`` of the first statement that may stand behind the last MMA.
        after_mma = 0
        for statement in statements:
            if isinstance(statement, Mma):
                before, mma = self._mma(statement)
                for nest, tile in before:
                    at = _earliest(result, after_mma, nest) if is_shared(tile) else len(result)
                    result[at:at] = [nest]
                result.append(mma)
            elif statement.blocks:
                result += self._before_loop(statement) if isinstance(statement, Loop) else []
                known, bodies = self._unchanged_by(statement), []
                for inner in statement.blocks:
                    self.ready = list(known)
                    bodies.append(self.block(inner))
                self.ready = known
                result.append(statement.with_blocks(*bodies))
            else:
                result.append(statement.raw)
                self.ready = self._unchanged_by(statement)
                continue
            after_mma = len(result)
        return result

    def _unchanged_by(self, statement: Statement) -> list[tuple[TensorRegion, bool, Buffer]]:
        """Those transposed regions that a statement leaves as they are."""
        changed = statement.effects.writes
        return [one for one in self.ready if not ir.uses(one[0]) & changed]

    def _before_loop(self, loop: Loop) -> list[Stmt]:
        """Transpositions of tiles that a loop reads again and again."""
        nests: list[Stmt] = []
        written = loop.effects.writes
        for mma in (one for one in walk(loop.body) if isinstance(one, Mma)):
            for operand, turned in zip(mma.operands, _turned(mma), strict=True):
                if turned and ir.uses(operand) == {operand.source} - written:
                    is_b = operand.same_as(mma.operands[1])
                    nests += self._transposed(operand, is_b and self._orders(mma))[0]
        return nests

    def _orders(self, mma: Mma) -> bool:
        """Whether operand A lies in registers in an order of its own."""
        return mma.operands[0].source in self.computed

    def _mma(self, mma: Mma) -> tuple[list[tuple[Stmt, Buffer]], Stmt]:
        """The MMA of operands that wgmma reads, and the nests that make them of which tiles."""
        a, b = mma.operands
        along_k = [not flag for flag in mma.transposed]
        before: list[tuple[Stmt, Buffer]] = []
        turned, in_registers = _turned(mma), self._orders(mma)
        if not any(turned) and not in_registers:
            return [], mma.raw
        if in_registers:
            before.append((self._ordered(a, turned[1]), a.source))
            a = ir.whole(self.made[-1])
        if turned[0]:
            nests, tile = self._transposed(a, False)
            before += [(nest, a.source) for nest in nests]
            a, along_k[0] = ir.whole(tile), True
        if turned[1]:
            nests, tile = self._transposed(b, in_registers)
            before += [(nest, b.source) for nest in nests]
            b, along_k[1] = ir.whole(tile), True
        flags = [tirx.const(not k, "bool") for k in along_k]
        d, _, _, *metadata = mma.raw.args[:-3]
        return before, tile_call(mma.raw, d, a, b, *metadata, *flags, mma.raw.args[-1])

    def _transposed(self, operand: TensorRegion, in_order_of_a: bool) -> tuple[list[Stmt], Buffer]:
        """A tile ``[mn, k]`` of a region ``[k, mn]``, and the nest that writes it, if it is new."""
        for region, order, tile in self.ready:
            same = region.source.same_as(operand.source)
            if same and order == in_order_of_a and tvm_ffi.structural_equal(region, operand):
                return [], tile
        *lead, (k_start, k), (start, extent) = ir.ranges(operand)
        tile = self._tile((extent, k), operand.source, "shared")
        n, p = Var("n", "int32"), Var("k", "int32")
        row = in_fragment_order(p) if in_order_of_a else p
        value = operand.source[(*(first for first, _ in lead), k_start + row, start + n)]
        order = ", rows in the order of A's registers" if in_order_of_a else ""
        self.decided.append(
            f"operand {operand.source.name}: transposed by threads into {tile.name}, as "
            f"{self.program.arch} reads {operand.source.dtype} along K{order}"
        )
        self.ready.append((operand, in_order_of_a, tile))
        return [ir.nest([n, p], [extent, k], [tirx.BufferStore(tile, value, [n, p])])], tile

    def _ordered(self, operand: TensorRegion, in_fragments_order: bool) -> Stmt:
        """A nest that copies a fragment into the registers of an operand."""
        (row, rows), (column, columns) = ir.ranges(operand)
        tile = self._tile((rows, columns), operand.source, "fragment")
        i, p = Var("i", "int32"), Var("k", "int32")
        at = in_fragment_order(p) if in_fragments_order else p
        value = operand.source[row + i, column + at]
        how = "as they are" if in_fragments_order else "exchanged between lanes"
        self.decided.append(f"operand {operand.source.name}: columns of each thread {how}")
        return ir.nest([i, p], [rows, columns], [tirx.BufferStore(tile, value, [i, p])])

    def _tile(self, shape: Any, of: Buffer, scope: str) -> Buffer:
        name = f"{of.name}_{'k_major' if scope == 'shared' else 'operand'}"
        shape = [int(extent) for extent in shape]
        self.made.append(tirx.decl_buffer(shape, str(of.dtype), name, scope=scope))
        return self.made[-1]


def _earliest(statements: list[Stmt], first: int, nest: Stmt) -> int:
    """The first position, not before ``first``, where a nest finds what it needs."""
    needed = ir.uses(nest)
    for number in range(len(statements), first, -1):
        statement = view(statements[number - 1])
        defined = {statement.variable} if isinstance(statement, Scalar) else set()
        passed = isinstance(statement, (Nest, Reduction, Copy, Allocation, Scalar))
        if not passed or needed & (statement.effects.writes | defined):
            return number
    return first


def _turned(mma: Mma) -> list[bool]:
    """Which of both operands lies along M or N, where wgmma reads along K alone."""
    return [
        flag and is_shared(operand.source)
        and tvm.DataType(str(operand.source.dtype)).bits != _EITHER_WAY
        for operand, flag in zip(mma.operands, mma.transposed, strict=True)
    ]  # fmt: skip

"""Stores of 16-bit tiles from registers to shared memory: ``stmatrix``.

A warp holds 16 rows of a fragment, and a lane pairs of neighbours. ``stmatrix`` gathers from the
lanes of a warp four matrices of eight rows of 16 bytes, and writes each row where one lane says:
one instruction for 16 x 16 elements, where threads on their own would write element by element,
with an address for each. With ``.trans`` the columns of the fragment become the rows in memory.

Source: PTX ISA, "stmatrix".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, Stmt, Var

from warploom.errors import IllegalCombination
from warploom.intrin.matrices import store_matrices
from warploom.layout.fragment import wgmma_accumulator
from warploom.lower.nests.elements import WARPGROUP, NestContext
from warploom.lower.nests.loads import has_chunks
from warploom.lower.nests.pairs import inlined
from warploom.target.wgmma import WGMMA_M
from warploom.tile import ir
from warploom.tile.nest import AtomicUpdate
from warploom.tile.scopes import is_shared
from warploom.tile.statement import Nest

#: Rows and columns of a fragment that one instruction stores, and elements of 16 bytes.
_SIDE, _CHUNK = 16, 8
_BITS = 16


@dataclass(frozen=True)
class MatrixStore:
    """A copy of a whole tile in registers to a part of a shared tile.

    Attributes
    ----------
    tile : Buffer
        In registers: a fragment of 16-bit elements.
    to : Buffer
        Shared memory.
    lead : tuple of Expr
        Indices of ``to`` before its last two.
    starts : tuple of Expr
        First row and first column in ``to``.
    transposed : bool
        Whether columns of the fragment are rows of ``to``.
    """

    tile: Buffer
    to: Buffer
    lead: tuple[Any, ...]
    starts: tuple[Any, Any]
    transposed: bool

    def lowered(self, context: NestContext) -> Stmt:
        """The instructions of a warp."""
        rows, columns = map(int, self.tile.shape)
        words = context.registers(self.tile, "uint32")
        matrix = T.truncdiv(context.lane, 8)
        below, right = T.truncmod(matrix, 2) * 8, T.truncdiv(matrix, 2) * 8
        row = T.truncmod(context.lane, 8)
        statements = []
        for block in range(rows // WGMMA_M):
            for part in range(columns // _SIDE):
                at_row = context.warp * _SIDE + below + block * WGMMA_M
                at_column = right + part * _SIDE
                if self.transposed:
                    place = [self.starts[0] + at_column + row, self.starts[1] + at_row]
                else:
                    place = [self.starts[0] + at_row + row, self.starts[1] + at_column]
                address = ir.address(self.to, *self.lead, *place)
                first = block * columns // 4 + part * 4
                own = [words[first + number] for number in range(4)]
                statements.append(ir.evaluate(store_matrices(address, own, self.transposed)))
        return ir.seq(statements)


def matrix_store(nest: Nest, context: NestContext) -> MatrixStore | None:
    """The store that a nest is, if ``stmatrix`` does it; None for other nests."""
    store = inlined(nest.parts)
    if store is None or isinstance(store, AtomicUpdate) or context.threads != WARPGROUP:
        return None
    to, value = store.buffer, store.value
    if not is_shared(to) or tvm.DataType(str(to.dtype)).bits != _BITS or len(to.shape) < 2:
        return None
    variables = [loop.loop_var for loop in nest.loops]
    if not isinstance(value, TensorLoad) or not _is_fragment(value, variables):
        return None
    *lead, row, column = store.indices
    tile_row, tile_column = value.indices
    if any(ir.uses(index) & set(variables) for index in lead):
        return None
    analyzer = context.analyzer(Var("r", "int32"), 1)
    for transposed in (False, True):
        pair = (tile_column, tile_row) if transposed else (tile_row, tile_column)
        starts = [_start(at, own, analyzer) for at, own in zip((row, column), pair, strict=True)]
        known = all(start is not None for start in starts)
        if known and has_chunks(to) and _aligned(starts[1], analyzer):
            return MatrixStore(value.source, to, tuple(lead), tuple(starts), transposed)
    return None


def _is_fragment(load: TensorLoad, variables: Sequence[Var]) -> bool:
    """Whether a nest reads all elements of a tile that lies as MMAs leave their results."""
    tile = load.source
    if not ir.is_buffer(tile) or tile.scope() != "local" or len(tile.shape) != 2:
        return False
    if tvm.DataType(str(tile.dtype)).bits != _BITS or int(tile.shape[1]) % _SIDE:
        return False
    try:
        layout = wgmma_accumulator(*map(int, tile.shape))
    except IllegalCombination:
        return False
    every = len(variables) == 2 and all(
        sum(index.same_as(variable) for index in load.indices) == 1 for variable in variables
    )
    return every and tvm_ffi.structural_equal(tile.layout.canonicalize(), layout.canonicalize())


def _start(index: Any, variable: Var, analyzer: Analyzer) -> Any | None:
    """What is added to a variable in an index; None if the index is something else."""
    start = analyzer.simplify(index - variable)
    return None if variable in ir.uses(ir.as_expr(start, "int32")) else start


def _aligned(start: Any, analyzer: Analyzer) -> bool:
    return analyzer.can_prove(T.EQ(tirx.floormod(ir.as_expr(start, "int32"), _CHUNK), 0))

"""Sparse operands are made dense for Blackwell: threads write the matrix that A stands for.

``tcgen05.mma.sp`` reads metadata from tensor memory, in an order of its own for each width of
elements. Here threads read values and metadata from shared memory instead, and the MMA becomes a
dense one: it computes the same, in the time of a dense MMA.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var

from warploom.sparse import FIRST, SPARSITY
from warploom.tile import ir
from warploom.tile.primitives import tile_call
from warploom.tile.program import TileProgram
from warploom.tile.statement import Mma, Statement, walk


def decompress_operands(program: TileProgram) -> TileProgram:
    """Write the dense A of each MMA with a sparse one, in a nest before it."""
    if not any(isinstance(one, Mma) and one.metadata is not None for one in walk(program.block)):
        return program
    made: list[Buffer] = []
    body = [_statement(statement, made) for statement in program.block]
    return program.replace(body=(*map(tirx.AllocBuffer, made), *body)).decided(*(
        f"operand {tile.name}: a sparse A, made dense by threads, as {program.arch} multiplies it"
        for tile in made
    ))  # fmt: skip


def _statement(statement: Statement, made: list[Buffer]) -> Stmt:
    if isinstance(statement, Mma) and statement.metadata is not None:
        return _dense(statement, made)
    return statement.with_each(lambda inner: _statement(inner, made))


def _dense(mma: Mma, made: list[Buffer]) -> Stmt:
    """The nest and the dense MMA in place of a sparse one."""
    (a, b), metadata = mma.operands, mma.metadata
    transposed, trans_b = mma.transposed
    shape = [int(extent) for _, extent in ir.ranges(a)[-2:]]
    rows, held = shape[::-1] if transposed else shape
    dtype = str(a.source.dtype)
    tile = tirx.decl_buffer((rows, 2 * held), dtype, f"{a.source.name}_dense", scope="shared")
    made.append(tile)
    i, k = Var("i", "int32"), Var("k", "int32")

    def value(place: Any) -> Any:
        return _element(a, *((place, i) if transposed else (i, place)))

    store = tirx.BufferStore(tile, _value(value, metadata, i, k, dtype), [i, k], mma.raw.span)
    nest = ir.nest([i, k], [rows, 2 * held], [store])
    flags = (tirx.const(False, "bool"), tirx.const(trans_b, "bool"), mma.raw.args[-1])
    return ir.seq([nest, tile_call(mma.raw, mma.raw.args[0], ir.whole(tile), b, *flags)])


def _value(value: Any, metadata: TensorRegion, i: Var, k: Var, dtype: str) -> Any:
    """Element ``[i, k]`` of the dense matrix; ``value`` gives an element of a row that A holds."""
    rule = SPARSITY[dtype]
    group, place = T.truncdiv(k, rule.group), T.truncmod(k, rule.group)
    byte = T.Cast("int32", _element(metadata, i, T.truncdiv(k, rule.metadata_unit)))
    nibble = (byte >> (T.truncmod(group, 2) * 4)) & 15
    nibble = T.Select(nibble == 0, tirx.const(FIRST, "int32"), nibble)
    low, high = nibble & 3, nibble >> 2
    zero = tirx.const(0, dtype)
    if rule.held == 1:
        return T.if_then_else(place == T.truncdiv(low, 2), value(group), zero)
    second = T.Select(place == high, tirx.const(1, "int32"), tirx.const(0, "int32"))
    is_held = T.Or(place == low, place == high)
    return T.if_then_else(is_held, value(group * 2 + second), zero)


def _element(region: TensorRegion, row: Any, column: Any) -> Any:
    *lead, (first, _), (second, _) = ir.ranges(region)
    return region.source[(*(start for start, _ in lead), first + row, second + column)]

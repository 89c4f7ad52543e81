"""Writes element-wise tile primitives as nests of stores, which later passes know one form of.

So are the reads of ``wl.print`` from tiles in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt
from tvm.tirx.tile_primitive import LambdaExpr, TilePrimitiveCall

from warploom.errors import Decline
from warploom.lower.analysis.in_place import in_place
from warploom.lower.analysis.layouts import has_layout
from warploom.lower.emit.prints import through_shared
from warploom.lower.nests.forms import plain_nests
from warploom.lower.passes.by_threads import by_threads
from warploom.lower.passes.copy_loops import RowCopies, copy_loops
from warploom.lower.passes.flat_fragments import flat_fragments, is_deep
from warploom.lower.passes.order import is_of_order, plain_order
from warploom.lower.passes.parts_of_tiles import (
    atomic_of_part,
    inside,
    is_whole,
    or_zero,
    place,
    store_of_part,
)
from warploom.lower.passes.reductions import plain_reduction
from warploom.lower.passes.swap_operands import swap_operands
from warploom.lower.passes.through_registers import through_registers
from warploom.lower.passes.unused_loads import without_unused_loads
from warploom.target import SM90A
from warploom.tile import ir
from warploom.tile.annotations import BY_THREADS
from warploom.tile.effects import REDUCTIONS
from warploom.tile.primitives import op_name
from warploom.tile.program import TileProgram, allocations
from warploom.tile.scalar import ThreadScalar
from warploom.tile.scopes import TILE_SCOPES, is_global, is_shared
from warploom.tile.statement import Loop, Mma, Statement, walk
from warploom.tile.updates import UPDATES


def _affine(function: Callable[[Any], Any]) -> Callable[..., Any]:
    """``function(x * scale + bias)``, with TVM's order of operands: bias before scale."""

    def compute(x: Any, bias: Any = None, scale: Any = None) -> Any:
        if scale is not None:
            x = x * scale
        return function(x if bias is None else x + bias)

    return compute


def _silu(x: Any) -> Any:
    return x / (1.0 + T.exp(-x))


#: Primitive -> its value from the values of its sources.
ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "fill": lambda value: value,
    "memset": lambda value: value,
    "zero": lambda *_: 0,
    "cast": lambda x: x,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "fdiv": lambda a, b: a / b,
    "maximum": T.max,
    "minimum": T.min,
    "fma": lambda a, b, c: a * b + c,
    "select": lambda a, b, chosen: T.Select(chosen, a, b),
    "sqrt": _affine(T.sqrt),
    "exp": _affine(T.exp),
    "exp2": _affine(T.exp2),
    "log2": _affine(T.log2),
    "reciprocal": lambda x: 1.0 / x,
    "silu": _silu,
}


#: Primitives that compute in the dtype of their tiles; the others compute in floats.
_OF_TILE = ("add", "sub", "mul", "maximum", "minimum")
#: Primitives that read zeros beyond the end of a tensor.
COPIES = ("copy", "copy_async")


def canonicalize(program: TileProgram) -> TileProgram:
    """Replace every element-wise primitive of scope ``cta`` by a nest, and nests by plain ones.

    Raises
    ------
    Decline
        If a tile has a scope that this architecture has no use for, or the number of iterations of
        a nest is not known.
    """
    places = {
        tile: _accumulator(tile, program)
        for tile in allocations(program.body)
        if tile.scope() == "tmem"
    }

    # Tensor memory is written by whole columns, so that no guard may stand around a store.
    held = ("fragment",) if program.tensor_memory else TILE_SCOPES

    operands = {
        operand.source for mma in walk(program.block) if isinstance(mma, Mma)
        for operand in mma.operands
    }  # fmt: skip

    def call(primitive: TilePrimitiveCall) -> Stmt:
        if primitive.scope.name != "cta":
            return primitive
        if op_name(primitive) in ELEMENTWISE:
            return _nest(primitive, held)
        if op_name(primitive) in REDUCTIONS:
            deep = is_deep(primitive.args[1].source)
            return primitive if deep else ir.written_at(plain_reduction(primitive), primitive.span)
        if op_name(primitive) in UPDATES:
            return atomic_of_part(primitive)
        if is_of_order(primitive):
            return ir.written_at(plain_order(primitive), primitive.span)
        if op_name(primitive) not in COPIES:
            return primitive
        return _copy(by_threads(primitive, operands), held, program.arch)

    way = RowCopies(program.tensor_memory, program.arch == SM90A.name)
    copies, decided = copy_loops(through_shared(program.body), way)
    body = tuple(
        tvm_ffi.structural_map(plain_nest, (TilePrimitiveCall, call), order="pre")
        for plain_nest in plain_nests(copies)
    )
    body = [ir.substitute(statement, places) for statement in body]
    program = flat_fragments(program.replace(body=tuple(body)))
    program = without_unused_loads(program)
    plain = swap_operands(program.replace(body=tuple(map(_fixed_extents, program.block))))
    plain = through_registers(plain)
    return plain.replace(in_place=in_place(plain)).decided(*decided)


def _fixed_extents(statement: Statement) -> Stmt:
    """Loops whose body changes a value in their extent: the extent is computed before."""
    raw = statement.with_each(_fixed_extents)
    if not isinstance(statement, Loop) or not ir.uses(statement.extent) & statement.effects.writes:
        return raw
    extent = ThreadScalar(f"{statement.var.name}_extent", str(statement.var.ty.dtype))
    loop = ir.loop(
        statement.var,
        extent.value,
        [raw.body],
        raw.annotations,
        raw.kind,
        statement.start,
        raw.step,
    )
    return ir.seq([*extent.define(statement.extent), loop])


def _accumulator(tile: Buffer, program: TileProgram) -> Buffer:
    """A tile of tensor memory is an accumulator: on Blackwell all of them lie there."""
    if has_layout(tile):
        raise Decline(
            f"{tile.name} lies in tensor memory with a layout of its own, where passes choose "
            "columns for each warpgroup; leave layout= out, or define ids of threads."
        )
    if program.arch == SM90A.name:
        raise Decline(
            f"{tile.name} lies in tensor memory, which {SM90A.name} does not have; give it the "
            "scope accumulator."
        )
    return tirx.decl_buffer(tile.shape, str(tile.dtype), tile.name, scope="accumulator")


def _nest(call: TilePrimitiveCall, held: Container[str] = ()) -> Stmt:
    """A nest over the destination; where that is a part of a tile, over all of it with a guard.

    So it is for tiles of the scopes ``held``, which threads hold in registers.
    """
    to, *rest = call.args
    ranges = ir.ranges(to)
    counters = ir.counters(len(ranges))
    dtype = str(to.source.dtype)
    guarded = to.source.scope() in held and not is_whole(to)
    firsts = [first if guarded else 0 for first, _ in ranges]
    is_copy = op_name(call) in COPIES
    narrow = _integers(call)

    def value(operand: Any) -> Any:
        if isinstance(operand, LambdaExpr):
            own = [place(0, *pair) for pair in zip(counters, firsts, strict=True)]
            return ir.substitute(operand.pred, dict(zip(operand.vars, own, strict=True)))
        if not isinstance(operand, TensorRegion):
            is_float = "float" in str(ir.as_expr(operand, "float32").ty.dtype)
            return T.Cast(narrow, operand) if narrow and is_float else operand
        axes = _matching(ir.ranges(operand), ranges, is_copy)
        indices = [
            start if axis is None else place(start, counters[axis], firsts[axis])
            for (start, _), axis in zip(ir.ranges(operand), axes, strict=True)
        ]
        element = operand.source[tuple(indices)]
        return or_zero(element) if is_copy and is_global(operand.source) else element

    operands = [value(operand) for operand in rest if operand is not None]
    result = ELEMENTWISE.get(op_name(call), lambda x: x)(*operands)
    if not isinstance(result, (int, float)) and str(result.ty.dtype) != dtype:
        result = T.Cast(dtype, result)
    indices = [
        place(start, counter, first)
        for (start, _), counter, first in zip(ranges, counters, firsts, strict=True)
    ]
    store: Stmt = tirx.BufferStore(to.source, ir.as_expr(result, dtype), indices, call.span)
    if not guarded:
        return ir.nest(counters, [extent for _, extent in ranges], [store])
    guard = inside(to, counters)
    return ir.nest(counters, map(int, to.source.shape), [ir.when(guard, [store])])


def copy_as_nest(call: TilePrimitiveCall) -> Stmt:
    """A copy into a tile, element by element."""
    return _nest(call)


def _integers(call: TilePrimitiveCall) -> str | None:
    """The dtype of tiles of integers, which numbers beside them are rounded to."""
    tiles = [operand.source for operand in call.args if isinstance(operand, TensorRegion)]
    dtype = str(tiles[1 if len(tiles) > 1 else 0].dtype)
    return dtype if op_name(call) in _OF_TILE and "int" in dtype else None


def _matching(own: list[Any], to: list[Any], is_copy: bool) -> list[int | None]:
    """For each dimension of an operand the one of the destination that it goes with, if any.

    A copy passes over dimensions of one element; other operands are broadcast from the left.
    """
    single = [[ir.is_constant(extent, 1) for _, extent in ranges] for ranges in (own, to)]
    if is_copy and single[0] != single[1]:
        free = [axis for axis, is_single in enumerate(single[1]) if not is_single]
        return [None if is_single else free.pop(0) for is_single in single[0]]
    lead = len(to) - len(own)
    return [
        None if is_single and not single[1][axis + lead] else axis + lead
        for axis, is_single in enumerate(single[0])
    ]


def _copy(call: TilePrimitiveCall, held: Container[str], arch: str) -> Stmt:
    """Copies that no engine does: between tiles, or of unknown extents.

    Loads of threads stay loads on Hopper, where they fill the stages of a ring.
    """
    to, source = (region.source for region in call.args[:2])
    if is_deep(to) or is_deep(source):
        return _nest(call)
    if BY_THREADS in call.config and not (is_shared(to) and arch == SM90A.name):
        return _nest(call)
    extents = [extent for region in call.args[:2] for _, extent in ir.ranges(region)]
    if to.scope() in TILE_SCOPES and not (is_global(source) and is_whole(call.args[0])):
        return _nest(call, held)
    if is_shared(to) and source.scope() in TILE_SCOPES:
        return _nest(call, held)
    if is_shared(to) and is_shared(source):
        return _nest(call)  # TVM has one thread copy it
    if is_global(to) and not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return store_of_part(call)
    if is_global(to) and source.scope() in TILE_SCOPES and not is_whole(call.args[1]):
        return store_of_part(call)
    if is_global(to) and is_shared(source) and _parts_rows(call.args[1]):
        return _rows_by_threads(call)
    return call


def _parts_rows(region: TensorRegion) -> bool:
    """Whether a region has several rows of a tile, and parts of them: no TMA stores those."""
    several = False
    for extent, size in zip((e for _, e in ir.ranges(region)), region.source.shape, strict=True):
        if several and int(extent) != int(size):
            return True
        several |= int(extent) != 1
    return False


def _rows_by_threads(call: TilePrimitiveCall) -> Stmt:
    """A store of parts of rows, element by element."""
    extents = [[int(extent) for _, extent in ir.ranges(region)] for region in call.args[:2]]
    if extents[0] != extents[1]:
        raise Decline(
            f"The copy to {call.args[0].source.name} takes parts of the rows of "
            f"{call.args[1].source.name}, {extents[1]}, to a region of extents {extents[0]}; "
            "threads store it where both have the same extents, so write a nest, or copy whole "
            "rows."
        )
    return _nest(call)

"""Elementwise tile primitives on register tiles, with broadcasting, fully unrolled.

Stock TVM's ``reg`` variant covers tiles of one distribution. This variant adds operands that are
broadcast (a value for each row or each column, which several threads hold copies of) and
``minimum``, packs conversions two at a time, and never loops: ptxas keeps a loop of many or long
iterations, and a loop that indexes registers moves the whole tile to local memory.

Broadcasting follows NumPy: extents are aligned at the right, and an extent of 1 is repeated. One
value for each row of an ``(m, n)`` tile is therefore an operand of shape ``(m, 1)``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import PrimFunc
from tvm.tirx.operator.tile_primitive import fail
from tvm.tirx.tile_primitive import DispatchContext, TilePrimitiveCall

from warploom.ops.register_tile import RegisterTile, Threads, read_register_tile
from warploom.ops.schedule import Schedule


def _silu(x: Any) -> Any:
    return x / (_one(x) + T.exp(-x))


def _one(x: Any) -> Any:
    return tvm.tirx.const(1.0, str(x.ty.dtype))


@dataclass(frozen=True)
class Operation:
    """How one tile primitive computes an element.

    Attributes
    ----------
    function : callable
        From the operands' values to the result.
    operands : int
        Number of leading arguments after the destination that are operands.
    affine : bool
        Whether ``bias`` and ``scale`` may follow, applied to the operand first.
    wide : bool
        Whether 16-bit and 8-bit operands are widened to float32 before.
    """

    function: Callable
    operands: int
    affine: bool = False
    wide: bool = False


_unary = partial(Operation, operands=1, wide=True)
OPERATIONS = {
    "zero": Operation(lambda _: tvm.tirx.const(0, "int32"), operands=0),
    "fill": Operation(lambda x: x, operands=1),
    "cast": Operation(lambda x: x, operands=1),
    "add": Operation(operator.add, operands=2),
    "sub": Operation(operator.sub, operands=2),
    "mul": Operation(operator.mul, operands=2),
    "fdiv": Operation(operator.truediv, operands=2, wide=True),
    "maximum": Operation(T.max, operands=2),
    "minimum": Operation(T.min, operands=2),
    "fma": Operation(lambda x, scale, bias: x * scale + bias, operands=3),
    "sqrt": _unary(T.sqrt, affine=True),
    "exp": _unary(T.exp, affine=True),
    "exp2": _unary(T.exp2, affine=True),
    "log2": _unary(T.log2, affine=True),
    "reciprocal": _unary(lambda x: _one(x) / x),
    "silu": _unary(_silu),
}

#: Destination -> instruction that converts two float32 into one word, and the word.
#: PTX ISA, "cvt": the first source becomes the upper half.
PACKED_CASTS = {
    "float16": ("cvt.rn.f16x2.f32", "uint32"),
    "bfloat16": ("cvt.rn.bf16x2.f32", "uint32"),
    "float8_e4m3fn": ("cvt.rn.satfinite.e4m3x2.f32", "uint16"),
    "float8_e5m2": ("cvt.rn.satfinite.e5m2x2.f32", "uint16"),
}


@dataclass(frozen=True)
class TileOperand:
    """A register tile, and which of its registers meets each register of the destination."""

    tile: RegisterTile
    registers: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """A call, reduced to constants: ``dst[q] = function(operands at q)`` for every ``q``."""

    operation: Operation
    dst: RegisterTile
    operands: tuple[TileOperand | Any, ...]
    dtype: str
    packed: tuple[str, str] | None


def match_registers(dst: RegisterTile, src: RegisterTile, name: str) -> tuple[int, ...]:
    """For each register of ``dst``, the one of ``src`` that holds its broadcast partner.

    Declines if shapes do not broadcast, or if the partner is held by another thread or its
    register differs among threads.
    """
    lead = len(dst.shape) - len(src.shape)
    aligned = zip(src.shape, dst.shape[max(lead, 0) :], strict=False)
    if lead < 0 or any(s not in (1, d) for s, d in aligned):
        fail(
            f"{name} of shape {src.shape} does not broadcast to {dst.shape}; each extent, aligned "
            "at the right, must be equal or 1 (one value a row is a tile of shape (rows, 1))."
        )
    position = np.unravel_index(dst.table, dst.shape)[lead:]
    partner = [p if s > 1 else 0 * p for p, s in zip(position, src.shape, strict=True)]
    wanted = np.ravel_multi_index(partner, src.shape)
    holder = np.full((len(wanted), src.size), -1, np.int32)
    np.put_along_axis(holder, src.table, np.arange(src.registers, dtype=np.int32)[None, :], axis=1)
    registers = np.take_along_axis(holder, wanted, axis=1)
    if (registers != registers[0]).any() or (registers < 0).any():
        fail(
            f"{name} is distributed over threads otherwise than the destination; allocate it with "
            "the layout of the destination, row_fragment (rows, 1) or column_fragment (columns,)."
        )
    return tuple(src.offsets[r] for r in registers[0])


def _read_plan(name: str, call: TilePrimitiveCall, context: DispatchContext) -> Plan:
    operation = OPERATIONS[name]
    analyzer = Analyzer()
    for variable, bounds in context.var_range_map.items():
        analyzer.bind(variable, bounds)
    threads = Threads.of(context)
    dst = read_register_tile(call.args[0], "the destination", threads, analyzer)
    arguments = [(i, a) for i, a in enumerate(call.args[1 : 1 + operation.operands], 1)]
    if operation.affine:
        arguments += [(i, call.args[i]) for i in (2, 3) if i < len(call.args)]
    operands = []
    for index, argument in arguments:
        if not isinstance(argument, TensorRegion):
            operands.append(argument)
            continue
        tile = read_register_tile(argument, f"operand {index}", threads, analyzer)
        operands.append(TileOperand(tile, match_registers(dst, tile, f"operand {index}")))
    tiles = [o for o in operands if isinstance(o, TileOperand)]
    dtypes = sorted({o.tile.dtype for o in tiles})
    if len(dtypes) > 1:
        fail(f"the operands have dtypes {' and '.join(dtypes)}; cast them to one dtype first.")
    dtype = dtypes[0] if dtypes else dst.dtype
    # Conversions between small floats go through float32: exact, and two results fit in one
    # packed instruction.
    converts = name == "cast" and dtype.startswith(("float", "bfloat")) and dtype != dst.dtype
    if (operation.wide or converts) and tvm.DataType(dtype).bits < 32:
        dtype = "float32"
    packs = name == "cast" and dtype == "float32" and _in_pairs(dst, analyzer)
    packed = PACKED_CASTS.get(dst.dtype) if packs else None
    return Plan(operation, dst, tuple(operands), dtype, packed)


def _in_pairs(tile: RegisterTile, analyzer: Analyzer) -> bool:
    """Whether the registers of a tile come in pairs that fill whole words."""
    pairs = zip(tile.offsets[::2], tile.offsets[1::2], strict=False)
    even = tile.registers % 2 == 0 and all(a % 2 == 0 and b == a + 1 for a, b in pairs)
    return even and analyzer.can_prove_equal(tvm.tirx.floormod(tile.start, 2), 0)


def _values(plan: Plan, views: list, index: int) -> list[Any]:
    """The operands of element ``index`` in the dtype of the computation."""
    values = []
    for operand, view in zip(plan.operands, views, strict=True):
        value = operand
        if isinstance(operand, TileOperand):
            value = view[operand.tile.start + operand.registers[index]]
        values.append(None if value is None else T.cast(value, plan.dtype))
    return values


def _result(plan: Plan, values: list[Any]) -> Any:
    operation = plan.operation
    if operation.affine:
        value, bias, scale = (*values, None, None)[:3]
        value = value if scale is None else value * scale
        values = [value if bias is None else value + bias]
    result = operation.function(*values) if operation.operands else operation.function(None)
    return T.cast(result, plan.dst.dtype)


def _emit(plan: Plan, dst: Any, views: list) -> None:
    for index, register in enumerate(plan.dst.offsets):
        value = _result(plan, _values(plan, views, index))
        T.buffer_store(dst, value, [plan.dst.start + register])


def _emit_packed(plan: Plan, words: Any, views: list) -> None:
    chain = plan.packed[0]
    for index in range(0, plan.dst.registers, 2):
        (low,), (high,) = _values(plan, views, index), _values(plan, views, index + 1)
        word = T.truncdiv(plan.dst.start + plan.dst.offsets[index], 2)
        T.evaluate(T.ptx[chain](words[word], high, low))


def elementwise_fragment(name: str, call: TilePrimitiveCall, context: DispatchContext) -> PrimFunc:
    """``dst[i, j] = function(operands[i, j])``: one unrolled statement a register.

    Parameters
    ----------
    name : str
        Key of :data:`OPERATIONS`.

    Notes
    -----
    Operands are register tiles of one dtype, or scalars. 8- and 16-bit operands of functions are
    widened to float32; the result is converted to the dtype of the destination.
    """
    plan = _read_plan(name, call, context)

    def views() -> list:
        return [o.tile.view() if isinstance(o, TileOperand) else None for o in plan.operands]

    if plan.packed is not None:

        @T.prim_func(check_well_formed=False)
        def packed_impl():
            sources = T.meta_var(views())
            words = T.meta_var(plan.dst.view(plan.packed[1]))
            _emit_packed(plan, words, sources)

        return packed_impl

    @T.prim_func(check_well_formed=False)
    def impl():
        sources = T.meta_var(views())
        dst = T.meta_var(plan.dst.view())
        _emit(plan, dst, sources)

    return impl


def on_register_tiles(call: TilePrimitiveCall, context: DispatchContext) -> tuple[bool, str]:
    """Predicate: the destination is in registers and the call is one of whole warps."""
    scope = call.args[0].source.scope()
    if scope != "local":
        return False, f"the destination must be in registers (scope 'local'), got scope '{scope}'."
    Threads.of(context)
    return True, ""


SCHEDULES = tuple(
    Schedule(
        op=name,
        variant="fragment",
        priority=20,
        when=(("register_tiles", on_register_tiles),),
        impl=partial(elementwise_fragment, name),
    )
    for name in OPERATIONS
)

"""Whether the results of a program are exact for inputs that are small multiples of 1/2.

Sums of products of such numbers are exact in any order, as those of GEMMs are checked
(:mod:`warploom.meta_schedule.reference`): a kernel that leaves out one step of a sum shows.
Exponentials, quotients and sums of rounded values are not, and are compared with a tolerance.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tvm_ffi
from tvm.ir import Call, Op, TensorRegion
from tvm.ir.prim import expr as prim
from tvm.tirx import BufferStore, FloatImm, PrimFunc
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.meta_schedule.programs.written import written_by
from warploom.target.dtypes import bits_of
from warploom.tile import ir
from warploom.tile.primitives import op_name

#: Primitives that bring values from place to place, that sum, and that round at most once.
_MOVES = ("copy", "copy_async")
_SUMS = ("gemm_async", "sum")
_ELEMENTWISE = (
    "fill", "zero", "memset", "cast", "add", "sub", "mul", "fma", "maximum", "minimum", "select",
    "max", "min",
)  # fmt: skip
#: Calls in expressions that choose a value, and compute none.
_CALLS = ("prim.if_then_else", "tirx.likely")
#: Constants whose products with the inputs stay exact: multiples of a quarter up to a bound.
_QUARTER, _LARGEST = 4, 16
#: Bits of a sum that is not rounded on the way.
_SUM_BITS = 32


def is_exact(program: PrimFunc, numbers: Iterable[Any] = ()) -> bool:
    """Whether only the last step rounds, for any config of the program.

    Parameters
    ----------
    program : PrimFunc
    numbers : iterable of number
        The values of its parameters that are numbers.
    """
    primitives: list[TilePrimitiveCall] = []
    stored: set[Any] = set()
    inexact: list[Any] = []

    def call(node: Call) -> None:
        if not isinstance(node.op, Op) or node.op.name not in _CALLS:
            inexact.append(node)

    def divide(node: prim.Div) -> None:
        if "float" in str(node.ty.dtype):
            inexact.append(node)

    def constant(node: FloatImm) -> None:
        if not _is_plain(node.value):
            inexact.append(node)

    tvm_ffi.structural_walk(
        program.body,
        [
            (TilePrimitiveCall, primitives.append),
            (BufferStore, lambda store: stored.add(store.buffer)),
            (Call, call),
            (prim.Div, divide),
            (FloatImm, constant),
        ],
    )
    if inexact or not all(map(_is_plain, numbers)) or _has_indices(program):
        return False
    named = [(op_name(one), _regions(one)) for one in primitives]
    computed = stored | {
        regions[0].source for name, regions in named if name not in _MOVES and regions
    }
    for name, regions in named:
        if name in _SUMS:
            to, *sources = (region.source for region in regions)
            if bits_of(str(to.ty.dtype)) < _SUM_BITS or computed & set(sources):
                return False
        elif name not in (*_MOVES, *_ELEMENTWISE):
            return False
    return True


def _regions(call: TilePrimitiveCall) -> list[TensorRegion]:
    return [argument for argument in call.args if isinstance(argument, TensorRegion)]


def _is_plain(value: Any) -> bool:
    return abs(value) <= _LARGEST and float(value * _QUARTER).is_integer()


def _has_indices(program: PrimFunc) -> bool:
    """Whether an input may hold indices, which numbers of exact results would be out of bounds."""
    written, updated = written_by(program)
    tensors = [param for param in program.params if ir.is_buffer(param)]
    read = [t for at, t in enumerate(tensors) if at not in written or at in updated]
    return any(str(one.ty.dtype) in ("int32", "int64", "uint32") for one in read)

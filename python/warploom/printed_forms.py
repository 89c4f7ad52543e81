"""Lets TVM read back the output of its own printer.

Six forms do not parse back in TVM 0.27:

- The node of a GEMM without scale factors has the arguments ``(C, A, B, transA, transB, accum)``,
  and the printer writes them in that order; the builder has ``SFA, SFB`` after ``B``, and takes
  two flags for them. Scale factors are tiles and flags are not, which tells the forms apart. A node
  with a sparse A, which the builder does not know, has metadata before the flags; ``sparse=`` of
  :func:`accept_flags` makes it.
- A call whose source is its destination is printed without the source; ``silu``, ``cast`` and
  copies require it.
- An operand ``T.int32(3)`` is printed as ``3``, and parsed as a number that is no expression.
- ``T.uint64(2**63)`` is printed, and the builder takes no such integer.
- A buffer of one element is printed as a variable, ``full: T.uint64``, whatever its scope, which is
  lost. Without syntactic sugar it is not.
- A region of one element is printed as that element, which no primitive takes for a tile.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm.ir import IRModule, TensorLoad, TensorRegion
from tvm.tirx import AllocBuffer, PrimFunc, const, is_buffer_var

#: Primitives that are printed without the source when they work in place, and require it.
IN_PLACE = ("cast", "copy", "copy_async", "silu")
#: Primitives that take scalar operands.
SCALARS = ("add", "fdiv", "fill", "fma", "maximum", "memset", "minimum", "mul", "sub")
#: Primitives whose first two operands are regions.
REGIONS = ("cast", "copy", "max", "min", "silu", "sum")
_FLAGS = ("transA", "transB", "accum")


def accept_flags(build: Callable) -> Callable:
    """``build``, the builder's ``gemm_async``, which takes the flags as arguments 4 to 6 too.

    With ``sparse=``, or a fourth argument that is a region before a flag, A is sparse
    (:mod:`warploom.sparse`).
    """

    @functools.wraps(build)
    def gemm_async(*operands: Any, **options: Any) -> Any:
        flags = operands[3:]
        sparse = options.pop("sparse", None)
        if len(flags) > 1 and [*map(_may_be_scale_factors, flags[:2])] == [True, False]:
            sparse, flags = flags[0], flags[1:]
        if sparse is not None:
            return _sparse_gemm(sparse, operands[:3], flags, options)
        if flags and len(flags) <= len(_FLAGS) and not _may_be_scale_factors(flags[0]):
            return build(*operands[:3], **dict(zip(_FLAGS, flags, strict=False)), **options)
        return build(*operands, **options)

    return gemm_async


def _sparse_gemm(metadata: Any, operands: Any, flags: Any, options: dict[str, Any]) -> Any:
    """The node of a GEMM with a sparse A: the result, A, B, metadata, and the flags."""
    from tvm.tirx.operator.tile_primitive.ops import GemmAsync
    from tvm.tirx.script.builder import tirx as builder

    given = dict.fromkeys(_FLAGS, False) | dict(zip(_FLAGS, flags, strict=False))
    given |= {name: options.pop(name) for name in _FLAGS if name in options}
    kept = {name: options.pop(name, None) for name in ("workspace", "dispatch", "scope")}
    kept["workspace"] = kept["workspace"] or {}
    regions = map(builder._to_region, (*operands, metadata))
    return builder.f_insert(GemmAsync(*regions, *given.values(), config=options, **kept))


def accept_in_place(build: Callable) -> Callable:
    """``build``, a primitive of :data:`IN_PLACE`, whose source is the destination if left out."""

    @functools.wraps(build)
    def primitive(*operands: Any, **options: Any) -> Any:
        if len(operands) == 1 and not {"src", "dst", "dtype"} & set(options):
            return build(*operands, *operands, **options)
        return build(*operands, **options)

    return primitive


def accept_integers(build: Callable) -> Callable:
    """``build``, a primitive of :data:`SCALARS`, for which plain integers are expressions.

    They have the dtype of the destination, or int32 if that is no integer.
    """

    @functools.wraps(build)
    def primitive(*operands: Any, **options: Any) -> Any:
        return build(*(_expression(operand, operands[0]) for operand in operands), **options)

    return primitive


def accept_elements(build: Callable) -> Callable:
    """``build``, a primitive of :data:`REGIONS`, for which an element of a buffer is a region.

    TVM prints a region of a single element, such as the result of a reduction over all axes, so.
    """

    @functools.wraps(build)
    def primitive(*operands: Any, **options: Any) -> Any:
        return build(*(*map(_region, operands[:2]), *operands[2:]), **options)

    return primitive


def _region(operand: Any) -> Any:
    if isinstance(operand, TensorLoad) and is_buffer_var(operand.source):
        return operand.source[tuple(slice(index, index + 1) for index in operand.indices)]
    return operand


def accept_large(build: Callable) -> Callable:
    """``build``, the builder's ``uint64``, which takes all integers of 64 bits."""

    @functools.wraps(build)
    def uint64(expr: Any = None, *others: Any, **options: Any) -> Any:
        if isinstance(expr, int) and expr >= 1 << 63:
            return const(expr, "uint64")
        return build(expr, *others, **options)

    return uint64


def keep_scopes(script: Callable[..., str]) -> Callable[..., str]:
    """``script``, the method, without sugar where that would lose the scope of a buffer."""

    @functools.wraps(script)
    def printed(self: Any, *, syntax_sugar: bool = True, **options: Any) -> str:
        sugar = syntax_sugar and not _has_scoped_scalar(self)
        return script(self, syntax_sugar=sugar, **options)

    return printed


def _has_scoped_scalar(node: Any) -> bool:
    """Whether a function, or one of a module, allocates one element elsewhere than in registers."""
    if isinstance(node, IRModule):
        return any(map(_has_scoped_scalar, node.functions.values()))
    scoped = False

    def visit(allocation: AllocBuffer) -> None:
        nonlocal scoped
        scoped |= allocation.buffer.is_scalar() and allocation.buffer.scope() != "local"

    if isinstance(node, PrimFunc):
        tvm_ffi.structural_walk(node.body, (AllocBuffer, visit))
    return scoped


def _expression(argument: Any, dst: Any) -> Any:
    if isinstance(argument, bool) or not isinstance(argument, int):
        return argument
    buffer = dst.source if isinstance(dst, TensorRegion) else dst
    dtype = str(buffer.ty.dtype)
    return const(argument, dtype if "int" in dtype else "int32")


def _may_be_scale_factors(argument: Any) -> bool:
    return argument is None or isinstance(argument, TensorRegion) or is_buffer_var(argument)

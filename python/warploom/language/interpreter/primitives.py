"""Tile primitives at CTA scope, on whole regions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from tvm.ir import TensorRegion
from tvm.tirx.tile_primitive import LambdaExpr, TilePrimitiveCall

from warploom.errors import IllegalCombination, TileProgramError
from warploom.language.interpreter.barriers import complete_bytes
from warploom.language.interpreter.order import ORDERED
from warploom.language.interpreter.region import Region
from warploom.language.interpreter.rows import ROWS
from warploom.language.interpreter.running import Running
from warploom.language.rules.calls import require_primitive
from warploom.language.rules.operands import (
    require_copy,
    require_elementwise,
    require_gemm,
    require_reduction,
    require_select,
    require_sparse,
    require_steps,
)
from warploom.language.rules.scales import require_scaled_gemm
from warploom.language.values.dtypes import convert
from warploom.language.values.scaled import scaled_values
from warploom.layout.metadata_words import WORD, from_words
from warploom.sparse import decompress, sparsity
from warploom.tile.updates import REDUCE
from warploom.tile_primitives import BLOCKS


def run_primitive(evaluate: Running, call: TilePrimitiveCall) -> None:
    """Execute one call of the whole CTA."""
    execute_primitive(evaluate, call, require_primitive(call))


def execute_primitive(evaluate: Running, call: TilePrimitiveCall, name: str) -> None:
    """Execute one call, by whichever role."""
    with np.errstate(all="ignore"):
        if "steps" in call.config:
            _strided_copy(evaluate, call)
        elif REDUCE in call.config:
            ORDERED[f"atomic_{call.config[REDUCE]}"](evaluate, list(call.args))
        elif BLOCKS in call.config:
            _reduce_blocks(evaluate, call, name)
        else:
            PRIMITIVES[name](evaluate, list(call.args))
    if "mbar" in call.config:
        brought = Region.of(evaluate, call.args[0])
        count = math.prod(brought.extent) * brought.dtype.itemsize
        complete_bytes(evaluate, call.config["mbar"], count)


def _copy(evaluate: Running, args: list[Any]) -> None:
    dst, src = Region.of(evaluate, args[0]), Region.of(evaluate, args[1])
    require_copy(dst.operand, src.operand)
    dst.write(src.read())


def _strided_copy(evaluate: Running, call: TilePrimitiveCall) -> None:
    """A load with ``steps=``: the distance of elements along each dimension of its source."""
    name, steps = str(call.op.name).rpartition(".")[2], tuple(map(int, call.config["steps"]))
    dst, src = (Region.of(evaluate, argument) for argument in call.args[:2])
    require_steps(name, dst.operand, src.operand, steps)
    require_copy(dst.operand, src.operand)
    dst.write(src.read_every(steps))


def _gemm_async(evaluate: Running, args: list[Any]) -> None:
    acc, a, b, *more = (Region.of(evaluate, argument) for argument in args[:-3])
    trans_a, trans_b, accumulate = (bool(evaluate(argument)) for argument in args[-3:])
    operands = [region.operand for region in (acc, a, b, *more)]
    left, right = a.matrix(), b.matrix()
    if len(more) == 2:
        row = require_scaled_gemm(*operands, trans_a, trans_b)
        left, right = (
            scaled_values(row, matrix, scale.read())
            for matrix, scale in zip((left, right), more, strict=True)
        )
    else:
        (require_sparse if more else require_gemm)(*operands, trans_a, trans_b)
        left, right = (left.T if trans_a else left), (right.T if trans_b else right)
        left = _dense(left, more[0]) if more else left
    # Sums of 8-bit products are exact in float64 too. einsum does without BLAS, whose threads cost
    # more than they gain on tiles.
    result = np.einsum("mk,nk->mn", left.astype(np.float64), right.astype(np.float64))
    result = acc.matrix().astype(np.float64) + result if accumulate else result
    acc.write(result.astype(np.int64) if acc.dtype.kind == "i" else result)


def _dense(values: np.ndarray, metadata: Region) -> np.ndarray:
    """The matrix of which a sparse A holds half of the elements."""
    try:
        found = metadata.matrix()
        if found.dtype == WORD:
            size = sparsity(values.dtype).metadata_columns(2 * values.shape[1])
            found = from_words(found, values.dtype, size)
        return decompress(values, found)
    except IllegalCombination as error:
        raise TileProgramError(f"gemm_async, {metadata.storage.name}: {error}") from error


def _elementwise(function: Callable, wide: bool, evaluate: Running, args: list[Any]) -> None:
    dst = Region.of(evaluate, args[0])
    sources = [_source(evaluate, argument) for argument in args[1:] if argument is not None]
    tiles = [region for region in sources if isinstance(region, Region)]
    require_elementwise(dst.operand, [tile.operand for tile in tiles])
    dtype = np.dtype(np.float64) if wide else next((tile.dtype for tile in tiles), dst.dtype)
    values = [
        np.broadcast_to(source.read(), dst.extent) if isinstance(source, Region) else source
        for source in sources
    ]
    result = function(*(convert(v, dtype) for v in values))
    dst.write(np.broadcast_to(result, dst.extent))


def _source(evaluate: Running, argument: Any) -> Region | np.ndarray:
    """A tile that is broadcast to the destination, or a number."""
    if isinstance(argument, TensorRegion):
        return Region.of(evaluate, argument)
    value = evaluate(argument)
    if value.ndim:
        raise TileProgramError("a scalar operand of a tile primitive is not one value.")
    return value


def _affine(function: Callable, evaluate: Running, args: list[Any]) -> None:
    """``dst = function(src * scale + bias)``; TVM has the bias before the scale."""
    dst, src, bias, scale = (*args, None, None)[:4]
    present = [a for a in (scale, bias) if a is not None]

    def compute(x: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        if scale is not None:
            x, rest = x * rest[0], rest[1:]
        return function(x + rest[0] if bias is not None else x)

    _elementwise(compute, True, evaluate, [dst, src, *present])


def _fill(evaluate: Running, args: list[Any]) -> None:
    _elementwise(lambda x: x, False, evaluate, args)


def _zero(evaluate: Running, args: list[Any]) -> None:
    dst = Region.of(evaluate, args[0])
    dst.operand.require_tile("the destination of zero")
    dst.write(np.zeros(dst.extent, dst.dtype))


def _select(evaluate: Running, args: list[Any]) -> None:
    dst = Region.of(evaluate, args[0])
    predicate: LambdaExpr = args[3]
    require_select(dst.operand, len(predicate.vars))
    grid = np.indices(dst.extent, np.int32)
    places = dict(zip(predicate.vars, grid, strict=True))
    inner = replace(
        evaluate, variables={**evaluate.variables, **places}, loops=tuple(predicate.vars)
    )
    chosen = inner(predicate.pred).astype(bool)
    _elementwise(partial(np.where, chosen), False, evaluate, args[:3])


def _reduce(function: Callable, join: Callable, evaluate: Running, args: list[Any]) -> None:
    dst, src = Region.of(evaluate, args[0]), Region.of(evaluate, args[1])
    axes = require_reduction(dst.operand, src.operand, [int(a) for a in args[2]])
    exact = np.dtype(np.int64 if src.dtype.kind in "iu" else np.float64)
    result = function(src.read().astype(exact), axis=tuple(axes)).reshape(dst.extent)
    dst.write(join(dst.read().astype(exact), result) if evaluate(args[3]) else result)


def _reduce_blocks(evaluate: Running, call: TilePrimitiveCall, name: str) -> None:
    """A reduction over rows, block by block, as passes write it."""
    dst, src = (Region.of(evaluate, argument) for argument in call.args[:2])
    function = {"sum": np.sum, "max": np.max, "min": np.min}[name]
    exact = np.dtype(np.int64 if src.dtype.kind in "iu" else np.float64)
    blocks = src.read().astype(exact).reshape(int(call.config[BLOCKS]), -1, *src.extent[1:])
    dst.write(function(blocks, axis=1).reshape(dst.extent))


def _silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


_arithmetic = partial(partial, _elementwise)
PRIMITIVES: dict[str, Callable[[Running, list[Any]], None]] = {
    **ORDERED,
    **ROWS,
    "copy": _copy,
    "copy_async": _copy,
    "gemm_async": _gemm_async,
    "fill": _fill,
    "memset": _fill,
    "zero": _zero,
    "cast": _fill,
    "add": _arithmetic(np.add, False),
    "sub": _arithmetic(np.subtract, False),
    "mul": _arithmetic(np.multiply, False),
    "maximum": _arithmetic(np.maximum, False),
    "minimum": _arithmetic(np.minimum, False),
    "fdiv": _arithmetic(np.divide, True),
    "fma": _arithmetic(lambda x, scale, bias: x * scale + bias, True),
    "reciprocal": _arithmetic(np.reciprocal, True),
    "silu": _arithmetic(_silu, True),
    "sqrt": partial(_affine, np.sqrt),
    "exp": partial(_affine, np.exp),
    "exp2": partial(_affine, np.exp2),
    "log2": partial(_affine, np.log2),
    "select": _select,
    "sum": partial(_reduce, np.sum, np.add),
    "max": partial(_reduce, np.max, np.maximum),
    "min": partial(_reduce, np.min, np.minimum),
}

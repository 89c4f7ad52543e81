"""Tile primitives at CTA scope, on whole regions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from tvm.ir import TensorRegion
from tvm.tirx.tile_primitive import LambdaExpr, TilePrimitiveCall

from warploom.errors import TileProgramError
from warploom.language.interpreter.barriers import complete_bytes
from warploom.language.interpreter.dtypes import convert
from warploom.language.interpreter.expressions import Evaluator
from warploom.language.interpreter.nests import storage_of
from warploom.language.interpreter.storage import SHARED, Storage
from warploom.target import TMA

#: Dtypes of A and B -> dtypes of the accumulator, as tensor cores have them.
_FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
_INT8 = ("int8", "uint8")
GEMM_DTYPES: dict[tuple[str, str], tuple[str, ...]] = {
    ("float16", "float16"): ("float32", "float16"),
    ("bfloat16", "bfloat16"): ("float32",),
    ("float32", "float32"): ("float32",),
    **{(a, b): ("float32", "float16") for a in _FLOAT8 for b in _FLOAT8},
    **{(a, b): ("int32",) for a in _INT8 for b in _INT8},
}


@dataclass(frozen=True)
class Region:
    """Part of a buffer, the operand of a primitive."""

    storage: Storage
    start: tuple[int, ...]
    extent: tuple[int, ...]

    @classmethod
    def of(cls, evaluate: Evaluator, argument: TensorRegion) -> Region:
        storage = storage_of(evaluate, argument.source)
        start = tuple(evaluate.integer(r.min) for r in argument.region)
        extent = tuple(evaluate.integer(r.extent) for r in argument.region)
        if any(e < 0 for e in extent):
            raise TileProgramError(f"a region of {storage.name} has the negative extent {extent}.")
        return cls(storage, start, extent)

    @property
    def dtype(self) -> np.dtype:
        return self.storage.array.dtype

    @property
    def squeezed(self) -> tuple[int, ...]:
        return tuple(e for e in self.extent if e != 1)

    def read(self) -> np.ndarray:
        return self.storage.read(self.start, self.extent)

    def read_every(self, steps: tuple[int, ...]) -> np.ndarray:
        """Its elements with that distance from each other along each dimension."""
        pairs = list(zip(self.extent, steps, strict=True))
        span = tuple((extent - 1) * step + 1 if extent else 0 for extent, step in pairs)
        return self.storage.read(self.start, span)[tuple(slice(None, None, s) for s in steps)]

    def write(self, values: np.ndarray) -> None:
        converted = convert(values, self.dtype).reshape(self.extent)
        self.storage.write(self.start, self.extent, converted)

    def require_tile(self, what: str) -> None:
        if not self.storage.is_tile:
            raise TileProgramError(
                f"{what}, {self.storage.name}, is in {self.storage.scope} memory; it must be a "
                "shared, fragment or accumulator tile."
            )

    def matrix(self, what: str) -> np.ndarray:
        """The values as a matrix, without leading dimensions of extent 1."""
        self.require_tile(what)
        lead = len(self.extent) - 2
        if lead < 0 or any(e != 1 for e in self.extent[:lead]):
            raise TileProgramError(
                f"{what}, {self.storage.name}, has a region of extents {self.extent}; it must have "
                "two dimensions, after leading ones of extent 1."
            )
        return self.read().reshape(self.extent[lead:])


def run_primitive(evaluate: Evaluator, call: TilePrimitiveCall) -> None:
    """Execute one call."""
    name = str(call.op.name).rpartition(".")[2]
    if name not in PRIMITIVES:
        raise TileProgramError(
            f"tile primitive {name} is no part of tile programs; allowed are "
            f"{', '.join(sorted(PRIMITIVES))}."
        )
    if call.scope.name != "cta":
        raise TileProgramError(
            f"{name} has the scope {call.scope.name}; write Tx.cta.{name}, for the CTA executes a "
            "tile program as a whole."
        )
    with np.errstate(all="ignore"):
        if "steps" in call.config:
            _strided_copy(evaluate, call)
        else:
            PRIMITIVES[name](evaluate, list(call.args))
    if "mbar" in call.config:
        brought = Region.of(evaluate, call.args[0])
        count = math.prod(brought.extent) * brought.dtype.itemsize
        complete_bytes(evaluate, call.config["mbar"], count)


def _copy(
    evaluate: Evaluator, args: list[Any], steps: tuple[int, ...] | None = None
) -> None:
    dst, src = Region.of(evaluate, args[0]), Region.of(evaluate, args[1])
    if dst.dtype != src.dtype:
        raise TileProgramError(
            f"copy from {src.storage.name} of dtype {src.dtype} to {dst.storage.name} of dtype "
            f"{dst.dtype}; a copy does not convert, cast does."
        )
    if not _same_shape(dst.squeezed, src.squeezed):
        raise TileProgramError(
            f"copy of extents {src.extent} of {src.storage.name} to extents {dst.extent} of "
            f"{dst.storage.name}; without extents of 1 they must be equal, or one of them is a "
            "matrix and the other has its rows in several dimensions."
        )
    dst.write(src.read() if steps is None else src.read_every(steps))


def _strided_copy(evaluate: Evaluator, call: TilePrimitiveCall) -> None:
    """A load with ``steps=``: the distance of elements along each dimension of its source."""
    name, steps = str(call.op.name).rpartition(".")[2], tuple(map(int, call.config["steps"]))
    to, source = call.args[:2]
    scopes = storage_of(evaluate, to.source).scope, storage_of(evaluate, source.source).scope
    if name != "copy_async" or scopes[0] not in SHARED or scopes[1] != "global":
        raise TileProgramError(
            f"steps = {list(steps)} of a {name} from {scopes[1]} to {scopes[0]} memory; only "
            "copy_async from global to shared memory takes every few elements."
        )
    if len(steps) != len(source.region) or steps[-1] != 1 or not all(
        1 <= step <= TMA.element_stride for step in steps
    ):
        raise TileProgramError(
            f"steps = {list(steps)} for {len(source.region)} dimensions of "
            f"{storage_of(evaluate, source.source).name}: there is one for each, from 1 to "
            f"{TMA.element_stride}, and 1 for the last."
        )
    _copy(evaluate, list(call.args), steps)


def _same_shape(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether extents are equal, or those of one matrix and of its rows in several dimensions."""
    if a == b:
        return True
    few, many = sorted((a, b), key=len)
    return len(few) == 2 and few == (math.prod(many[:-1]), many[-1])


def _gemm_async(evaluate: Evaluator, args: list[Any]) -> None:
    if len(args) != 6:
        raise TileProgramError("gemm_async with scale factors is no part of tile programs.")
    acc, a, b = (Region.of(evaluate, argument) for argument in args[:3])
    trans_a, trans_b, accumulate = (bool(evaluate(argument)) for argument in args[3:])
    if acc.storage.scope not in ("accumulator", "tmem"):
        raise TileProgramError(
            f"gemm_async writes {acc.storage.name} in scope {acc.storage.scope}; it must be an "
            "accumulator."
        )
    if a.storage.scope not in (*SHARED, "fragment") or b.storage.scope not in SHARED:
        raise TileProgramError(
            f"gemm_async has A, {a.storage.name}, in scope {a.storage.scope} and B, "
            f"{b.storage.name}, in scope {b.storage.scope}; A must be shared or a fragment, B "
            "shared."
        )
    dtypes = (a.dtype.name, b.dtype.name)
    if acc.dtype.name not in GEMM_DTYPES.get(dtypes, ()):
        raise TileProgramError(
            f"gemm_async of A, {a.storage.name}, of dtype {dtypes[0]} and B, {b.storage.name}, of "
            f"dtype {dtypes[1]} into {acc.storage.name} of dtype {acc.dtype.name}; the dtypes of "
            f"an accumulator for them are {', '.join(GEMM_DTYPES.get(dtypes, ())) or 'none'}."
        )
    c = acc.matrix("the accumulator").astype(np.float64)
    left, right = a.matrix("operand A"), b.matrix("operand B")
    left, right = (left.T if trans_a else left), (right.T if trans_b else right)
    if (left.shape[0], right.shape[0]) != c.shape or left.shape[1] != right.shape[1]:
        raise TileProgramError(
            f"gemm_async of A, {a.storage.name}, [M, K] = {left.shape} and B, {b.storage.name}, "
            f"[N, K] = {right.shape} does not fit {acc.storage.name}, [M, N] = {c.shape}."
        )
    # Sums of 8-bit products are exact in float64 too. einsum does without BLAS, whose threads cost
    # more than they gain on tiles.
    result = np.einsum("mk,nk->mn", left.astype(np.float64), right.astype(np.float64))
    result = c + result if accumulate else result
    acc.write(result.astype(np.int64) if acc.dtype.kind == "i" else result)


def _operand(evaluate: Evaluator, argument: Any, dst: Region) -> np.ndarray | None:
    """A scalar, or a tile that is broadcast to the destination."""
    if argument is None:
        return None
    if not isinstance(argument, TensorRegion):
        value = evaluate(argument)
        if value.ndim:
            raise TileProgramError("a scalar operand of a tile primitive is not one value.")
        return value
    region = Region.of(evaluate, argument)
    region.require_tile("an operand of an elementwise primitive")
    shape = region.extent
    aligned = zip(shape[::-1], dst.extent[::-1], strict=False)
    if len(shape) > len(dst.extent) or any(s not in (1, d) for s, d in aligned):
        raise TileProgramError(
            f"{region.storage.name} of extents {shape} does not broadcast to {dst.storage.name} of "
            f"extents {dst.extent}; each extent, aligned at the right, must be equal or 1."
        )
    return np.broadcast_to(region.read(), dst.extent)


def _elementwise(function: Callable, wide: bool, evaluate: Evaluator, args: list[Any]) -> None:
    dst = Region.of(evaluate, args[0])
    dst.require_tile("the destination of an elementwise primitive")
    values = [v for v in (_operand(evaluate, a, dst) for a in args[1:]) if v is not None]
    tiles = {v.dtype for v in values if v.ndim}
    if len(tiles) > 1:
        raise TileProgramError(
            f"the operands of a primitive that writes {dst.storage.name} have dtypes "
            f"{' and '.join(sorted(map(str, tiles)))}; cast them to one dtype first."
        )
    dtype = np.dtype(np.float64) if wide else next(iter(tiles), dst.dtype)
    result = function(*(convert(v, dtype) for v in values))
    dst.write(np.broadcast_to(result, dst.extent))


def _affine(function: Callable, evaluate: Evaluator, args: list[Any]) -> None:
    """``dst = function(src * scale + bias)``; TVM has the bias before the scale."""
    dst, src, bias, scale = (*args, None, None)[:4]
    present = [a for a in (scale, bias) if a is not None]

    def compute(x: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        if scale is not None:
            x, rest = x * rest[0], rest[1:]
        return function(x + rest[0] if bias is not None else x)

    _elementwise(compute, True, evaluate, [dst, src, *present])


def _fill(evaluate: Evaluator, args: list[Any]) -> None:
    _elementwise(lambda x: x, False, evaluate, args)


def _zero(evaluate: Evaluator, args: list[Any]) -> None:
    dst = Region.of(evaluate, args[0])
    dst.require_tile("the destination of zero")
    dst.write(np.zeros(dst.extent, dst.dtype))


def _select(evaluate: Evaluator, args: list[Any]) -> None:
    dst = Region.of(evaluate, args[0])
    predicate: LambdaExpr = args[3]
    if len(predicate.vars) != len(dst.extent):
        raise TileProgramError(
            f"the predicate of select has {len(predicate.vars)} parameters; {dst.storage.name} has "
            f"{len(dst.extent)} dimensions."
        )
    grid = np.indices(dst.extent, np.int32)
    places = dict(zip(predicate.vars, grid, strict=True))
    inner = Evaluator({**evaluate.variables, **places}, evaluate.buffers, tuple(predicate.vars))
    chosen = inner(predicate.pred).astype(bool)
    _elementwise(partial(np.where, chosen), False, evaluate, args[:3])


def _reduce(function: Callable, join: Callable, evaluate: Evaluator, args: list[Any]) -> None:
    dst, src = Region.of(evaluate, args[0]), Region.of(evaluate, args[1])
    for region, what in ((dst, "the destination"), (src, "the source")):
        region.require_tile(f"{what} of a reduction")
    if dst.dtype != src.dtype:
        raise TileProgramError(
            f"reduction of {src.storage.name} of dtype {src.dtype} into {dst.storage.name} of "
            f"dtype {dst.dtype}; they must have one dtype."
        )
    rank = len(src.extent)
    axes = {int(a) + rank if int(a) < 0 else int(a) for a in args[2]}
    if not axes or not all(0 <= a < rank for a in axes):
        raise TileProgramError(
            f"axes {sorted(axes)} of a reduction are not dimensions of {src.storage.name}, which "
            f"has {rank}."
        )
    kept = tuple(e for d, e in enumerate(src.extent) if d not in axes)
    if dst.squeezed != tuple(e for e in kept if e != 1):
        raise TileProgramError(
            f"{dst.storage.name} has a region of extents {dst.extent}; reducing {src.extent} over "
            f"axes {sorted(axes)} gives {kept}."
        )
    exact = np.dtype(np.int64 if src.dtype.kind in "iu" else np.float64)
    result = function(src.read().astype(exact), axis=tuple(axes)).reshape(dst.extent)
    dst.write(join(dst.read().astype(exact), result) if evaluate(args[3]) else result)


def _silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


_arithmetic = partial(partial, _elementwise)
PRIMITIVES: dict[str, Callable[[Evaluator, list[Any]], None]] = {
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

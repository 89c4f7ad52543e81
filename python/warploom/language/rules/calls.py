"""Checks calls of tile primitives before they run, as far as their regions are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tvm.ir import TensorRegion
from tvm.tirx import IntImm
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import TileProgramError
from warploom.language.rules.known import Known, Unknown
from warploom.language.rules.lifetimes import Lifetimes
from warploom.language.rules.nests import text
from warploom.language.rules.operands import (
    Operand,
    require_copy,
    require_elementwise,
    require_gemm,
    require_reduction,
    require_select,
    require_sparse,
    require_steps,
)
from warploom.language.rules.order import (
    require_atomic,
    require_position,
    require_scan,
    require_sort,
)
from warploom.language.rules.ranges import require_region
from warploom.language.rules.rows import require_rows, require_whole
from warploom.language.rules.scales import require_scaled_gemm
from warploom.language.rules.scopes import TILES
from warploom.tile.effects import sparse_metadata
from warploom.tile.primitives import is_scaled
from warploom.tile_primitives import (
    ATOMICS,
    BLOCKS,
    BUILDERS,
    GATHER,
    POSITIONS,
    SCANS,
    SCATTER,
)

#: Element-wise primitives, which take tiles and numbers.
ELEMENTWISE = (
    "add", "cast", "exp", "exp2", "fdiv", "fill", "fma", "log2", "maximum", "memset", "minimum",
    "mul", "reciprocal", "select", "silu", "sqrt", "sub",
)  # fmt: skip
REDUCTIONS = ("max", "min", "sum")
COPIES = ("copy", "copy_async")
ALLOWED = tuple(sorted((*ELEMENTWISE, *REDUCTIONS, *COPIES, *BUILDERS, "gemm_async", "zero")))


def require_primitive(call: TilePrimitiveCall) -> str:
    """The name of a tile primitive, if tile programs have it."""
    name = str(call.op.name).rpartition(".")[2]
    if name not in ALLOWED:
        raise TileProgramError(
            f"tile primitive {name} is no part of tile programs; allowed are {', '.join(ALLOWED)}."
        )
    if call.scope.name != "cta":
        raise TileProgramError(
            f"{name} has the scope {call.scope.name}; write Tx.cta.{name}, for the CTA executes a "
            "tile program as a whole."
        )
    if name == "gemm_async" and len(call.args) not in (6, 7, 8):
        raise TileProgramError(
            "gemm_async has scales and sparse=; no instruction of a tile program takes both, so "
            "leave out SFA and SFB, or sparse."
        )
    if name == "gemm_async" and call.config:
        option, value = next(iter(call.config.items()))
        raise TileProgramError(
            f"gemm_async of a tile program has the option {option}={value}; it takes SFA, SFB, "
            "sparse, transA, transB and accum only: the passes place the waits, signs and clamps "
            "belong to the epilogue."
        )
    return name


def check_call(known: Known, lifetimes: Lifetimes, certain: bool, call: TilePrimitiveCall) -> None:
    """Check one call: its operands, that their regions are inside, and its reads.

    Raises
    ------
    TileProgramError
        If it breaks a rule for certain.
    """
    name = require_primitive(call)
    regions = [region for region in call.args if isinstance(region, TensorRegion)]
    operands = [_operand(known, region) for region in regions]
    if name in COPIES:
        if "steps" in call.config:
            require_steps(name, *operands, tuple(map(int, call.config["steps"])))
        require_copy(*operands)
    elif name == "gemm_async":
        dense = require_gemm if sparse_metadata(call) is None else require_sparse
        flags = map(_constant_flag, ("transA", "transB"), call.args[-3:-1])
        (require_scaled_gemm if is_scaled(call) else dense)(*operands, *flags)
    elif BLOCKS in call.config:
        pass  # as passes write it
    elif name in REDUCTIONS:
        require_reduction(*operands, [int(axis) for axis in call.args[2]])
    elif name in SCANS:
        require_scan(name, *operands, int(call.args[2]))
    elif name in POSITIONS:
        require_position(name, *operands, int(call.args[2]))
    elif name == "sort":
        require_sort(operands, int(call.args[2]))
    elif name in ATOMICS:
        require_atomic(name, *operands)
    elif name in (GATHER, SCATTER):
        require_rows(name, *operands, [len(row.vars) for row in call.args[2:]])
        require_whole(name, regions[name == GATHER])
    elif name == "zero":
        operands[0].require_tile("the destination of zero")
    else:
        if name == "select":
            require_select(operands[0], len(call.args[3].vars))
        require_elementwise(operands[0], operands[1:])
    for region in regions:
        steps = call.config.get("steps") if region is not regions[0] else None
        if steps is None:
            _require_inside(known, region)
    _live(known, lifetimes, certain, name, call)


def _constant_flag(name: str, value: Any) -> bool:
    if isinstance(value, (bool, int, IntImm)):
        return bool(int(value))
    raise TileProgramError(
        f"{name} of gemm_async is {text(value)}; it must be True or False, since it says how the "
        "operand lies in memory: write a branch with a gemm_async for each."
    )


def _operand(known: Known, region: TensorRegion) -> Operand:
    buffer = region.source
    extent = tuple(known.constant(dimension.extent) for dimension in region.region)
    if len(extent) != len(buffer.ty.shape):
        raise TileProgramError(
            f"a region of {buffer.name} has {len(extent)} dimensions; {buffer.name} has "
            f"{len(buffer.ty.shape)}."
        )
    return Operand(buffer.name, str(buffer.scope()), str(buffer.ty.dtype), extent)


def _require_inside(known: Known, region: TensorRegion) -> None:
    buffer = region.source
    scope = str(buffer.scope())
    if scope not in TILES:
        return
    starts = [dimension.min for dimension in region.region]
    extents = [dimension.extent for dimension in region.region]
    shape = [known.constant(extent) for extent in buffer.ty.shape]
    for start in starts:
        if known.depends_on_memory(start):
            raise TileProgramError(
                f"a region of {buffer.name}, in {scope} memory, begins at an index read from "
                "memory; only regions of global buffers may, so read the elements of the tile in "
                "a nest."
            )
    for world in known.worlds([*starts, *extents]):
        evaluate = known.evaluator(world)
        require_region(
            buffer.name, scope, shape, _integers(evaluate, starts), _integers(evaluate, extents)
        )


def _integers(evaluate: Callable, expressions: Sequence[Any]) -> list[int | None]:
    integers: list[int | None] = []
    for expression in expressions:
        try:
            integers.append(int(evaluate.integer(expression)))
        except (Unknown, TileProgramError):
            integers.append(None)
    return integers


def _live(
    known: Known, lifetimes: Lifetimes, certain: bool, name: str, call: TilePrimitiveCall
) -> None:
    """Report the reads and the writes of a call, in this order."""
    to, *sources = _buffers(call)
    if name == "sort" and len(sources) > 1:
        lifetimes.writes(sources.pop())
    for source in () if name == "zero" else sources:
        lifetimes.reads(source, certain)
    if name in (*REDUCTIONS, "gemm_async") and known.truth(call.args[-1]):
        lifetimes.reads(to, certain, adds=True)
    if name == "gemm_async":
        lifetimes.computes(to, call)
    else:
        lifetimes.writes(to)


def _buffers(call: TilePrimitiveCall) -> Iterator[Any]:
    for arg in call.args:
        if isinstance(arg, TensorRegion):
            yield arg.source

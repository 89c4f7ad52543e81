"""Our op schedules by name, as TVM's table of op schedules lists them from ``import tvm`` on.

The modules that implement them are imported when the first of their schedules is tried, because
they cost more than all the rest of the registration. Each module has a tuple ``SCHEDULES``
(:class:`warploom.ops.schedule.Schedule`), whose names and priorities are those of this table.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm.tirx.operator import get_tirx_op
from tvm.tirx.operator.tile_primitive import dispatcher, fail

if TYPE_CHECKING:
    from warploom.ops.schedule import Schedule

#: Module of ``warploom.ops`` -> rows of (variant, priority, ops).
TABLE: dict[str, tuple[tuple[str, int, tuple[str, ...]], ...]] = {
    "copy_fragment": (("fragment", 20, ("copy",)),),
    "copy_prefetch": (
        ("l2_auto", 0, ("copy_async",)),
        ("l2_strided", 0, ("copy_async",)),
    ),
    "copy_gather": (
        ("tma_gather4", 6, ("copy_async",)),
        ("tma_scatter4", 6, ("copy_async",)),
    ),
    "copy_strided": (("tma_strided", 5, ("copy_async",)),),
    "elementwise_fragment": (
        (
            "fragment",
            20,
            (
                *("zero", "fill", "cast", "add", "sub", "mul", "fdiv", "maximum", "minimum"),
                *("fma", "sqrt", "exp", "exp2", "log2", "reciprocal", "silu"),
            ),
        ),
    ),
    "gemm_async_wgmma": (("wgmma", 20, ("gemm_async",)),),
    "reduce_blocks": (("blocks", 21, ("sum", "max", "min")),),
    "reduce_fragment": (("fragment", 20, ("sum", "max", "min")),),
    "reduce_shared": (("shared_source", 21, ("sum", "max", "min")),),
}


@dataclass
class OurCase(dispatcher.DispatchCase):
    """A row of TVM's table that is ours: ``isinstance`` tells it from all others."""


def rows() -> Iterator[tuple[str, str, str, int]]:
    """``(module, op, variant, priority)`` of every op schedule."""
    for module, variants in TABLE.items():
        for variant, priority, ops in variants:
            for op in ops:
                yield module, op, variant, priority


@functools.cache
def register() -> None:
    """Put every op schedule into TVM's table; the second call does nothing."""
    for module, op, variant, priority in rows():
        key = (get_tirx_op(op), "cuda")
        impl = functools.partial(_run, module, op, variant)
        case = OurCase(variant=variant, priority=priority, preds=[], impl=impl)
        dispatcher._DISPATCH_TABLE.setdefault(key, []).append(case)


@functools.cache
def load(module: str, op: str, variant: str) -> Schedule:
    """The op schedule of a row, from its module."""
    schedules = importlib.import_module(f"warploom.ops.{module}").SCHEDULES
    return next(each for each in schedules if (each.op, each.variant) == (op, variant))


def _run(module: str, op: str, variant: str, call: Any, context: Any) -> Any:
    """The PrimFunc of a tile primitive; declines with the reason of the first predicate."""
    schedule = load(module, op, variant)
    for name, predicate in schedule.when:
        holds, reason = predicate(call, context)
        if not holds:
            fail(reason or f"predicate {name!r} does not hold")
    return schedule.impl(call, context)

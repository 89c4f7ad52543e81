"""Chooses the op schedule of a tile primitive: stock's way, or ours in programs of warploom.

A program that uses nothing of warploom is lowered by stock TVM's own dispatcher over stock's own
table, so that its code, and the text of its errors, are the same with and without warploom. Our
schedules take from it only what every one of stock's declines.

In programs of warploom (:func:`uses_warploom`, and all that its pipelines lower) all schedules
compete by priority. Stock reports a failure in an ASCII table with the call repeated in every row;
here each variant gets one line: its name and its reason.
"""

from __future__ import annotations

import contextlib
import contextvars
import types
from collections.abc import Iterator
from typing import Any

import tvm_ffi
from tvm.ir import Call, StringImm
from tvm.tirx import PrimFunc
from tvm.tirx.operator.tile_primitive import dispatcher
from tvm.tirx.tile_primitive import DispatchContext, TilePrimitiveCall

from warploom.errors import DispatchError
from warploom.messages.blame import line_of
from warploom.ops.narrow_context import NarrowContext
from warploom.ops.table import OurCase, rows

#: Attribute of functions that passes of warploom have lowered.
LOWERED = "warploom.lowered"
_PREFIX = "tirx.tile."
#: How the names of our device functions begin.
_HELPERS = "warploom_"
_VARIANTS = frozenset((_PREFIX + op, variant) for _, op, variant, _ in rows())
_in_our_program: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "warploom_in_our_program", default=False
)


@contextlib.contextmanager
def our_programs() -> Iterator[None]:
    """Programs that are lowered in this block are warploom's."""
    token = _in_our_program.set(True)
    try:
        yield
    finally:
        _in_our_program.reset(token)


def uses_warploom(function: Any) -> bool:
    """Whether warploom has lowered a function, or it has calls that only warploom lowers."""
    if not isinstance(function, PrimFunc):
        return False
    if LOWERED in (function.attrs or {}):
        return True
    ours = False

    def visit(call: TilePrimitiveCall) -> None:
        nonlocal ours
        ours = ours or _only_ours(call)

    def visit_call(call: Call) -> None:
        nonlocal ours
        ours = ours or _is_our_helper(call)

    tvm_ffi.structural_walk(function.body, (TilePrimitiveCall, visit))
    tvm_ffi.structural_walk(function.body, (Call, visit_call))
    return ours


def _is_our_helper(call: Call) -> bool:
    """Whether a call is one of a device function of ours, such as ``WgmmaEmitter`` emits."""
    return any(isinstance(arg, StringImm) and arg.value.startswith(_HELPERS) for arg in call.args)


def _only_ours(call: TilePrimitiveCall) -> bool:
    """Whether a call names a variant of ours, or multiplies into registers.

    Stock's only variant of ``gemm_async`` has its accumulator in tensor memory.
    """
    if call.dispatch is not None:
        return (call.op.name, str(call.dispatch)) in _VARIANTS
    return call.op.name == f"{_PREFIX}gemm_async" and call.args[0].source.scope() == "local"


def dispatch(call: TilePrimitiveCall, context: DispatchContext) -> PrimFunc:
    """Lower ``call`` with the first registered variant that accepts it.

    Raises
    ------
    RuntimeError
        Of stock TVM, in a program that uses nothing of warploom, if no variant accepts the call.
    DispatchError
        In a program of warploom; the message has one line a variant, highest priority first.
    """
    if _in_our_program.get() or _only_ours(call):
        return _dispatch_any(call, context)
    try:
        return _run_stock(call, context)
    except RuntimeError:
        for case in _by_priority(filter(_is_ours, _cases(call, context))):
            prim_func, _ = _attempt(case, call, context)
            if prim_func is not None:
                return prim_func
        raise


class _StockTable:
    """TVM's table without our rows, as ``run_dispatch`` reads it."""

    def get(self, key: Any) -> list[dispatcher.DispatchCase]:
        cases = dispatcher._DISPATCH_TABLE.get(key, [])
        return [case for case in cases if not _is_ours(case)]


#: Stock's ``run_dispatch`` itself, which sees stock's variants only.
_run_stock = types.FunctionType(
    dispatcher.run_dispatch.__code__,
    {**vars(dispatcher), "_DISPATCH_TABLE": _StockTable()},
    "run_dispatch",
)


def _is_ours(case: dispatcher.DispatchCase) -> bool:
    return isinstance(case, OurCase)


def _cases(call: TilePrimitiveCall, context: DispatchContext) -> list[dispatcher.DispatchCase]:
    """All variants that may lower a call: those of its op, or those that it names."""
    cases = dispatcher._DISPATCH_TABLE.get((call.op, context.target.kind.name), [])
    return [case for case in cases if call.dispatch in (None, case.variant)]


def _by_priority(cases: Any) -> list[dispatcher.DispatchCase]:
    return sorted(cases, key=lambda case: (-case.priority, case.variant))


def _dispatch_any(call: TilePrimitiveCall, context: DispatchContext) -> PrimFunc:
    name = call.op.name.removeprefix(_PREFIX)
    target = context.target.kind.name
    cases = _cases(call, context)
    if call.dispatch is not None and not cases:
        every = dispatcher._DISPATCH_TABLE.get((call.op, target), [])
        known = ", ".join(sorted({case.variant for case in every})) or "none"
        reason = f"{name}: no variant {call.dispatch!r} for target {target!r}; allowed: {known}."
        raise DispatchError(_with_line(reason, call))
    refusals = []
    narrow = NarrowContext(context, call)
    for case in _by_priority(cases):
        prim_func, reason = _attempt(case, call, narrow)
        if prim_func is not None:
            return prim_func
        refusals.append(f"  {case.variant}: {reason}")
    reasons = "\n".join(refusals) or f"  none is registered for target {target!r}"
    message = f"{name}: no op schedule accepts this call.\n{reasons}\nin {_short(call)}"
    raise DispatchError(_with_line(message, call))


def _attempt(
    case: dispatcher.DispatchCase, call: TilePrimitiveCall, context: DispatchContext
) -> tuple[PrimFunc | None, str | None]:
    """``(prim_func, None)`` or ``(None, reason)``."""
    if reason := _unsound(case, call, context):
        return None, reason
    for predicate in case.preds:
        accepted, reason = predicate.evaluate(call, context)
        if not accepted:
            return None, reason or f"predicate {predicate.name!r} does not hold"
    try:
        return case.impl(call, context), None
    except dispatcher.DispatchFail as declined:
        return None, str(declined)
    except Exception as error:
        text = " ".join(str(error).split()) or "no message"
        return None, f"{type(error).__name__}: {text}"


def _unsound(
    case: dispatcher.DispatchCase, call: TilePrimitiveCall, context: DispatchContext
) -> str | None:
    """Why a stock variant must not be tried although it would accept the call, or None.

    Stock's last resort for ``copy`` lets one thread copy everything, register tiles included, of
    which that thread holds only its own elements.
    """
    if case.variant != "fallback" or context.is_thread or call.op.name != "tirx.tile.copy":
        return None
    for region in (call.args[0], call.args[1]):
        shard = getattr(region.source.layout, "shard", ())
        if region.source.scope() == "local" and any(it.axis.is_thread() for it in shard):
            return (
                f"it copies with one thread, which does not hold all of {region.source.name}; "
                "give both sides shapes and layouts that one of the other variants accepts"
            )
    return None


def _with_line(message: str, call: TilePrimitiveCall) -> str:
    """A message with the author's line of the call behind it, if it has one."""
    line = line_of(call.span)
    return message if line is None else "\n".join([message, *line.quoted()])


def _short(call: TilePrimitiveCall) -> str:
    """The call itself, without the declarations of its buffers that the printer puts before it."""
    lines = str(call).splitlines()
    return next((line for line in reversed(lines) if line.startswith("T.")), lines[-1])

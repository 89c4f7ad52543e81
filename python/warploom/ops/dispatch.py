"""Chooses an op schedule as stock TVM does, but explains a failure in a few plain lines.

Stock's ``run_dispatch`` reports the variants that refused a tile primitive in an ASCII table with
the call repeated in every row and the tracebacks of variants for other architectures. Here each
variant gets one line: its name and its reason. The order of trial and the outcome are stock's.
"""

from __future__ import annotations

from tvm.tirx.operator.tile_primitive import dispatcher
from tvm.tirx.tile_primitive import DispatchContext, TilePrimitiveCall


class DispatchError(RuntimeError):
    """No op schedule can lower a tile primitive."""


def _unsound(case, call: TilePrimitiveCall, context: DispatchContext) -> str | None:
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


def _attempt(case, call: TilePrimitiveCall, context: DispatchContext):
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


def _short(call: TilePrimitiveCall) -> str:
    """The call itself, without the declarations of its buffers that the printer puts before it."""
    lines = str(call).splitlines()
    return next((line for line in reversed(lines) if line.startswith("T.")), lines[-1])


def dispatch(call: TilePrimitiveCall, context: DispatchContext):
    """Lower ``call`` with the first registered variant that accepts it.

    Raises
    ------
    DispatchError
        If none does; the message has one line a variant, highest priority first.
    """
    name = call.op.name.removeprefix("tirx.tile.")
    target = context.target.kind.name
    cases = dispatcher._DISPATCH_TABLE.get((call.op, target), [])
    if call.dispatch is not None:
        known = ", ".join(sorted({case.variant for case in cases})) or "none"
        cases = [case for case in cases if case.variant == call.dispatch]
        if not cases:
            raise DispatchError(
                f"{name}: no variant {call.dispatch!r} for target {target!r}; allowed: {known}."
            )
    refusals = []
    for case in sorted(cases, key=lambda case: (-case.priority, case.variant)):
        prim_func, reason = _attempt(case, call, context)
        if prim_func is not None:
            return prim_func
        refusals.append(f"  {case.variant}: {reason}")
    reasons = "\n".join(refusals) or f"  none is registered for target {target!r}"
    raise DispatchError(f"{name}: no op schedule accepts this call.\n{reasons}\nin {_short(call)}")

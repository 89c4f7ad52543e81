"""Row functions that follow each other become one, where a row is reduced.

TVM fuses element-wise functions behind others, and before a single reduction; a norm or a softmax
has several. A sum of residuals, a mask or a scale before one is then a kernel of its own, and so is
the quantisation of rows behind their largest magnitude: each writes and reads all rows once more.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tvm
from tvm import relax
from tvm.tirx import PrimFunc

from warploom.errors import Decline
from warploom.fallback import attempted
from warploom.gemm.recognition import read_product
from warploom.relax.joining import Joiner, is_call_tir, joined, result_types, with_arguments_once
from warploom.rows.choose import arranged
from warploom.rows.plan import RowPlan
from warploom.rows.problem import RowFunction, read_rows
from warploom.tile import ir


def FuseRows() -> tvm.transform.Pass:
    """A pass that puts row functions into the row functions that alone use their results.

    Only where one of the two reduces rows, and the kernel of both reads rows as well as theirs do.
    What two functions use that become one is then used by that alone: the pass goes on until no
    function is left to put into another. To be run after ``relax.transform.FuseTIR`` and the passes
    that make functions of GEMMs.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.FuseRows")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        calls = _count_calls(mod)
        while True:
            mod = _Fuser(mod).run(mod)
            before, calls = calls, _count_calls(mod)
            if calls == before:
                return mod

    return run


def _count_calls(mod: tvm.IRModule) -> int:
    """Calls of functions in a module; each merge leaves one less."""
    count = 0

    def visit(expr: relax.Expr) -> None:
        nonlocal count
        count += isinstance(expr, relax.Call) and is_call_tir(expr)

    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, visit)
    return count


@relax.expr_functor.mutator
class _Fuser(Joiner):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if not is_call_tir(call):
            return call
        func, arguments = self.function(call), list(call.args[1])
        changed, position = False, len(arguments) - 1
        while position >= 0:
            made = self.producer(arguments[position])
            merged = None
            if made is not None and len(result_types(made)) == 1:
                functions = self.function(made), func, position
                merge = partial(attempted, call.args[0].name_hint, partial(_merge, *functions))
                merged = self.once(functions, merge)
            if merged is None:
                position -= 1
                continue
            changed = True
            arguments[position : position + 1] = list(made.args[1])
            func, arguments = with_arguments_once(merged, arguments)
            # The inputs of the producer may be computed by another one.
            position = len(arguments) - 1
        return self.call(func, arguments, call) if changed else call


def _merge(producer: Any, func: Any, position: int) -> PrimFunc | None:
    """Return a function for both; None or a Decline if a kernel for each is as good."""
    functions = (producer, func)
    if not all(isinstance(one, PrimFunc) and (one.attrs or {}).get("s_tir") for one in functions):
        return None
    if not all(ir.is_buffer(param) for param in producer.params):
        return None  # numbers of the launch, which the other may know by other variables
    if any(relax.analysis.has_reshape_pattern(one) or _is_matmul(one) for one in functions):
        return None
    (first, before), (second, after) = (arranged(read_rows(one)) for one in functions)
    if not (first.reductions or second.reductions):
        return None  # TVM fuses what is element-wise
    merged = joined(producer, func, position)
    both, plan = arranged(read_rows(merged))
    return merged if _is_no_worse(both, plan, (before, after)) else None


def _is_no_worse(both: RowFunction, plan: RowPlan, plans: tuple[RowPlan, RowPlan]) -> bool:
    """Whether the kernel of both reads rows once, in vectors as wide as those of the two."""
    widest = min(one.vector for one in plans)
    looped = any(one.looped for one in plans)
    return bool(both.reductions) and plan.vector >= widest and (looped or not plan.looped)


def _is_matmul(func: PrimFunc) -> bool:
    try:
        read_product(func)
    except Decline:
        return False
    return True

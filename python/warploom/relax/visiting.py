"""Common parts of passes that rewrite calls of Relax functions."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import Op
from tvm.target import Target
from tvm.tirx import IntImm

from warploom.target import SM90A


def bound(mutator: relax.PyExprMutator, expr: relax.Expr) -> relax.Expr:
    """What a variable stands for in the code so far; the expression itself, if it is no name."""
    while isinstance(expr, relax.Var):
        found = mutator.lookup_binding(expr)
        if found is None:
            return expr
        expr = found
    return expr


def operator_name(expr: Any) -> str:
    """The name of the operator that an expression calls; empty if it calls none."""
    return expr.op.name if isinstance(expr, relax.Call) and isinstance(expr.op, Op) else ""


def is_for_hopper() -> bool:
    """Whether a module is built for sm_90a, by the current target."""
    target = Target.current(allow_none=True)
    return target is not None and str(target.attrs.get("arch", "")) == SM90A.name


def known_extents(tensor: relax.Expr, skip: int = 0) -> list[int] | None:
    """Extents of a tensor from a dimension on; None unless all of them are known."""
    values = getattr(getattr(tensor.ty, "shape", None), "values", None)
    if values is None or not all(isinstance(one, IntImm) for one in values[skip:]):
        return None
    return [int(one) for one in values[skip:]]


def visited(
    mod: tvm.IRModule, mutator: relax.PyExprMutator, clean: bool = False
) -> tvm.IRModule:
    """A module, whose Relax functions a mutator that was made for it has visited.

    Parameters
    ----------
    mod : IRModule
    mutator : PyExprMutator
    clean : bool
        Whether to leave out what nothing reads any more, in functions that have changed.
    """
    for gv, func in mod.functions.items():
        if isinstance(func, relax.Function):
            made = mutator.visit_expr(func)
            if clean and not tvm_ffi.structural_equal(made, func):
                made = relax.analysis.remove_all_unused(made)
            mutator.builder_.update_func(gv, made)
    return mutator.builder_.get()

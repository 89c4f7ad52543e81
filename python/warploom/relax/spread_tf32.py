"""The permission of a Relax function to use tf32 reaches the functions that it calls."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.ir import GlobalVar
from tvm.tirx import PrimFunc

from warploom.gemm.tf32 import allow_tf32, allows_tf32


def SpreadTf32(everywhere: bool = False) -> tvm.transform.Pass:
    """A pass that marks functions whose GEMMs may take tf32.

    Those are the PrimFuncs that only Relax functions with the attribute ``warploom.tf32`` call.
    To be run after ``relax.transform.FuseTIR``, which makes functions without attributes.

    Parameters
    ----------
    everywhere : bool
        Whether to mark all PrimFuncs.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.SpreadTf32")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        allowed: set[GlobalVar] = set()
        forbidden: set[GlobalVar] = set()
        for func in mod.functions.values():
            if isinstance(func, relax.Function):
                (allowed if allows_tf32(func) else forbidden).update(_called(func))
        changed = {
            variable: allow_tf32(func)
            for variable, func in mod.functions.items()
            if isinstance(func, PrimFunc) and (everywhere or variable in allowed - forbidden)
        }
        return tvm.IRModule({**dict(mod.functions.items()), **changed}, attrs=mod.attrs)

    return run


def _called(func: relax.Function) -> set[GlobalVar]:
    called: set[GlobalVar] = set()

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, GlobalVar):
            called.add(expr)

    relax.analysis.post_order_visit(func, visit)
    return called

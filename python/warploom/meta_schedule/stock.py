"""Which tasks are ours, and TVM's own rules for those that are not."""

from __future__ import annotations

from tvm.ir import IRModule
from tvm.s_tir.meta_schedule import Mutator, Postproc, TuneContext
from tvm.s_tir.meta_schedule.space_generator import PostOrderApply

from warploom.errors import Decline, WarploomError
from warploom.gemm.problem import GemmFunction
from warploom.gemm.recognition import recognise


def gemm_of(mod: IRModule) -> GemmFunction | None:
    """The GEMM that the function ``main`` of a task is; None if it is another one."""
    try:
        return recognise(mod["main"])
    except (Decline, WarploomError):
        return None


def stock_rules(context: TuneContext) -> tuple[list[Postproc], dict[Mutator, float]]:
    """Post-processors, and mutators with their probabilities, that TVM has for a task.

    None for GEMMs, which do not need them: TVM takes seconds to import them.
    """
    if gemm_of(context.mod) is not None:
        return [], {}
    rules = PostOrderApply()
    rules._initialize_with_tune_context(context)
    return list(rules.postprocs or ()), dict((rules.mutator_probs or {}).items())

"""A pass that replaces annotated S-TIR functions by the tile programs that they stand for."""

from __future__ import annotations

import warnings

import tvm
from tvm.tirx import PrimFunc

from warploom.errors import IllegalCombination, StockScheduleWarning
from warploom.gemm.decisions import decisions_of, has_decisions
from warploom.gemm.generate import tile_program
from warploom.gemm.recognition import recognise
from warploom.transform import ir
from warploom.transform.decline import Decline
from warploom.transform.lower import lower


def lower_gemm(func: PrimFunc) -> PrimFunc:
    """The kernel of a function that :mod:`warploom.schedule` has annotated.

    Where decisions differ by the number of rows, the result has a kernel for each, and host code
    that chooses one.

    Raises
    ------
    Decline
        If it is no product, has no decisions, or a pass cannot handle it.
    IllegalCombination
        If no kernel can have what the annotations say.
    """
    decisions = decisions_of(func)
    if not decisions:
        raise Decline("the function has no decisions of warploom.schedule.")
    gemm = recognise(func)
    kernels = [(limit, lower(tile_program(gemm, knobs))) for limit, knobs in decisions]
    _, chosen = kernels.pop()
    for limit, kernel in reversed(kernels):
        body = ir.substitute(kernel.body, dict(zip(kernel.params, chosen.params, strict=True)))
        branch = ir.when(gemm.rows.extent <= limit, [body], [chosen.body])
        chosen = PrimFunc(chosen.params, branch, chosen.ret_type, chosen.attrs)
    return chosen


def LowerScheduledGemms() -> tvm.transform.Pass:
    """A pass that turns annotated functions of a module into kernels.

    Where that is impossible, a warning says why, and the function gets the schedule that TVM's
    dlight has for it: slower, with the same result.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.LowerScheduledGemms")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        changed = {}
        for variable, function in mod.functions.items():
            if has_decisions(function):
                try:
                    changed[variable] = lower_gemm(function)
                except (Decline, IllegalCombination) as reason:
                    warnings.warn(
                        f"{variable.name_hint} is compiled without tensor-core schedule: {reason}",
                        StockScheduleWarning,
                        stacklevel=2,
                    )
                    changed[variable] = _stock_schedule(function)
        return tvm.IRModule({**dict(mod.functions.items()), **changed}, attrs=mod.attrs)

    return run


def _stock_schedule(func: PrimFunc) -> PrimFunc:
    from tvm.s_tir import dlight as dl

    rules = dl.gpu.Matmul(), dl.gpu.GEMV(), dl.gpu.Reduction(), dl.gpu.Fallback()
    target = (func.attrs or {}).get("target", None) or tvm.target.Target.current()
    with target:
        bare = func.without_attr("tirx.is_scheduled")
        return dl.ApplyDefaultSchedule(*rules)(tvm.IRModule({"main": bare}))["main"]

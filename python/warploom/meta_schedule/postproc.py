"""Rejects knobs that no kernel can have; other traces get TVM's own post-processing."""

from __future__ import annotations

from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import Postproc, TuneContext
from tvm.s_tir.meta_schedule.postproc import PyPostproc

from warploom.errors import WarploomError
from warploom.gemm.decisions import has_decisions, knobs_of
from warploom.gemm.recognition import recognise
from warploom.meta_schedule.options import why_not
from warploom.meta_schedule.stock import stock_rules


@derived_object
class VerifyKnobs(PyPostproc):
    """Whether a kernel can have what a trace has chosen.

    It must not raise: TVM would end the whole run.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stock: list[Postproc] = []

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        self.stock = stock_rules(context)[0]

    def apply(self, sch: Schedule) -> bool:
        func = sch.mod["main"]
        try:
            if not has_decisions(func):
                return all(one.apply(sch) for one in self.stock)
            return why_not(recognise(func).problem, knobs_of(func)) is None
        except (WarploomError, RuntimeError, ValueError):
            return False

    def clone(self) -> Postproc:
        return VerifyKnobs()

"""Rejects knobs that no kernel can have; other traces get TVM's own post-processing."""

from __future__ import annotations

from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import Postproc, TuneContext
from tvm.s_tir.meta_schedule.postproc import PyPostproc

from warploom.errors import WarploomError
from warploom.gemm.decisions import knobs_of
from warploom.gemm.problem import GemmProblem
from warploom.meta_schedule import originals
from warploom.meta_schedule.options import why_not
from warploom.meta_schedule.stock import gemm_of, stock_rules


@derived_object
class VerifyKnobs(PyPostproc):
    """Whether a kernel can have what a trace has chosen.

    It must not raise: TVM would end the whole run. Functions that are no products it marks with
    what they were made of, so that results of candidates can be checked.
    """

    def __init__(self) -> None:
        super().__init__()
        self.problem: GemmProblem | None = None
        self.stock: list[Postproc] = []
        self.original = ""

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        gemm = gemm_of(context.mod)
        self.problem = gemm.problem if gemm is not None else None
        self.stock = stock_rules(context)[0]
        if gemm is None:
            self.original = originals.remember(context.mod)

    def apply(self, sch: Schedule) -> bool:
        try:
            if self.problem is None:
                return self._apply_stock(sch)
            knobs = knobs_of(sch.mod["main"], self.problem)
            return knobs is not None and why_not(self.problem, knobs) is None
        except (WarploomError, RuntimeError, ValueError):
            return False

    def _apply_stock(self, sch: Schedule) -> bool:
        if not all(one.apply(sch) for one in self.stock):
            return False
        originals.mark(sch, self.original)
        return True

    def clone(self) -> Postproc:
        return VerifyKnobs()

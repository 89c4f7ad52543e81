"""Rejects knobs that no kernel can have; other traces get TVM's own post-processing.

Different draws of a trace may mean the same: where one CTA computes a tile, the cluster
that was drawn as well has no effect. A search knows candidates by the modules after post-processing
and would measure each way, so here knobs are written in the one way of :func:`pack`. The draws stay
in the trace: they count again as soon as a mutation changes the decisions that excluded them.
"""

from __future__ import annotations

from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import Postproc, TuneContext
from tvm.s_tir.meta_schedule.postproc import PyPostproc

from warploom.errors import WarploomError
from warploom.gemm.decisions import PREFIX, annotate, annotations_of, knobs_of
from warploom.gemm.packing import pack
from warploom.gemm.problem import GemmFunction
from warploom.meta_schedule import originals
from warploom.meta_schedule.options import why_not
from warploom.meta_schedule.stock import gemm_of, stock_rules


@derived_object
class VerifyKnobs(PyPostproc):
    """Whether the decisions of a trace are legal for a kernel.

    It must not raise: TVM would end the whole run. Functions that are no GEMMs it marks with
    what they were made of, so that results of candidates can be checked.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gemm: GemmFunction | None = None
        self.stock: list[Postproc] = []
        self.original = ""

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        self.gemm = gemm_of(context.mod)
        self.stock = stock_rules(context)[0]
        if self.gemm is None:
            self.original = originals.remember(context.mod)

    def apply(self, sch: Schedule) -> bool:
        try:
            return self._apply_stock(sch) if self.gemm is None else _apply(sch, self.gemm)
        except (WarploomError, RuntimeError, ValueError):
            return False

    def _apply_stock(self, sch: Schedule) -> bool:
        if not all(step.apply(sch) for step in self.stock):
            return False
        originals.mark(sch, self.original)
        return True

    def clone(self) -> Postproc:
        return VerifyKnobs()


def _apply(sch: Schedule, gemm: GemmFunction) -> bool:
    knobs = knobs_of(sch.mod["main"], gemm.problem)
    if knobs is None or why_not(gemm.problem, knobs) is not None:
        return False
    drawn, packed = annotations_of(sch.mod["main"]), pack(knobs, gemm.problem)
    # Knobs by their own names say everything in one way.
    changed = {key: value for key, value in packed.items() if drawn.get(key, value) != value}
    if changed:
        block = sch.get_sblock(gemm.anchor, "main")
        for key in changed:
            sch.unannotate(block, PREFIX + key)
        annotate(sch, block, changed)
    return True

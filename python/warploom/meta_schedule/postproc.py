"""Makes legal what a search has drawn; other traces get TVM's own post-processing.

Each choice is drawn by itself, so that most combinations are no kernels, and different ones may
mean the same. The annotations of a candidate become those of the legal config that the draw stands
for (:mod:`warploom.decide.repair`), so that equal kernels are equal modules and a search measures
each once. The draws stay in the trace: they count again as soon as a mutation changes the choices
that excluded them.
"""

from __future__ import annotations

from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import Postproc, TuneContext
from tvm.s_tir.meta_schedule.postproc import PyPostproc

from warploom.decide.config import Config
from warploom.decide.draws import draws
from warploom.decide.machine import H200, Machine
from warploom.decide.machines import machine_for
from warploom.decide.repair import why_not_search
from warploom.errors import WarploomError
from warploom.gemm.annotations import PREFIX, annotate, annotations_of, config_of
from warploom.gemm.problem import GemmFunction
from warploom.meta_schedule import originals
from warploom.meta_schedule.stock import gemm_of, stock_rules


@derived_object
class VerifyConfig(PyPostproc):
    """Whether the decisions of a trace can be made legal, and makes them so.

    It must not raise: TVM would end the whole run. Functions that are no GEMMs it marks with
    what they were made of, so that results of candidates can be checked.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gemm: GemmFunction | None = None
        self.stock: list[Postproc] = []
        self.original = ""
        self.machine = H200

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        self.gemm, self.machine = gemm_of(context.mod), machine_for(context.target)
        self.stock = stock_rules(context)[0]
        if self.gemm is None:
            self.original = originals.remember(context.mod)

    def apply(self, sch: Schedule) -> bool:
        try:
            if self.gemm is None:
                return self._apply_stock(sch)
            return _apply(sch, self.gemm, self.machine)
        except (WarploomError, RuntimeError, ValueError):
            return False

    def _apply_stock(self, sch: Schedule) -> bool:
        if not all(step.apply(sch) for step in self.stock):
            return False
        originals.mark(sch, self.original)
        return True

    def clone(self) -> Postproc:
        return VerifyConfig()


def _apply(sch: Schedule, gemm: GemmFunction, machine: Machine) -> bool:
    config = config_of(sch.mod["main"], gemm.problem)
    if config is None:
        return False
    drawn = annotations_of(sch.mod["main"])
    legal: Config | None = config
    if why_not_search(gemm.problem, config, machine) is not None:
        allowed = draws(gemm.problem, machine)
        # Annotations that somebody wrote are what is wanted, and nothing near to it.
        legal = allowed.legal(config) if drawn.keys() >= allowed.values.keys() else None
    if legal is None:
        return False
    wanted = legal.values()
    changed = {name: wanted[name] for name, value in drawn.items() if wanted.get(name) != value}
    if changed:
        block = sch.get_sblock(gemm.anchor, "main")
        for name in changed:
            sch.unannotate(block, PREFIX + name)
        annotate(sch, block, changed)
    return True

"""The design space of MetaSchedule: configs for GEMMs, TVM's own rules for everything else.

A trace of ours is one ``sample_categorical`` and one ``annotate`` for each choice that has values
to draw (:mod:`warploom.tile.choices`). All traces of a problem have the same values and differ only
in how likely they are, so that mutations lead from each to every other. What is drawn need not be
legal: :mod:`~warploom.meta_schedule.postproc` makes it so.
"""

from __future__ import annotations

from tvm.ir import IRModule
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.space_generator import (
    PostOrderApply,
    PySpaceGenerator,
    SpaceGenerator,
)

from warploom.decide.draws import Draws, draws, starts
from warploom.decide.machine import H200
from warploom.decide.machines import machine_for
from warploom.errors import WarploomError
from warploom.gemm.annotations import annotate
from warploom.gemm.problem import GemmFunction
from warploom.meta_schedule.intrinsics import import_intrinsics
from warploom.meta_schedule.lookup import Lookup
from warploom.meta_schedule.mutator import MutateChoice
from warploom.meta_schedule.postproc import VerifyConfig
from warploom.meta_schedule.stock import gemm_of

#: Best candidates of the analytic model that a search begins at.
_STARTS = 6


@derived_object
class Space(PySpaceGenerator):
    """``space=warploom.meta_schedule.Space()`` for ``tune_tir``, ``tune_relax`` and the like.

    Parameters
    ----------
    known : Lookup, optional
        Measured configs, at which searches begin as well; by default the package's.

    Examples
    --------
    >>> ms.tune_tir(mod, target, "work_dir", 64, space=wms.Space())  # doctest: +SKIP
    """

    def __init__(self, known: Lookup | None = None) -> None:
        super().__init__()
        self.known = Lookup.shipped() if known is None else known
        import_intrinsics()  # as the context of every task does, in several times as long
        self.stock = PostOrderApply()
        self.sch_rules = []
        self.machine = H200
        self.postprocs = [VerifyConfig()]
        self.mutator_probs = {MutateChoice(): 1.0}

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        if gemm_of(context.mod) is None:  # TVM's rules take long to import
            self.stock._initialize_with_tune_context(context)
        self.machine = machine_for(context.target)
        # TVM tells only the rules of its own space generators which task they are for.
        for rule in (*self.postprocs, *self.mutator_probs):
            rule._initialize_with_tune_context(context)

    def generate_design_space(self, mod: IRModule) -> list[Schedule]:
        gemm = gemm_of(mod)
        if gemm is None:
            return list(self.stock.generate_design_space(mod))
        try:
            open_to_all = draws(gemm.problem, self.machine)
            known = self.known.config(gemm.problem)
            begin = starts(gemm.problem, _STARTS, self.machine, known)
            likely = [open_to_all.around(config) for config in begin]
        except WarploomError:
            return list(self.stock.generate_design_space(mod))
        return [_schedule(mod, gemm, choice) for choice in (*likely, open_to_all)]

    def clone(self) -> SpaceGenerator:
        return Space(self.known)


def _schedule(mod: IRModule, gemm: GemmFunction, chosen: Draws) -> Schedule:
    sch = Schedule(mod, error_render_level="none")
    block = sch.get_sblock(gemm.anchor, "main")
    for name, values in chosen.values.items():
        annotate(sch, block, {name: sch.sample_categorical(list(values), chosen.weights[name])})
    return sch

"""Changes one choice of a trace; traces of TVM's own rules get TVM's own mutations."""

from __future__ import annotations

import random
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule import Mutator, TuneContext
from tvm.s_tir.meta_schedule.mutator import PyMutator
from tvm.s_tir.schedule import Instruction, Trace

from warploom.gemm.annotations import PREFIX
from warploom.meta_schedule.stock import stock_rules

#: How often a value is drawn as the space would draw it; otherwise it becomes one close to it.
_REDRAW = 0.5
#: Places in the list of values that are close: tiles are listed by their extents.
_CLOSE = 3


@derived_object
class MutateChoice(PyMutator):
    """Chooses one choice, and another value for it."""

    def __init__(self) -> None:
        super().__init__()
        self.random = random.Random(0)
        self.stock: dict[Mutator, float] = {}

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        self.random = random.Random(int(context.rand_state))
        self.stock = stock_rules(context)[1]

    def apply(self, trace: Trace, _: Any) -> Trace | None:
        mine = _sampled_config(trace)
        if mine is None:
            return self._stock(trace)
        open_ones = [instruction for instruction in mine if len(instruction.attrs[0]) > 1]
        if not open_ones:
            return None
        chosen = self.random.choice(open_ones)
        value = self._another(int(trace.decisions[chosen]), chosen)
        return trace.with_decision(chosen, value, remove_postproc=True)

    def _another(self, current: int, instruction: Instruction) -> int:
        count = len(instruction.attrs[0])
        if self.random.random() < _REDRAW:
            weights = [float(probability) for probability in instruction.attrs[1]]
            weights[current] = 0.0
            if sum(weights) > 0:
                return self.random.choices(range(count), weights)[0]
        near = range(max(0, current - _CLOSE), min(count, current + _CLOSE + 1))
        return self.random.choice([option for option in near if option != current])

    def _stock(self, trace: Trace) -> Trace | None:
        if not self.stock:
            return None
        chosen = self.random.choices(list(self.stock), [float(p) for p in self.stock.values()])[0]
        return chosen.apply(trace)

    def clone(self) -> Mutator:
        return MutateChoice()


def _sampled_config(trace: Trace) -> list[Instruction] | None:
    """The samples of a trace of ours; None for other traces."""
    annotated = any(
        instruction.kind.name == "Annotate" and str(instruction.attrs[0]).startswith(PREFIX)
        for instruction in trace.insts
    )
    if not annotated:
        return None
    return [
        instruction for instruction in trace.insts if instruction.kind.name == "SampleCategorical"
    ]

"""Fuses GEMMs with functions that pair their columns, such as the two halves of a SwiGLU.

And with functions that reduce their rows, such as a maximum, where a tile has whole rows.

TVM fuses what works on single elements of a GEMM. Where an element of the result takes two, of
two halves of the columns or of two GEMMs of the same rows, both would be written out and read
again: here both sums of such a pair are kept by the thread that needs them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tvm
from tvm import relax
from tvm.tirx import PrimFunc

from warploom.decide.machines import machine_for
from warploom.decide.model import predict
from warploom.decide.problem import GemmProblem
from warploom.decide.selector import choose
from warploom.decide.work import UNKNOWN_EXTENT, sizes
from warploom.errors import Decline
from warploom.fallback import attempted
from warploom.gemm.equations import read_equations
from warploom.gemm.recognition import recognise
from warploom.relax.joining import (
    Joiner,
    equal_arguments,
    has_program,
    is_call_tir,
    joined,
    with_arguments_once,
)
from warploom.target.dtypes import bits_of

#: Attribute of a PrimFunc that becomes a part of what reads its result, not of what it reads.
OF_READER = "warploom.of_reader"


def FuseProducts() -> tvm.transform.Pass:
    """A pass that puts GEMMs into the only function that uses their results.

    Only where all are GEMMs of the same rows afterwards, and nothing is computed twice. To be
    run after :func:`warploom.relax.fuse_operands.FuseOperands`.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.FuseProducts")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return _Fuser(mod).run(mod)

    return run


@relax.expr_functor.mutator
class _Fuser(Joiner):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        #: Calls of which functions with which arguments alike are not merged.
        self.declined: set[tuple[Any, ...]] = set()

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if not is_call_tir(call):
            return call
        func, arguments = self.function(call), list(call.args[1])
        if (getattr(func, "attrs", None) or {}).get(OF_READER, False):
            return call
        for position in reversed(range(len(arguments))):
            made = self.producer(arguments[position])
            if made is None:
                continue
            passed = [*arguments[:position], *made.args[1], *arguments[position + 1 :]]
            key = (self.function(made), func, position, equal_arguments(passed))
            if key in self.declined:
                continue
            merged = attempted(
                call.args[0].name_hint,
                partial(_merge, self.function(made), func, position, passed),
            )
            if merged is not None:
                return self.call(*merged, call)
            self.declined.add(key)
        return call


def _merge(
    producer: Any, func: Any, position: int, arguments: list[relax.Expr]
) -> tuple[PrimFunc, list[relax.Expr]] | None:
    """Return a function for both, and its arguments.

    None, or a Decline, if that is no GEMM, or a larger one.
    """
    if not all(isinstance(function, PrimFunc) for function in (producer, func)):
        return None
    parts = [recognise(producer).problem]
    reduces = any(equation.reduction for equation in read_equations(func))
    if reduces and _is_product(func):
        parts.append(recognise(func).problem)
        reduces = False
    merged, arguments = with_arguments_once(joined(producer, func, position), arguments)
    gemm = recognise(merged)
    if reduces:  # the GEMM is not even stored
        return (merged, arguments) if gemm.problem.reduced and has_program(gemm) else None
    same_work = _columns(gemm.problem) == sum(map(_columns, parts))
    if not same_work or not has_program(gemm) or not _saves_time(parts, gemm.problem):
        return None
    return merged, arguments


def _is_product(func: PrimFunc) -> bool:
    try:
        recognise(func)
    except Decline:
        return False
    return True


def _columns(problem: GemmProblem) -> int:
    """Columns of all GEMMs together; -1 where they are not known."""
    return -1 if problem.n is None else problem.n * problem.products


def _saves_time(parts: list[GemmProblem], merged: GemmProblem) -> bool:
    """Whether one kernel is predicted to take less than GEMMs and memory traffic apart.

    Two accumulators leave a tile half as many rows, which costs more than it saves where each
    tile computes an operand anew.
    """
    machine = machine_for()

    def time(problem: GemmProblem) -> float:
        return predict(problem, choose(problem, machine), machine).without_policies

    apart = sum(map(time, parts))
    m, n, _, batch = (extent or UNKNOWN_EXTENT for extent in sizes(merged))
    moved = m * n * batch * (merged.products + 1) * bits_of(merged.outputs[0]) / 8
    apart += machine.launch + moved / machine.dram_bytes
    return time(merged) <= apart

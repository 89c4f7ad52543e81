"""Weights that a model looks up for each row are multiplied where they are.

``take(weights, experts)`` copies the weights of each row's expert; a matmul of them, with one row
each, reads the copy once. Here the matmul reads the weights by the index instead, as a kernel of
rows: at a copy's bandwidth, without the copy.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tvm
from tvm import relax
from tvm.tirx import PrimFunc

from warploom.errors import Decline
from warploom.fallback import attempted
from warploom.gemm.equations import read_equations
from warploom.gemm.memory import static
from warploom.relax.joining import Joiner, is_call_tir, joined, result_types
from warploom.rows import row_kernel
from warploom.rows.apart import multiplies_gathered
from warploom.rows.problem import read_rows
from warploom.tile import ir


def FuseGathered() -> tvm.transform.Pass:
    """A pass that puts gathers of matrices into the products that alone use their results.

    Only where each matrix is multiplied by a few rows at most, see :mod:`warploom.rows.apart`. To
    be run after ``relax.transform.FuseTIR``, before
    :func:`~warploom.relax.fuse_operands.FuseOperands`.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.FuseGathered")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return _Fuser(mod).run(mod)

    return run


@relax.expr_functor.mutator
class _Fuser(Joiner):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if not is_call_tir(call) or not _sums(self.function(call)):
            return call
        for position in range(len(call.args[1])):
            fused = attempted(call.args[0].name_hint, partial(self._fused, call, position))
            if fused is not None:
                return self.call(*fused, call)
        return call

    def _fused(
        self, call: relax.Call, position: int
    ) -> tuple[PrimFunc, list[relax.Expr]] | None:
        """The function with all that moves one operand in it, and its arguments."""
        func, arguments = self.function(call), list(call.args[1])
        while (made := self.producer(arguments[position])) is not None:
            producer = self.function(made)
            if not _moves(producer, made):
                break
            func = joined(producer, func, position)
            inputs = list(made.args[1])
            arguments[position : position + 1] = inputs
            # What is moved further is the largest of its inputs; the others say where to.
            position += max(range(len(inputs)), key=lambda one: _elements(inputs[one]))
        if len(arguments) == len(call.args[1]):
            return None  # nothing says where
        function = read_rows(func)
        if not multiplies_gathered(function):
            return None
        row_kernel(function)
        return func, arguments


def _sums(func: Any) -> bool:
    """Whether a function has one sum."""
    try:
        equations = read_equations(func) if isinstance(func, PrimFunc) else []
    except Decline:
        return False
    return sum(bool(equation.reduction) for equation in equations) == 1


def _moves(producer: Any, made: relax.Call) -> bool:
    """Whether a function of S-TIR has one result, which it computes element by element."""
    if not isinstance(producer, PrimFunc) or len(result_types(made)) > 1:
        return False
    if not all(ir.is_buffer(param) for param in producer.params):
        return False
    return not any(equation.reduction for equation in read_equations(producer))


def _elements(tensor: relax.Expr) -> float:
    """How many elements a tensor has; those of unknown size have more than all others."""
    sizes = [static(size) for size in tensor.ty.shape.values]
    count = 1.0
    for size in sizes:
        count *= float("inf") if size is None else size
    return count

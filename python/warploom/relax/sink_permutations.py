"""Permutations that undo each other around element-wise operators are left out.

A block that computes in NHWC, such as the linear layers of ConvNeXt, goes back to NCHW for its
scale and its residual: ``permute_dims(permute_dims(x) * scale)`` is ``x * permute_dims(scale)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Op

from warploom.relax.elementwise import BINARY, UNARY
from warploom.relax.permutations import (
    JoinPermutations,
    is_permutation,
    moves_elements,
    permutation,
)
from warploom.relax.visiting import bound, visited

#: Operators between two permutations that are looked through.
_MOST_OPERATORS = 4


def SinkPermutations() -> tvm.transform.Pass:
    """A pass that leaves permutations out that element-wise operators are between.

    Operands of binary operators must have equally many dimensions
    (:func:`~warploom.relax.align_broadcasts.AlignBroadcasts`), and those that are not permuted must
    be vectors. The pass does what ``JoinPermutations`` does, too.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.SinkPermutations")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        join = JoinPermutations()
        mod = join(mod)
        return join(visited(mod, _Sinker(mod), clean=True))

    return run


@relax.expr_functor.mutator
class _Sinker(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        #: What is computed permuted in a block, by what it is unpermuted and the order: a residual
        #: of many blocks is one sum after the other, and not all sums for each block.
        self.made: dict[tuple[relax.Expr, tuple[int, ...]], relax.Expr] = {}

    def visit_binding_block_(self, block: relax.BindingBlock) -> relax.BindingBlock:
        return self._apart(super().visit_binding_block_, block)

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.BindingBlock:
        return self._apart(super().visit_dataflow_block_, block)

    def _apart(self, visit: Callable[..., Any], block: relax.BindingBlock) -> relax.BindingBlock:
        """Visit a block: its variables are known in it alone."""
        outer, self.made = self.made, {}
        try:
            return visit(block)
        finally:
            self.made = outer

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if not is_permutation(call):
            return call
        order = permutation(call)
        if not self._has_inverse(call.args[0], order, _MOST_OPERATORS):
            return call
        return self._permuted(call.args[0], order)

    def _operands(self, expr: relax.Expr) -> list[relax.Expr] | None:
        """The operands of an element-wise operator with as many dimensions as its result."""
        call = bound(self, expr)
        if not isinstance(call, relax.Call) or not isinstance(call.op, Op):
            return None
        if call.op.name in UNARY:
            return [call.args[0]]
        same = all(getattr(one.ty, "ndim", -1) == call.ty.ndim for one in call.args)
        return list(call.args) if call.op.name in BINARY and same else None

    def _has_inverse(self, expr: relax.Expr, order: Sequence[int], left: int) -> bool:
        """Whether a permutation meets its inverse in an operand, and moves nothing of others."""
        if (expr, tuple(order)) in self.made:
            return True
        call = bound(self, expr)
        if is_permutation(call):
            return _undoes(call, order)
        operands = self._operands(expr) if left else None
        if operands is None:
            return False
        met = [self._has_inverse(one, order, left - 1) for one in operands]
        rest = [one for one, found in zip(operands, met, strict=True) if not found]
        return any(met) and not any(_moves(one, order) for one in rest)

    def _permuted(self, expr: relax.Expr, order: Sequence[int]) -> relax.Expr:
        key = expr, tuple(order)
        if key not in self.made:
            self.made[key] = self._made(expr, order)
        return self.made[key]

    def _made(self, expr: relax.Expr, order: Sequence[int]) -> relax.Expr:
        call = bound(self, expr)
        if is_permutation(call) and _undoes(call, order):
            return call.args[0]
        if not self._has_inverse(expr, order, _MOST_OPERATORS):
            return self.builder_.emit(relax.op.permute_dims(expr, list(order)))
        operands = self._operands(expr)
        made = [self._permuted(one, order) for one in operands]
        rest = list(call.args)[len(made) :]
        return self.builder_.emit(relax.Call(call.op, [*made, *rest], call.attrs, call.ty_args))


def _undoes(call: relax.Call, order: Sequence[int]) -> bool:
    first = permutation(call)
    return [first[axis] for axis in order] == list(range(len(order)))


def _moves(expr: relax.Expr, order: Sequence[int]) -> bool:
    """Whether a permutation of a tensor changes the order of its elements in memory."""
    return moves_elements(relax.op.permute_dims(expr, list(order)))

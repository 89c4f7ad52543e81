"""Calls of ``relax.permute_dims``, and a pass that joins one with the next.

Frontends write ``[batch, tokens, heads, elements]`` as ``[batch, heads, tokens, elements]`` and
back around each attention. A permutation of a permutation is one, or none at all; what is left
without a reader is no kernel then.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.ir import Op

from warploom.relax.visiting import bound, visited


def is_permutation(expr: Any) -> bool:
    """Whether an expression is a call of ``relax.permute_dims``."""
    return isinstance(expr, relax.Call) and expr.op == Op.get("relax.permute_dims")


def permutation(call: relax.Call) -> tuple[int, ...]:
    """The order of dimensions that a call of ``relax.permute_dims`` makes; none is negative."""
    count = int(call.args[0].ty.ndim)
    if call.attrs.axes is None:
        return tuple(reversed(range(count)))
    return tuple(int(axis) % count for axis in call.attrs.axes)


def JoinPermutations() -> tvm.transform.Pass:
    """A pass that makes one of ``permute_dims(permute_dims(x))``, and ``x`` if it changes nothing.

    To be run before ``LegalizeOps``.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.JoinPermutations")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return visited(mod, _Joiner(mod), clean=True)

    return run


@relax.expr_functor.mutator
class _Joiner(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if not is_permutation(call):
            return call
        before = bound(self, call.args[0])
        if not is_permutation(before):
            return call
        first, second = permutation(before), permutation(call)
        order = [first[axis] for axis in second]
        source = before.args[0]
        return source if order == sorted(order) else relax.op.permute_dims(source, order)

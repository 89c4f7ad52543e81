"""Calls of ``relax.permute_dims``, and a pass that joins one with the next.

Frontends write ``[batch, tokens, heads, elements]`` as ``[batch, heads, tokens, elements]`` and
back around each attention. A permutation of a permutation is one, or none at all; what is left
without a reader is no kernel then. A permutation of dimensions of one element moves nothing: it is
a reshape. A reshape between two permutations, such as that of pixels to tokens, goes before both.
A reshape of a reshape is one.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import Op

from warploom.relax.dimension_groups import groups
from warploom.relax.visiting import bound, visited
from warploom.tile import ir

#: Operators that move nothing in memory.
_RESHAPES = ("relax.reshape", "relax.expand_dims", "relax.squeeze")


def is_permutation(expr: Any) -> bool:
    """Whether an expression is a call of ``relax.permute_dims``."""
    return isinstance(expr, relax.Call) and expr.op == Op.get("relax.permute_dims")


def permutation(call: relax.Call) -> tuple[int, ...]:
    """The order of dimensions that a call of ``relax.permute_dims`` makes; none is negative."""
    count = int(call.args[0].ty.ndim)
    if call.attrs.axes is None:
        return tuple(reversed(range(count)))
    return tuple(int(axis) % count for axis in call.attrs.axes)


def moves_elements(call: relax.Call) -> bool:
    """Whether a permutation changes the order of elements in memory."""
    extents = call.args[0].ty.shape.values if call.args[0].ty.shape is not None else None
    order = permutation(call)
    if extents is not None:
        order = tuple(axis for axis in order if not ir.is_constant(extents[axis], 1))
    return list(order) != sorted(order)


def JoinPermutations() -> tvm.transform.Pass:
    """A pass that makes one of ``permute_dims(permute_dims(x))``, and ``x`` if it changes nothing.

    Also where a reshape is between the two that only merges or splits neighbours. To be run
    before ``LegalizeOps``.
    """

    @tvm.transform.module_pass(opt_level=0, name="warploom.JoinPermutations")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return visited(mod, _Joiner(mod), clean=True)

    return run


@relax.expr_functor.mutator
class _Joiner(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        if _is_reshape(call):
            return self._reshape(call)
        if not is_permutation(call):
            return call
        before = bound(self, call.args[0])
        if _is_reshape(before):
            permuted = bound(self, before.args[0])
            moved = _reshaped_first(permuted, before) if is_permutation(permuted) else None
            if moved is not None:
                shape, order = moved
                source = self.builder_.emit(relax.op.reshape(permuted.args[0], shape))
                before = self.builder_.normalize(relax.op.permute_dims(source, order))
        source, order = call.args[0], list(permutation(call))
        if is_permutation(before):
            first, source = permutation(before), before.args[0]
            order = [first[axis] for axis in order]
        if order == sorted(order):
            return source
        made = self.builder_.normalize(relax.op.permute_dims(source, order))
        if moves_elements(made):
            return made
        while _is_reshape(earlier := bound(self, source), *_RESHAPES):
            source = earlier.args[0]
        return relax.op.reshape(source, made.ty.shape)


    def _reshape(self, call: relax.Call) -> relax.Expr:
        """A reshape of what is none, or that itself."""
        source = call.args[0]
        while _is_reshape(earlier := bound(self, source), *_RESHAPES):
            source = earlier.args[0]
        if source is call.args[0]:
            return call
        shapes = [getattr(one.ty.shape, "values", None) for one in (source, call)]
        same = None not in shapes and tvm_ffi.structural_equal(*map(list, shapes))
        return source if same else relax.op.reshape(source, call.ty.shape)


def _is_reshape(expr: Any, *names: str) -> bool:
    names = names or ("relax.reshape",)
    return isinstance(expr, relax.Call) and any(expr.op == Op.get(name) for name in names)


def _reshaped_first(
    permuted: relax.Call, reshape: relax.Call
) -> tuple[list[Any], list[int]] | None:
    """The shape and the order of dimensions of ``reshape(permute_dims(x))`` the other way round.

    None if the reshape takes dimensions together that are not neighbours in ``x``, in that order.
    """
    shapes = [one.ty.shape for one in (permuted.args[0], permuted, reshape)]
    if any(shape is None or not hasattr(shape, "values") for shape in shapes):
        return None
    source, middle, result = (list(shape.values) for shape in shapes)
    found = groups(middle, result)
    if found is None:
        return None
    order, parts = permutation(permuted), []
    for mine, made in found:
        axes = [axis for axis in (order[d] for d in mine) if not ir.is_constant(source[axis], 1)]
        if axes and axes != list(range(axes[0], axes[0] + len(axes))):
            return None
        parts.append((axes[0] if axes else len(source), list(made)))
    # Where each dimension of the result is once those of x are in their own order.
    ranked = [d for _, made in sorted(parts, key=lambda part: part[0]) for d in made]
    return [result[d] for d in ranked], [ranked.index(d) for d in range(len(result))]

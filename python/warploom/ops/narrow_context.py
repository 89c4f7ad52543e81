"""The context of a tile primitive, with the ranges of the variables alone that it is about.

TVM notes the range of every variable around a tile primitive: in a kernel of many statements these
are a hundred, scalars included. TVM's schedules and ours give all of them to several analyzers for
each primitive, which took a quarter of the time of lowering a model. A variable that no operand
names, and no range of such a variable, changes no result of an analyzer.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm.ir import Range, Var
from tvm.tirx.tile_primitive import DispatchContext, TilePrimitiveCall


class NarrowContext:
    """A :class:`DispatchContext` that differs in ``var_range_map``, which is a ``dict`` here.

    Parameters
    ----------
    context : DispatchContext
        Statements and cached values that a schedule adds are added to this one.
    call : TilePrimitiveCall
        The primitive that is lowered in it.
    """

    def __init__(self, context: DispatchContext, call: TilePrimitiveCall) -> None:
        self._context = context
        self.var_range_map = _ranges(context, call)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def _ranges(context: DispatchContext, call: TilePrimitiveCall) -> dict[Var, Range]:
    """The ranges of the variables of a call, of the launch, and of those in such ranges."""
    every = dict(context.var_range_map.items())
    launch = [variable.var for variable in context.launch_params.values()]
    wanted = {variable for variable in (*_variables(call), *launch) if variable in every}
    left = list(wanted)
    while left:
        bounds = every[left.pop()]
        inner = {*_variables(bounds.min), *_variables(bounds.extent)}
        new = [variable for variable in inner if variable in every and variable not in wanted]
        wanted.update(new)
        left += new
    # In TVM's order: a range may name variables of ranges before it.
    return {variable: bounds for variable, bounds in every.items() if variable in wanted}


def _variables(node: Any) -> set[Var]:
    found: set[Var] = set()
    tvm_ffi.structural_walk(node, (Var, found.add))
    return found

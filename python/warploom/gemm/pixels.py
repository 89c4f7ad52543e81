"""Rows of a product that are pixels: several axes of the result, as a convolution has them.

A tile's rows are then a box of pixels. What they see of the image is a box as well, for each tap of
the filter: TMA loads it, in steps where the convolution has a stride, and with zeros where it
reaches over the edges. So the image is neither copied to a matrix nor padded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call, Op
from tvm.ir.expr import TensorLoad
from tvm.tirx import Var

from warploom.decide.pixels import PixelAxis
from warploom.gemm.equations import simplify, strip_casts
from warploom.gemm.memory import static
from warploom.gemm.problem import Axis
from warploom.target import TMA
from warploom.tile import ir


def padded_load(value: Any) -> TensorLoad | None:
    """The load in ``load if it is inside else 0``, or None if a value is something else.

    TMA reads zeros outside of a tensor, so such a value can be loaded without the condition: each
    part of it must say no more than that an index is not negative, or is below the extent.
    """
    value = strip_casts(value)
    if isinstance(value, TensorLoad):
        return value
    if isinstance(value, Call) and value.op == Op.get("prim.if_then_else"):
        condition, inside, outside = value.args
    elif isinstance(value, tirx.Select):
        condition, inside, outside = value.condition, value.true_value, value.false_value
    else:
        return None
    load = strip_casts(inside)
    zero = isinstance(outside, (tirx.IntImm, tirx.FloatImm)) and outside.value == 0
    if not zero or not isinstance(load, TensorLoad):
        return None
    return load if all(_is_bound(part, load) for part in _parts(condition)) else None


def _parts(condition: Any) -> Iterator[Any]:
    """The parts that a condition is the conjunction of."""
    if isinstance(condition, tirx.And):
        yield from _parts(condition.a)
        yield from _parts(condition.b)
    else:
        yield condition


def _is_bound(part: Any, load: TensorLoad) -> bool:
    """Whether a condition fails only where an index of the load is outside."""
    excess = _excess(part)
    if excess is None:
        return False
    for index, extent in zip(load.indices, load.source.shape, strict=True):
        # The elements that an index is inside by, at either end.
        for room in (index, extent - 1 - index):
            if ir.is_constant(simplify(excess - room), 0) or _follows(room, excess):
                return True
            analyzer = tvm.sym.Analyzer()
            with analyzer.constraint_scope(excess < 0):
                if analyzer.can_prove(room < 0):
                    return True
    return False


def _follows(room: Any, excess: Any) -> bool:
    """Whether ``room`` is negative where ``excess`` is.

    It is if ``room = factor * excess + rest`` with little left. TVM divides both sides of a
    comparison by what they have in common, such as the stride and the dilation of a convolution,
    or knows that a sum of even numbers is even: then an excess that is negative is so by that much.
    """
    variables = sorted(ir.uses(excess), key=lambda var: var.name)
    steps = [step_of(excess, var) for var in variables]
    first = simplify(ir.substitute(excess, {var: 0 * var for var in variables}))
    if not steps or not all(steps) or not isinstance(first, tirx.IntImm):
        return False
    least = math.gcd(*steps, int(first))
    whole = step_of(room, variables[0])
    if not whole or whole % steps[0] or whole // steps[0] < 1:
        return False
    factor = whole // steps[0]
    rest = simplify(room - factor * excess)
    return isinstance(rest, tirx.IntImm) and int(rest) < factor * least


def _excess(comparison: Any) -> Any:
    """An expression that is at least 0 where a comparison holds, and negative elsewhere."""
    forms = {
        tirx.LE: lambda a, b: b - a, tirx.LT: lambda a, b: b - a - 1,
        tirx.GE: lambda a, b: a - b, tirx.GT: lambda a, b: a - b - 1,
    }  # fmt: skip
    form = forms.get(type(comparison))
    return None if form is None else form(comparison.a, comparison.b)


def step_of(index: Any, var: Var) -> int | None:
    """How far an index goes on with a variable; None if that differs from place to place."""
    if var not in ir.uses(index):
        return 0
    step = simplify(ir.substitute(index, {var: var + 1}) - index)
    return int(step) if isinstance(step, tirx.IntImm) else None


def find_pixels(
    axes: Sequence[Axis], columns: Axis, inner: Axis, stored: Sequence[Any], load: TensorLoad
) -> tuple[Axis, ...]:
    """The axes that are pixels, in the order of the result's dimensions; none if there are none.

    Parameters
    ----------
    axes : sequence of Axis
        Those of the result that only the first factor has, extents of 1 left out.
    columns, inner : Axis
        Of the product: its columns, and the innermost axis of the sum.
    stored : sequence of Expr
        Where the result is stored.
    load : TensorLoad
        The first factor.
    """
    where = {}
    for dimension, index in enumerate(stored):
        for axis in axes:
            if axis.var in ir.uses(index):
                if axis.var in where or not index.same_as(axis.var):
                    return ()
                where[axis.var] = dimension
    if len(where) != len(axes) or not stored[-1].same_as(columns.var):
        return ()
    ordered = tuple(sorted(axes, key=lambda axis: where[axis.var]))
    used = [[a for a in ordered if a.var in ir.uses(index)] for index in load.indices]
    along = [terms[0] for terms in used if terms]
    if along != list(ordered) or any(len(terms) > 1 for terms in used) or used[-1]:
        return ()
    places = [(load.indices[d], terms[0].var) for d, terms in enumerate(used) if terms]
    if not all(1 <= (step_of(*place) or 0) <= TMA.element_stride for place in places):
        return ()
    last = max(d for d, terms in enumerate(used) if terms)
    if any(inner.var in ir.uses(index) for index in load.indices[:last]):
        return ()
    plain = all(index.same_as(var) for index, var in places)
    return () if plain and len(ordered) == 1 else ordered


def pixel_axes(
    axes: Sequence[Axis], summed: Sequence[Axis], load: TensorLoad
) -> tuple[PixelAxis, ...]:
    """What decisions know of pixels: extents and steps, and how far the taps of a pixel reach.

    Parameters
    ----------
    axes : sequence of Axis
        Those of :func:`find_pixels`.
    summed : sequence of Axis
        Those of the sum.
    load : TensorLoad
        The first factor of the product.
    """
    found = []
    for axis in axes:
        dimension = next(d for d, index in enumerate(load.indices) if axis.var in ir.uses(index))
        index, image = load.indices[dimension], static(load.source.shape[dimension])
        steps = ((step_of(index, tap.var), static(tap.extent)) for tap in summed)
        reach = sum(abs(step) * (count - 1) for step, count in steps if step and count)
        found.append(PixelAxis(static(axis.extent), step_of(index, axis.var) or 1, image, reach))
    return tuple(found)

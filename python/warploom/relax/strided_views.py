"""Tensors of a model as strided views of others: slices, transposes and reshapes in between.

As numpy has them: a view is a tensor, an offset, and a stride for each dimension. What a kernel
reads through strides is not copied before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import relax, tirx
from tvm.ir import Op
from tvm.tirx import IntImm

from warploom.gemm.equations import simplify
from warploom.relax.dimension_groups import groups
from warploom.relax.permutations import permutation
from warploom.tile import ir


@dataclass(frozen=True)
class Atom:
    """Indices that follow each other in steps of a stride: a dimension, or a factor of one.

    Attributes
    ----------
    extent : int or Expr
    stride : int or Expr
        Elements of the source from an index to the next one; 0 where an element is repeated.
    """

    extent: Any
    stride: Any


#: A dimension: its factors, the outermost first. Mostly one, and none where the extent is 1; two
#: where a reshape has merged dimensions that are not neighbours in memory.
Dimension = tuple[Atom, ...]


def extent_of(dimension: Dimension) -> Any:
    """The extent of a dimension."""
    whole: Any = 1
    for atom in dimension:
        whole = product(whole, atom.extent)
    return whole


@dataclass(frozen=True)
class StridedView:
    """Elements of a tensor that lies in memory one after the other.

    Attributes
    ----------
    source : Expr
    offset : int or Expr
        The first element's.
    dimensions : tuple of Dimension
    """

    source: relax.Expr
    offset: Any
    dimensions: tuple[Dimension, ...]


def strided_view(lookup: Callable[[relax.Expr], relax.Expr], expr: relax.Expr) -> StridedView:
    """A tensor as a view of the first tensor that it is no view of.

    Parameters
    ----------
    lookup : callable
        What a variable is bound to.
    expr : Expr
        A tensor of known rank.
    """
    value = lookup(expr)
    if isinstance(value, relax.TupleGetItem):
        call = lookup(value.tuple_value)
        made = None
        if isinstance(call, relax.Call) and call.op == Op.get("relax.split"):
            made = _part(strided_view(lookup, call.args[0]), call, int(value.index), expr)
    elif isinstance(value, relax.Call) and isinstance(value.op, Op):
        rule = _RULES.get(value.op.name)
        made = None if rule is None else rule(strided_view(lookup, value.args[0]), value)
    else:
        made = None
    return _whole(expr) if made is None else made


def _whole(expr: relax.Expr) -> StridedView:
    """A tensor as a view of itself."""
    stride, dimensions = 1, []
    for extent in reversed(_extents(expr)):
        dimensions.append(_dimension(extent, stride))
        stride = product(stride, extent)
    return StridedView(expr, 0, tuple(reversed(dimensions)))


def _dimension(extent: Any, stride: Any) -> Dimension:
    return () if isinstance(extent, int) and extent == 1 else (Atom(extent, stride),)


def product(one: Any, other: Any) -> Any:
    """The product of two sizes, as an integer where both are."""
    if isinstance(one, int) and isinstance(other, int):
        return one * other
    if one == 1 and isinstance(one, int):
        return other
    return plain(simplify(one * other))


def plain(size: Any) -> Any:
    """A size, as an integer where it is known."""
    return int(size) if isinstance(size, (int, IntImm)) else size


def equal(one: Any, other: Any) -> bool:
    """Whether two sizes are the same, whatever their variables are."""
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    return ir.is_constant(simplify(one - other), 0)


def _extents(expr: relax.Expr) -> list[Any]:
    return [plain(extent) for extent in expr.ty.shape.values]


def _permuted(view: StridedView, call: relax.Call) -> StridedView:
    return replace(view, dimensions=tuple(view.dimensions[axis] for axis in permutation(call)))


def _broadcast(view: StridedView, call: relax.Call) -> StridedView:
    extents = _extents(call)
    old = [*[()] * (len(extents) - len(view.dimensions)), *view.dimensions]
    made = [
        one if equal(extent_of(one), extent) else _dimension(extent, 0)
        for one, extent in zip(old, extents, strict=True)
    ]
    return replace(view, dimensions=tuple(made))


def _repeated(view: StridedView, call: relax.Call) -> StridedView | None:
    if call.attrs.axis is None:
        return None
    axis, count = int(call.attrs.axis) % len(view.dimensions), int(call.attrs.repeats)
    dimensions = list(view.dimensions)
    dimensions[axis] = (*dimensions[axis], *_dimension(count, 0))
    return replace(view, dimensions=tuple(dimensions))


def _sliced(view: StridedView, call: relax.Call) -> StridedView | None:
    parts = [_numbers(one) for one in call.args[1:]]
    if None in parts or len(parts) < 3:
        return None
    axes, begins, ends, *rest = parts
    steps = rest[0] if rest else [1] * len(axes)
    extents = _extents(call)
    for axis, begin, _, step in zip(axes, begins, ends, steps, strict=True):
        view = _from(view, axis, begin, extents[axis], step)
        if view is None:
            return None
    return view


def _from(view: StridedView, axis: int, begin: int, extent: Any, step: int) -> StridedView | None:
    """A view of some indices of a dimension."""
    axis %= len(view.dimensions)
    old = view.dimensions[axis]
    if step < 1 or begin < 0 or len(old) > 1:
        return None
    stride = old[0].stride if old else 0
    made = list(view.dimensions)
    made[axis] = _dimension(extent, product(stride, step))
    offset = view.offset
    if begin:
        ahead = product(stride, begin)
        known = isinstance(offset, int) and isinstance(ahead, int)
        offset = offset + ahead if known else plain(simplify(ahead + offset))
    return replace(view, offset=offset, dimensions=tuple(made))


def _part(
    view: StridedView, call: relax.Call, number: int, part: relax.Expr
) -> StridedView | None:
    axis = int(call.attrs.axis) % len(view.dimensions)
    sections, extent = call.attrs.indices_or_sections, extent_of(view.dimensions[axis])
    if isinstance(sections, (int, IntImm)):
        if not isinstance(extent, int) or extent % int(sections):
            return None
        begin = extent // int(sections) * number
    else:
        begin = [0, *map(int, sections)][number]
    return _from(view, axis, begin, _extents(part)[axis], 1)


def _reshaped(view: StridedView, call: relax.Call) -> StridedView | None:
    shapes = [list(map(extent_of, view.dimensions)), _extents(call)]
    found = groups(*(
        [tirx.const(size, "int64") if isinstance(size, int) else size for size in shape]
        for shape in shapes
    ))  # fmt: skip
    if found is None:
        return None
    made: list[Dimension] = []
    for before, after in found:
        if len(before) == 1 == len(after):
            made.append(view.dimensions[before[0]])
            continue
        atoms = [atom for d in before for atom in view.dimensions[d]]
        split = _split(atoms, [shapes[1][d] for d in after])
        if split is None:
            return None
        made += split
    return replace(view, dimensions=tuple(made))


def _split(atoms: list[Atom], extents: list[int]) -> list[Dimension] | None:
    """Dimensions of some extents that have the indices of atoms; None if an atom has no factor."""
    made, left = [], list(atoms)
    for extent in reversed(extents):
        mine: list[Atom] = []
        while extent > 1:
            if not left or not isinstance(left[-1].extent, int):
                return None
            inner = left.pop()
            size = min(inner.extent, extent)
            if inner.extent % size or extent % size:
                return None
            if inner.extent > size:
                left.append(Atom(inner.extent // size, product(inner.stride, size)))
            mine.insert(0, Atom(size, inner.stride))
            extent //= size
        made.insert(0, _joined(mine))
    return made


def _joined(atoms: Sequence[Atom]) -> Dimension:
    """A dimension whose factors that are neighbours in memory are one."""
    made: list[Atom] = []
    for atom in atoms:
        outer = made[-1] if made else None
        if outer is not None and equal(outer.stride, product(atom.extent, atom.stride)):
            made[-1] = Atom(product(outer.extent, atom.extent), atom.stride)
        else:
            made.append(atom)
    return tuple(made)


def _numbers(values: Any) -> list[int] | None:
    """Constants of a tuple of sizes."""
    fields = getattr(values, "fields", None) or getattr(values, "values", None)
    if fields is None:
        return None
    known = all(isinstance(one, IntImm) for one in fields)
    return [int(one) for one in fields] if known else None


_RULES: dict[str, Callable[[StridedView, relax.Call], StridedView | None]] = {
    "relax.permute_dims": _permuted, "relax.reshape": _reshaped, "relax.squeeze": _reshaped,
    "relax.expand_dims": _reshaped, "relax.broadcast_to": _broadcast, "relax.repeat": _repeated,
    "relax.strided_slice": _sliced,
}  # fmt: skip

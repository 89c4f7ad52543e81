"""Parts of a Relax function between transpositions."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tvm import relax
from tvm.ir.expr import GenericConst
from tvm.tirx import IntImm

from warploom.relax.convolution import Convolution
from warploom.relax.permutations import is_permutation, moves_elements
from warploom.target.dtypes import bits_of

#: Dimensions from which on a tensor has a layout; vectors are the same in all of them.
_LAYOUT = 3


class Regions:
    """Which calls of a function are connected without a transposition.

    Attributes
    ----------
    transpositions : list of (set of Var, int)
        The regions on both sides of a transposition that is done at each call, and its bytes. The
        filters of a convolution are on its side.
    """

    def __init__(self, func: relax.Function) -> None:
        self._parent: dict[relax.Var, relax.Var] = {}
        self._variable: dict[relax.Call, relax.Var] = {}
        self._constant: set[relax.Var] = set()
        moved: list[tuple[list[relax.Var], int]] = []
        readers: dict[relax.Var, relax.Var] = {}
        for block in func.body.blocks:
            for binding in block.bindings:
                variable, value = binding.var, getattr(binding, "value", None)
                used = list(_tensors(value))
                if used and all(self._is_constant(one) for one in used):
                    self._constant.add(variable)
                    continue
                if isinstance(value, relax.Call):
                    self._variable[value] = variable
                images = [one for one in used if isinstance(one, relax.Var) and _has_layout(one)]
                if is_permutation(value) and moves_elements(value):
                    moved.append(([*images, variable], _bytes(variable)))
                    continue
                if Convolution.of(value) is not None:
                    for weights in images[1:]:
                        readers[weights] = variable
                    images = images[:1]
                for one in images:
                    self._parent[self._root(one)] = self._root(variable)
        self.transpositions = [
            ({self._root(readers.get(end, end)) for end in ends}, size) for ends, size in moved
        ]

    def of(self, call: relax.Call) -> relax.Var:
        """The region of a call: one of its variables."""
        return self._root(self._variable[call])

    def _is_constant(self, expr: relax.Expr) -> bool:
        return isinstance(expr, GenericConst) or expr in self._constant

    def _root(self, variable: relax.Var) -> relax.Var:
        while variable in self._parent and self._parent[variable] != variable:
            variable = self._parent[variable]
        return variable


def _tensors(value: relax.Expr) -> Iterator[relax.Expr]:
    """The variables and constants that a bound value reads."""
    if isinstance(value, relax.Call):
        for argument in value.args:
            yield from _tensors(argument)
    elif isinstance(value, relax.Tuple):
        for field in value.fields:
            yield from _tensors(field)
    elif isinstance(value, relax.TupleGetItem):
        yield from _tensors(value.tuple_value)
    elif isinstance(value, (relax.Var, GenericConst)):
        yield value


def _has_layout(variable: relax.Var) -> bool:
    return getattr(variable.ty, "ndim", _LAYOUT) >= _LAYOUT


def _bytes(variable: relax.Var) -> int:
    """Bytes of a tensor, with 1 for extents that are not known."""
    extents = getattr(getattr(variable.ty, "shape", None), "values", ())
    known = [int(extent) for extent in extents if isinstance(extent, IntImm)]
    return math.prod(known) * bits_of(str(variable.ty.dtype)) // 8

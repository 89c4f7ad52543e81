"""Under which conditions a row function reads an element.

A concatenation reads one of its inputs, a rotation of one half of a row the other half. What a
condition guards may lie outside of its buffer where it does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op
from tvm.ir.expr import TensorLoad
from tvm.tirx import Var

from warploom.gemm.equations import loads, simplify
from warploom.rows.axes import analyzer_of
from warploom.rows.problem import RowFunction
from warploom.tile import ir

#: The operator that evaluates one of its arguments only.
_CHOICE = "prim.if_then_else"


class Guards:
    """What must hold where the loads of a function are done.

    Parameters
    ----------
    function : RowFunction
    width : int
        Elements of a vector.
    """

    def __init__(self, function: RowFunction, width: int) -> None:
        self.column, self.width = function.columns.var, width
        self.analyzer = analyzer_of(function.axes)
        stored = [
            (output.value, () if output.guard is None else (output.guard,))
            for output in (*function.outputs, *function.numbers)
        ]
        reduced = [(value, ()) for value in function.values[: -len(stored)]]
        reduced += [(window.term, ()) for window in function.windows]
        self.paths = [path for value, outer in (*reduced, *stored) for path in _paths(value, outer)]

    def of(self, load: TensorLoad) -> Any:
        """The condition for a load of a vector: None if there is none, False if no vector has it.

        A condition is that of a vector if it is the same for all its elements. Where several
        values read an element, one of their conditions must hold.
        """
        if self._lies_inside(load):
            return None
        paths = [path for known, path in self.paths if tvm_ffi.structural_equal(known, load)]
        if not all(paths):
            return None
        found: list[Any] = []
        for path in paths:
            parts = [part for condition in path for part in _parts(condition)]
            parts = [part for part in parts if not self.analyzer.can_prove(part)]
            if not parts:
                return None
            if not all(map(self._is_uniform, parts)):
                return False
            guard = reduce(tirx.And, parts)
            if not any(tvm_ffi.structural_equal(guard, known) for known in found):
                found.append(guard)
        return reduce(tirx.Or, found)

    def is_choice(self, node: Call, load: TensorLoad) -> bool:
        """Whether a choice's condition is all that says when an element is read."""
        if not (isinstance(node.op, Op) and node.op.name == _CHOICE):
            return False
        paths = [path for known, path in self.paths if tvm_ffi.structural_equal(known, load)]
        return all(
            len(path) == 1 and tvm_ffi.structural_equal(path[0], node.args[0]) for path in paths
        )

    def _lies_inside(self, load: TensorLoad) -> bool:
        """Whether the element exists whatever the condition says."""
        return all(
            self.analyzer.can_prove(index >= 0) and self.analyzer.can_prove(index < extent)
            for index, extent in zip(load.indices, load.source.shape, strict=True)
        )

    def _is_uniform(self, part: Any) -> bool:
        """Whether a comparison is the same for all elements of a vector."""
        if self.column not in ir.uses(part):
            return not loads(part)
        kinds = {tirx.LT: (1, 0), tirx.LE: (1, 1), tirx.GT: (-1, 0), tirx.GE: (-1, 1)}
        sign, equal = kinds.get(type(part), (0, 0))
        if not sign:
            return False
        # sign * (a - b) < equal, which is column < limit, or column >= limit.
        for direction in (1, -1):
            rest = simplify((part.a - part.b) * sign - self.column * direction)
            if isinstance(rest, tirx.IntImm):
                limit = equal - int(rest) if direction == 1 else int(rest) - equal + 1
                return limit % self.width == 0
        return False


def _parts(condition: Any) -> list[Any]:
    """What a condition says, one comparison after the other."""
    if isinstance(condition, tirx.And):
        return [*_parts(condition.a), *_parts(condition.b)]
    if isinstance(condition, tirx.Not):
        opposite = {tirx.LT: tirx.GE, tirx.LE: tirx.GT, tirx.GT: tirx.LE, tirx.GE: tirx.LT}
        kind = opposite.get(type(condition.a))
        return [condition] if kind is None else [kind(condition.a.a, condition.a.b)]
    return [condition]


def _paths(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[TensorLoad, tuple[Any, ...]]]:
    """All loads in a value, each with the conditions of the branches around it.

    A branch within an index is none around the load: it says which element is read.
    """
    choices: list[Call] = []
    done: list[TensorLoad] = []

    def load(node: TensorLoad) -> Any:
        done.append(node)
        return Var("loaded", str(node.ty.dtype))

    def call(node: Call) -> Any:
        if not (isinstance(node.op, Op) and node.op.name == _CHOICE):
            return node
        choices.append(node)
        return Var("chosen", str(node.ty.dtype))

    tvm_ffi.structural_map(value, [(Call, call), (TensorLoad, load)], order="pre")
    for one in done:
        yield one, path
        for index in one.indices:
            yield from _paths(index, path)
    for node in choices:
        condition, then, otherwise = node.args
        yield from _paths(condition, path)
        yield from _paths(then, (*path, condition))
        yield from _paths(otherwise, (*path, tirx.Not(condition)))

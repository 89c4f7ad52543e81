"""Instructions of nests and reductions: how many of each class all threads execute together.

An expression is computed once for each value of the loop variables that it depends on: threads keep
the rest in registers. Arithmetic of indices counts only where elements are computed from it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad
from tvm.tirx import Var

from warploom.decide.price.work import Nest
from warploom.target.dtypes import bits_of
from warploom.tile import ir
from warploom.tile import nest as parts
from warploom.tile.leaves import Nest as NestView
from warploom.tile.primitives import op_name
from warploom.tile.scopes import is_global, is_shared

#: Bits of the words that a pipe moves or computes.
_WORD = 32
#: Functions -> instructions of each class, as CUDA compiles the fast forms.
_FUNCTIONS: dict[str, dict[str, float]] = {
    "exp": {"mufu": 1, "fma": 1}, "exp2": {"mufu": 1}, "exp10": {"mufu": 1, "fma": 1},
    "log": {"mufu": 1, "fma": 1}, "log2": {"mufu": 1}, "log10": {"mufu": 1, "fma": 1},
    "log1p": {"mufu": 1, "fma": 4}, "sqrt": {"mufu": 1, "fma": 1}, "rsqrt": {"mufu": 1},
    "sin": {"mufu": 1, "fma": 2}, "cos": {"mufu": 1, "fma": 2}, "tanh": {"mufu": 1},
    "sigmoid": {"mufu": 2, "fma": 2}, "erf": {"mufu": 1, "fma": 11, "alu": 11},
    "pow": {"mufu": 2, "fma": 1}, "fma": {"fma": 1}, "likely": {}, "reinterpret": {},
}  # fmt: skip
#: A division: a reciprocal and its refinement.
_DIVISION = {"mufu": 1, "fma": 3}
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul)


class _Counter:
    """Counts the instructions of the expressions of one nest."""

    def __init__(self, extents: dict[Var, float]) -> None:
        self.extents = extents
        self.bound: dict[Var, frozenset[Var]] = {}
        self.counts: Counter[str] = Counter()
        self.seen: dict[int, list[tuple[Any, frozenset[Var]]]] = {}

    def add(self, classes: dict[str, float], over: frozenset[Var], share: float = 1.0) -> None:
        """Instructions for each value of some loop variables; none of what is uniform."""
        if over:
            elements = math.prod(self.extents[var] for var in over)
            for name, count in classes.items():
                self.counts[name] += elements * count * share

    def part(self, part: parts.Part) -> None:
        """A statement in the nest."""
        if isinstance(part, parts.Binding):
            self.bound[part.variable] = self.visit(part.value)
        elif isinstance(part, parts.Guard):
            self.visit(part.condition)
            for inner in (*part.parts, *part.otherwise):
                self.part(inner)
        elif isinstance(part, parts.ElementStore):
            over = self.visit(part.value) | self.uses(part.indices)
            if is_shared(part.buffer) or is_global(part.buffer):
                self.add({"shared": bits_of(str(part.buffer.dtype)) / _WORD}, over)

    def uses(self, nodes: Any) -> frozenset[Var]:
        """Loop variables that expressions depend on."""
        found: set[Var] = set()
        for node in nodes:
            for var in ir.uses(node) if not isinstance(node, int) else ():
                found |= self.bound.get(var, {var} if var in self.extents else set())
        return frozenset(found)

    def visit(self, node: Any) -> frozenset[Var]:
        """Count an expression, once if it occurs again; the loop variables that it depends on."""
        if isinstance(node, Var) or not isinstance(node, tvm_ffi.Object):
            return self._visit(node)
        alike = self.seen.setdefault(tvm_ffi.structural_hash(node), [])
        for other, over in alike:
            if tvm_ffi.structural_equal(node, other):
                return over
        over = self._visit(node)
        alike.append((node, over))
        return over

    def _visit(self, node: Any) -> frozenset[Var]:
        if isinstance(node, TensorLoad):
            over = self.uses(node.indices)
            if is_shared(node.source) or is_global(node.source):
                self.add({"shared": bits_of(str(node.source.dtype)) / _WORD}, over)
            return over
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, tirx.Cast):
            over = self.visit(node.value)
            dtypes = str(node.value.ty.dtype), str(node.ty.dtype)
            if any("float" in dtype for dtype in dtypes):
                # One instruction converts two elements to or from 16 bits and fewer.
                pairs = all("float" in dtype for dtype in dtypes)
                self.add({"convert": 1.0}, over, 0.5 if pairs else 1.0)
            return over
        if isinstance(node, tirx.Select):
            return self._all("alu", node.condition, node.true_value, node.false_value)
        if hasattr(node, "a") and hasattr(node, "b"):
            return self._binary(node)
        if isinstance(node, tirx.Not):
            return self.visit(node.a)
        if isinstance(node, Var):
            return self.bound.get(node, frozenset({node} & self.extents.keys()))
        return frozenset()

    def _all(self, name: str, *nodes: Any) -> frozenset[Var]:
        over = frozenset().union(*map(self.visit, nodes))
        self.add({name: 1.0}, over)
        return over

    def _binary(self, node: Any) -> frozenset[Var]:
        dtype = str(node.ty.dtype)
        if not isinstance(node, (*_ARITHMETIC, tirx.Div)) or "float" not in dtype:
            return self._all("alu", node.a, node.b)
        share = min(1.0, bits_of(dtype) / _WORD)  # two of 16 bits at a time
        if isinstance(node, tirx.Div):
            over = self.visit(node.a) | self.visit(node.b)
            self.add(_DIVISION, over)
            return over
        sides = [self.visit(side) for side in (node.a, node.b)]
        over = sides[0] | sides[1]
        products = [
            own for side, own in zip((node.a, node.b), sides, strict=True)
            if isinstance(side, tirx.Mul) and own == over
        ]  # fmt: skip
        if isinstance(node, tirx.Mul) or not products:
            self.add({"fma": 1.0}, over, share)  # else one instruction does both
        return over

    def _call(self, node: Call) -> frozenset[Var]:
        name = str(node.op.name).rpartition(".")[2]
        classes = _FUNCTIONS.get(name, {"alu": 1.0})
        over = frozenset().union(*map(self.visit, node.args))
        self.add(classes, over)
        return over


def of_nest(nest: NestView, extents: dict[Var, float]) -> Nest:
    """The instructions of a nest whose loops have some extents."""
    counter = _Counter(extents)
    for part in nest.parts:
        counter.part(part)
    return Nest(**{name: float(count) for name, count in counter.counts.items()})


class _PerElement(_Counter):
    """Counts the instructions of one element of a tile."""

    def __init__(self, sums: Collection[Var], rows: Collection[Var], columns: Var) -> None:
        super().__init__(dict.fromkeys([*sums, *rows, columns], 1.0))
        self.sums, self.rows, self.columns = set(sums), set(rows), columns

    def add(self, classes: dict[str, float], over: frozenset[Var], share: float = 1.0) -> None:
        """What all elements of a row or of a column have in common does not count."""
        if over & self.sums or (over & self.rows and self.columns in over):
            super().add(classes, over, share)


def of_element(
    values: Iterable[Any], sums: Collection[Var], rows: Collection[Var], columns: Var,
    before: Iterable[parts.Part] = (),
) -> Nest:  # fmt: skip
    """The instructions of one element of a tile whose results are expressions of sums.

    Conversions of whole results do not count: the price of a store has them.

    Parameters
    ----------
    values : iterable of Expr
        A result each.
    sums : collection of Var
        Variables that stand for sums.
    rows : collection of Var
        Those that tell rows apart.
    columns : Var
    before : iterable of Part
        Statements among which are those that give variables their values.
    """
    counter = _PerElement(sums, rows, columns)
    for part in before:
        if isinstance(part, parts.Binding):
            counter.part(part)
    for value in values:
        counter.visit(value.value if isinstance(value, tirx.Cast) else value)
    return Nest(**{name: float(count) for name, count in counter.counts.items()})


def of_reduction(call: Any, elements: float) -> Nest:
    """The instructions of a reduction of so many elements."""
    if op_name(call) == "sum":
        return Nest(fma=elements, reductions=1.0)
    return Nest(alu=elements, reductions=1.0)


def together(nests: list[tuple[Nest, float]]) -> Nest:
    """Nests that a step executes, each so many times."""
    return Nest(*(
        float(sum(value * times for value, times in column))
        for column in zip(*([(v, times) for v in nest] for nest, times in nests), strict=True)
    )) if nests else Nest()  # fmt: skip

"""Facts about integers before anything runs: ids, loop counters, scalars that are set once.

Each of them takes its values in a range. Expressions are computed where it begins and where it
ends: a rule that fails there fails when the program runs, so that no legal program is refused.
Values that depend on memory, on sizes of arguments or on changing scalars are not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm_ffi
from tvm.ir import TensorLoad, Var
from tvm.tirx import IntImm, is_buffer_var
from tvm.tirx.stmt import AllocBuffer, Bind, BufferStore, For

from warploom.errors import TileProgramError
from warploom.language.values.expressions import Evaluator


class Unknown(Exception):
    """A value that only the run of a program tells."""


@dataclass(frozen=True)
class _Known(Evaluator):
    """Computes values that do not depend on memory."""

    scalars: dict[Var, Any] = field(default_factory=dict)

    def load(self, node: TensorLoad) -> np.ndarray:
        if node.source not in self.scalars:
            raise Unknown
        return self(self.scalars[node.source])

    def variable(self, node: Var) -> np.ndarray:
        if node not in self.variables:
            raise Unknown
        return self.variables[node]


@dataclass
class Known:
    """Ranges of the variables in scope, and values of scalars.

    Attributes
    ----------
    ranges : dict
        Variable of an id or of a loop -> (first value, iterations or None, step).
    scalars : dict
        Scalar that is set once, or bound variable -> its value, an expression.
    from_memory : set of Var
        Scalars and variables whose values depend on memory.
    """

    ranges: dict[Var, tuple[Any, Any, Any]] = field(default_factory=dict)
    scalars: dict[Var, Any] = field(default_factory=dict)
    from_memory: set[Var] = field(default_factory=set)
    _once: dict[Var, BufferStore] = field(default_factory=dict)

    def read_scalars(self, body: Any) -> None:
        """Find the scalars that are set once, and the scalars that depend on memory."""
        stores: dict[Var, list[BufferStore]] = {}
        values: dict[Var, list[Any]] = {}

        def store(node: BufferStore) -> None:
            if str(node.buffer.scope()) == "local":
                stores.setdefault(node.buffer, []).append(node)
                values.setdefault(node.buffer, []).append(node.value)

        def bind(binding: Bind) -> None:
            values.setdefault(binding.var, []).append(binding.value)

        def loop(node: For) -> None:
            values.setdefault(node.loop_var, []).extend((node.min, node.extent))

        tvm_ffi.structural_walk(body, [(BufferStore, store), (Bind, bind), (For, loop)])
        self._once = {b: assigned[0] for b, assigned in stores.items() if len(assigned) == 1}
        before = -1
        while before < len(self.from_memory):  # each round but the last finds at least one more
            before = len(self.from_memory)
            self.from_memory |= {
                var for var, assigned in values.items()
                if var not in self.from_memory and any(map(self.depends_on_memory, assigned))
            }  # fmt: skip

    def define(self, allocation: AllocBuffer, following: Iterable[Any]) -> None:
        """A scalar that is set right after its allocation, and never again, has that value."""
        store = self._once.get(allocation.buffer)
        if store is not None and any(statement.same_as(store) for statement in following):
            self.scalars[allocation.buffer] = store.value

    def depends_on_memory(self, expression: Any) -> bool:
        """Whether the value of an expression depends on a buffer that is no scalar."""
        depends = False

        def visit(var: Var) -> None:
            nonlocal depends
            if is_buffer_var(var):
                depends |= str(var.scope()) != "local" or var in self.from_memory
            else:
                depends |= var in self.from_memory

        if isinstance(expression, tvm_ffi.Object):
            tvm_ffi.structural_walk(expression, (Var, visit))
        return depends

    def is_open(self, expression: Any) -> bool:
        """Whether only the run tells a value: it is up to memory, or to a scalar that changes."""
        unknown = self.depends_on_memory(expression)

        def visit(var: Var) -> None:
            nonlocal unknown
            if var in self.scalars:
                unknown = unknown or self.is_open(self.scalars[var])
            else:
                unknown |= is_buffer_var(var) and str(var.scope()) == "local"

        if isinstance(expression, tvm_ffi.Object):
            tvm_ffi.structural_walk(expression, (Var, visit))
        return unknown

    def evaluator(self, variables: dict[Var, np.ndarray]) -> Evaluator:
        """Computes expressions of these variables; raises :class:`Unknown` for others."""
        return _Known(variables, scalars=self.scalars)

    def worlds(
        self, expressions: Iterable[Any], first: bool = False
    ) -> Iterator[dict[Var, np.ndarray]]:
        """Values of the ids and counters that expressions depend on, at the ends of their ranges.

        Variables of which nothing is known are left out. With ``first`` there is one world alone:
        that of the first iteration of each loop in the first CTA.
        """
        needed: dict[Var, None] = {}
        for expression in expressions:
            self._collect(expression, needed)
        yield from self._assign([v for v in self.ranges if v in needed], {}, first)

    def constant(self, expression: Any) -> int | None:
        """The value of an expression that is the same wherever it is known."""
        if isinstance(expression, IntImm):
            return int(expression)
        values = set()
        for world in self.worlds([expression]):
            try:
                values.add(int(self.evaluator(world).integer(expression)))
            except (Unknown, TileProgramError):
                return None
        return values.pop() if len(values) == 1 else None

    def truth(self, condition: Any, first: bool = True) -> bool | None:
        """Whether a condition holds in the first iteration of each loop in the first CTA."""
        for world in self.worlds([condition], first):
            try:
                return bool(self.evaluator(world)(condition))
            except (Unknown, TileProgramError):
                return None
        return None

    def _collect(self, expression: Any, needed: dict[Var, None]) -> None:
        """Variables that an expression depends on, through scalars and bounds of loops too."""
        if not isinstance(expression, tvm_ffi.Object):
            return
        variables: list[Var] = []
        tvm_ffi.structural_walk(expression, (Var, variables.append))
        for var in variables:
            if var in needed:
                continue
            if var in self.scalars:
                needed[var] = None
                self._collect(self.scalars[var], needed)
            elif var in self.ranges:
                needed[var] = None
                for bound in self.ranges[var]:
                    self._collect(bound, needed)

    def _assign(
        self, variables: list[Var], world: dict[Var, np.ndarray], first: bool
    ) -> Iterator[dict[Var, np.ndarray]]:
        if not variables:
            yield world
            return
        var, *rest = variables
        for value in self._ends(var, world, first):
            placed = {} if value is None else {var: np.asarray(value, str(var.ty.dtype))}
            yield from self._assign(rest, world | placed, first)

    def _ends(self, var: Var, world: dict[Var, np.ndarray], first: bool) -> list[int | None]:
        start, extent, step = self.ranges[var]
        evaluate = self.evaluator(world)
        try:
            low = int(evaluate.integer(start))
        except (Unknown, TileProgramError):
            return [None]
        try:
            count = int(evaluate.integer(extent))
            size = 1 if step is None else int(evaluate.integer(step))
        except (Unknown, TileProgramError):
            return [low]
        values = range(low, low + count, size)
        if not values:
            return []
        return [values[0]] if first or len(values) == 1 else [values[0], values[-1]]

"""Numbers of a program before it runs: extents, conditions, and what depends on which tile.

Sizes that the caller gives, or the usual one, stand for symbols; what depends on memory is not
known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm_ffi
from tvm.ir import TensorLoad
from tvm.tirx import Buffer, IntImm, Var

from warploom.decide.price.work import UNKNOWN_EXTENT
from warploom.errors import TileProgramError
from warploom.language.values.expressions import Evaluator
from warploom.tile import ir
from warploom.tile.statement import Block, Branch, Loop, Scalar, While


class Unknown(Exception):
    """A value that only the run of a program tells."""


@dataclass(frozen=True)
class Values(Evaluator):
    """Computes expressions of a CTA.

    Attributes
    ----------
    sizes : mapping of str to int
        Symbolic sizes by name; others are :data:`UNKNOWN_EXTENT`.
    defined : set of Var
        Variables of the kernel's body, which have no value before they are set.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    defined: frozenset[Var] = frozenset()

    def load(self, node: TensorLoad) -> np.ndarray:
        if node.source not in self.variables:
            raise Unknown
        return self.variables[node.source]

    def variable(self, node: Var) -> np.ndarray:
        if node in self.variables:
            return self.variables[node]
        if node in self.defined:
            raise Unknown
        return np.asarray(self.sizes.get(node.name, UNKNOWN_EXTENT), str(node.ty.dtype))

    def number(self, expression: Any) -> int | None:
        """The value of an integer; None if it is not known."""
        if isinstance(expression, (int, IntImm)):
            return int(expression)
        try:
            return int(self(expression))
        except (Unknown, TileProgramError):
            return None

    def truth(self, condition: Any) -> bool | None:
        """Whether a condition holds; None if that is not known."""
        try:
            return bool(self(condition))
        except (Unknown, TileProgramError):
            return None

    def set(self, variable: Var, value: Any) -> None:
        """Give a variable or scalar the value of an expression, or none if that is not known."""
        number = self.number(value)
        if number is None:
            self.variables.pop(variable, None)
        else:
            dtype = variable.dtype if ir.is_buffer(variable) else variable.ty.dtype
            self.variables[variable] = np.asarray(number, str(dtype))


class Dependence:
    """Which ids and loop variables the scalars of a program depend on.

    Parameters
    ----------
    statements : Block
        The body of a program.
    roots : iterable of Var
        The ids of CTAs.
    """

    def __init__(self, statements: Block, roots: Iterable[Var]) -> None:
        self.table: dict[Var | Buffer, frozenset[Var]] = {var: frozenset({var}) for var in roots}
        before = -1
        while before < (size := sum(map(len, self.table.values()))):
            before = size
            self._visit(statements, frozenset())

    def of(self, *expressions: Any) -> frozenset[Var]:
        """The ids and loop variables that expressions depend on."""
        found: set[Var] = set()
        for expression in expressions:
            if isinstance(expression, tvm_ffi.Object):
                for var in ir.uses(expression):
                    found |= self.table.get(var, frozenset())
        return frozenset(found)

    def _visit(self, statements: Block, control: frozenset[Var]) -> None:
        for statement in statements:
            inside = control
            if isinstance(statement, Scalar):
                own = self.table.get(statement.variable, frozenset())
                self.table[statement.variable] = own | control | self.of(statement.raw)
            elif isinstance(statement, Loop):
                self.table[statement.var] = frozenset({statement.var})
                inside = control | self.of(statement.start, statement.extent)
            elif isinstance(statement, (Branch, While)):
                inside = control | self.of(statement.raw.condition)
            for block in statement.blocks:
                self._visit(block, inside)

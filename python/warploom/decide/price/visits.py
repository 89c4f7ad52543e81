"""How often a CTA executes each statement of a program, on average over its CTAs."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from tvm.ir import TensorRegion
from tvm.tirx import Var

from warploom.decide.price.values import Dependence, Values
from warploom.errors import Decline
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.scopes import is_global
from warploom.tile.statement import (
    Block,
    Branch,
    Copy,
    ForLoader,
    Gather,
    Load,
    Loop,
    Mma,
    Nest,
    Primitive,
    Reduction,
    Scalar,
    Scatter,
    Statement,
    While,
    walk,
)

#: CTAs along a dimension, and iterations of a loop, that are looked at, where they differ.
_CTAS, _ITERATIONS = 16, 128
#: Statements that all threads of a CTA execute together, on tiles.
_ON_TILES = (Load, ForLoader, Mma, Copy, Nest, Reduction, Primitive)


@dataclass
class Visit:
    """A statement that a CTA executes.

    Attributes
    ----------
    statement : Statement
    loop : Loop or None
        The innermost loop around it.
    times : float
        How often, on average.
    """

    statement: Statement
    loop: Loop | None
    times: float = 0.0


@dataclass
class Visits:
    """The statements that CTAs of a program execute, and the iterations of its loops.

    Attributes
    ----------
    program : TileProgram
    depends : Dependence
        What its scalars depend on.
    values : Values
        Values before its first statement.
    found : dict
        By the id of a view: how often it is executed.
    iterations : dict
        By the id of the view of a loop: its iterations, all together.
    places : list
        The CTAs that were followed: their ids, and the iterations of each loop.
    """

    program: TileProgram
    depends: Dependence
    values: Values
    found: dict[int, Visit] = field(default_factory=dict)
    iterations: dict[int, float] = field(default_factory=dict)
    places: list[tuple[tuple[int, ...], dict[int, float]]] = field(default_factory=list)

    @classmethod
    def of(cls, program: TileProgram, sizes: Mapping[str, int]) -> Visits:
        """Follow some CTAs through a program.

        Raises
        ------
        Decline
            If the number of iterations of a loop with tile statements depends on memory.
        """
        ids = program.id("cta")
        depends = Dependence(program.block, ids.vars)
        visits = cls(program, depends, Values({}, sizes=sizes, defined=_defined(program)))
        loops = [s for s in walk(program.block) if isinstance(s, Loop)]
        branches = [s for s in walk(program.block) if isinstance(s, Branch)]
        control = [part for loop in loops for part in (loop.start, loop.extent)]
        differ = visits.depends.of(*control, *(branch.condition for branch in branches))
        places = [
            _spread(count, _CTAS) if var in differ else [count // 2]
            for var, count in zip(ids.vars, visits.grid(), strict=True)
        ]
        share = 1 / math.prod(map(len, places))
        for place in itertools.product(*places):
            values = dataclasses.replace(visits.values, variables={})
            for var, number in zip(ids.vars, place, strict=True):
                values.variables[var] = np.asarray(number, "int32")
            before = dict(visits.iterations)
            visits._block(program.block, values, None, share)
            own = {k: (n - before.get(k, 0.0)) / share for k, n in visits.iterations.items()}
            visits.places.append((place, own))
        return visits

    @property
    def ids(self) -> tuple[Var, ...]:
        """The ids of CTAs."""
        return self.program.id("cta").vars

    def grid(self) -> list[int]:
        """CTAs along each dimension.

        Raises
        ------
        Decline
            If they depend on memory.
        """
        counts = []
        for extent in self.program.id("cta").extents:
            number = self.values.number(extent)
            if number is None:
                raise Decline(f"The grid has {extent} CTAs along a dimension, which is not known.")
            counts.append(max(1, number))
        return counts

    def _block(self, statements: Block, values: Values, loop: Loop | None, share: float) -> None:
        for statement in statements:
            visit = self.found.setdefault(id(statement), Visit(statement, loop))
            visit.times += share
            if isinstance(statement, Scalar):
                self._scalar(statement, values)
            elif isinstance(statement, Loop):
                self._loop(statement, values, share)
            elif isinstance(statement, Branch):
                self._branch(statement, values, loop, share)
            elif isinstance(statement, While) and _has_tiles(statement):
                raise Decline(
                    f"A while loop has tile statements, so that only the run of the program tells "
                    f"how many: {statement.raw.condition}. Write a loop of a known extent."
                )
            else:
                for block in statement.blocks:
                    self._block(block, values, loop, share)

    def _scalar(self, statement: Scalar, values: Values) -> None:
        value = getattr(statement.raw, "value", None)
        if value is None:
            values.variables.pop(statement.variable, None)
        else:
            values.set(statement.variable, value)

    def _loop(self, loop: Loop, values: Values, share: float) -> None:
        start, extent = values.number(loop.start), values.number(loop.extent)
        if extent is None or start is None:
            if not _has_tiles(loop):
                _forget(loop, values)
                return
            raise Decline(
                f"The loop over {loop.var.name} has {loop.extent} iterations, which depends on "
                "memory: only the run of the program tells how many tiles it computes."
            )
        self.iterations[id(loop)] = self.iterations.get(id(loop), 0.0) + max(0, extent) * share
        if extent <= 0 or not _has_tiles(loop):
            _forget(loop, values)
            return
        inner = [s for s in walk(loop.body) if isinstance(s, (Loop, Branch))]
        control = [
            part for s in inner
            for part in ((s.condition,) if isinstance(s, Branch) else (s.start, s.extent))
        ]  # fmt: skip
        numbers = [extent // 2]
        if loop.var in self.depends.of(*control):
            numbers = _spread(extent, _ITERATIONS)
        for number in numbers:
            values.variables[loop.var] = np.asarray(start + number, str(loop.var.ty.dtype))
            self._block(loop.body, values, loop, share * extent / len(numbers))
        values.variables.pop(loop.var, None)

    def _branch(self, branch: Branch, values: Values, loop: Loop | None, share: float) -> None:
        holds = values.truth(branch.condition)
        # What memory decides is taken to be as the author wrote the first case for.
        taken = 1 if holds is False else 0
        for number, block in enumerate(branch.blocks):
            if number == taken:
                self._block(block, values, loop, share)
            else:
                for statement in block if holds is None else ():
                    _forget(statement, values)


def _defined(program: TileProgram) -> frozenset[Var]:
    """Variables that have no value before the body sets them."""
    defined: set[Var] = set(program.id("cta").vars)
    for statement in walk(program.block):
        if isinstance(statement, Loop):
            defined.add(statement.var)
        elif isinstance(statement, Scalar):
            defined.add(statement.variable)
    return frozenset(defined)


def loaded(statement: Statement) -> tuple[TensorRegion, TensorRegion] | None:
    """What a statement loads into a tile ahead, and from where; None for any other statement.

    Loads whose barriers the author handles count as those that passes see to. Rows that have an
    index each count as rows that follow each other: each is a request of its own in either case.
    """
    if isinstance(statement, Gather):
        return statement.to, as_rows(statement)
    if isinstance(statement, Load):
        return statement.to, statement.source
    if isinstance(statement, ForLoader) and statement.copies:
        return statement.raw.args[0], statement.raw.args[1]
    return None


def as_rows(copy: Gather | Scatter) -> TensorRegion:
    """As many rows of the tensor as a gather or a scatter copies, from where the first row is."""
    gathers = isinstance(copy, Gather)
    tile, tensor = (copy.to, copy.source) if gathers else (copy.source, copy.to)
    count = ir.ranges(tile)[0][1]
    changes = [bool(ir.uses(rows.pred) & set(rows.vars)) for rows in copy.rows]
    wide = changes.index(True) if any(changes) else len(changes) - 1
    places = [(rows.apply([0]), count if d == wide else 1) for d, rows in enumerate(copy.rows)]
    return ir.region(tensor.source, *places, ir.ranges(tensor)[-1])


def copied(statement: Statement) -> TensorRegion | None:
    """The region of global memory that threads copy to a tile; None for any other statement."""
    is_copy = isinstance(statement, Copy) and is_global(statement.source.source)
    return statement.source if is_copy else None


def _spread(count: int, most: int) -> list[int]:
    """So many numbers below a count, at equal distances; all of few."""
    if count <= most:
        return list(range(count))
    return [(2 * i + 1) * count // (2 * most) for i in range(most)]


def _has_tiles(statement: Statement) -> bool:
    return any(isinstance(inner, _ON_TILES) for inner in walk((statement,)))


def _forget(statement: Statement, values: Values) -> None:
    """What a statement sets is not known any more."""
    for inner in walk((statement,)):
        if isinstance(inner, Scalar):
            values.variables.pop(inner.variable, None)

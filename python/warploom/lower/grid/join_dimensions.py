"""A grid with more or longer dimensions than CUDA launches: its CTAs are numbered along one."""

from __future__ import annotations

import functools
import operator

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Stmt, Var

from warploom.lower.grid.persistent import fresh_names
from warploom.tile import ir
from warploom.tile.ids import Id
from warploom.tile.program import TileProgram
from warploom.tile.scalar import ThreadScalar, below

#: Dimensions of a grid, and CTAs along all but the first of them (CUDA C++ Programming Guide,
#: "Compute Capabilities").
MOST_DIMENSIONS, MOST_CTAS = 3, 65535


def join_dimensions(program: TileProgram) -> TileProgram:
    """The program with a grid that can be launched; unchanged if its own can.

    The first dimension of the grid stays the fastest.
    """
    old = program.id("cta")
    known = [int(extent) for extent in old.extents[1:] if isinstance(extent, tirx.IntImm)]
    if len(old.extents) <= MOST_DIMENSIONS and all(extent <= MOST_CTAS for extent in known):
        return program
    name, *names = fresh_names(program.func, "cta_of_grid", *(var.name for var in old.vars))
    rest = joined = Var(name, "int32")
    places = [ThreadScalar(name) for name in names]
    statements: list[Stmt] = []
    for place, extent in zip(places, old.extents, strict=True):
        last = place is places[-1]
        statements += place.define(rest if last else T.truncmod(rest, extent))
        statements.append(below(place.value, extent))
        rest = T.truncdiv(rest, extent)
    table = {var: place.value for var, place in zip(old.vars, places, strict=True)}
    body = [ir.substitute(statement, table) for statement in program.body]
    ids = tuple(
        Id("cta", (joined,), (functools.reduce(operator.mul, old.extents),))
        if scope_id.kind == "cta" else scope_id
        for scope_id in program.ids
    )  # fmt: skip
    return program.replace(ids=ids, body=(*statements, *body))

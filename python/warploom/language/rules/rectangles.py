"""Checks a nest in the first and the last iteration of the loops around it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm_ffi
from tvm.tirx import Var

from warploom.errors import TileProgramError
from warploom.language.rules.expressions import require_expression
from warploom.language.rules.iterations import NestCheck
from warploom.language.rules.known import Known, Unknown
from warploom.language.rules.nests import Nest, loads, text
from warploom.language.rules.scopes import TILES
from warploom.tile.nest import Guard, Part

#: Combinations of first and last values around a nest that are tried.
_WORLDS = 16


def check_nest(known: Known, nest: Nest, touched: Callable[[Any, bool, Any], None]) -> list[Any]:
    """Check a nest; ``touched`` is that of :class:`NestCheck`, for the first iteration around it.

    Returns
    -------
    list of Expr
        All expressions of its statements.

    Raises
    ------
    TileProgramError
        If it is no rectangle, or breaks a rule of nests for certain.
    """
    variables = {loop.loop_var for loop in nest.loops}
    bounds = [e for loop in nest.loops for e in (loop.min, loop.extent, loop.step)]
    for expression in bounds:
        _require_free(expression, variables)
    parts = _expressions(nest.parts)
    for part in parts:
        require_expression(part)
    stored = {store.buffer for store in nest.stores()}
    asked = [part for part in parts if _asks(part, stored)]
    asked += [index for store in nest.stores() for index in store.indices]
    worlds = itertools.islice(known.worlds([*bounds, *asked]), _WORLDS)
    for number, world in enumerate(worlds):
        evaluate = known.evaluator(dict(world))
        if (values := _loop_values(nest, evaluate)) is None:
            continue
        evaluate.variables.update(values)
        NestCheck(known, nest, evaluate, touched if number == 0 else _ignore).run()
    return parts


def _ignore(*_: Any) -> None:
    """Ignore further iterations: the default listener."""


def _expressions(parts: Sequence[Part]) -> list[Any]:
    """Values, indices and conditions of the statements of a nest."""
    expressions: list[Any] = []
    for part in parts:
        if isinstance(part, Guard):
            expressions += [part.condition, *_expressions((*part.parts, *part.otherwise))]
        else:
            expressions += [part.value, *getattr(part, "indices", ())]
    return expressions


def _asks(expression: Any, stored: set[Any]) -> bool:
    """Whether rules need the reads of an expression: elements of tiles, or of the stored buffer."""
    return any(
        load.source in stored or str(load.source.scope()) in TILES for load in loads(expression)
    )


def _require_free(expression: Any, variables: set[Var]) -> None:
    """The bounds of a nest are those of a rectangle."""
    used: list[Var] = []
    if isinstance(expression, tvm_ffi.Object):
        tvm_ffi.structural_walk(expression, (Var, used.append))
    for var in used:
        if var in variables:
            raise TileProgramError(
                f"{text(expression)} bounds a loop of a nest; variable {var.name}, of a loop of "
                "the same nest, has no value here: let the loops count a rectangle, and store "
                "under `if` or choose values with T.if_then_else."
            )


def _loop_values(nest: Any, evaluate: Any) -> dict[Var, np.ndarray] | None:
    """Values of the loop variables, each along its own axis; None if there is no iteration or
    their number is not known."""
    values: dict[Var, np.ndarray] = {}
    for axis, loop in enumerate(nest.loops):
        try:
            start, extent = evaluate.integer(loop.min), evaluate.integer(loop.extent)
            step = 1 if loop.step is None else evaluate.integer(loop.step)
        except (Unknown, TileProgramError):
            return None
        counted = np.arange(start, start + max(extent, 0), step)
        if not counted.size:
            return None
        shape = [-1 if a == axis else 1 for a in range(len(nest.loops))]
        values[loop.loop_var] = counted.astype(str(loop.loop_var.ty.dtype)).reshape(shape)
    return values

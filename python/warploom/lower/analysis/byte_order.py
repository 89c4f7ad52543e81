"""Nests that only move bytes: what they copy from where, as far as both are known.

A nest ``to[i, p] = of[..., f(p), i]`` or ``to[i, p] = of[..., i, f(p)]`` of 8-bit elements. ``f``
counts the columns of an operand A of wgmma one after the other, or in the order in which a thread
holds those of an accumulator (:func:`in_fragment_order`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm.ir import TensorLoad
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, IntImm, Var

from warploom.tile import ir
from warploom.tile.nest import ElementStore
from warploom.tile.statement import Nest

BITS = 8
#: Columns whose order is one of the two.
_BLOCK = 16


def in_fragment_order(place: Any) -> Any:
    """The column that a thread holds at a place of the operand's order.

    Four neighbouring places are columns ``2t``, ``2t + 1``, ``8 + 2t`` and ``9 + 2t`` of a block of
    16, which thread ``t`` of four holds of an accumulator.
    """
    within = T.truncmod(place, _BLOCK)
    second, last = T.truncdiv(T.truncmod(within, 4), 2), T.truncmod(within, 2)
    return T.truncdiv(place, _BLOCK) * _BLOCK + second * 8 + T.truncdiv(within, 4) * 2 + last


@dataclass(frozen=True)
class ByteMove:
    """A nest of two loops that copies bytes.

    Attributes
    ----------
    to, of : Buffer
        The tiles.
    to_lead, of_lead : tuple of Expr
        Their indices before the last two.
    extents : tuple of (int, int)
        Those of the loops over ``i`` and ``p``.
    to_starts, starts : tuple of (Expr, Expr)
        The last two indices of ``to``, and of ``of``, for ``i = p = 0``.
    transposed : bool
        Whether ``of`` is indexed ``[f(p), i]``.
    ordered : bool
        Whether ``f`` is :func:`in_fragment_order`; else it is ``p``.
    """

    to: Buffer
    of: Buffer
    to_lead: tuple[Any, ...]
    of_lead: tuple[Any, ...]
    extents: tuple[int, int]
    to_starts: tuple[Any, Any]
    starts: tuple[Any, Any]
    transposed: bool
    ordered: bool


def byte_move(nest: Nest) -> ByteMove | None:
    """What a nest copies; None for nests that do anything else."""
    if len(nest.loops) != 2 or len(nest.parts) != 1 or not isinstance(nest.parts[0], ElementStore):
        return None
    store, value = nest.parts[0], nest.parts[0].value
    if not isinstance(value, TensorLoad) or not ir.is_buffer(value.source):
        return None
    to, of = store.buffer, value.source
    dtype = str(to.dtype)
    if dtype != str(of.dtype) or tvm.DataType(dtype).bits != BITS or len(of.shape) < 2:
        return None
    i, p = (loop.loop_var for loop in nest.loops)
    if any(not isinstance(loop.extent, IntImm) for loop in nest.loops):
        return None
    extents = tuple(int(loop.extent) for loop in nest.loops)
    *to_lead, row, column = store.indices
    *of_lead, first, second = value.indices
    stored = (_steps(row, i, extents[0]), _steps(column, p, extents[1]))
    if None in stored or p in ir.uses(row) or i in ir.uses(column):
        return None
    in_order = all((steps == np.arange(len(steps))).all() for _, steps in stored)
    if not in_order or any({i, p} & ir.uses(index) for index in (*to_lead, *of_lead)):
        return None
    to_starts = tuple(start for start, _ in stored)
    straight = (_steps(first, i, extents[0]), _steps(second, p, extents[1]))
    crossed = (_steps(second, i, extents[0]), _steps(first, p, extents[1]))
    for steps, others, transposed in (
        (straight, (p, i), False), (crossed, (p, i), True),
    ):  # fmt: skip
        own = (first, second) if not transposed else (second, first)
        apart = not any(var in ir.uses(index) for var, index in zip(others, own, strict=True))
        if not apart or None in steps:
            continue
        (start, along_i), (column_start, along_p) = steps
        if not (along_i == np.arange(extents[0])).all():
            return None
        orders = [np.arange(extents[1]), _fragment_order(extents[1])]
        matching = [number for number, order in enumerate(orders) if (along_p == order).all()]
        if not matching:
            return None
        starts = (column_start, start) if transposed else (start, column_start)
        lead = tuple(to_lead), tuple(of_lead)
        return ByteMove(
            to, of, *lead, extents, to_starts, starts, transposed, bool(matching[0])
        )
    return None


def _fragment_order(count: int) -> np.ndarray:
    place = np.arange(count)
    within = place % _BLOCK
    return place // _BLOCK * _BLOCK + within % 4 // 2 * 8 + within // 4 * 2 + within % 2


def _steps(index: Any, var: Var, count: int) -> tuple[Any, np.ndarray] | None:
    """An index for ``var = 0``, and how far it is from there for each value; None if unknown."""
    analyzer = Analyzer()
    start = analyzer.simplify(ir.substitute(index, {var: ir.as_expr(0)}))
    if var not in ir.uses(index):
        return None
    steps = []
    for value in range(count):
        step = analyzer.simplify(ir.substitute(index, {var: ir.as_expr(value)}) - start)
        if not isinstance(step, IntImm):
            return None
        steps.append(int(step))
    return start, np.array(steps)

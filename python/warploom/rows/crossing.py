"""Rows that lie across their operands: what a thread reads together is not what it stores together.

A transposition stores neighbours that are far apart in what it reads. A thread then has a square:
it reads vectors along one axis, one for each of several neighbours along another, and stores
vectors along that other axis. Lanes of a warp lie side by side in both directions, so that loads
and stores transfer whole sectors of memory, and no shared memory is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm.ir.expr import TensorLoad
from tvm.tirx import Var

from warploom.gemm.equations import simplify
from warploom.gemm.problem import Axis


@dataclass(frozen=True)
class Place:
    """Where the elements of an operand lie, linear in the axes of a function.

    Attributes
    ----------
    load : TensorLoad
        The load, or the element that is stored, in the axes of the function.
    start : Expr
        The place of the element whose axes are all 0.
    strides : mapping from Var to Expr
        Elements from one to the next along each axis of :class:`Crossing`.
    guard : Expr, optional
        The condition under which they may be read: the same for all that are read together.
    """

    load: TensorLoad
    start: Any
    strides: Mapping[Var, Any]
    guard: Any = None

    def at(self, places: Mapping[Var, Any]) -> Any:
        """The place of the element whose axes have some values."""
        found = self.start
        for var, stride in self.strides.items():
            found = found + stride * places[var]
        return simplify(found)


@dataclass(frozen=True)
class Crossing:
    """The axes of an element-wise function some of whose operands lie across its rows.

    Attributes
    ----------
    outer : tuple of Axis
        Axes that are neither, the outermost first.
    across : Axis
        The axis along which operands are read in vectors.
    columns : Axis
        The axis along which results are stored in vectors.
    table : mapping from Var to Expr
        The axes of the function in terms of these: neighbouring axes may have become one.
    crossed, along, stored : tuple of Place
        Operands that are read along ``across`` and along ``columns``, and results. Others are read
        element by element.
    """

    outer: tuple[Axis, ...]
    across: Axis
    columns: Axis
    table: Mapping[Var, Any]
    crossed: tuple[Place, ...]
    along: tuple[Place, ...]
    stored: tuple[Place, ...]

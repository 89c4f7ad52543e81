"""What a matmul-like function computes: sizes and types as plain data, formulas beside them.

:class:`GemmProblem` is what configurations, the analytic model and databases go by: numbers and
names only, equal for functions that are tuned alike. :class:`GemmFunction` adds the formulas of one
function, from which a kernel is generated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm.ir.expr import TensorLoad
from tvm.tirx import Buffer, PrimFunc, Var

from warploom.decide.problem import GemmProblem


@dataclass(frozen=True)
class Axis:
    """A variable of the formulas, and its extent from 0 on."""

    var: Var
    extent: Any


@dataclass(frozen=True)
class Operand:
    """A factor of a product.

    Attributes
    ----------
    value : Expr
        In terms of the function's axes, of the dtype that is multiplied.
    load : TensorLoad or None
        The element of a parameter that it is; None where it is computed.
    """

    value: Any
    load: TensorLoad | None


@dataclass(frozen=True)
class Product:
    """Operands of one sum over K; ``accumulator`` stands for the sum in the outputs."""

    a: Operand
    b: Operand
    accumulator: Var


@dataclass(frozen=True)
class Output:
    """``buffer[indices] = value``, in terms of axes and accumulators."""

    buffer: Buffer
    indices: tuple[Any, ...]
    value: Any


@dataclass(frozen=True)
class RowReduction:
    """``buffer[indices]`` is the sum or extremum of ``value`` along ``width`` columns.

    Attributes
    ----------
    buffer : Buffer
    indices : tuple of Expr
        In terms of the rows' axes, and of ``part``.
    value : Expr
        In terms of axes and accumulators.
    kind : str
        ``"sum"``, ``"max"`` or ``"min"``.
    part : Var
        Counts the parts of ``width`` columns.
    width : int
    """

    buffer: Buffer
    indices: tuple[Any, ...]
    value: Any
    kind: str
    part: Var
    width: int


@dataclass(frozen=True)
class View:
    """A parameter seen with another shape: the same elements, one after the other."""

    param: Buffer
    buffer: Buffer


@dataclass(frozen=True)
class GemmFunction:
    """A recognised function: the problem, and the formulas that a kernel computes.

    Attributes
    ----------
    func : PrimFunc
        The S-TIR function.
    anchor : str
        Name of the block with the sum, which carries the annotations of a schedule.
    problem : GemmProblem
        Its sizes and types.
    rows, columns : Axis
        The axes that a tile of the result extends along.
    pixels : tuple of Axis
        What the rows are, where they are several axes in row-major order: ``rows`` then is an axis
        of as many elements as all of them, and does not occur in formulas. Otherwise empty.
    views : tuple of View
        What formulas read and store instead of parameters.
    reductions : tuple of RowReduction
        What is computed of whole rows of a tile.
    batch : tuple of Axis
        The other axes of the results, the outermost first.
    summed : tuple of Axis
        The axes of the sum, the one along rows of memory last.
    products : tuple of Product
        What is summed.
    outputs : tuple of Output
        What is stored.
    """

    func: PrimFunc
    anchor: str
    problem: GemmProblem
    rows: Axis
    columns: Axis
    batch: tuple[Axis, ...]
    summed: tuple[Axis, ...]
    products: tuple[Product, ...]
    outputs: tuple[Output, ...]
    pixels: tuple[Axis, ...] = ()
    views: tuple[View, ...] = ()
    reductions: tuple[RowReduction, ...] = ()

    def param_of(self, buffer: Buffer) -> Buffer:
        """The parameter that formulas read as a buffer: itself, or what that is a view of."""
        seen = (view.param for view in self.views if view.buffer.same_as(buffer))
        return next(seen, buffer)

    @property
    def row_axes(self) -> tuple[Axis, ...]:
        """The axes that occur in formulas for the rows."""
        return self.pixels or (self.rows,)

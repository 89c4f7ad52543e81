"""Which axes of a sum of products are its rows, columns, batch, and what is summed over."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

from tvm.ir.expr import TensorLoad
from tvm.sym.analyzer import Analyzer
from tvm.tirx import IntImm, Var

from warploom.errors import Decline
from warploom.gemm.equations import settled, simplify, strip_casts
from warploom.gemm.memory import static
from warploom.gemm.pixels import find_pixels
from warploom.gemm.problem import Axis, Output, Product
from warploom.tile import ir

#: What a size that is known only at launch counts as where axes compete for the tile's rows.
_UNKNOWN_EXTENT = 4096


@dataclass(frozen=True)
class Axes:
    """Which axis plays which part; ``unit`` are those of extent 1 that play none."""

    rows: Axis
    columns: Axis
    batch: tuple[Axis, ...]
    summed: tuple[Axis, ...]
    unit: tuple[Axis, ...]
    pixels: tuple[Axis, ...] = ()

    @classmethod
    def of(
        cls, output: Output, spatial: list[Axis], summed: list[Axis], factors: tuple[Any, Any]
    ) -> Axes:
        x, y = (ir.uses(factor) for factor in factors)
        for axis in summed:
            if _is_long(axis) and (axis.var not in x or axis.var not in y):
                raise Decline(f"axis {axis.var.name} is summed over, but in one factor only.")
        if not any(map(_is_long, summed)):
            raise Decline("the sum has one term; it is no product of matrices.")
        idle = [axis for axis in spatial if _is_long(axis) and axis.var not in x | y]
        if idle:
            raise Decline(f"axis {idle[0].var.name} of the result is in neither factor.")
        own = [[a for a in spatial if a.var in mine - other] for mine, other in ((x, y), (y, x))]
        if not output.indices:
            raise Decline(f"{output.buffer.name} is a single number; it has no rows.")
        last = output.indices[-1]
        if any(last.same_as(axis.var) for axis in spatial if axis.var in x & y):
            raise Decline(
                f"the last dimension of {output.buffer.name} tells products apart, as groups of a "
                "convolution do; it must be that of rows or columns."
            )
        if any(last.same_as(axis.var) for axis in own[0]):
            own.reverse()
        if all(ir.is_constant(axis.extent, 1) for axis in own[1]):
            raise Decline(
                f"{output.buffer.name} has one column; a product of a matrix and a vector is left "
                "to rules for those."
            )
        rows, columns = (_longest(axes) for axes in own)
        if rows is None or columns is None:
            both = [axis.var.name for axis in spatial if _is_long(axis) and axis.var in x & y]
            groups = f" ({', '.join(both)} is in both, as groups of a convolution are)"
            raise Decline(
                f"{output.buffer.name} has no {'rows' if rows is None else 'columns'} that one "
                f"factor alone has{groups if both else ''}; it is no product of two matrices."
            )
        others = [axis for axis in spatial if axis not in (rows, columns)]
        return cls(
            rows,
            columns,
            tuple(axis for axis in others if _is_long(axis)),
            tuple(axis for axis in summed if _is_long(axis)),
            tuple(axis for axis in (*others, *summed) if not _is_long(axis)),
        )

    def with_pixels(self, outputs: list[Output], products: tuple[Product, ...]) -> Axes:
        """The axes, all that only operand A has taken together if their elements are pixels."""
        a, b = products[0].a, products[0].b
        own = ir.uses(a.value) - ir.uses(b.value)
        axes = [axis for axis in (*self.batch, self.rows) if axis.var in own]
        if a.load is None or not axes:
            return self
        inner = self.summed[-1]
        found = {
            find_pixels(axes, self.columns, inner, output.indices, a.load) for output in outputs
        }
        if len(found) > 1 or not (pixels := found.pop()):
            return self
        count = functools.reduce(lambda x, y: x * y, (pixel.extent for pixel in pixels))
        rows = Axis(Var("pixel", "int32"), simplify(count))
        batch = tuple(axis for axis in self.batch if axis not in pixels)
        return replace(self, rows=rows, batch=batch, pixels=pixels)

    @property
    def row_vars(self) -> set[Var]:
        """Variables of the rows in formulas."""
        return {axis.var for axis in self.pixels or (self.rows,)}

    def _zeros(self) -> dict[Var, Any]:
        return {axis.var: 0 * axis.var for axis in self.unit}

    def settle(self, output: Output) -> Output:
        """A result without the axes of extent 1."""
        zeros = self._zeros()
        indices = tuple(settled(index, zeros) for index in output.indices)
        return Output(output.buffer, indices, settled(output.value, zeros))

    def settle_value(self, value: Any) -> Any:
        """A value without the axes of extent 1."""
        return settled(value, self._zeros())

    def ordered(self, factors: tuple[Any, Any]) -> tuple[Any, Any]:
        """The factors of a product without the axes of extent 1, the one with rows first."""
        a, b = (self._at_axes(settled(factor, self._zeros())) for factor in factors)
        if self.columns.var in ir.uses(a) or self.rows.var in ir.uses(b):
            a, b = b, a
        if self.columns.var in ir.uses(a) or self.rows.var in ir.uses(b):
            raise Decline("two products of the function have their rows and columns crossed.")
        return a, b


    def _at_axes(self, value: Any) -> Any:
        """An element that is loaded at axes, where the ranges of those show that it is.

        A matrix that was reshaped and transposed on the way is read at quotients and remainders.
        What is computed on the way stays as it is written.
        """
        if not isinstance(strip_casts(value), TensorLoad):
            return value
        analyzer = Analyzer()
        # An axis of one element is no number: a tile extends along it.
        for axis in filter(_is_long, (self.rows, self.columns, *self.batch, *self.summed)):
            analyzer.bind(axis.var, ir.whole_range(axis.extent))

        def load(node: TensorLoad) -> Any:
            indices = [analyzer.simplify(index) for index in node.indices]
            plain = all(isinstance(index, (Var, IntImm)) for index in indices)
            return node.source[tuple(indices)] if plain else node

        return ir.map_nodes(value, {TensorLoad: load}, {})


def _is_long(axis: Axis) -> bool:
    return not ir.is_constant(axis.extent, 1)


def _longest(axes: list[Axis]) -> Axis | None:
    """The axis that a tile extends along: the longest, of equal ones the last."""
    return max(
        reversed(axes), key=lambda axis: static(axis.extent) or _UNKNOWN_EXTENT, default=None
    )

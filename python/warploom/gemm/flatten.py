"""Rows that are several axes become one, where memory has them one after the other.

The products of ``[b, s, k]`` and ``[n, k]``, and convolutions of single pixels, are products of
matrices: parameters are seen as matrices, too, and tiles have rows of several images or sequences.
That needs all extents of the axes but no stride of theirs, so all of them may be unknown.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx import Buffer, Var

from warploom.gemm.equations import loads, simplify
from warploom.gemm.problem import Axis, GemmFunction, Operand, Output, Product, View
from warploom.tile import ir


def flatten(gemm: GemmFunction) -> GemmFunction:
    """The function with one axis of rows, or itself if its rows cannot be one."""
    if not gemm.pixels:
        return gemm
    flat = _Flat(gemm.pixels, Axis(Var("row", "int32"), gemm.rows.extent))
    if not all(flat.takes(buffer, indices) for buffer, indices in _accesses(gemm)):
        return gemm
    products = tuple(
        Product(flat.operand(product.a), flat.operand(product.b), product.accumulator)
        for product in gemm.products
    )
    outputs = tuple(
        Output(*flat.place(output.buffer, output.indices), flat.value(output.value))
        for output in gemm.outputs
    )
    reductions = tuple(
        replace(result, **dict(zip(("buffer", "indices"), flat.place(result.buffer, result.indices),
                                strict=True)), value=flat.value(result.value))
        for result in gemm.reductions
    )  # fmt: skip
    views = tuple(View(param, view) for param, view in flat.views.items())
    return replace(
        gemm, problem=replace(gemm.problem, pixels=()), rows=flat.row, pixels=(),
        products=products, outputs=outputs, views=views, reductions=reductions,
    )  # fmt: skip


def _accesses(gemm: GemmFunction) -> Iterator[tuple[Buffer, Sequence[Any]]]:
    """Everything that is read or stored, and where."""
    for result in (*gemm.outputs, *gemm.reductions):
        yield result.buffer, result.indices
    values = [result.value for result in (*gemm.outputs, *gemm.reductions)]
    values += [operand.value for product in gemm.products for operand in (product.a, product.b)]
    for value in values:
        for result in loads(value):
            yield result.source, result.indices


class _Flat:
    """Rewrites places in terms of one axis; ``views`` are the buffers that it needs for that."""

    def __init__(self, axes: Sequence[Axis], row: Axis) -> None:
        self.axes, self.row = list(axes), row
        self.views: dict[Buffer, Buffer] = {}

    def takes(self, buffer: Buffer, indices: Sequence[Any]) -> bool:
        """Whether a place has all of the axes in neighbouring dimensions of their extents.

        Or none of them.
        """
        mine = {axis.var for axis in self.axes}
        used = [bool(ir.uses(index) & mine) for index in indices]
        if not any(used):
            return True
        first, count = used.index(True), len(self.axes)
        return sum(used) == count and all(
            index.same_as(axis.var) and tvm_ffi.structural_equal(extent, axis.extent)
            for index, axis, extent in zip(
                indices[first : first + count], self.axes, buffer.shape[first:], strict=False
            )
        )

    def place(self, buffer: Buffer, indices: Sequence[Any]) -> tuple[Buffer, tuple[Any, ...]]:
        """Where a place is in the buffer's view."""
        mine = {axis.var for axis in self.axes}
        first = next((d for d, index in enumerate(indices) if index in mine), None)
        if first is None:
            return buffer, tuple(indices)
        last = first + len(self.axes)
        if buffer not in self.views:
            merged = simplify(functools.reduce(lambda x, y: x * y, buffer.shape[first:last]))
            shape = [*buffer.shape[:first], merged, *buffer.shape[last:]]
            self.views[buffer] = tirx.decl_buffer(shape, str(buffer.dtype), buffer.name)
        return self.views[buffer], (*indices[:first], self.row.var, *indices[last:])

    def value(self, value: Any) -> Any:
        """An expression in which all loads are from views."""

        def load(node: TensorLoad) -> Any:
            buffer, indices = self.place(node.source, node.indices)
            return buffer[indices]

        return ir.map_nodes(value, {TensorLoad: load}, {})

    def operand(self, operand: Operand) -> Operand:
        """A factor of a product."""
        value = self.value(operand.value)
        return Operand(value, None if operand.load is None else value)

"""Element-wise functions seen as one row of all their elements.

Rows of 127 elements, and of a number that only the launch knows, begin anywhere: no vector of
theirs is one in memory. All elements together have vectors again, but the last one. What is not as
large as the result, such as a bias, is then read element by element.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx import Var

from warploom.errors import Decline
from warploom.gemm.equations import loads, simplify
from warploom.gemm.problem import Axis
from warploom.rows.axes import analyzer_of, count_of, settle, settle_index, unrolled
from warploom.rows.problem import RowFunction, RowOutput
from warploom.rows.vectors import is_whole
from warploom.tile import ir


def flattened(function: RowFunction) -> RowFunction:
    """The function with all elements of its results along one row.

    Raises
    ------
    Decline
        If it reduces rows, or its results do not lie in one order.
    """
    if function.reductions or function.windows:
        raise Decline("rows that are reduced are no single one.")
    if any(output.guard is not None for output in function.outputs):
        raise Decline("rows that are stored in part are no single one.")
    first = function.outputs[0]
    axes = {axis.var: axis.extent for axis in (*function.rows, function.columns)}
    order = [_axis(index, axes) for index in first.indices]
    extents = [axis.extent for axis in order if axis is not None]
    if not all(
        ir.is_constant(simplify(axis.extent - size), 0)
        for axis, size in zip(order, first.buffer.shape, strict=True)
        if axis is not None
    ):
        raise Decline(f"{first.buffer.name} is stored in part only.")
    flat = Axis(Var("element", "int32"), count_of(extents))
    variables = [axis.var for axis in order if axis is not None]
    table: dict[Var, Any] = {var: tirx.const(0, "int32") for var in axes}
    table |= dict(zip(variables, unrolled(flat.var, extents), strict=True))
    analyzer = analyzer_of([(flat.var, flat.extent)])

    def settled(index: Any) -> Any:
        return settle_index(ir.substitute(index, table), analyzer)

    wanted = [*function.loads, *(output.buffer[output.indices] for output in function.outputs)]
    for load in wanted:
        whole = set(variables) <= {v for index in load.indices for v in _plain_uses(index)}
        if whole and not is_whole(settled_load(load, settled), flat.var):
            raise Decline(
                f"{load.source.name} is read at {list(load.indices)}, where the neighbours of an "
                "element are no vector in memory."
            )
    outputs = tuple(
        RowOutput(
            output.buffer, tuple(map(settled, output.indices)),
            settle(ir.substitute(output.value, table), analyzer),
        )
        for output in function.outputs
    )  # fmt: skip
    return replace(function, rows=(), columns=flat, outputs=outputs, flat=True)


def settled_load(load: TensorLoad, settled: Any) -> TensorLoad:
    """A load at indices that a function gives."""
    return load.source[tuple(map(settled, load.indices))]


def _axis(index: Any, axes: dict[Var, Any]) -> Axis | None:
    """The axis that an index of a result is; None for the only index of a dimension."""
    if isinstance(index, Var) and index in axes:
        return Axis(index, axes[index])
    if ir.is_constant(index, 0):
        return None
    raise Decline(f"a result is stored at {index}, which is no axis of its elements.")


def _plain_uses(index: Any) -> set[Var]:
    """Variables of an index that no other load reads."""
    inner = {var for load in loads(index) for part in load.indices for var in ir.uses(part)}
    return ir.uses(index) - inner

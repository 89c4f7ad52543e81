"""Recognise functions of rows: element-wise, with sums and maxima along the rows.

Such a function computes each row of its results from rows of its parameters alone. Everything is
expressed in the axes of the first result, of which the last is the columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx import Buffer, PrimFunc, Var

from warploom.errors import Decline
from warploom.gemm.equations import Equation, expand, loads, narrow, read_equations, simplify
from warploom.gemm.memory import static
from warploom.gemm.problem import Axis, Output
from warploom.gemm.widen import NARROW, widened
from warploom.tile import ir

#: Result of a reduction, by the operation between the old value and the new term.
_COMBINE = {tirx.Add: "sum", tirx.Max: "max"}


@dataclass(frozen=True)
class Reduction:
    """``result = sum or max over the columns of term``, one for each row.

    Attributes
    ----------
    result : Var
        The variable for it in terms that follow and in results.
    combine : str
        ``"sum"`` or ``"max"``.
    start : Expr
        Its initial value: 0 for a sum.
    term : Expr
        In terms of axes and earlier reductions.
    """

    result: Var
    combine: str
    start: Any
    term: Any


@dataclass(frozen=True)
class RowFunction:
    """A recognised function.

    Attributes
    ----------
    func : PrimFunc
        The S-TIR function, its indices of 32 bits.
    rows : tuple of Axis
        Axes that tell rows apart, the outermost first.
    columns : Axis
        The axis along a row; its extent is known.
    reductions : tuple of Reduction
        In the order in which they depend on each other.
    outputs : tuple of Output
        The stored value.
    """

    func: PrimFunc
    rows: tuple[Axis, ...]
    columns: Axis
    reductions: tuple[Reduction, ...]
    outputs: tuple[Output, ...]

    @property
    def values(self) -> tuple[Any, ...]:
        """All that is computed of an element."""
        return (
            *(reduction.term for reduction in self.reductions),
            *(output.value for output in self.outputs),
        )

    @property
    def loads(self) -> list[TensorLoad]:
        """The loads of the function, each element of a parameter once."""
        result: list[TensorLoad] = []
        for load in (load for value in self.values for load in loads(value)):
            if not any(tvm_ffi.structural_equal(load, known) for known in result):
                result.append(load)
        return result


def read_rows(func: PrimFunc) -> RowFunction:
    """The rows that an S-TIR function computes.

    Parameters
    ----------
    func : PrimFunc
        As ``te.create_prim_func`` or Relax's FuseTIR make it, not scheduled.

    Raises
    ------
    Decline
        If it computes something else; the message names the obstacle.
    """
    func = narrow(func)
    equations = read_equations(func)
    params = set(func.params)
    results = [equation for equation in equations if equation.buffer in params]
    if not results:
        raise Decline("the function stores no result.")
    reader = _Reader(results[0], {equation.buffer: equation for equation in equations})
    outputs = tuple(reader.output(result) for result in results)
    return RowFunction(func, reader.rows, reader.columns, tuple(reader.reductions), outputs)


class _Reader:
    """Expresses results in the axes of the first one, and collects their reductions."""

    def __init__(self, first: Equation, definitions: dict[Buffer, Equation]) -> None:
        name = first.buffer.name
        if not first.indices:
            raise Decline(f"{name} is a single number; rows have elements side by side.")
        last = next((axis for axis in first.spatial if axis[0].same_as(first.indices[-1])), None)
        if last is None:
            raise Decline(
                f"the last dimension of {name} is indexed by {first.indices[-1]}; rows are stored "
                "element after element."
            )
        if static(last[1]) is None:
            raise Decline(f"rows of {name} have {last[1]} elements, a dynamic size; fix it.")
        self.columns = Axis(*last)
        self.rows = tuple(Axis(*axis) for axis in first.spatial if axis is not last)
        self.axes = [Axis(*axis) for axis in first.spatial]
        self.sums = {
            buffer: definition for buffer, definition in definitions.items() if definition.reduction
        }
        self.maps = {
            buffer: definition
            for buffer, definition in definitions.items()
            if not definition.reduction
        }
        self.reductions: list[Reduction] = []
        self.known: list[tuple[TensorLoad, Var]] = []

    def output(self, equation: Equation) -> Output:
        """A result, its reductions replaced by variables."""
        name = equation.block.name_hint
        if equation.reduction:
            raise Decline(f"block {name} stores one element of each row, no rows.")
        same = len(equation.spatial) == len(self.axes) and all(
            tvm_ffi.structural_equal(axis.extent, extent)
            for axis, (_, extent) in zip(self.axes, equation.spatial, strict=True)
        )
        if not same:
            raise Decline(
                f"block {name} has extents {[extent for _, extent in equation.spatial]} and the "
                f"first result {[axis.extent for axis in self.axes]}; all must have the same."
            )
        table = {var: axis.var for (var, _), axis in zip(equation.spatial, self.axes, strict=True)}
        indices = tuple(simplify(ir.substitute(index, table)) for index in equation.indices)
        if not indices[-1].same_as(self.columns.var) or any(
            self.columns.var in ir.uses(index) for index in indices[:-1]
        ):
            raise Decline(f"{equation.buffer.name} is not stored along the rows of the first.")
        return Output(equation.buffer, indices, widened(self._read(equation.value, table)))

    def _read(self, value: Any, table: dict[Var, Any]) -> Any:
        """A value in terms of axes, parameters and reductions."""
        value = simplify(ir.substitute(expand(value, self.maps), table))
        return ir.map_nodes(value, {TensorLoad: self._load}, {})

    def _load(self, load: TensorLoad) -> Any:
        equation = self.sums.get(load.source)
        if equation is None:
            return load
        for known, result in self.known:
            if tvm_ffi.structural_equal(known, load):
                return result
        result = self._reduce(equation, load)
        self.known.append((load, result))
        return result

    def _reduce(self, equation: Equation, load: TensorLoad) -> Any:
        name = equation.block.name_hint
        if any(self.columns.var in ir.uses(index) for index in load.indices):
            raise Decline(f"block {name} sums along rows that are read from the columns.")
        long = [axis for axis in equation.reduction if not ir.is_constant(axis[1], 1)]
        if len(long) != 1 or not tvm_ffi.structural_equal(long[0][1], self.columns.extent):
            raise Decline(
                f"block {name} sums over {[extent for _, extent in equation.reduction]}; rows have "
                f"{self.columns.extent} elements."
            )
        combine = _COMBINE.get(type(equation.value))
        term = _term(equation)
        if combine is None or term is None:
            raise Decline(f"block {name} is neither a sum nor a maximum of one term each.")
        if combine == "sum" and not _is_zero(equation.init):
            raise Decline(f"block {name} starts its sum with {equation.init}; it must be 0.")
        table: dict[Var, Any] = {var: tirx.const(0, "int32") for var, _ in equation.reduction}
        table[long[0][0]] = self.columns.var
        for mine, wanted in zip(equation.indices, load.indices, strict=True):
            if isinstance(mine, Var):
                table[mine] = wanted
            elif not ir.is_constant(mine, 0):
                raise Decline(f"block {name} stores its sums at {mine}, which is no variable.")
        dtype = str(equation.buffer.dtype)
        term = self._read(term, table)
        wide = dtype in NARROW
        start = tirx.Cast("float32", equation.init) if wide else equation.init
        term = tirx.Cast("float32", widened(term)) if wide else term
        result = Var(f"{combine}{len(self.reductions)}", "float32" if wide else dtype)
        self.reductions.append(Reduction(result, combine, start, simplify(term)))
        return tirx.Cast(dtype, result) if wide else result


def _term(equation: Equation) -> Any | None:
    """The term that is added to the buffer's own element, or compared with it."""
    value = equation.value
    if not isinstance(value, tuple(_COMBINE)):
        return None
    for own, term in ((value.a, value.b), (value.b, value.a)):
        if (
            isinstance(own, TensorLoad)
            and own.source.same_as(equation.buffer)
            and all(map(tvm_ffi.structural_equal, own.indices, equation.indices))
        ):
            return term
    return None


def _is_zero(value: Any) -> bool:
    return isinstance(value, (tirx.IntImm, tirx.FloatImm)) and value.value == 0

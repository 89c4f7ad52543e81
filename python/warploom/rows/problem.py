"""Recognise row functions: element-wise, with reductions along the rows.

Such a function computes each row of its results from rows of its parameters alone, or one number
for each row. Everything is expressed in the axes of the rows, and in one axis along them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx import Buffer, PrimFunc, Var

from warploom.errors import Decline
from warploom.gemm.equations import (
    Equation,
    expand,
    loads,
    read_equations,
    simplify,
    strip_casts,
)
from warploom.gemm.memory import static
from warploom.gemm.problem import Axis, Output
from warploom.gemm.widen import NARROW, widened
from warploom.rows.axes import RowAxes, analyzer_of, axes_of, settle, settle_index, unrolled
from warploom.rows.crossing import Crossing
from warploom.rows.narrow import narrowed, plain, without_stand_ins
from warploom.rows.reductions import (
    Place,
    Reduction,
    as_float32,
    load_of,
    of_products,
    operator_of,
    partner_of,
    place_in,
)
from warploom.rows.short_sums import written_out
from warploom.rows.windows import Window, apart
from warploom.tile import ir

#: Elements of a buffer whose places have 32 bits.
_MOST_ELEMENTS = 2**31 - 1


@dataclass(frozen=True)
class RowOutput(Output):
    """A result of rows.

    Attributes
    ----------
    guard : Expr, optional
        The condition on rows under which it is stored.
    """

    guard: Any = None


@dataclass(frozen=True)
class RowFunction:
    """A recognised function.

    Attributes
    ----------
    func : PrimFunc
        The S-TIR function, its indices of 32 bits.
    params : tuple of Var
        Its parameters; those of int64 are so here.
    rows : tuple of Axis
        Axes that tell rows apart, the outermost first.
    columns : Axis
        The axis along a row.
    reductions : tuple of Reduction
        In the order in which they depend on each other.
    outputs : tuple of RowOutput
        Results with an element for each column.
    numbers : tuple of RowOutput
        Results with one element for each row.
    flat : bool
        Whether the only row is all elements of an element-wise function.
    windows : tuple of Window
        Reductions over windows of rows, which results read; there are no others then.
    point : Axis, optional
        Of the neighbours that a thread computes together, where there are windows.
    crossing : Crossing, optional
        Where operands lie that are read across the rows.
    """

    func: PrimFunc
    params: tuple[Var, ...]
    rows: tuple[Axis, ...]
    columns: Axis
    reductions: tuple[Reduction, ...]
    outputs: tuple[RowOutput, ...]
    numbers: tuple[RowOutput, ...] = ()
    flat: bool = False
    windows: tuple[Window, ...] = ()
    point: Axis | None = None
    crossing: Crossing | None = None

    @property
    def values(self) -> tuple[Any, ...]:
        """All that is computed of an element."""
        places = [one.place.index for one in self.reductions if one.place is not None]
        return (
            *(reduction.term for reduction in self.reductions),
            *places,
            *(output.value for output in (*self.outputs, *self.numbers)),
        )

    @property
    def loads(self) -> list[TensorLoad]:
        """The loads of the function, each element of a parameter once; those of windows apart."""
        return loads_of(self.values)

    @property
    def window_loads(self) -> list[TensorLoad]:
        """The loads of windows, in terms of their axes."""
        return loads_of(tuple(window.term for window in self.windows))

    @property
    def axes(self) -> list[tuple[Var, Any]]:
        """All variables of values, with their extents."""
        windows = (axis for window in self.windows for axis in window.axes)
        points = () if self.point is None else (self.point,)
        every = (*self.rows, *points, self.columns, *windows)
        return [(axis.var, axis.extent) for axis in every]


def loads_of(values: tuple[Any, ...]) -> list[TensorLoad]:
    """The loads of some values, each element of a parameter once."""
    result: list[TensorLoad] = []
    for load in (load for value in values for load in loads(value)):
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
    func, stand_ins = narrowed(func)
    equations = [written_out(one) for one in read_equations(func, guarded=True)]
    _check_sizes(func)
    params = set(func.params)
    equations, windows = apart(equations, params)
    results = [equation for equation in equations if equation.buffer in params]
    if not results:
        raise Decline("the function stores no result.")
    definitions = {equation.buffer: equation for equation in equations}
    reader = _Reader(results, definitions, stand_ins, windows)
    made = [reader.output(result) for result in results]
    if reader.windows and reader.reductions:
        raise Decline("rows are reduced, and windows of rows as well; the two are kernels apart.")
    outputs = tuple(output for output, whole in made if whole)
    numbers = tuple(output for output, whole in made if not whole)
    return RowFunction(
        func, tuple(stand_ins.get(param, param) for param in func.params), reader.axes.rows,
        reader.axes.columns, tuple(reader.reductions), outputs, numbers,
        windows=tuple(reader.windows),
    )  # fmt: skip


def _check_sizes(func: PrimFunc) -> None:
    """The kernel counts elements with 32 bits."""
    for param in func.params:
        sizes = [static(extent) for extent in param.shape] if ir.is_buffer(param) else []
        count = math.prod(size or 1 for size in sizes)
        if count > _MOST_ELEMENTS:
            raise Decline(f"{param.name} has {count} elements; a row kernel counts with 32 bits.")


class _Reader:
    """Expresses results in the axes of rows, and collects their reductions."""

    def __init__(
        self, results: list[Equation], definitions: dict[Buffer, Equation],
        stand_ins: Mapping[Buffer, Buffer], of_windows: Mapping[Buffer, Equation],
    ) -> None:  # fmt: skip
        self.stand_ins, self.of_windows = stand_ins, of_windows
        self.windows: list[Window] = []
        #: Axes of the windows whose terms are being read.
        self.within: set[Var] = set()
        self.sums = {
            buffer: definition for buffer, definition in definitions.items() if definition.reduction
        }
        self.maps = {
            buffer: definition
            for buffer, definition in definitions.items()
            if not definition.reduction
        }
        self.axes: RowAxes = axes_of(results, self.maps, self.sums)
        axes = (*self.axes.rows, self.axes.columns)
        self.analyzer = analyzer_of([(axis.var, axis.extent) for axis in axes])
        self.reductions: list[Reduction] = []
        self.known: list[tuple[TensorLoad, Var]] = []

    def output(self, equation: Equation) -> tuple[RowOutput, bool]:
        """A result, its reductions replaced by variables, and whether it has whole rows."""
        table, whole = self._places(equation)
        guard = equation.guard
        if guard is not None:
            guard = ir.substitute(guard, table)
            if self.axes.columns.var in ir.uses(guard) or loads(guard):
                raise Decline(
                    f"block {equation.block.name_hint} stores {equation.buffer.name} if {guard}; a "
                    "row is stored as a whole or not."
                )
        indices = tuple(self._settled_index(index, table) for index in equation.indices)
        if equation.reduction:
            value = self._load(self._settled(load_of(equation), table))
        else:
            value = self._read(equation.value, table)
        buffer = equation.buffer
        known = self.stand_ins.get(buffer)
        if known is not None:
            value = self._index(strip_casts(value), buffer)
            return RowOutput(known, indices, tirx.Cast(str(known.dtype), value), guard), whole
        return RowOutput(buffer, indices, self._finished(value), guard), whole

    def _places(self, equation: Equation) -> tuple[dict[Var, Any], bool]:
        """The axes of a result in terms of rows and columns, and whether it has whole rows."""
        extents = tuple(extent for _, extent in equation.spatial)
        variables = [var for var, _ in equation.spatial]
        if not equation.reduction and _same(extents, self.axes.extents):
            return dict(zip(variables, self.axes.places, strict=True)), True
        long = [axis for axis in self.axes.rows if not ir.is_constant(axis.extent, 1)]
        mine = [axis for axis in equation.spatial if not ir.is_constant(axis[1], 1)]
        name = equation.block.name_hint
        if not self.sums or not _same(
            [axis.extent for axis in long], [extent for _, extent in mine]
        ):
            wanted = list(self.axes.extents or [axis.extent for axis in self.axes.rows])
            raise Decline(
                f"block {name} has extents {list(extents)} and the first result {wanted}; all must "
                "have the same."
            )
        table: dict[Var, Any] = {var: tirx.const(0, "int32") for var in variables}
        table |= {var: axis.var for (var, _), axis in zip(mine, long, strict=True)}
        return table, False

    def _settled(self, value: Any, table: Mapping[Var, Any]) -> Any:
        return settle(ir.substitute(value, table), self.analyzer)

    def _settled_index(self, index: Any, table: Mapping[Var, Any]) -> Any:
        return settle_index(ir.substitute(index, table), self.analyzer)

    def _finished(self, value: Any) -> Any:
        """A value as it is computed: rounded once, and with numbers of 64 bits as indices only."""
        return widened(without_stand_ins(value, self.stand_ins))

    def _index(self, value: Any, buffer: Buffer) -> Any:
        """What is stored with 64 bits: the place of an extremum."""
        places = [one.place.result for one in self.reductions if one.place is not None]
        if not any(value.same_as(place) for place in places):
            raise Decline(
                f"{buffer.name} holds numbers of 64 bits that are no result of argmax or argmin; "
                "cast it to int32."
            )
        return value

    def _read(self, value: Any, table: Mapping[Var, Any]) -> Any:
        """A value in terms of axes, parameters and reductions."""
        value = self._settled(expand(value, self.maps), table)
        return ir.map_nodes(value, {TensorLoad: self._load}, {})

    def _load(self, load: TensorLoad) -> Any:
        window = self.of_windows.get(load.source)
        equation = self.sums.get(load.source) if window is None else window
        if equation is None:
            return load
        for known, result in self.known:
            if tvm_ffi.structural_equal(known, load):
                return self._rounded(equation, result)
        if window is not None:
            result = self._window(equation, load)
            self.known.append((load, result))
            return self._rounded(equation, result)
        name = equation.block.name_hint
        if any(self.axes.columns.var in ir.uses(index) for index in load.indices):
            raise Decline(f"block {name} sums along rows that are read from the columns.")
        extremum = partner_of(equation, self.sums)
        if extremum is None:
            result = self._reduce(equation, load, None)
        else:
            other = extremum.buffer[tuple(load.indices)]
            result = self._reduce(extremum, other, equation)
        self.known.append((load, result))
        return self._rounded(equation, result)

    def _window(self, equation: Equation, load: TensorLoad) -> Var:
        """Reduce a window; return the variable of the result."""
        combine, term = operator_of(equation)
        read_at = set().union(*(ir.uses(index) for index in load.indices))
        if read_at & self.within:
            raise Decline(
                f"block {equation.block.name_hint} reduces windows, and each step of another "
                "window reads its result elsewhere; the two are kernels apart."
            )
        table: dict[Var, Any] = {
            mine: wanted
            for mine, wanted in zip(equation.indices, load.indices, strict=True)
            if isinstance(mine, Var)
        }
        axes = []
        for var, extent in equation.reduction:
            axes.append(Axis(Var(var.name, "int32"), tirx.const(static(extent), "int32")))
            table[var] = axes[-1].var
            self.analyzer.bind(axes[-1].var, ir.whole_range(axes[-1].extent))
        own = {axis.var for axis in axes}
        self.within |= own
        term, start = self._read(term, table), equation.init
        self.within -= own
        dtype = str(equation.buffer.dtype)
        if dtype in NARROW:
            dtype, start, term = "float32", tirx.Cast("float32", start), of_products(term)
        result = Var(f"window{len(self.windows)}", dtype)
        self.windows.append(
            Window(result, combine, simplify(start), simplify(term), tuple(axes))
        )
        return result

    @staticmethod
    def _rounded(equation: Equation, result: Var) -> Any:
        dtype = str(equation.buffer.dtype)
        return tirx.Cast(dtype, result) if dtype in NARROW else result

    def _reduce(self, equation: Equation, load: TensorLoad, placed: Equation | None) -> Var:
        """Reduce a row; return the variable of the result, or of its place."""
        number = len(self.reductions)
        combine, term = operator_of(equation)
        dtype = str(equation.buffer.dtype)
        start = equation.init
        if dtype in NARROW:
            start = tirx.Cast("float32", start)
        table = self._axes_of(equation, load)
        term = self._finished(self._read(term, table))
        if dtype in NARROW:
            dtype, term = "float32", as_float32(term)
        result = Var(f"{combine}{number}", dtype)
        place = None
        if placed is not None:
            index, last = place_in(placed, equation)
            index = self._settled_index(index, self._axes_of(placed, load))
            place = Place(Var(f"place{number}", "int32"), plain(placed.init), plain(index), last)
        # Reductions that the term reads have been appended meanwhile.
        self.reductions.append(Reduction(result, combine, simplify(start), simplify(term), place))
        return result if place is None else place.result

    def _axes_of(self, equation: Equation, load: TensorLoad) -> dict[Var, Any]:
        """The variables of a reduction whose result is read at some indices."""
        extents = [extent for _, extent in equation.reduction]
        flat = unrolled(self.axes.columns.var, extents)
        table: dict[Var, Any] = dict(
            zip((var for var, _ in equation.reduction), flat, strict=True)
        )
        for mine, wanted in zip(equation.indices, load.indices, strict=True):
            if isinstance(mine, Var):
                table[mine] = wanted
            elif not ir.is_constant(mine, 0):
                raise Decline(
                    f"block {equation.block.name_hint} stores its sums at {mine}, which is no "
                    "variable."
                )
        return table


def _same(mine: Any, others: Any) -> bool:
    return len(mine) == len(others) and all(map(tvm_ffi.structural_equal, mine, others))


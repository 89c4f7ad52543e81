"""The tile program of a recognised function, with the tiles that knobs choose.

The program is what a person would write for the function: loads of the operands' tiles and a
product in a pipelined loop, then a nest for each result. Passes do the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.script import tirx as T
from tvm.script.ir_builder import IRBuilder
from tvm.script.tirx import tile as Tx
from tvm.tirx import Buffer, PrimFunc, Var
from tvm.tirx.script.builder import ir as builder

from warploom import language as wl
from warploom.gemm.equations import simplify
from warploom.gemm.knobs import GemmKnobs
from warploom.gemm.problem import Axis, GemmFunction, Operand, Output
from warploom.transform import ir
from warploom.transform.decline import Decline

#: Bytes that TMA wants base addresses aligned to.
_ALIGN = 16


def tile_program(gemm: GemmFunction, knobs: GemmKnobs) -> PrimFunc:
    """The tile program of a function.

    Its parameters are those of the S-TIR function, in the same order and of the same shapes.

    Raises
    ------
    Decline
        If the function reads or stores in a way that tiles cannot; the message names the buffer.
    IllegalCombination
        If the knobs do not suit the problem.
    """
    knobs.check(gemm.problem)
    with IRBuilder() as made, builder.prim_func(private=True):
        table = {param: _parameter(param) for param in gemm.func.params}
        T.device_entry()
        with wl.hints(**knobs.hints()):
            _Kernel(gemm, knobs, table).write()
    program = made.get()
    attrs = dict((gemm.func.attrs or {}).items())
    for key, value in {**attrs, "tirx.is_scheduled": 1}.items():
        if key != "s_tir":
            program = program.with_attr(key, value)
    return program


def _parameter(param: Var) -> Any:
    if not ir.is_buffer(param):
        return builder.arg(param.name, Var(param.name, param.ty))
    tensor = builder.buffer(list(param.shape), str(param.dtype), align=_ALIGN)
    return builder.arg(param.name, tensor)


class _Kernel:
    """Writes the statements of one program."""

    def __init__(self, gemm: GemmFunction, knobs: GemmKnobs, table: Mapping[Var, Any]) -> None:
        self.gemm, self.knobs, self.table = gemm, knobs, dict(table)
        self.extents = {gemm.rows.var: knobs.tile_m, gemm.columns.var: knobs.tile_n}
        self.starts: dict[Var, Any] = {}

    def write(self) -> None:
        """The statements after the device entry."""
        gemm, knobs = self.gemm, self.knobs
        m, n = knobs.tile_m, knobs.tile_n
        grid = [_tiles(gemm.rows, m), _tiles(gemm.columns, n)]
        ids = T.cta_id([*grid, *(axis.extent for axis in gemm.batch)])
        for name, var in zip("ij", ids, strict=False):
            IRBuilder.name(name, var)
        self.starts = {gemm.rows.var: ids[0] * m, gemm.columns.var: ids[1] * n}
        for axis, var in zip(gemm.batch, ids[2:], strict=True):
            self.table[axis.var] = IRBuilder.name(axis.var.name, var)
        sums = [self._accumulator(product.accumulator) for product in gemm.products]
        self._main_loop(sums)
        for number, output in enumerate(gemm.outputs):
            self._store(output, sums, number)

    def _accumulator(self, var: Var) -> Buffer:
        rows, columns = self.knobs.tile_m, self.knobs.tile_n
        shape = (columns, rows) if self.knobs.swap_ab else (rows, columns)
        made = T.alloc_buffer(shape, str(var.ty.dtype), scope="accumulator")
        return IRBuilder.name(var.name, made)

    def _main_loop(self, sums: list[Buffer]) -> None:
        gemm = self.gemm
        *outer, inner = gemm.summed
        depth = self.knobs.tile_k
        self.extents[inner.var] = depth
        steps = T.ceildiv(inner.extent, depth)
        total = steps
        for axis in outer:
            total = total * axis.extent
        a = self._shared(gemm.products[0].a, "")
        b = [self._shared(one.b, number or "") for number, one in enumerate(gemm.products)]
        with wl.pipelined(simplify(total), self.knobs.stages) as step:
            IRBuilder.name("step", step)
            rest = step
            self.starts[inner.var] = (rest if not outer else T.truncmod(rest, steps)) * depth
            rest = T.truncdiv(rest, steps) if outer else rest
            for axis in reversed(outer):
                self.table[axis.var] = T.truncmod(rest, axis.extent)
                rest = T.truncdiv(rest, axis.extent)
            Tx.cta.copy_async(ir.whole(a), self._region(gemm.products[0].a.load))
            for tile, product in zip(b, gemm.products, strict=True):
                Tx.cta.copy_async(ir.whole(tile), self._region(product.b.load))
            for total, tile in zip(sums, b, strict=True):
                self._multiply(total, a, tile, step > 0)

    def _multiply(self, total: Buffer, a: Buffer, b: Buffer, accum: Any) -> None:
        layout = self.gemm.problem.layout
        a_rows, b_rows = layout[0] == "N", layout[1] == "T"
        if self.knobs.swap_ab:
            Tx.cta.gemm_async(
                ir.whole(total), ir.whole(b), ir.whole(a), not b_rows, not a_rows, accum
            )
        else:
            Tx.cta.gemm_async(
                ir.whole(total), ir.whole(a), ir.whole(b), not a_rows, not b_rows, accum
            )

    def _shared(self, operand: Operand, number: Any) -> Buffer:
        """A tile of an operand in shared memory, in the order of its dimensions in memory."""
        if operand.load is None:
            raise Decline(f"the factor {operand.value} is computed; only loads are generated.")
        extents = [size for _, size in self._places(operand.load) if size > 1]
        dtype = str(operand.value.ty.dtype)
        made = T.alloc_buffer(tuple(extents), dtype, scope="shared")
        return IRBuilder.name(f"{operand.load.source.name}_s{number}", made)

    def _places(self, load: TensorLoad) -> list[tuple[Any, int]]:
        """(variable of the tile or None, extent) of each dimension of a load."""
        found = []
        for index in load.indices:
            mine = [var for var in self.extents if var in ir.uses(index)]
            if len(mine) > 1 or (mine and not _is_shift(index, mine[0])):
                raise Decline(
                    f"{load.source.name} is read at {index}; a tile needs one axis a dimension, "
                    "with a factor of 1."
                )
            found.append((mine[0], self.extents[mine[0]]) if mine else (None, 1))
        return found

    def _region(self, load: TensorLoad) -> Any:
        parts = []
        for index, (var, size) in zip(load.indices, self._places(load), strict=True):
            start = self._at(index, {} if var is None else {var: self.starts[var]})
            parts.append((start, size) if var is not None else start)
        return ir.region(self.table[load.source], *parts)

    def _at(self, expression: Any, more: Mapping[Var, Any]) -> Any:
        return simplify(ir.substitute(expression, {**self.table, **more}))

    def _store(self, output: Output, sums: list[Buffer], number: int) -> None:
        gemm, knobs = self.gemm, self.knobs
        m, n = knobs.tile_m, knobs.tile_n
        places = self._places(_element(output))
        order = [var for var, _ in places if var is not None]
        if order != [gemm.rows.var, gemm.columns.var]:
            raise Decline(
                f"{output.buffer.name} is stored with its columns before its rows; only row-major "
                "results are generated."
            )
        for (var, size), extent in zip(places, output.buffer.shape, strict=True):
            axis = next((a for a in (gemm.rows, gemm.columns) if a.var.same_as(var)), None)
            if axis is not None and not _fits(axis, extent, size):
                raise Decline(
                    f"{output.buffer.name} has {extent} elements where the product has "
                    f"{axis.extent}; a tile over the edge would overwrite the others."
                )
        scope = "shared" if knobs.swap_ab else "fragment"
        out = T.alloc_buffer((m, n), str(output.buffer.dtype), scope=scope)
        IRBuilder.name(f"out{number or ''}", out)
        with T.grid(m, n) as (y, x):
            IRBuilder.name("y", y)
            IRBuilder.name("x", x)
            more = {
                gemm.rows.var: self.starts[gemm.rows.var] + y,
                gemm.columns.var: self.starts[gemm.columns.var] + x,
            }
            for product, total in zip(gemm.products, sums, strict=True):
                more[product.accumulator] = total[x, y] if knobs.swap_ab else total[y, x]
            T.buffer_store(out, self._at(output.value, more), [y, x])
        Tx.cta.copy(self._region(_element(output)), ir.whole(out))


def _element(output: Output) -> TensorLoad:
    """The element of a result, as if it were read."""
    return output.buffer[output.indices]


def _tiles(axis: Axis, size: int) -> Any:
    return simplify(T.truncdiv(axis.extent + (size - 1), size))


def _is_shift(index: Any, var: Var) -> bool:
    return var not in ir.uses(simplify(index - var))


def _fits(axis: Axis, extent: Any, size: int) -> bool:
    if tvm_ffi.structural_equal(axis.extent, extent):
        return True
    return isinstance(axis.extent, tirx.IntImm) and int(axis.extent) % size == 0

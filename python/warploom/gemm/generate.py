"""The tile program of a recognised function, with the tiles that knobs choose.

The program is what a person would write for the function: loads of the operands' tiles and a
product in a pipelined loop, then a nest for each result. Passes do the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
from warploom.gemm.equations import loads, simplify
from warploom.gemm.knobs import GemmKnobs
from warploom.gemm.memory import ALIGN
from warploom.gemm.problem import Axis, GemmFunction, Operand, Output
from warploom.target.dtypes import bits_of
from warploom.transform import ir
from warploom.transform.decline import Decline


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
        table = {param: _parameter(param, gemm) for param in gemm.func.params}
        T.device_entry()
        with wl.hints(**knobs.hints()):
            _Kernel(gemm, knobs, table).write()
    program = made.get()
    attrs = dict((gemm.func.attrs or {}).items())
    for key, value in {**attrs, "tirx.is_scheduled": 1}.items():
        if key != "s_tir":
            program = program.with_attr(key, value)
    return program


def _parameter(param: Var, gemm: GemmFunction) -> Any:
    """A parameter of the kernel; a single row has an extent that only the launch knows.

    TMA loads boxes of many rows from a matrix of one, and TVM plans that for unknown extents only.
    """
    if not ir.is_buffer(param):
        return builder.arg(param.name, Var(param.name, param.ty))
    shape = list(param.shape)
    if ir.is_constant(gemm.rows.extent, 1):
        for dimension in _row_dimensions(param, gemm):
            shape[dimension] = Var(f"rows_of_{param.name}", "int32")
    tensor = builder.buffer(shape, str(param.dtype), align=ALIGN)
    return builder.arg(param.name, tensor)


def _row_dimensions(param: Var, gemm: GemmFunction) -> set[int]:
    """Dimensions of a parameter that the rows of the product index."""
    values = [one.value for one in gemm.outputs]
    values += [operand.value for one in gemm.products for operand in (one.a, one.b)]
    found = [one.indices for value in values for one in loads(value) if one.source.same_as(param)]
    found += [one.indices for one in gemm.outputs if one.buffer.same_as(param)]
    return {
        dimension
        for indices in found
        for dimension, index in enumerate(indices)
        if gemm.rows.var in ir.uses(index)
    }


@dataclass(frozen=True)
class _Tile:
    """A tile of an operand, and what is loaded for it: elements of parameters, and where to."""

    buffer: Buffer
    loads: tuple[tuple[TensorLoad, Buffer], ...]


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
        operands = [gemm.products[0].a, *(one.b for one in gemm.products)]
        sides = [gemm.rows.var] + [gemm.columns.var] * len(gemm.products)
        tiles = [
            self._tile(operand, side, number)
            for number, (operand, side) in enumerate(zip(operands, sides, strict=True))
        ]
        with wl.pipelined(simplify(total), self.knobs.stages) as step:
            IRBuilder.name("step", step)
            rest = step
            self.starts[inner.var] = (rest if not outer else T.truncmod(rest, steps)) * depth
            rest = T.truncdiv(rest, steps) if outer else rest
            for axis in reversed(outer):
                self.table[axis.var] = T.truncmod(rest, axis.extent)
                rest = T.truncdiv(rest, axis.extent)
            for tile in tiles:
                for load, shared in tile.loads:
                    Tx.cta.copy_async(ir.whole(shared), self._region(load))
            for tile, operand, side in zip(tiles, operands, sides, strict=True):
                if operand.load is None:
                    self._compute(tile, operand.value, side)
            for total, tile in zip(sums, tiles[1:], strict=True):
                self._multiply(total, tiles[0].buffer, tile.buffer, step > 0)

    def _tile(self, operand: Operand, side: Var, number: int) -> _Tile:
        """Tiles for an operand: in shared memory as it lies in memory, in registers if computed."""
        if operand.load is not None:
            shared = self._shared(operand.load, number)
            return _Tile(shared, ((operand.load, shared),))
        shape = (self.extents[side], self.knobs.tile_k)
        made = T.alloc_buffer(shape, str(operand.value.ty.dtype), scope="fragment")
        copied: list[tuple[TensorLoad, Buffer]] = []
        for load in loads(operand.value):
            known = any(tvm_ffi.structural_equal(load, one) for one, _ in copied)
            if not known and self._can_copy(load):
                copied.append((load, self._shared(load, number)))
        return _Tile(IRBuilder.name(f"operand{number or ''}", made), tuple(copied))

    def _compute(self, tile: _Tile, value: Any, side: Var) -> None:
        """A nest that fills a tile of an operand."""
        inner = self.gemm.summed[-1].var
        with T.grid(*tile.buffer.shape) as (y, z):
            IRBuilder.name("y", y)
            IRBuilder.name("z", z)
            places = {side: self.starts[side] + y, inner: self.starts[inner] + z}

            def load(one: TensorLoad) -> Any:
                shared = next(
                    (s for known, s in tile.loads if tvm_ffi.structural_equal(known, one)), None
                )
                if shared is None:
                    return self._at(one, places)
                inside = [
                    simplify(self._at(index, places) - self._at(index, self.starts))
                    for index, (var, _) in zip(one.indices, self._places(one), strict=True)
                    if var is not None
                ]
                return shared[tuple(inside)]

            replaced = ir.map_nodes(value, {TensorLoad: load}, {})
            T.buffer_store(tile.buffer, self._at(replaced, places), [y, z])

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

    def _shared(self, load: TensorLoad, number: int) -> Buffer:
        """A tile of a parameter in shared memory, in the order of its dimensions in memory."""
        extents = tuple(size for var, size in self._places(load) if var is not None)
        made = T.alloc_buffer(extents, str(load.source.dtype), scope="shared")
        return IRBuilder.name(f"{load.source.name}_s{number or ''}", made)

    def _can_copy(self, load: TensorLoad) -> bool:
        """Whether TMA can load the tile: whole units of 16 bytes, in memory and in the tile."""
        var, size = self._places(load)[-1]
        width = bits_of(str(load.source.dtype))
        pitch = load.source.shape[-1]
        fits = isinstance(pitch, tirx.IntImm) and int(pitch) * width % (8 * ALIGN) == 0
        return var is not None and fits and size * width % (8 * ALIGN) == 0

    def _places(self, load: TensorLoad) -> list[tuple[Any, int]]:
        """(variable of the tile or None, extent) of each dimension of a load."""
        found = []
        for index in load.indices:
            mine = [var for var in self.extents if var in ir.uses(index)]
            size = self._extent(index, mine[0]) if len(mine) == 1 else None
            if mine and size is None:
                raise Decline(
                    f"{load.source.name} is read at {index}; a tile needs one axis a dimension, "
                    "with a factor of 1 or divided by a divisor or a multiple of the tile."
                )
            found.append((mine[0], size) if mine else (None, 1))
        return found

    def _extent(self, index: Any, var: Var) -> int | None:
        """How many values of an index a tile has; None if they do not follow each other."""
        size = self.extents[var]
        if _is_shift(index, var):
            return size
        if isinstance(index, tirx.FloorDiv) and index.a.same_as(var):
            divisor = int(index.b) if isinstance(index.b, tirx.IntImm) else 0
            if divisor and size % divisor == 0:
                return size // divisor
            return 1 if divisor and divisor % size == 0 else None
        return None

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

"""The tile program of a recognised function, with the tiles that a config chooses.

The program is what a person would write for the function: loads of the operands' tiles and a
product in a pipelined loop, then a nest for each result. Passes do the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm.ir import TensorRegion
from tvm.ir.expr import TensorLoad
from tvm.script import tirx as T
from tvm.script.ir_builder import IRBuilder
from tvm.script.tirx import tile as Tx
from tvm.tirx import Buffer, PrimFunc, Var
from tvm.tirx.script.builder import ir as builder

from warploom import language as wl
from warploom.decide.config import Config
from warploom.decide.problem import ALIGN
from warploom.gemm.equations import loads, simplify
from warploom.gemm.problem import GemmFunction, Operand
from warploom.gemm.results import Sum, reduce, store
from warploom.gemm.tile_places import TilePlaces
from warploom.target import TMA
from warploom.target.swizzle import ATOM_ROWS
from warploom.tile import ir
from warploom.tile.annotations import SIZES


def tile_program(gemm: GemmFunction, config: Config) -> PrimFunc:
    """The tile program of a function.

    Its parameters are those of the S-TIR function, in the same order and of the same shapes.

    Raises
    ------
    Decline
        If the function reads or stores in a way that tiles cannot; the message names the buffer.
    IllegalCombination
        If the config does not suit the problem.
    """
    config.check(gemm.problem)
    with IRBuilder() as made, builder.prim_func(private=True):
        table = {param: _parameter(param, gemm) for param in gemm.func.params}
        for view in gemm.views:
            data, shape = table[view.param].data, view.buffer.shape
            declared = T.decl_buffer(shape, str(view.buffer.dtype), data, align=ALIGN)
            table[view.buffer] = IRBuilder.name(view.buffer.name, declared)
        T.device_entry()
        with wl.hints(**config.hints()):
            _Kernel(gemm, config, table).write()
    program = made.get()
    attrs = dict((gemm.func.attrs or {}).items())
    if single := {_row_name(param): 1 for param in gemm.func.params if _is_row(param, gemm)}:
        attrs[SIZES] = single
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
    if _is_row(param, gemm):
        for dimension in _row_dimensions(param, gemm):
            shape[dimension] = Var(_row_name(param), "int32")
    tensor = builder.buffer(shape, str(param.dtype), align=ALIGN)
    return builder.arg(param.name, tensor)


def _is_row(param: Var, gemm: GemmFunction) -> bool:
    """Whether a parameter has a single row."""
    single = ir.is_constant(gemm.rows.extent, 1) and not gemm.pixels
    return single and ir.is_buffer(param) and bool(_row_dimensions(param, gemm))


def _row_name(param: Var) -> str:
    return f"rows_of_{param.name}"


def _row_dimensions(param: Var, gemm: GemmFunction) -> set[int]:
    """Dimensions of a parameter that the rows of the product index."""
    values = [result.value for result in (*gemm.outputs, *gemm.reductions)]
    values += [operand.value for product in gemm.products for operand in (product.a, product.b)]
    places = [
        load.indices for value in values for load in loads(value) if load.source.same_as(param)
    ]
    stored = (*gemm.outputs, *gemm.reductions)
    places += [place.indices for place in stored if place.buffer.same_as(param)]
    return {
        dimension
        for indices in places
        for dimension, index in enumerate(indices)
        if gemm.rows.var in ir.uses(index)
    }


@dataclass(frozen=True)
class _Load:
    """Elements of a parameter and where in shared memory they come; see ``TilePlaces.piece``."""

    source: TensorLoad
    shared: Buffer | TensorRegion
    piece: int | None = None


@dataclass(frozen=True)
class _Tile:
    """A tile of an operand, and what is loaded for it."""

    buffer: Buffer
    loads: tuple[_Load, ...]


class _Kernel:
    """Writes the statements of one program."""

    def __init__(self, gemm: GemmFunction, config: Config, table: Mapping[Var, Any]) -> None:
        self.gemm, self.config = gemm, config
        self.where = TilePlaces(gemm, config, table)

    def write(self) -> None:
        """The statements after the device entry."""
        gemm = self.gemm
        self.where.open_grid()
        joined = self._are_side_by_side()
        sums = self._sums(joined)
        self._main_loop([total.buffer for total in (sums[:1] if joined else sums)], joined)
        for number, output in enumerate(gemm.outputs):
            store(self.where, output, sums, number)
        for reduction in gemm.reductions:
            reduce(self.where, reduction, sums)

    def _are_side_by_side(self) -> bool:
        """Whether products share an accumulator, and their B a tile: then one instruction does.

        That is so for B in rows, which TMA can load below each other, up to the 256 columns that
        an instruction has (as a box of TMA has rows).
        """
        gemm, columns = self.gemm, self.config.tile_n
        wide = len(gemm.products) * columns
        if len(gemm.products) == 1 or self.config.swap_ab or columns % ATOM_ROWS:
            return False
        order = [gemm.columns.var, gemm.summed[-1].var]
        return wide <= TMA.box_extent and all(
            product.b.load is not None
            and [var for var, _ in self.where.dimensions(product.b.load) if var is not None]
            == order
            for product in gemm.products
        )

    def _sums(self, joined: bool) -> list[Sum]:
        """Where each product is summed."""
        accumulators = [product.accumulator for product in self.gemm.products]
        if not joined:
            return [Sum(self._accumulator(accumulator)) for accumulator in accumulators]
        made = self._accumulator(accumulators[0], len(accumulators))
        return [Sum(made, part * self.config.tile_n) for part in range(len(accumulators))]

    def _accumulator(self, var: Var, products: int = 1) -> Buffer:
        rows, columns = self.config.tile_m, self.config.tile_n * products
        shape = (columns, rows) if self.config.swap_ab else (rows, columns)
        made = T.alloc_buffer(shape, str(var.ty.dtype), scope="accumulator")
        return IRBuilder.name(var.name, made)

    def _main_loop(self, sums: list[Buffer], joined: bool) -> None:
        gemm = self.gemm
        *outer, inner = gemm.summed
        depth = self.config.tile_k
        steps = T.ceildiv(inner.extent, depth)
        total = steps
        for axis in outer:
            total = total * axis.extent
        operands = [gemm.products[0].a, *(product.b for product in gemm.products)]
        sides = [gemm.rows.var] + [gemm.columns.var] * len(gemm.products)
        tiles = [
            self._tile(operand, side, number)
            for number, (operand, side) in enumerate(zip(operands, sides, strict=True))
            if not (joined and number)
        ]
        if joined:
            tiles.append(self._side_by_side(operands[1:]))
        with wl.pipelined(simplify(total), self.config.stages) as step:
            IRBuilder.name("step", step)
            rest = step
            self.where.starts[inner.var] = (rest if not outer else T.truncmod(rest, steps)) * depth
            rest = T.truncdiv(rest, steps) if outer else rest
            for axis in reversed(outer):
                self.where.table[axis.var] = T.truncmod(rest, axis.extent)
                rest = T.truncdiv(rest, axis.extent)
            for tile in tiles:
                for load in tile.loads:
                    self.where.load(load.shared, load.source, load.piece)
            for tile, operand, side in zip(tiles, operands, sides, strict=not joined):
                if operand.load is None:
                    self._compute(tile, operand.value, side)
            for total, tile in zip(sums, tiles[1:], strict=True):
                self._multiply(total, tiles[0].buffer, tile.buffer, step > 0)

    def _tile(self, operand: Operand, side: Var, number: int) -> _Tile:
        """Tiles for an operand: in shared memory as it lies in memory, in registers if computed."""
        if operand.load is not None:
            shared = self.where.shared(operand.load, number)
            return _Tile(shared, (_Load(operand.load, shared),))
        rows = self.config.tile_m if side is self.gemm.rows.var else self.config.tile_n
        shape = (rows, self.config.tile_k)
        made = T.alloc_buffer(shape, str(operand.value.ty.dtype), scope="fragment")
        copied: list[_Load] = []
        for load in loads(operand.value):
            if any(tvm_ffi.structural_equal(load, copy.source) for copy in copied):
                continue
            piece = None if self.where.can_copy(load) else self.where.piece(load)
            # A stage has room for one of them (Config.stage_bytes).
            is_first = all(copy.piece is None for copy in copied)
            if self.where.can_copy(load) or (piece is not None and is_first):
                copied.append(_Load(load, self.where.shared(load, number, piece), piece))
        return _Tile(IRBuilder.name(f"operand{number or ''}", made), tuple(copied))

    def _side_by_side(self, operands: list[Operand]) -> _Tile:
        """One tile for the operands of all products, one below the other."""
        columns, depth = self.config.tile_n, self.config.tile_k
        source = operands[0].load.source
        made = T.alloc_buffer((len(operands) * columns, depth), str(source.dtype), scope="shared")
        IRBuilder.name(f"{source.name}_s", made)
        parts = (ir.region(made, (n * columns, columns), (0, depth)) for n in range(len(operands)))
        return _Tile(made, tuple(_Load(o.load, p) for o, p in zip(operands, parts, strict=True)))

    def _compute(self, tile: _Tile, value: Any, side: Var) -> None:
        """A nest that fills a tile of an operand."""
        inner = self.gemm.summed[-1].var
        with T.grid(*tile.buffer.shape) as (y, z):
            IRBuilder.name("y", y)
            IRBuilder.name("z", z)
            places = {side: self.where.starts[side] + y, inner: self.where.starts[inner] + z}

            def load(node: TensorLoad) -> Any:
                known = next(
                    (a for a in tile.loads if tvm_ffi.structural_equal(a.source, node)), None
                )
                if known is None:
                    return self.where.at(node, places)
                inside = [
                    simplify(self.where.at(index, places) - self.where.at(index, self.where.starts))
                    for index, (var, _) in zip(
                        node.indices, self.where.dimensions(node), strict=True
                    )
                    if var is not None
                ]
                if known.piece is not None:
                    start = self.where.at(node.indices[-1], self.where.starts)
                    inside[-1] += simplify(T.floormod(start, known.piece))
                return known.shared[tuple(inside)]

            replaced = ir.map_nodes(value, {TensorLoad: load}, {})
            T.buffer_store(tile.buffer, self.where.at(replaced, places), [y, z])

    def _multiply(self, total: Buffer, a: Buffer, b: Buffer, accum: Any) -> None:
        layout = self.gemm.problem.layout
        a_rows, b_rows = layout[0] == "N", layout[1] == "T"
        if self.config.swap_ab:
            Tx.cta.gemm_async(
                ir.whole(total), ir.whole(b), ir.whole(a), not b_rows, not a_rows, accum
            )
        else:
            Tx.cta.gemm_async(
                ir.whole(total), ir.whole(a), ir.whole(b), not a_rows, not b_rows, accum
            )

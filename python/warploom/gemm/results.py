"""Results of a tile: a nest for each, and what is reduced of the tile's rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.script import tirx as T
from tvm.script.ir_builder import IRBuilder
from tvm.script.tirx import tile as Tx
from tvm.tirx import Buffer

from warploom.decide.problem import ALIGN
from warploom.errors import Decline
from warploom.gemm.equations import simplify
from warploom.gemm.problem import Axis, Output, RowReduction
from warploom.gemm.reductions import NEUTRAL
from warploom.gemm.tile_places import TilePlaces
from warploom.gemm.widen import widened
from warploom.target.dtypes import bits_of
from warploom.tile import ir


@dataclass(frozen=True)
class Sum:
    """Columns of an accumulator that hold the sums of one product.

    Attributes
    ----------
    buffer : Buffer
    first : int
        The first of the columns.
    """

    buffer: Buffer
    first: int = 0


def store(where: TilePlaces, output: Output, sums: list[Sum], number: int) -> None:
    """Compute a result from the sums of the tile, and store it."""
    gemm, config = where.gemm, where.config
    m, n = config.tile_m, config.tile_n
    places = where.dimensions(_element(output))
    order = [var for var, _ in places if var is not None]
    if order != [*(axis.var for axis in gemm.row_axes), gemm.columns.var]:
        raise Decline(
            f"{output.buffer.name} is stored with its columns before its rows; only row-major "
            "results are generated."
        )
    for (var, size), extent in zip(places, output.buffer.shape, strict=True):
        axis = next((a for a in (*gemm.row_axes, gemm.columns) if a.var.same_as(var)), None)
        if axis is not None and not _fits(axis, extent, size):
            raise Decline(
                f"{output.buffer.name} has {extent} elements where the product has "
                f"{axis.extent}; a tile over the edge would overwrite the others."
            )
    whole = config.swap_ab and not config.stores_in_chunks(gemm.problem, str(output.buffer.dtype))
    scope = "shared" if whole else "fragment"
    out = T.alloc_buffer((m, n), str(output.buffer.dtype), scope=scope)
    IRBuilder.name(f"out{number or ''}", out)
    with T.grid(m, n) as (y, x):
        IRBuilder.name("y", y)
        IRBuilder.name("x", x)
        more = {gemm.columns.var: where.starts[gemm.columns.var] + x, **where.row_places(y)}
        for product, total in zip(gemm.products, sums, strict=True):
            at = (x, y) if config.swap_ab else (y, x + total.first)
            more[product.accumulator] = total.buffer[at]
        T.buffer_store(out, where.at(widened(output.value), more), [y, x])
    to = where.region(_element(output))
    if whole and not _is_aligned(output.buffer):
        with T.grid(m, n) as (y, x):  # TMA, which stores such tiles, cannot
            more = {gemm.columns.var: where.starts[gemm.columns.var] + x, **where.row_places(y)}
            indices = [where.at(index, more) for index in output.indices]
            T.buffer_store(where.table[output.buffer], out[y, x], indices)
    elif gemm.pixels:
        Tx.cta.copy_async(to, ir.whole(out), dispatch="tma_auto")
    else:
        Tx.cta.copy(to, ir.whole(out))


def reduce(where: TilePlaces, reduction: RowReduction, sums: list[Sum]) -> None:
    """A sum or extremum of each row of the tile, stored as a column of rows."""
    gemm, config = where.gemm, where.config
    m, n = config.tile_m, config.tile_n
    name, dtype = reduction.buffer.name, str(reduction.buffer.dtype)
    vector = T.alloc_buffer((m,), "float32", scope="fragment")
    IRBuilder.name(f"{name}_rows", vector)
    values = T.alloc_buffer((m, n), "float32", scope="fragment")
    IRBuilder.name(f"{name}_values", values)
    with T.grid(m, n) as (y, x):
        column = where.starts[gemm.columns.var] + x
        more = {gemm.columns.var: column, **where.row_places(y)}
        for product, total in zip(gemm.products, sums, strict=True):
            more[product.accumulator] = total.buffer[y, x + total.first]
        value = T.cast(where.at(widened(reduction.value), more), "float32")
        if n != reduction.width:
            rest = T.float32(NEUTRAL[reduction.kind])
            value = T.if_then_else(column < gemm.columns.extent, value, rest)
        T.buffer_store(values, value, [y, x])
    {"sum": Tx.cta.sum, "max": Tx.cta.max, "min": Tx.cta.min}[reduction.kind](
        vector, values, axes=(1,)
    )
    part = where.starts[gemm.columns.var] // reduction.width
    to = where.region(reduction.buffer[reduction.indices], {reduction.part: simplify(part)})
    if dtype == "float32":
        narrow = vector
    else:
        narrow = T.alloc_buffer((m,), dtype, scope="fragment")
        IRBuilder.name(f"{name}_out", narrow)
        Tx.cta.cast(narrow, vector)
    if gemm.pixels:
        Tx.cta.copy_async(to, ir.whole(narrow), dispatch="tma_auto")
    else:
        Tx.cta.copy(to, ir.whole(narrow))


def _is_aligned(buffer: Buffer) -> bool:
    """Whether rows of a parameter begin at multiples of what TMA wants."""
    unit = 8 * ALIGN // bits_of(str(buffer.dtype))
    pitch = buffer.shape[-1]
    return tvm.sym.Analyzer().can_prove_equal(tirx.floormod(pitch, unit), 0)


def _element(output: Output) -> TensorLoad:
    """The element of a result, as if it were read."""
    return output.buffer[output.indices]


def _fits(axis: Axis, extent: Any, size: int) -> bool:
    if tvm_ffi.structural_equal(axis.extent, extent):
        return True
    return isinstance(axis.extent, tirx.IntImm) and int(axis.extent) % size == 0

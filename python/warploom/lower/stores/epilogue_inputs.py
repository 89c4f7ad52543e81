"""Epilogue inputs: load elements of global memory into registers before the nest's arithmetic.

A residual is added to a result where the result is: each thread reads the elements that it holds.
Between arithmetic and conversions such loads wait one after another; in a nest of their own they
are under way together, two elements an instruction, and can begin while something else is done.
Before that, while the MMAs are computed, the rows of a tile are brought into the L2 cache.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, Stmt, Var

from warploom.target import TMA
from warploom.tile import ir
from warploom.tile.scopes import is_global
from warploom.tile.statement import Nest, raws


def split_inputs(nest: Nest, made: Buffer) -> tuple[list[Stmt], Stmt]:
    """Nests that load the epilogue inputs of a nest, and the nest without these loads.

    Parameters
    ----------
    nest : Nest
        It stores one element of ``made`` for each of its iterations, and binds variables before.
    made : Buffer
        A tile in registers: the tiles that are loaded have its layout.

    Returns
    -------
    loads : list of Stmt
        Allocations, and a nest for each distinct element that every iteration reads. What the
        same element is for a whole row or column, as a bias is, stays where it was.
    rest : Stmt
    """
    counters = [loop.loop_var for loop in nest.loops]
    extents = [int(loop.extent) for loop in nest.loops]
    statements: list[Stmt] = []
    table: list[tuple[TensorLoad, Any]] = []
    for load in elements_of(nest, counters):
        tile = tirx.decl_buffer(
            made.shape, str(load.source.dtype), f"{load.source.name}_chunk", scope="local",
            layout=made.layout,
        )  # fmt: skip
        table.append((load, tile[tuple(counters)]))
        own = [Var(counter.name, "int32") for counter in counters]
        value = ir.substitute(load, dict(zip(counters, own, strict=True)))
        filled = tirx.BufferStore(tile, value, own)
        statements += [tirx.AllocBuffer(tile), ir.nest(own, extents, [filled])]

    def loaded(old: TensorLoad) -> Any:
        return next((new for known, new in table if tvm_ffi.structural_equal(known, old)), old)

    rest = [ir.map_nodes(part, {TensorLoad: loaded}, {}) for part in raws(nest.parts)]
    return statements, ir.nest(counters, extents, rest)


def prefetch_inputs(nest: Nest, thread: Any, threads: int) -> list[Stmt]:
    """L2 prefetches of the global memory that a nest reads.

    A thread asks for a row at a time. Inputs without rows of whole 16 bytes are left out (PTX ISA,
    "cp.async.bulk.prefetch.L2").

    Parameters
    ----------
    nest : Nest
        As :func:`split_inputs` takes it; its loops count rows and columns.
    thread : Expr
        The number of a thread, below ``threads``.
    """
    rows, columns = (int(loop.extent) for loop in nest.loops)
    row, column = (loop.loop_var for loop in nest.loops)
    statements: list[Stmt] = []
    for load in elements_of(nest, [row, column]):
        start, unit = start_of_row(load, row, column), chunk_elements(load.source)
        if start is None or columns % unit:
            continue
        *outer, _ = load.indices
        pitch = load.source.shape[-1]
        for first in range(0, rows, threads):
            here = [ir.substitute(index, {row: thread + first}) for index in outer]
            extents = load.source.shape[: len(here)]
            inside = tirx.all(
                thread + first < rows, start < pitch,
                *(index < extent for index, extent in zip(here, extents, strict=True)),
            )  # fmt: skip
            size = T.min(columns, pitch - start) * (TMA.chunk_bytes // unit)
            address = ir.address(load.source, *here, start)
            call = T.ptx.cp.async_.bulk.prefetch.L2.global_(address, T.cast(size, "uint32"))
            statements.append(ir.when(inside, [ir.evaluate(call)]))
    return statements


def start_of_row(load: TensorLoad, row: Var, column: Var) -> Any | None:
    """Where a nest's elements of a row begin in the last dimension of an input.

    None if they are not neighbours from a multiple of 16 bytes on, or rows have others.
    """
    *outer, last = load.indices
    pitch, unit = load.source.shape[-1], chunk_elements(load.source)
    if not isinstance(pitch, tirx.IntImm) or int(pitch) % unit:
        return None
    analyzer = Analyzer()
    start = analyzer.simplify(last - column)
    aligned = analyzer.can_prove(T.EQ(tirx.floormod(start, unit), 0))
    moved = any(column in ir.uses(value) for value in outer) or {row, column} & ir.uses(start)
    return start if aligned and not moved else None


def chunk_elements(buffer: Buffer) -> int:
    """Elements of 16 bytes, which bulk copies and ``cp.async`` move as one."""
    return TMA.chunk_bytes * 8 // tvm.DataType(str(buffer.dtype)).bits


def elements_of(nest: Nest, counters: list[Var]) -> list[TensorLoad]:
    """Loads from global memory that differ from iteration to iteration, each once."""
    loads: list[TensorLoad] = []

    def visit(load: TensorLoad) -> None:
        used = {var for index in load.indices for var in ir.uses(index)}
        if (
            ir.is_buffer(load.source)
            and is_global(load.source)
            and all(counter in used for counter in counters)
            and not any(tvm_ffi.structural_equal(load, known) for known in loads)
        ):
            loads.append(load)

    for part in nest.parts:
        tvm_ffi.structural_walk(part.raw, (TensorLoad, visit))
    return loads

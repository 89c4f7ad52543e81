"""An input of the epilogue, loaded into the buffers that the result leaves through.

A residual has the shape of the result. Its rows come 16 bytes at a time into the buffer of a chunk,
``ldmatrix`` reads each element where ``stmatrix`` will write: threads that read their own elements
of global memory ask for a few bytes of many rows each. Chunks that have buffers of their own are
under way while the tile's MMAs are computed; the others follow as stores leave buffers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var

from warploom.lower.stores.epilogue_inputs import chunk_elements, elements_of, start_of_row
from warploom.lower.stores.store_chunks import StoreChunk
from warploom.target import TMA
from warploom.tile import ir
from warploom.tile.statement import Nest


@dataclass(frozen=True)
class StagedInput:
    """An epilogue input: a bias, a residual or a scale.

    Attributes
    ----------
    load : TensorLoad
        An element, in terms of the row and the column of the result's.
    row, column : Var
    """

    load: TensorLoad
    row: Var
    column: Var

    def fetch(
        self, buffer: Buffer, slot: tuple[Any, ...], chunk: StoreChunk, thread: Any, threads: int
    ) -> list[Stmt]:
        """Statements by which threads load one chunk, as a group of their own (``cp.async``).

        Parameters
        ----------
        buffer : Buffer
            Its last two dimensions are rows and columns of a chunk.
        slot : tuple of Expr
            The indices before these.
        thread : Expr
            A thread's number, below ``threads``.
        """
        source, unit = self.load.source, chunk_elements(self.load.source)
        across = chunk.width // unit
        statements: list[Stmt] = []
        for first in range(0, chunk.height * across, threads):
            word = thread + first
            row, column = T.truncdiv(word, across), T.truncmod(word, across) * unit
            places = {self.row: row + chunk.row, self.column: column + chunk.column}
            indices = [ir.substitute(index, places) for index in self.load.indices]
            inside = tirx.all(
                *(index < extent for index, extent in zip(indices, source.shape, strict=True))
            )
            size = T.if_then_else(inside, T.uint32(TMA.chunk_bytes), T.uint32(0))
            to, value = ir.address(buffer, *slot, row, column), ir.address(source, *indices)
            copy = T.ptx.cp.async_.cg.shared__cta.global_(to, value, TMA.chunk_bytes, size)
            body = [ir.evaluate(copy)]
            last = first + threads > chunk.height * across
            statements.append(ir.when(word < chunk.height * across, body) if last else body[0])
        return [*statements, ir.evaluate(T.ptx.cp.async_.commit_group())]


def staged_input(maker: Nest, made: Buffer) -> StagedInput | None:
    """The only thing that a nest reads element by element, if buffers of its result hold it.

    Parameters
    ----------
    maker : Nest
        Its two loops count the rows and columns of ``made``.
    """
    row, column = (loop.loop_var for loop in maker.loops)
    elements = elements_of(maker, [row, column])
    if len(elements) != 1 or str(elements[0].source.dtype) != str(made.dtype):
        return None
    (load,) = elements
    plain = not len(load.source.strides) and ir.is_constant(load.source.elem_offset, 0)
    fits = plain and start_of_row(load, row, column) is not None
    return StagedInput(load, row, column) if fits else None


@dataclass(frozen=True)
class Fetches:
    """When chunks are loaded.

    Attributes
    ----------
    ahead : tuple of int
        Chunks that are loaded before the first is computed.
    after : mapping from int to tuple of (int, int)
        For the number of a store: chunks that are loaded when it has been issued, and how many
        stores may still be under way then.
    """

    ahead: tuple[int, ...]
    after: Mapping[int, tuple[tuple[int, int], ...]]

    def pending(self, chunk: int) -> int:
        """How many loads are issued after that of a chunk, before it is computed."""
        issued = [*self.ahead]
        for store in range(chunk):
            issued += [load for load, _ in self.after.get(store, ())]
        return len(issued) - 1 - issued.index(chunk)


def fetches(parts: list[StoreChunk]) -> Fetches:
    """The chunks of a tile in the order in which they are loaded: as soon as one is waited for."""
    before: dict[int, int] = {}
    last: dict[tuple[int, int], int] = {}
    for number, chunk in enumerate(parts):
        place = chunk.width, chunk.slot
        if place in last:
            before[number] = last[place]
        last[place] = number
    ahead = tuple(number for number in range(len(parts)) if number not in before)
    known, after = set(ahead), {}
    for store in range(len(parts) - 1):
        if store + 1 not in known:
            free = [n for n, stores in before.items() if n not in known and stores <= store]
            after[store] = tuple((n, store - before[n]) for n in free)
            known.update(free)
    return Fetches(ahead, after)

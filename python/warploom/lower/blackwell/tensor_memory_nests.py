"""Nests on accumulators, computed in registers chunk by chunk of columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, Stmt, Var

from warploom.errors import Decline
from warploom.lower.blackwell.tensor_memory_chunks import (
    chunk_of,
    chunk_width,
    is_accumulator,
    load_chunk,
    store_chunk,
    wait_for,
)
from warploom.tile import ir
from warploom.tile.statement import Nest, raws

#: An accumulator, and the first of its columns that a nest uses with the same indices.
_Part = tuple[Buffer, int]


@dataclass
class _Use:
    """How a nest uses one part of an accumulator."""

    row: Var
    column: Var
    loaded: bool = False
    stored: bool = False


def nest_by_chunks(nest: Nest, arch: str) -> list[Stmt]:
    """Return the code of a nest: for each chunk, loads, the nest on registers, and stores.

    Raises
    ------
    Decline
        If it uses an accumulator otherwise than by rows and columns of its own loops.
    """
    uses = _uses(nest)
    columns = {use.column for use in uses.values()}
    if len(columns) != 1:
        names = ", ".join(tile.name for tile, _ in uses)
        raise Decline(
            f"A nest counts the columns of {names} by different loops; use a nest for each."
        )
    (column,) = columns
    extent = next(int(loop.extent) for loop in nest.loops if loop.loop_var.same_as(column))
    _require_apart(uses, extent)
    width = min(
        chunk_width(int(tile.shape[0]), _common(extent, _columns(tile, first)), arch, tile.name)
        for tile, first in uses
    )
    changed = [part for part, use in uses.items() if use.stored]
    result: list[Stmt] = []
    for start in range(0, extent, width):
        chunks = {(tile, first): chunk_of(tile, width, arch) for tile, first in uses}
        for (tile, first), use in uses.items():
            load = load_chunk(chunks[tile, first], tile, first + start)
            result += load if use.loaded and start < _columns(tile, first) else load[:1]
        if any(use.loaded for use in uses.values()):
            result.append(wait_for("ld"))
        result += ir.renewed([_on_chunks(nest, column, start, width, uses, chunks)])
        result += [
            store_chunk(chunks[part], part[0], part[1] + start)
            for part in changed if start < _columns(*part)
        ]  # fmt: skip
    # Stores of one chunk are under way while the next is computed.
    return [*result, wait_for("st")] if changed else result


def _common(extent: int, columns: int) -> int:
    """Columns that chunks of a nest have to divide: its own, and those of a tile that has fewer."""
    return math.gcd(extent, columns) if columns < extent else extent


def _columns(tile: Buffer, first: int) -> int:
    """Columns of a tile from one of them on; a nest that counts more has a guard around its use."""
    return int(tile.shape[1]) - first


def _require_apart(uses: dict[_Part, _Use], extent: int) -> None:
    """Decline a nest that changes one part of a tile and uses the next: chunks hold both."""
    for changed in {tile for (tile, _), use in uses.items() if use.stored}:
        starts = sorted(first for tile, first in uses if tile.same_as(changed))
        for start, end in pairwise(starts):
            if end - start < extent:
                raise Decline(
                    f"A nest changes the accumulator {changed.name} and uses {extent} columns of "
                    f"it from {start} and from {end} on; copy them to a fragment before."
                )


def _on_chunks(
    nest: Nest, column: Var, start: int, width: int, uses: dict[_Part, _Use],
    chunks: dict[_Part, Buffer],
) -> Stmt:  # fmt: skip
    """The nest on the columns from ``start`` on; chunks take the place of accumulators."""
    counter = Var(column.name, "int32")

    def load(node: TensorLoad) -> Any:
        if not is_accumulator(node.source):
            return node
        part = _part(node.source, node.indices)
        return chunks[part][uses[part].row, counter]

    def store(node: tirx.BufferStore) -> Any:
        if not is_accumulator(node.buffer):
            return node
        part = _part(node.buffer, node.indices)
        return tirx.BufferStore(chunks[part], node.value, [uses[part].row, counter], node.span)

    callbacks = [(TensorLoad, load), (tirx.BufferStore, store)]
    parts = raws(nest.parts)
    inner = [tvm_ffi.structural_map(part, callbacks, order="post") for part in parts]
    inner = [ir.substitute(statement, {column: counter + start}) for statement in inner]
    for loop in reversed(nest.loops):
        if loop.loop_var.same_as(column):
            inner = [ir.loop(counter, width, inner, loop.annotations)]
        else:
            inner = [ir.with_body(loop, inner)]
    return inner[0]


def _uses(nest: Nest) -> dict[_Part, _Use]:
    """The parts of accumulators in a nest, with the loops that count their rows and columns."""
    extents = {loop.loop_var: int(loop.extent) for loop in nest.loops}
    uses: dict[_Part, _Use] = {}

    def add(node: Any) -> None:
        tile = node.buffer if isinstance(node, tirx.BufferStore) else node.source
        if not is_accumulator(tile):
            return
        row, place = node.indices
        column, _ = _split(place)
        if extents.get(row) != int(tile.shape[0]) or column not in extents:
            raise Decline(
                f"A nest indexes the accumulator {tile.name} by {row}, {place}; a thread reaches "
                "tensor memory by whole rows, so index it by a loop over all rows and a loop over "
                "columns."
            )
        use = uses.setdefault(_part(tile, node.indices), _Use(row, column))
        if not use.row.same_as(row):
            raise Decline(
                f"A nest uses rows {use.row} and {row} of the accumulator {tile.name} at once; "
                "copy one of them to a fragment before."
            )
        use.stored |= isinstance(node, tirx.BufferStore)
        use.loaded |= not isinstance(node, tirx.BufferStore)

    tvm_ffi.structural_walk(nest.raw, [((tirx.BufferStore, TensorLoad), add)])
    for store in nest.stores:
        # Elements that the nest does not store keep their values.
        if is_accumulator(store.buffer) and store not in nest.parts:
            uses[_part(store.buffer, store.indices)].loaded = True
    return uses


def _part(tile: Buffer, indices: Any) -> _Part:
    """Which part of an accumulator an access of a nest belongs to."""
    return tile, _split(indices[1])[1]


def _split(place: Any) -> tuple[Any, int]:
    """Loop variable and constant of a column index."""
    place = Analyzer().simplify(place)
    if isinstance(place, tirx.Add) and isinstance(place.b, tirx.IntImm):
        return place.a, int(place.b)
    return place, 0

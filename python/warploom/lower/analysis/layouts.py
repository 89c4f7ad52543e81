"""The layout of a tile, by its uses: operands of MMAs, vectors, places in registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.tirx import Buffer, Stmt
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import Decline, IllegalCombination
from warploom.layout.metadata_words import COPY_COLUMNS, WORD, shared_words
from warploom.layout.smem_matrix import SharedMatrix
from warploom.lower.analysis.transposed import transposed_tiles
from warploom.target import Major, Swizzle
from warploom.tile import ir
from warploom.tile.effects import REDUCTIONS
from warploom.tile.primitives import op_name
from warploom.tile.scopes import TILE_SCOPES, is_shared, is_single
from warploom.tile.statement import Block, Mma, Nest, walk


@dataclass(frozen=True)
class Axis:
    """Dimension of an accumulator along which a vector lies: ``"row"`` or ``"column"``; and why."""

    along: str
    why: str


def has_layout(tile: Buffer) -> bool:
    """Whether the author gave the tile a layout, other than the row-major one of TVM."""
    plain = tirx.decl_buffer(tile.shape, str(tile.dtype), scope=tile.scope())
    return tile.layout is not None and not tvm_ffi.structural_equal(tile.layout, plain.layout)


def operand_uses(body: Block) -> dict[Buffer, dict[Major, str]]:
    """Shared tiles that MMAs read: along which dimensions, and which use says so.

    A tile may be read both ways, such as latent vectors that are keys and values of attention: the
    bytes of a swizzled tile are the same, and the descriptor says along which dimension to read.
    """
    uses: dict[Buffer, dict[Major, str]] = {}
    for statement in walk(body):
        if not isinstance(statement, Mma):
            continue
        for operand, flag, name in zip(statement.operands, statement.transposed, "AB", strict=True):
            tile = operand.source
            if is_shared(tile):
                use = f"{name} of the MMA into {statement.d.name}"
                uses.setdefault(tile, {}).setdefault(Major.MN if flag else Major.K, use)
    return uses


def operand_layout(tile: Buffer, uses: dict[Major, str]) -> Any:
    """The layout of an operand, which all its uses can read.

    Raises
    ------
    Decline
        If one of them cannot.
    """
    rows, columns = (int(extent) for extent in tile.shape[-2:])
    width = columns * tvm.DataType(str(tile.dtype)).bits // 8
    fitting = [s for s in Swizzle if width % s.row_bytes == 0]
    swizzle = max(fitting, key=lambda s: s.row_bytes, default=Swizzle.NONE)
    layouts = []
    for major, use in uses.items():
        mn, k = (rows, columns) if major is Major.K else (columns, rows)
        try:
            matrix = SharedMatrix(str(tile.dtype), major, swizzle, mn, k)
        except IllegalCombination as error:
            raise Decline(f"The tile {tile.name}, {use}: {error}") from error
        layouts.append(matrix.layout([int(extent) for extent in tile.shape[:-2]]))
    return layouts[0]


def word_layouts(body: Block) -> dict[Buffer, Any]:
    """Shared tiles with metadata in words that MMAs read, and the layout that copies read.

    Raises
    ------
    Decline
        If a tile has no such layout.
    """
    found: dict[Buffer, Any] = {}
    for statement in walk(body):
        metadata = statement.metadata if isinstance(statement, Mma) else None
        if metadata is None or str(metadata.source.dtype) != WORD:
            continue
        tile = metadata.source
        *lead, rows, words = (int(extent) for extent in tile.shape)
        if words % COPY_COLUMNS:
            raise Decline(
                f"The metadata {tile.name} has {words} words for each row; the tensor core of "
                f"Blackwell gets {COPY_COLUMNS} at a time, so give the tile a multiple."
            )
        found[tile] = shared_words(rows, words).layout(lead)
    return found


def vector_axes(body: Block) -> dict[Buffer, Axis]:
    """For every vector in registers, the dimension of the accumulator along which it lies.

    Raises
    ------
    Decline
        If two uses want different directions.
    """
    axes: dict[Buffer, Axis] = {}
    #: What reductions of shared tiles would like: threads read those from any place.
    liked: dict[Buffer, Axis] = {}
    turned = transposed_tiles(body)
    equal: list[tuple[Buffer, Buffer, str]] = []

    def want(vector: Buffer, axis: Axis) -> None:
        before = axes.setdefault(vector, axis)
        if before.along != axis.along:
            raise Decline(
                f"The vector {vector.name} lies along the {before.along}s in {before.why} and "
                f"along the {axis.along}s in {axis.why}; use two vectors."
            )

    def nest(statement: Stmt) -> None:
        places = register_places(statement)
        why = f"the nest that stores {', '.join(sorted({t.name for t in _stored(statement)}))}"
        places = [(tile, i) for tile, i in places if not is_single(tile)]
        rows = {i[tile in turned] for tile, i in places if len(tile.shape) == 2}
        columns = {i[tile not in turned] for tile, i in places if len(tile.shape) == 2}
        vectors = [(tile, i[0]) for tile, i in places if len(tile.shape) == 1]
        for vector, index in vectors:
            if index in rows:
                want(vector, Axis("row", why))
            elif index in columns:
                want(vector, Axis("column", why))
        equal.extend(
            (a, b, why)
            for a, i in vectors for b, j in vectors if tvm_ffi.structural_equal(i, j)
        )  # fmt: skip

    def reduction(call: TilePrimitiveCall) -> None:
        if op_name(call) not in REDUCTIONS:
            return
        to, source = call.args[0].source, call.args[1].source
        if to.scope() not in TILE_SCOPES or len(to.shape) != 1:
            return
        reduced = {int(axis) % len(source.shape) for axis in call.args[2]}
        why = f"the reduction of {source.name}"
        if is_shared(source):
            liked.setdefault(to, Axis("column" if 0 in reduced else "row", why))
        elif len(source.shape) == 2:
            want(to, Axis("row" if reduced == {1} else "column", why))

    def settle() -> None:
        for _ in equal:  # every round settles at least one more vector
            for a, b, why in equal:
                if a in axes:
                    want(b, Axis(axes[a].along, why))

    _for_each(body, nest, reduction)
    settle()
    for vector, axis in liked.items():
        if vector not in axes:
            axes[vector] = axis
            settle()
    return axes


def _for_each(body: Block, nest: Any, call: Any) -> None:
    for statement in walk(body):
        if isinstance(statement, Nest):
            nest(statement.raw)
        elif isinstance(statement.raw, TilePrimitiveCall):
            call(statement.raw)


def register_places(statement: Stmt) -> list[tuple[Buffer, list[Any]]]:
    """Register tiles that a nest loads or stores, with the indices."""
    places: list[tuple[Buffer, list[Any]]] = []

    def add(node: Any) -> None:
        tile = node.buffer if isinstance(node, tirx.BufferStore) else node.source
        if ir.is_buffer(tile) and tile.scope() in TILE_SCOPES:
            places.append((tile, list(node.indices)))

    tvm_ffi.structural_walk(statement, [((tirx.BufferStore, TensorLoad), add)])
    return places


def _stored(statement: Stmt) -> list[Buffer]:
    buffers: list[Buffer] = []
    tvm_ffi.structural_walk(
        statement, (tirx.BufferStore, lambda store: buffers.append(store.buffer))
    )
    return buffers

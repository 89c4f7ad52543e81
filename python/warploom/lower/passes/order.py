"""Scans, positions of extremes and sorts, as nests and reductions.

Scans and sorts go through shared memory, in rounds: every element meets a partner, first a near
one, then others twice as far away. Each round is a nest from one shared tile to another, so that
its iterations are independent, and passes put barriers between rounds. ``log2(n)`` rounds make a
scan of ``n`` elements (Hillis and Steele, 1986), and half of ``log2(n) (log2(n) + 1)`` rounds sort
them (Batcher's bitonic sort, 1968).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import Decline
from warploom.lower.passes.parts_of_tiles import NEUTRAL, is_whole
from warploom.tile import ir
from warploom.tile.primitives import op_name, primitive
from warploom.tile.scopes import is_shared, is_single
from warploom.tile_primitives import POSITIONS, SCANS

#: Scan -> what it does with two elements.
_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "cumsum": lambda a, b: a + b,
    "cumprod": lambda a, b: a * b,
    "cummax": T.max,
    "cummin": T.min,
}
#: Elements along the axis of a sort: more take code and shared memory without end.
_MOST_SORTED = 1024


def is_of_order(call: TilePrimitiveCall) -> bool:
    """Whether a call is a scan, a position or a sort."""
    return op_name(call) in (*SCANS, *POSITIONS, "sort")


def plain_order(call: TilePrimitiveCall) -> Stmt:
    """A scan, a position or a sort as statements that passes know.

    Raises
    ------
    Decline
        If the extents of its tiles are not known, or it sorts too many elements.
    """
    name, extents = op_name(call), [extent for _, extent in ir.ranges(call.args[1])]
    if not all(isinstance(extent, tirx.IntImm) for extent in extents):
        raise Decline(
            f"{name} takes a region of {call.args[1].source.name} whose extents only the launch "
            "knows; give it constant extents."
        )
    axis = int(call.args[2]) % len(extents)
    if name in SCANS:
        return _scan(call, axis)
    return _sort(call, axis) if name == "sort" else _position(call, axis)


@dataclass(frozen=True)
class _Shared:
    """Two shared tiles of a region's shape, between which rounds go to and fro."""

    tiles: tuple[Buffer, Buffer]

    @classmethod
    def of(cls, name: str, shape: Iterable[int], dtype: str) -> _Shared:
        shape = tuple(shape)
        return cls(tuple(
            tirx.decl_buffer(shape, dtype, f"{name}_{number}", scope="shared")
            for number in range(2)
        ))  # fmt: skip

    @property
    def allocations(self) -> list[Stmt]:
        return [tirx.AllocBuffer(tile) for tile in self.tiles]

    def of_round(self, number: int) -> tuple[Buffer, Buffer]:
        """What a round reads, and what it writes."""
        return self.tiles[number % 2], self.tiles[(number + 1) % 2]


def _extents(region: TensorRegion) -> list[int]:
    return [int(extent) for _, extent in ir.ranges(region)]


def _wide(dtype: str) -> str:
    return "float32" if "float" in dtype else "int32"


def _counters(extents: list[int]) -> list[Var]:
    return [Var(f"i{dimension}", "int32") for dimension in range(len(extents))]


def _at(counters: list[Var], axis: int, place: Any) -> tuple[Any, ...]:
    return tuple(place if d == axis else counter for d, counter in enumerate(counters))


def _cast(to: TensorRegion, source: TensorRegion) -> Stmt:
    return primitive("cast", to, source, scope="cta")


def _scan(call: TilePrimitiveCall, axis: int) -> Stmt:
    to, source, _, reverse = call.args
    combine, extents = _COMBINE[op_name(call)], _extents(source)
    shared = _Shared.of(f"{source.source.name}_scan", extents, _wide(str(source.source.dtype)))
    body = [*shared.allocations, _filled(shared.tiles[0], source)]
    distances = [1 << i for i in range((extents[axis] - 1).bit_length())]
    for number, distance in enumerate(distances):
        old, new = shared.of_round(number)
        counters = _counters(extents)
        place = counters[axis]
        there = place + distance < extents[axis] if reverse else place >= distance
        # Inside of the tile, whichever elements a thread loads together.
        partner = (
            T.min(place + distance, extents[axis] - 1) if reverse else T.max(place - distance, 0)
        )
        mine, theirs = old[tuple(counters)], old[_at(counters, axis, partner)]
        value = T.if_then_else(there, combine(theirs, mine), mine)
        body.append(ir.nest(counters, extents, [tirx.BufferStore(new, value, counters)]))
    return ir.seq([*body, _taken(to, shared.of_round(len(distances))[0])])


def _filled(tile: Buffer, source: TensorRegion) -> Stmt:
    """The values of a region in a shared tile of its shape."""
    return _cast(ir.whole(tile), source)


def _taken(to: TensorRegion, tile: Buffer) -> Stmt:
    """The first elements of a shared tile in their region."""
    of_tile, extents = [extent for extent in _extents(to) if extent != 1], iter(tile.shape)
    free = iter(of_tile)
    part = [(0, 1) if int(extent) == 1 else (0, next(free)) for extent in extents]
    return _cast(to, ir.region(tile, *part))


def _position(call: TilePrimitiveCall, axis: int) -> Stmt:
    """The extreme, then the least place where it is."""
    to, source, _ = call.args
    body, tile = [], source.source
    kept_whole = is_whole(source) and len(tile.shape) <= 2 and not is_single(tile)
    if not (kept_whole and (is_shared(tile) or 1 not in _extents(source))):
        tile = tirx.decl_buffer(
            _extents(source), str(tile.dtype), f"{tile.name}_copy", scope="shared"
        )
        body += [tirx.AllocBuffer(tile), primitive("copy", ir.whole(tile), source, scope="cta")]
    extents = [int(extent) for extent in tile.shape]
    scope = "shared" if is_shared(tile) else "fragment"
    kept = [extent for d, extent in enumerate(extents) if d != axis] or [1, 1]
    best = tirx.decl_buffer(kept, str(tile.dtype), f"{tile.name}_best", scope=scope)
    places = tirx.decl_buffer(extents, "int32", f"{tile.name}_places", scope=scope)
    counters = _counters(extents)
    others = [c for d, c in enumerate(counters) if d != axis] or [0, 0]
    is_best = T.EQ(tile[tuple(counters)], best[tuple(others)])
    none = tirx.const(extents[axis] - 1, "int32")  # where all are NaN
    store = tirx.BufferStore(places, T.Select(is_best, counters[axis], none), counters)
    extreme = "max" if op_name(call) == "argmax" else "min"
    return ir.seq([
        *body,
        tirx.AllocBuffer(best),
        tirx.AllocBuffer(places),
        primitive(extreme, ir.whole(best), ir.whole(tile), [axis], False, scope="cta"),
        ir.nest(counters, extents, [store]),
        primitive("min", to, ir.whole(places), [axis], False, scope="cta"),
    ])  # fmt: skip


def _sort(call: TilePrimitiveCall, axis: int) -> Stmt:
    to, source, _, descending, *indices = call.args
    extents = _extents(source)
    count = extents[axis]
    if count > _MOST_SORTED:
        raise Decline(
            f"sort takes {count} elements of {source.source.name} along axis {axis}; it takes at "
            f"most {_MOST_SORTED}, so sort parts and merge them, or leave it to a library."
        )
    size = 1 << (count - 1).bit_length()
    dtype = _wide(str(source.source.dtype))
    padded = [size if d == axis else extent for d, extent in enumerate(extents)]
    name = source.source.name
    values = _Shared.of(f"{name}_sorted", padded, dtype)
    places = _Shared.of(f"{name}_order", padded, "int32") if indices else None
    body = [*values.allocations, *(places.allocations if places else [])]
    part = [(0, extent) for extent in extents]
    last = tirx.const(NEUTRAL["max" if descending else "min"](dtype), dtype)
    if size != count:
        body.append(primitive("fill", ir.whole(values.tiles[0]), last, scope="cta"))
    body.append(_cast(ir.region(values.tiles[0], *part), source))
    if places:
        counters = _counters(padded)
        store = tirx.BufferStore(places.tiles[0], counters[axis], counters)
        body.append(ir.nest(counters, padded, [store]))
    rounds = [
        (1 << stage, 1 << step)
        for stage in range(1, int(math.log2(size)) + 1)
        for step in reversed(range(stage))
    ]
    for number, (length, distance) in enumerate(rounds):
        counters = _counters(padded)
        mine, other = counters[axis], T.bitwise_xor(counters[axis], distance)
        ascends = T.EQ(T.bitwise_and(mine, length), 0)
        first = T.EQ(T.bitwise_and(mine, distance), 0)
        wants_least = T.EQ(T.Cast("int32", ascends), T.Cast("int32", first))
        old, new = values.of_round(number)
        a, b = old[tuple(counters)], old[_at(counters, axis, other)]
        before, after = (b > a, b < a) if descending else (b < a, b > a)
        if places:
            old_places, new_places = places.of_round(number)
            i, j = old_places[tuple(counters)], old_places[_at(counters, axis, other)]
            before = tirx.any(before, tirx.all(T.EQ(a, b), j < i))
            after = tirx.any(after, tirx.all(T.EQ(a, b), j > i))
        swaps = T.Select(wants_least, before, after)
        stores: list[Stmt] = [tirx.BufferStore(new, T.Select(swaps, b, a), counters)]
        if places:
            stores.append(tirx.BufferStore(new_places, T.Select(swaps, j, i), counters))
        body.append(ir.nest(counters, padded, stores))
    for region, shared in ((to, values), *((region, places) for region in indices)):
        body.append(_taken(region, shared.of_round(len(rounds))[0]))
    return ir.seq(body)

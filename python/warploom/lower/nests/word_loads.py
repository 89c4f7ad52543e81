"""Nests that read narrow elements of shared tiles: threads load whole words of them.

A thread holds neighbours of a row in pairs. Two elements of 16 bits are one word, and a part of a
row that one thread needs is up to four: one instruction loads it
(:class:`~warploom.lower.nests.loads.LoadedWords`). Stores of pairs to shared tiles are words, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op, TensorLoad
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Stmt

from warploom.intrin import half_pairs
from warploom.lower.nests.elements import Element, in_pairs, together
from warploom.lower.nests.loads import LoadedWords, has_chunks
from warploom.lower.nests.pairs import inlined
from warploom.ops.register_tile import RegisterTile
from warploom.tile import ir
from warploom.tile.nest import ElementStore
from warploom.tile.scopes import is_shared
from warploom.tile.statement import Nest

#: Registers whose loads come before their arithmetic: more would have no room.
_AT_ONCE = 32
_NARROW = (8, 16)
_IF_THEN_ELSE = Op.get("prim.if_then_else")


def in_shared_words(
    nest: Nest, tile: RegisterTile, element: Callable[[int], Element], analyzer: Analyzer
) -> list[Stmt] | None:
    """The code of a nest over all registers of a tile; None for nests that gain nothing.

    Parameters
    ----------
    element : callable
        From the number of a register to its element.
    analyzer : Analyzer
        Ranges of the variables in their places.
    """
    store = inlined(nest.parts)
    if store is None or not in_pairs(tile) or tile.registers < 2:
        return None
    read = _narrow_loads(store.value)
    if read is None:
        return None
    pairs = is_shared(store.buffer) and _bits(store.buffer) == 16 and has_chunks(store.buffer)
    if not (read or pairs) or store.buffer in read:
        return None
    statements: list[Stmt] = []
    for first in range(0, tile.registers, _AT_ONCE):
        numbers = range(first, min(first + _AT_ONCE, tile.registers))
        elements = [element(number) for number in numbers]
        words = LoadedWords(store.value, elements, analyzer)
        statements += words.statements
        for number, one in enumerate(elements):
            one.words = places_of(words, number)
        for number in range(0, len(elements), 2):
            pair = elements[number : number + 2]
            word = _word_store(store, pair, analyzer) if pairs else None
            statements += together(store, pair) if word is None else [word]
    return statements


def _narrow_loads(value: Any) -> set[Any] | None:
    """Shared tiles of narrow elements that an expression reads; None if it may not read them all.

    Elements that an expression leaves out under a condition may lie outside of the tile.
    """
    tiles: set[Any] = set()
    conditions: list[Any] = []

    def visit(load: TensorLoad) -> None:
        source = load.source
        if ir.is_buffer(source) and is_shared(source) and _bits(source) in _NARROW:
            tiles.add(source)

    def call(node: Any) -> None:
        if node.op == _IF_THEN_ELSE:
            conditions.append(node)

    tvm_ffi.structural_walk(value, [(TensorLoad, visit), (Call, call)])
    return None if conditions and tiles else tiles


def _bits(tile: Any) -> int:
    return tvm.DataType(str(tile.dtype)).bits


def reads_all(value: Any) -> bool:
    """Whether an expression reads all its narrow elements of shared tiles, without a condition."""
    return _narrow_loads(value) is not None


def places_of(words: LoadedWords, number: int) -> Callable[[TensorLoad], Any]:
    """A function from a load of the nest to its value, from the words that have been loaded."""

    def value(load: TensorLoad) -> Any:
        place = words.of(load, number)
        if place is None:
            return None
        return half_pairs.taken(place.word, place.bit, str(load.ty.dtype))

    return value


def _word_store(store: ElementStore, pair: list[Element], analyzer: Analyzer) -> Stmt | None:
    """Two converted neighbours of a row in one word; None if they are none."""
    value, dtype = store.value, str(store.buffer.dtype)
    narrows = isinstance(value, tirx.Cast) and str(value.value.ty.dtype) == "float32"
    if not narrows or dtype not in half_pairs.PAIRS:
        return None
    low, high = ([one.expression(index) for index in store.indices] for one in pair)
    steps = [analyzer.simplify(b - a) for a, b in zip(low, high, strict=True)]
    beside = all(ir.is_constant(step, int(at == len(steps) - 1)) for at, step in enumerate(steps))
    even = analyzer.can_prove(tirx.FloorMod(low[-1], ir.as_expr(2)) == 0)
    if not beside or not even or pair[0].once is not True:
        return None
    word = half_pairs.convert(dtype, *(one.expression(value.value) for one in pair))
    return ir.evaluate(half_pairs.store(ir.address(store.buffer, *low), word))

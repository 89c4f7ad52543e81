"""Nests from shared tiles to a shared tile of 16-bit floats: 16 bytes of a row at a time.

A thread computes eight neighbours of a row, so it loads what they need in words
(:class:`~warploom.lower.nests.loads.LoadedWords`), converts them in pairs, and stores them with one
instruction. Operands that are dequantised on the way to the tensor core are such nests.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import tirx
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Stmt

from warploom.intrin import half_pairs
from warploom.layout.smem_matrix import CHUNK_BYTES
from warploom.lower.nests.elements import Element
from warploom.lower.nests.loads import LoadedWords, has_chunks
from warploom.lower.nests.pairs import inlined
from warploom.lower.nests.word_loads import places_of, reads_all
from warploom.tile import ir
from warploom.tile.scopes import is_shared
from warploom.tile.statement import Nest


def in_shared_rows(
    nest: Nest, count: int, element: Callable[[int], Element], analyzer: Analyzer
) -> list[Stmt] | None:
    """The code of ``count`` neighbours of a nest; None for nests that are none of these.

    Parameters
    ----------
    element : callable
        From the number of a neighbour to its element.
    analyzer : Analyzer
        Ranges of the variables in their places.
    """
    store = inlined(nest.parts)
    if store is None or not is_shared(store.buffer) or not has_chunks(store.buffer):
        return None
    value, dtype = store.value, str(store.buffer.dtype)
    narrows = isinstance(value, tirx.Cast) and str(value.value.ty.dtype) == "float32"
    if not narrows or dtype not in half_pairs.PAIRS or str(value.ty.dtype) != dtype:
        return None
    if count * tvm.DataType(dtype).bits != 8 * CHUNK_BYTES or not reads_all(value):
        return None
    if store.buffer in ir.uses(value):
        return None
    elements = [element(number) for number in range(count)]
    if not _are_a_chunk([[one.expression(i) for i in store.indices] for one in elements], analyzer):
        return None
    words = LoadedWords(value, elements, analyzer)
    for number, one in enumerate(elements):
        one.words = places_of(words, number)
    pairs = zip(elements[::2], elements[1::2], strict=True)
    chunk = [
        half_pairs.convert(dtype, *(one.expression(value.value) for one in pair)) for pair in pairs
    ]
    first = [elements[0].expression(index) for index in store.indices]
    to = ir.address(store.buffer, *first)
    return [*words.statements, ir.evaluate(half_pairs.store_chunk(to, chunk))]


def _are_a_chunk(places: list[list], analyzer: Analyzer) -> bool:
    """Whether indices are those of neighbours of a row, the first at a multiple of their number."""
    first, count = places[0], len(places)
    for number, place in enumerate(places):
        steps = [analyzer.simplify(b - a) for a, b in zip(first, place, strict=True)]
        if not all(ir.is_constant(step, 0) for step in steps[:-1]):
            return False
        if not ir.is_constant(steps[-1], number):
            return False
    return analyzer.can_prove(tirx.FloorMod(first[-1], ir.as_expr(count)) == 0)

"""Neighbours of a row: whether their places in memory are a word, and conditions common to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.tirx import Buffer
from tvm.tirx.layout import ComposeLayout, TileLayout

from warploom.lower.nests.elements import Element
from warploom.tile import ir
from warploom.tile.scopes import is_global, is_shared

#: Bytes that one instruction moves at most.
MOST_BYTES = 16


def values_of(expression: Any, elements: list[Element]) -> list[Any]:
    """An expression of the nest for each element, simplified."""
    return [element.analyzer.simplify(element.expression(expression)) for element in elements]


def all_equal(values: list[Any]) -> bool:
    return all(tvm_ffi.structural_equal(values[0], value) for value in values[1:])


def run_of(indices: Sequence[Any], elements: list[Element]) -> list[list[Any]] | None:
    """The indices of each element, if they are neighbours along the last dimension; else None."""
    places = [values_of(index, elements) for index in indices]
    analyzer, last = elements[0].analyzer, places[-1]
    steps = [analyzer.simplify(place - last[0]) for place in last]
    in_order = all(ir.is_constant(step, number) for number, step in enumerate(steps))
    if not in_order or not all(map(all_equal, places[:-1])):
        return None
    return [list(at) for at in zip(*places, strict=True)]


def word_width(buffer: Buffer, start: Any, elements: list[Element]) -> int:
    """Elements that one instruction moves; 1 if words do not begin at ``start`` or in all rows."""
    bits = tvm.DataType(str(buffer.dtype)).bits
    if bits < 8 or str(buffer.dtype) == "bool":
        return 1
    analyzer = elements[0].analyzer
    most = math.gcd(len(elements), MOST_BYTES)  # a power of 2, as words have
    for width in (most >> shift for shift in range(most.bit_length() - 1)):
        aligned = analyzer.can_prove_equal(tirx.floormod(start, width), 0)
        size = width * bits // 8
        if size <= MOST_BYTES and aligned and _has_words(buffer, width, size):
            return width
    return 1


def _has_words(buffer: Buffer, width: int, size: int) -> bool:
    """Whether the rows of a buffer consist of aligned words of ``width`` elements."""
    pitch = buffer.shape[-1]
    if not isinstance(pitch, tirx.IntImm) or int(pitch) % width or len(buffer.strides):
        return False
    if not ir.is_constant(buffer.elem_offset, 0) or (is_global(buffer) and _aligned(buffer) < size):
        return False
    return not is_shared(buffer) or _keeps_words(buffer.layout, width)


def _aligned(buffer: Buffer) -> int:
    return int(buffer.data_alignment)


def _keeps_words(layout: Any, width: int) -> bool:
    """Whether neighbours of a row stay neighbours in a shared tile."""
    if isinstance(layout, ComposeLayout):
        if width > 1 << int(layout.per_element):
            return False
        layout = layout.tile_layout
    if layout is None:
        return True
    if not isinstance(layout, TileLayout) or len(layout.offset):
        return False
    *outer, last = [it for it in layout.shard if int(it.extent) > 1] or [None]
    if last is None or int(last.stride) != 1 or int(last.extent) % width:
        return False
    return all(int(it.stride) % width == 0 for it in outer)


def is_common(condition: Any, elements: list[Element]) -> bool:
    """Whether a condition is known to hold for all elements or for none."""
    if isinstance(condition, (tirx.And, tirx.Or)):
        return is_common(condition.a, elements) and is_common(condition.b, elements)
    if isinstance(condition, tirx.Not):
        return is_common(condition.a, elements)
    if all_equal(values_of(condition, elements)):
        return True
    if isinstance(condition, (tirx.LT, tirx.GE)):
        return _on_one_side(condition.a, condition.b, elements)
    if isinstance(condition, (tirx.GT, tirx.LE)):
        return _on_one_side(condition.a, condition.b + 1, elements)
    return False


def _on_one_side(place: Any, bound: Any, elements: list[Element]) -> bool:
    """Whether neighbours that begin at a word are all below a multiple of the word, or none."""
    run, bounds = run_of([place], elements), values_of(bound, elements)
    if run is None or not all_equal(bounds):
        return False
    analyzer = elements[0].analyzer
    return all(
        analyzer.can_prove_equal(tirx.floormod(value, len(elements)), 0)
        for value in (run[0][0], bounds[0])
    )

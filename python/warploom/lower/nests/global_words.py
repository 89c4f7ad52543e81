"""Between registers and global memory, two 16-bit neighbours of a row in one word.

A thread holds neighbours of a row in pairs, and a pair fills a register. Data that TMA does not
move, such as rows whose number only the device knows, or an input of the epilogue, goes as such
words where they lie on word boundaries and are moved or left out together: that takes half the
instructions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, ForKind, Stmt, Var

from warploom.lower.nests.elements import Element, in_pairs, inside_buffer
from warploom.ops.register_tile import RegisterTile
from warploom.tile import ir
from warploom.tile.nest import AtomicUpdate, ElementStore, Guard
from warploom.tile.scopes import is_global
from warploom.tile.statement import Nest

_WORD, _HALF_BITS = "uint32", 16


@dataclass(frozen=True)
class WordCopy:
    """A copy under conditions that are the same for both elements of a word.

    Attributes
    ----------
    tile, memory : Buffer
        The registers, and the global memory.
    registers, place : tuple of Expr
        Indices of an element in both.
    conditions : tuple of Expr
    stores : bool
        Whether it goes to memory. Loads give 0 over the edge.
    """

    tile: Buffer
    memory: Buffer
    registers: tuple[Any, ...]
    place: tuple[Any, ...]
    conditions: tuple[Any, ...]
    stores: bool

    def lowered(self, word: Var, words: int, first: Element) -> Stmt:
        """All words of a thread; ``first`` is the first element of ``word``."""
        memory, analyzer = self.memory, first.analyzer
        view = tirx.decl_buffer(
            (*memory.shape[:-1], int(memory.shape[-1]) // 2), _WORD, f"{memory.name}_words",
            data=memory.data,
        )  # fmt: skip
        register = analyzer.simplify(T.truncdiv(first.number(self.tile, self.registers), 2))
        own = first.context.registers(self.tile, _WORD)
        *before, last = (first.expression(index) for index in self.place)
        place = [*before, analyzer.simplify(T.truncdiv(last, 2))]
        inside = inside_buffer(memory[self.place], first, memory)
        if self.stores:
            body: Stmt = ir.when(inside, [tirx.BufferStore(view, own[register], place)])
        else:
            value = view[tuple(place)]
            value = value if inside is True else T.if_then_else(inside, value, T.uint32(0))
            body = tirx.BufferStore(own, value, [register])
        for condition in self.conditions:
            body = ir.when(first.expression(condition), [body])
        loop = ir.loop(word, words, [body], kind=ForKind.UNROLLED)
        return ir.seq([tirx.DeclBuffer(view, data=memory.data), loop])


def word_copy(nest: Nest, buffer: Buffer, tile: RegisterTile) -> WordCopy | None:
    """Return the copy in words that a nest over all of a tile does; None for other nests."""
    conditions, (part, *others) = [], nest.parts
    while isinstance(part, Guard) and not others:
        conditions.append(part.condition)
        part, *others = part.parts
    if others or not isinstance(part, ElementStore) or isinstance(part, AtomicUpdate):
        return None
    copied = _copy(part, buffer, tuple(conditions))
    variables = [loop.loop_var for loop in nest.loops]
    if copied is None or not _has_words(copied.memory) or not _neighbours(tile):
        return None
    if not all(a.same_as(b) for a, b in zip(copied.registers, variables, strict=True)):
        return None
    column = variables[-1]
    *before, last = copied.place
    if any(column in ir.uses(value) for value in (*before, *conditions)):
        return None
    analyzer = Analyzer()
    start = analyzer.simplify(last - column)
    even = analyzer.can_prove(T.EQ(tirx.floormod(start, 2), 0))
    return copied if even and column not in ir.uses(start) else None


def _copy(store: ElementStore, tile: Buffer, conditions: tuple[Any, ...]) -> WordCopy | None:
    """A statement as a copy between a tile and global memory, if it is one."""
    to, value = store.buffer, store.value
    if not isinstance(value, TensorLoad) or not ir.is_buffer(value.source):
        return None
    inner, outer = tuple(value.indices), tuple(store.indices)
    if value.source.same_as(tile) and is_global(to):
        return WordCopy(tile, to, inner, outer, conditions, stores=True)
    if to.same_as(tile) and is_global(value.source):
        return WordCopy(tile, value.source, outer, inner, conditions, stores=False)
    return None


def _has_words(memory: Buffer) -> bool:
    """Whether memory has rows of 16-bit elements that consist of whole words."""
    pitch = memory.shape[-1]
    return (
        tvm.DataType(str(memory.dtype)).bits == _HALF_BITS
        and isinstance(pitch, tirx.IntImm)
        and int(pitch) % 2 == 0
        and not len(memory.strides)
        and ir.is_constant(memory.elem_offset, 0)
    )


def _neighbours(tile: RegisterTile) -> bool:
    """Whether registers 2 r and 2 r + 1 are neighbours of a row, the first in an even column."""
    if not in_pairs(tile):
        return False
    *before, columns = np.unravel_index(tile.table, tile.shape)
    first, second = columns[:, ::2], columns[:, 1::2]
    same = all((indices[:, ::2] == indices[:, 1::2]).all() for indices in before)
    return bool(same and (first % 2 == 0).all() and (second == first + 1).all())

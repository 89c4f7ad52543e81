"""Stores from registers to global memory, two 16-bit neighbours of a row in one word.

A thread holds neighbours of a row in pairs, and a pair fills a register. What TMA does not store,
such as rows whose number only the device knows, leaves registers as such words where they lie on
word boundaries and are stored or left out together: that takes half the instructions.
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

from warploom.ops.register_tile import RegisterTile
from warploom.transform import ir
from warploom.transform.nest_elements import Element, in_pairs, inside_buffer
from warploom.transform.program import is_global

_WORD, _HALF_BITS = "uint32", 16


@dataclass(frozen=True)
class WordStore:
    """A store under conditions that are the same for both elements of a word."""

    store: tirx.BufferStore
    conditions: tuple[Any, ...]

    def lowered(self, word: Var, words: int, first: Element) -> Stmt:
        """All words of a thread; ``first`` is the first element of ``word``."""
        to, load, analyzer = self.store.buffer, self.store.value, first.analyzer
        view = tirx.decl_buffer(
            (*to.shape[:-1], int(to.shape[-1]) // 2), _WORD, f"{to.name}_words", data=to.data
        )
        register = T.truncdiv(first.number(load.source, load.indices), 2)
        value = first.context.registers(load.source, _WORD)[analyzer.simplify(register)]
        *before, last = (first.expression(index) for index in self.store.indices)
        place = [*before, analyzer.simplify(T.truncdiv(last, 2))]
        body: Stmt = tirx.BufferStore(view, value, place)
        inside = inside_buffer(self.store, first)
        for condition in (inside, *(first.expression(one) for one in self.conditions)):
            body = ir.when(condition, [body])
        loop = ir.loop(word, words, [body], kind=ForKind.UNROLLED)
        return ir.seq([tirx.DeclBuffer(view, data=to.data), loop])


def word_store(
    loops: list[tirx.For], body: list[Stmt], buffer: Buffer, tile: RegisterTile
) -> WordStore | None:
    """What a nest over all of a tile stores in words; None if it does something else."""
    conditions = []
    while len(body) == 1 and isinstance(body[0], tirx.IfThenElse) and body[0].else_case is None:
        conditions.append(body[0].condition)
        body = ir.flatten(body[0].then_case)
    if len(body) != 1 or not isinstance(body[0], tirx.BufferStore):
        return None
    (store,) = body
    column = loops[-1].loop_var
    *before, last = store.indices
    if not _copies(store, buffer, [one.loop_var for one in loops]) or not _neighbours(tile):
        return None
    if any(column in ir.uses(one) for one in (*before, *conditions)):
        return None
    analyzer = Analyzer()
    start = analyzer.simplify(last - column)
    even = analyzer.can_prove(T.EQ(tirx.floormod(start, 2), 0))
    return WordStore(store, tuple(conditions)) if even and column not in ir.uses(start) else None


def _copies(store: tirx.BufferStore, buffer: Buffer, loops: list[Var]) -> bool:
    """Whether a store takes what a tile of 16-bit elements has to rows of whole words."""
    to, value = store.buffer, store.value
    pitch = to.shape[-1]
    return (
        is_global(to)
        and tvm.DataType(str(to.dtype)).bits == _HALF_BITS
        and isinstance(pitch, tirx.IntImm)
        and int(pitch) % 2 == 0
        and not len(to.strides)
        and ir.is_constant(to.elem_offset, 0)
        and isinstance(value, TensorLoad)
        and ir.is_buffer(value.source)
        and value.source.same_as(buffer)
        and all(a.same_as(b) for a, b in zip(value.indices, loops, strict=True))
    )


def _neighbours(tile: RegisterTile) -> bool:
    """Whether registers 2 r and 2 r + 1 are neighbours of a row, the first in an even column."""
    if not in_pairs(tile):
        return False
    *before, columns = np.unravel_index(tile.table, tile.shape)
    first, second = columns[:, ::2], columns[:, 1::2]
    same = all((one[:, ::2] == one[:, 1::2]).all() for one in before)
    return bool(same and (first % 2 == 0).all() and (second == first + 1).all())

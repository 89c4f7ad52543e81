"""Keeps computations on the registers of MMAs where the program has them.

Why that is needed says :mod:`warploom.intrin.operand_fence`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tvm
from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Buffer, ForKind, Stmt, Var

from warploom.intrin.operand_fence import meeting_after, pinned, register_dtype
from warploom.tile import ir

_WORD_BITS = 32
#: Registers of a tile that are all waited for.
_FEW = 4


def pin(tiles: Iterable[Buffer]) -> list[Stmt]:
    """Statements that no computation on registers of these tiles is moved across."""
    result: list[Stmt] = []
    for tile in sorted(tiles, key=lambda tile: tile.name):
        words = _words(tile)
        register = Var("r", "int32")
        call = ir.evaluate(pinned(words[register], str(words.dtype)))
        result += [
            tirx.DeclBuffer(words, data=tile.data),
            ir.loop(register, int(words.shape[0]), [call], kind=ForKind.UNROLLED),
        ]
    return result


def pin_one(tiles: Iterable[Buffer]) -> list[Stmt]:
    """Statements that a compiler does not execute on both sides of a branch: one register's pin.

    None where threads hold no whole register of any of the tiles.
    """
    views = [(_words(tile), tile.data) for tile in sorted(tiles, key=lambda tile: tile.name)]
    whole = [(words, data) for words, data in views if int(words.shape[0])]
    result: list[Stmt] = []
    for words, data in whole[:1]:
        call = ir.evaluate(pinned(words[0], str(words.dtype)))
        result += [tirx.DeclBuffer(words, data=data), call]
    return result


def meet_after(tile: Buffer, barrier: Any) -> list[Stmt]:
    """Statements in which a warpgroup meets that has computed a tile of float32 registers.

    Parameters
    ----------
    tile : Buffer
        Each register of it is waited for if they are few, else the last.
    barrier : Expr
        The named barrier of the warpgroup.
    """
    words = _words(tile)
    count = int(words.shape[0])
    known = words[count - 1]
    for number in range(count - 1 if count <= _FEW else 0):
        known = T.max(known, words[number])
    return [tirx.DeclBuffer(words, data=tile.data), ir.evaluate(meeting_after(barrier, known))]


def _words(tile: Buffer) -> Buffer:
    """The registers of a tile as words."""
    own = str(tile.dtype)
    count = int(tile.layout.storage().span("m")) * tvm.DataType(own).bits // _WORD_BITS
    return ir.words_view(count, register_dtype(own), f"{tile.name}_pinned")

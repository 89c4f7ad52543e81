"""Keeps computations on the registers of products where the program has them.

Why that is needed says :mod:`warploom.intrin.operand_fence`.
"""

from __future__ import annotations

from collections.abc import Iterable

import tvm
from tvm import tirx
from tvm.tirx import Buffer, ForKind, Stmt, Var
from tvm.tirx.layout import S, TileLayout

from warploom.intrin.operand_fence import pinned, register_dtype
from warploom.transform import ir

_WORD_BITS = 32


def pin(tiles: Iterable[Buffer]) -> list[Stmt]:
    """Statements that no computation on registers of these tiles is moved across."""
    result: list[Stmt] = []
    for tile in sorted(tiles, key=lambda tile: tile.name):
        own = str(tile.dtype)
        dtype = register_dtype(own)
        bits = int(tile.layout.storage().span("m")) * tvm.DataType(own).bits
        count = bits // _WORD_BITS
        words = tirx.decl_buffer(
            (count,),
            dtype,
            f"{tile.name}_pinned",
            scope="local",
            layout=TileLayout(S[(count,)]),
        )
        register = Var("r", "int32")
        call = ir.evaluate(pinned(words[register], dtype))
        result += [
            tirx.DeclBuffer(words, data=tile.data),
            ir.loop(register, count, [call], kind=ForKind.UNROLLED),
        ]
    return result

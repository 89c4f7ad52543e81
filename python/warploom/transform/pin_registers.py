"""Keeps computations on the registers of products where the program has them.

``wgmma.fence`` and ``wgmma.wait_group`` name no register. To the compiler, arithmetic on the result
of a product depends on the product alone, so it may move it before the wait: it was seen to. An
empty instruction that claims to change a register cannot be moved across a wait, and neither can
what uses that register after it. It becomes no instruction of the GPU.
"""

from __future__ import annotations

from collections.abc import Iterable

import tvm
from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Buffer, ForKind, Stmt, Var
from tvm.tirx.layout import S, TileLayout

from warploom.transform import ir

_WORD_BITS = 32
#: Type of a register -> its name in CUDA, its constraint in inline assembly.
_KINDS = {"float32": ("float", "f"), "int32": ("int", "r"), "uint32": ("unsigned int", "r")}


def pin(tiles: Iterable[Buffer]) -> list[Stmt]:
    """Statements that no computation on registers of these tiles is moved across."""
    result: list[Stmt] = []
    for tile in sorted(tiles, key=lambda tile: tile.name):
        own = str(tile.dtype)
        dtype = own if own in _KINDS else "uint32"
        bits = int(tile.layout.storage().span("m")) * tvm.DataType(own).bits
        count = bits // _WORD_BITS
        words = tirx.decl_buffer(
            (count,), dtype, f"{tile.name}_pinned", scope="local", layout=TileLayout(S[(count,)])
        )
        register = Var("r", "int32")
        name = f"warploom_pin_{dtype}"
        kind, constraint = _KINDS[dtype]
        source = (
            f"__forceinline__ __device__ void {name}({kind}& word) "
            f'{{ asm volatile("" : "+{constraint}"(word) :: "memory"); }}'
        )
        call = T.cuda.func_call(name, words[register], source_code=source)
        result += [
            tirx.DeclBuffer(words, data=tile.data),
            ir.loop(register, count, [ir.evaluate(call)], kind=ForKind.UNROLLED),
        ]
    return result

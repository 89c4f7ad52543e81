"""Tells the CUDA compiler of writes that it does not see.

TMA writes through a tensor map. A pointer to the same memory, which the kernel only reads, the
compiler then loads through the cache of constant memory (``ld.global.nc``), which is not allowed.
"""

from __future__ import annotations

from tvm.script import tirx as T
from tvm.tirx import Stmt

from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.scopes import is_global

_NAME = "warploom_may_write"
_SOURCE = f"""__forceinline__ __device__ void {_NAME}(void* memory) {{
    asm volatile("" :: "l"(memory) : "memory");
}}
"""


def may_write(program: TileProgram) -> list[Stmt]:
    """Empty assembly that takes the buffers which a program reads where it stores them."""
    used = {buffer for statement in program.body for buffer in ir.uses(statement)
            if ir.is_buffer(buffer)}  # fmt: skip
    return [
        ir.evaluate(
            T.cuda.func_call(
                _NAME, ir.address(buffer, *(0 for _ in buffer.shape)), source_code=_SOURCE
            )
        )
        for buffer in sorted(used, key=lambda buffer: buffer.name)
        if is_global(buffer) and buffer.name in program.in_place
    ]

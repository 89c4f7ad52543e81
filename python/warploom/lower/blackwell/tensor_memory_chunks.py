"""Chunks of an accumulator: a few columns that threads load into registers and store back."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import Call, Op
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt

from warploom.errors import Decline
from warploom.lower.analysis.fragments import fragments
from warploom.target import SM90A
from warploom.tile import ir
from warploom.tile.primitives import primitive

#: Registers of a thread that hold a chunk.
_CHUNK_REGISTERS = 16
#: Columns that a load of 64 rows comes in multiples of; a row a thread comes in any power of 2.
_STEP_64 = 8
_WAIT = Op.get("tirx.ptx.tcgen05_wait")


def is_accumulator(buffer: Any) -> bool:
    """Whether a buffer is a tile of tensor memory."""
    return ir.is_buffer(buffer) and buffer.scope() == "accumulator"


def is_wait(statement: Stmt) -> bool:
    """Whether a statement waits for loads or stores of tensor memory."""
    call = statement.value if isinstance(statement, tirx.Evaluate) else None
    return isinstance(call, Call) and call.op.same_as(_WAIT)


def wait_for(direction: str) -> Stmt:
    """Waits for loads (``"ld"``) or stores (``"st"``) of tensor memory."""
    return ir.evaluate(getattr(T.ptx.tcgen05, f"wait__{direction}").sync.aligned())


def chunk_width(rows: int, columns: int, arch: str, name: str) -> int:
    """Columns of a chunk: a power of two, as many as fit into the registers meant for it."""
    kinds = fragments(arch != SM90A.name, rows)
    step = 1 if kinds.row_a_thread else _STEP_64
    width = _CHUNK_REGISTERS * kinds.rows // rows if kinds.row_a_thread else 2 * _CHUNK_REGISTERS
    while width >= step and columns % width:
        width //= 2
    if width < step:
        raise Decline(
            f"{columns} columns of the accumulator {name} are no multiple of {step}, which is what "
            "a load from tensor memory brings; use such a number."
        )
    return width


def chunk_of(tile: Buffer, width: int, arch: str) -> Buffer:
    """A buffer for the registers of a chunk of so many columns."""
    rows = int(tile.shape[0])
    layout = fragments(arch != SM90A.name, rows).matrix(rows, width)
    return tirx.decl_buffer(
        (rows, width), str(tile.dtype), f"{tile.name}_chunk", scope="local", layout=layout
    )


def load_chunk(chunk: Buffer, tile: Buffer, start: int) -> list[Stmt]:
    """Allocates a chunk and loads it, from a column of the accumulator on."""
    rows, width = (int(extent) for extent in chunk.shape)
    part = ir.region(tile, (0, rows), (start, width))
    return [
        tirx.AllocBuffer(chunk),
        primitive("copy_async", ir.whole(chunk), part, scope="warpgroup"),
    ]


def store_chunk(chunk: Buffer, tile: Buffer, start: int) -> Stmt:
    """Stores a chunk from a column of the accumulator on."""
    rows, width = (int(extent) for extent in chunk.shape)
    part = ir.region(tile, (0, rows), (start, width))
    return primitive("copy_async", part, ir.whole(chunk), scope="warpgroup")

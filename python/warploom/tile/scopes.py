"""Where buffers lie, and which of them are tiles."""

from __future__ import annotations

from typing import Any

from tvm.tirx import Buffer, IntImm

#: Scopes that no code generator knows: tiles that passes give a place.
TILE_SCOPES = ("accumulator", "fragment")
DIALECT_SCOPES = (*TILE_SCOPES, "mbarrier", "tmem", "wgmma.descriptor")


def is_tile(buffer: Buffer) -> bool:
    """Whether a buffer is a tile: in shared memory, registers or tensor memory."""
    layout = buffer.layout
    return buffer.scope() in (*TILE_SCOPES, "tmem") or buffer.scope().startswith("shared") or (
        buffer.scope() == "local" and layout is not None and _has_threads(layout)
    )


def _has_threads(layout: Any) -> bool:
    iters = (*getattr(layout, "shard", ()), *getattr(layout, "replica", ()))
    return any(it.axis.is_thread() for it in iters)


def is_global(buffer: Buffer) -> bool:
    """Whether a buffer lies in global memory."""
    return buffer.scope() in ("", "global")


def is_shared(buffer: Buffer) -> bool:
    """Whether a buffer lies in shared memory."""
    return buffer.scope().startswith("shared")


def needs_place(buffer: Buffer) -> bool:
    """Whether a buffer has a scope of the dialect; TVM knows tensor memory with an address."""
    return buffer.scope() in DIALECT_SCOPES and not len(buffer.allocated_addr)


def is_single(buffer: Buffer) -> bool:
    """Whether a tile has one element, of which every thread then has a copy."""
    return all(isinstance(extent, IntImm) and int(extent) == 1 for extent in buffer.shape)

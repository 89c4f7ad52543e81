"""The dynamic shared memory that the author of a kernel has allocated by hand."""

from __future__ import annotations

from dataclasses import dataclass

import tvm_ffi
from tvm import tirx
from tvm.tirx import Buffer

from warploom.errors import Decline
from warploom.tile.program import TileProgram, allocations

#: Attribute with the size of a kernel's dynamic shared memory.
DYNAMIC_BYTES = "tirx.dyn_smem_bytes"


@dataclass(frozen=True)
class OwnPool:
    """The dynamic shared memory that the author allocated, and how many bytes of it he uses."""

    buffer: Buffer
    size: int


def own_pool(program: TileProgram) -> OwnPool | None:
    """The pool of a kernel by hand, if it has one.

    Raises
    ------
    Decline
        If there are several.
    """
    sizes: list[int] = []

    def visit(attribute: tirx.AttrStmt) -> None:
        if attribute.attr_key == DYNAMIC_BYTES:
            sizes.append(int(attribute.value))

    for statement in program.body:
        tvm_ffi.structural_walk(statement, (tirx.AttrStmt, visit))
    buffers = [b for b in allocations(program.body) if b.scope() == "shared.dyn"]
    if not sizes:
        return None
    if len(sizes) > 1 or len(buffers) != 1:
        raise Decline(
            f"The kernel has {len(buffers)} dynamic allocations of shared memory and says "
            f"{len(sizes)} times how large they are; use one T.SMEMPool, or buffers of scope "
            "shared."
        )
    return OwnPool(buffers[0], sizes[0])

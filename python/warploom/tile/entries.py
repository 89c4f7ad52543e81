"""The device parts of a function: a kernel is generated from each."""

from __future__ import annotations

import tvm_ffi
from tvm.tirx import PrimFunc
from tvm.tirx.stmt import AttrStmt

from warploom.tile.hints import DEVICE_ENTRY


def device_entries(func: PrimFunc) -> list[AttrStmt]:
    """The device parts of a function."""
    entries: list[AttrStmt] = []

    def visit(attr: AttrStmt) -> None:
        if attr.attr_key == DEVICE_ENTRY:
            entries.append(attr)

    tvm_ffi.structural_walk(func.body, (AttrStmt, visit))
    return entries

"""tcgen05 instructions that TVM's ``T.ptx`` table lacks: MMAs with a sparse A.

The table has ``tcgen05.mma.sp`` of later architectures alone. The entry is stock's own of the dense
MMA of shared operands, with ``.sp``, and the address of metadata behind B.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the plugin registers the rows while TVM is imported
    from warploom.target.tcgen05 import Tcgen05Kind


@functools.cache
def sparse_mma_table() -> dict:
    """The ``InstructionEntry`` row to register, by name."""
    from tvm.backend.cuda.ptx import TABLE
    from tvm.backend.cuda.ptx.table import ModifierSlot, OperandSlot

    stock = TABLE["tcgen05_mma_ss"]
    slots = [slot for slot in stock.slots if slot.name != "collector_a"]
    slots.insert(1, ModifierSlot("sp", ("sp",)))
    operands = list(stock.operands)
    behind_b = [operand.name for operand in operands].index("b_desc") + 1
    operands.insert(behind_b, OperandSlot("sp_meta_tmem", kind="addr", space="tmem"))
    name = "tcgen05_mma_sp_ss"
    return {
        name: dataclasses.replace(
            stock, name=name, slots=tuple(slots), operands=tuple(operands)
        )
    }  # fmt: skip


def sparse_mma(kind: Tcgen05Kind, ctas: int) -> Any:
    """The callable that emits one ``tcgen05.mma.sp`` of A and B in shared memory.

    Its operands are those of the PTX instruction: the address of D, the descriptors of A and B, the
    address of metadata, the instruction descriptor, the lanes that are left out, and whether it
    adds to D.
    """
    from tvm.script import tirx as T

    return T.ptx[f"tcgen05.mma.sp.cta_group::{ctas}.kind::{kind.kind}"]

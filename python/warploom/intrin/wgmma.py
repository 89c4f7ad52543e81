"""wgmma instructions that TVM's ``T.ptx`` table lacks: wide ones of integers, and sparse ones.

The table stops at N = 224 for 8-bit integers, following the syntax listing of the PTX ISA; its
"Matrix Shape" section also has 240 and 256, and ptxas assembles both. The entries are stock's own,
with other shapes, so that they render and print exactly like the rest of ``T.ptx``. Those of
``wgmma.mma_async.sp`` have twice the K, and a register of metadata and its selector behind B.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the plugin registers the rows while TVM is imported
    from warploom.target.wgmma import WgmmaKind

_SHAPES = ("m64n240k32", "m64n256k32")
#: Stock's rows by their types; single bits have no sparse form.
_SPARSE_TYPES = ("f16", "f16_f16acc", "bf16", "tf32", "fp8", "fp8_f16acc", "int")


@functools.cache
def wide_integer_table() -> dict:
    """The ``InstructionEntry`` rows to register, by name."""
    from tvm.backend.cuda.ptx import TABLE

    table = {}
    for form in ("ss", "rs"):
        stock = TABLE[f"wgmma_int_{form}"]
        slots = tuple(
            dataclasses.replace(slot, choices=_SHAPES) if slot.name == "shape" else slot
            for slot in stock.slots
        )
        name = f"wgmma_int_wide_{form}"
        table[name] = dataclasses.replace(stock, name=name, slots=slots)
    return table


@functools.cache
def sparse_table() -> dict:
    """The rows of ``wgmma.mma_async.sp``, by name: one for each of stock's, and the wide ones."""
    from tvm.backend.cuda.ptx import TABLE

    dense = [TABLE[f"wgmma_{types}_{form}"] for types in _SPARSE_TYPES for form in ("ss", "rs")]
    return {entry.name: entry for entry in map(_sparse, [*dense, *wide_integer_table().values()])}


def _sparse(stock: Any) -> Any:
    """The row of the same instruction with a sparse A."""
    from tvm.backend.cuda.ptx.table import ModifierSlot, OperandSlot

    slots = [
        dataclasses.replace(slot, choices=tuple(map(_twice_the_k, slot.choices)))
        if slot.name == "shape" else slot
        for slot in stock.slots
    ]  # fmt: skip
    slots.insert(1, ModifierSlot("sp", ("sp",)))
    operands = list(stock.operands)
    behind_b = [operand.name for operand in operands].index("b_desc") + 1
    operands[behind_b:behind_b] = [
        OperandSlot("sp_meta", dtype="u32"),
        OperandSlot("sp_sel", kind="imm", choices=("0", "1")),
    ]
    return dataclasses.replace(
        stock, name=stock.name.replace("wgmma_", "wgmma_sp_"), slots=tuple(slots),
        operands=tuple(operands),
    )  # fmt: skip


def _twice_the_k(shape: str) -> str:
    start, k = shape.rsplit("k", 1)
    return f"{start}k{2 * int(k)}"


def instruction(kind: WgmmaKind, n: int, satfinite: bool = False):
    """The callable that emits one ``wgmma.mma_async`` of width ``n`` inside a prim_func.

    Its operands are those of the PTX instruction: accumulator registers, A (a descriptor or four
    registers), the descriptor of B, ``scale-d`` and the immediates that the kind has. A sparse
    kind has the register of metadata and the sparsity selector behind B.

    Raises
    ------
    IllegalCombination
        If ``n`` is not a legal width of ``kind``.
    """
    from tvm.script import tirx as T

    opcode = kind.opcode(n)
    if satfinite:
        opcode = opcode.replace(".s32.", ".satfinite.s32.")
    return T.ptx[opcode]

"""wgmma instructions that TVM's ``T.ptx`` table lacks.

The table stops at N = 224 for 8-bit integers, following the syntax listing of the PTX ISA; its
"Matrix Shape" section also has 240 and 256, and ptxas assembles both. The entries are stock's own,
with other shapes, so that they render and print exactly like the rest of ``T.ptx``.
"""

from __future__ import annotations

import dataclasses
import functools

from warploom import hooks
from warploom.target.wgmma import WgmmaKind

_SHAPES = ("m64n240k32", "m64n256k32")
_WIDTHS = (240, 256)


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
def _wide_integer_namespace():
    from tvm.backend.cuda.ptx import PTXNamespace

    hooks.register_instructions()  # an author may name an instruction before TVM lowers any
    return PTXNamespace(wide_integer_table())


def instruction(kind: WgmmaKind, n: int, satfinite: bool = False):
    """The callable that emits one ``wgmma.mma_async`` of width ``n`` inside a prim_func.

    Its operands are those of the PTX instruction: accumulator registers, A (a descriptor or four
    registers), the descriptor of B, ``scale-d`` and the immediates that the kind has.

    Raises
    ------
    IllegalCombination
        If ``n`` is not a legal width of ``kind``.
    """
    from tvm.script import tirx as T

    opcode = kind.opcode(n)
    if satfinite:
        opcode = opcode.replace(".s32.", ".satfinite.s32.")
    wide = kind.d == "int32" and n in _WIDTHS
    return (_wide_integer_namespace() if wide else T.ptx)[opcode]

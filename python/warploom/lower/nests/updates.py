"""Atomic updates of single elements, as the instruction ``red``."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt

from warploom.tile import ir
from warploom.tile.scopes import is_shared

#: Dtype -> type of ``red``; 16-bit floats are passed as their bits (PTX ISA, "red").
_TYPES = {
    "float32": "f32", "float64": "f64", "float16": "noftz.f16", "bfloat16": "noftz.bf16",
    "int32": "s32", "uint32": "u32",
}  # fmt: skip


def atomic_update(name: str, buffer: Buffer, indices: list[Any], value: Any) -> Stmt:
    """The instruction that updates an element.

    Parameters
    ----------
    name : str
        ``"atomic_add"``, ``"atomic_max"`` or ``"atomic_min"``.
    value : Expr
        In the dtype of the buffer.
    """
    dtype = str(buffer.dtype)
    place = "cta.shared" if is_shared(buffer) else "gpu.global"
    operation = name.removeprefix("atomic_")
    if dtype in ("float16", "bfloat16"):
        value = T.reinterpret("uint16", value)
    instruction = f"red.relaxed.{place}.{operation}.{_TYPES[dtype]}"
    return ir.evaluate(T.ptx[instruction](ir.address(buffer, *indices), value))

"""Atomic updates of single elements: the instruction ``red``, or what stands in for it.

GPUs have no maximum or minimum of floats in memory. The bits of two floats of one sign have the
order of integers, those of negative floats the opposite one, so a maximum of 32 or 64 bits is one
of two updates of integers, by the sign of the new value. For 16 bits there is none of integers
either: a loop compares and swaps.
"""

from __future__ import annotations

from typing import Any

from tvm import DataType
from tvm.script import tirx as T
from tvm.tirx import Buffer, IfThenElse, Stmt

from warploom.tile import ir
from warploom.tile.scopes import is_shared

#: Dtype -> type of ``red``; 16-bit floats are passed as their bits (PTX ISA, "red").
_TYPES = {
    "float32": "f32", "float64": "f64", "float16": "noftz.f16", "bfloat16": "noftz.bf16",
    "int32": "s32", "uint32": "u32", "int64": "s64", "uint64": "u64",
}  # fmt: skip
#: Sums of 64 bits are the same with and without a sign, and ``red`` has one of them.
_ADDED = {"int64": "u64"}
_OPPOSITE = {"max": "min", "min": "max"}


def atomic_update(name: str, buffer: Buffer, indices: list[Any], value: Any) -> Stmt:
    """The statement that updates an element.

    Parameters
    ----------
    name : str
        ``"atomic_add"``, ``"atomic_max"`` or ``"atomic_min"``.
    value : Expr
        In the dtype of the buffer.
    """
    dtype, place = str(buffer.dtype), ir.address(buffer, *indices)
    space = "cta.shared" if is_shared(buffer) else "gpu.global"
    operation = name.removeprefix("atomic_")
    if "float" in dtype and operation != "add":
        bits = DataType(dtype).bits
        if bits == 16:
            return _by_swaps(operation, place, T.reinterpret("uint16", value), space)
        return _by_sign(operation, place, value, space, bits)
    if dtype in ("float16", "bfloat16"):
        value = T.reinterpret("uint16", value)
    kind = _ADDED.get(dtype, _TYPES[dtype]) if operation == "add" else _TYPES[dtype]
    if operation == "add" and dtype in _ADDED:
        value = T.reinterpret("uint64", value)
    return _red(f"{space}.{operation}.{kind}", place, value)


def _red(form: str, place: Any, value: Any) -> Stmt:
    return ir.evaluate(T.ptx[f"red.relaxed.{form}"](place, value))


def _by_sign(operation: str, place: Any, value: Any, space: str, bits: int) -> Stmt:
    signed, unsigned = (T.reinterpret(f"{kind}{bits}", value) for kind in ("int", "uint"))
    return IfThenElse(
        signed >= T.Cast(f"int{bits}", 0),
        _red(f"{space}.{operation}.s{bits}", place, signed),
        _red(f"{space}.{_OPPOSITE[operation]}.u{bits}", place, unsigned),
    )


def _by_swaps(operation: str, place: Any, bits: Any, space: str) -> Stmt:
    """A call of a device function, which tries until no other update comes between."""
    scope, space = space.split(".")
    name = f"warploom_update_{operation}_{space}_b16"
    address = "__cvta_generic_to_shared(place)" if space == "shared" else "place"
    kind = "unsigned int" if space == "shared" else "unsigned long long"
    constraint = "r" if space == "shared" else "l"
    # Bits with a sign, in the order of the floats.
    key = "((short)(x) ^ (((short)(x) >> 15) & 0x7fff))"
    beats = ">" if operation == "max" else "<"
    source = f"""\
__device__ __forceinline__ int {name}_key(unsigned short x) {{ return {key}; }}
__device__ __forceinline__ void {name}(void* place, unsigned short value) {{
  {kind} address = ({kind}){address};
  unsigned short old, seen;
  asm volatile("ld.relaxed.{scope}.{space}.b16 %0, [%1];"
               : "=h"(old) : "{constraint}"(address) : "memory");
  while ({name}_key(value) {beats} {name}_key(old)) {{
    asm volatile("atom.relaxed.{scope}.{space}.cas.b16 %0, [%1], %2, %3;"
                 : "=h"(seen) : "{constraint}"(address), "h"(old), "h"(value) : "memory");
    if (seen == old) break;
    old = seen;
  }}
}}
"""
    return ir.evaluate(T.cuda.func_call(name, place, bits, source_code=source))

"""Two 16-bit floats in one 32-bit word: arithmetic, conversion, and the moves that make such words.

``T.ptx`` has the arithmetic as statements that the compiler may neither merge nor drop. These are
expressions without side effects: common parts of two pairs are computed once. Rounding is
written out (``.rn``), so that ptxas does not fuse a product and a sum, which would round once.

Sources: PTX ISA, "Half Precision Floating Point Instructions", ``cvt``, ``prmt``, ``lop3``,
``%lanemask_lt``.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm.script import tirx as T

#: Dtype -> its pairs in PTX.
PAIRS = {"float16": "f16x2", "bfloat16": "bf16x2"}
#: Explicit bits of the significand: integers below 2**bits, put there in a number with the
#: exponent of 2**bits, are added to it.
MANTISSA_BITS = {"float16": 10, "bfloat16": 7}
#: The lower half of one word, then that of another.
LOW_HALVES = 0x5410


def _function(name: str, operands: str, instruction: str, immediate: str) -> str:
    """Source of a device function of that name; ``operands`` are constraints of 32-bit values."""
    kinds = {"r": "unsigned int", "f": "float"}
    parameters = ", ".join(f"{kinds[operand]} v{i}" for i, operand in enumerate(operands))
    inputs = ", ".join(f'"{operand}"(v{i})' for i, operand in enumerate(operands))
    places = ", ".join(f"%{i}" for i in range(len(operands) + 1)) + immediate
    return (
        f"__forceinline__ __device__ unsigned int {name}({parameters}) "
        f'{{ unsigned int d; asm("{instruction} {places};" : "=r"(d) : {inputs}); return d; }}'
    )


def _call(name: str, operands: str, instruction: str, *values: Any, immediate: str = "") -> Any:
    source = _function(name, operands, instruction, immediate)
    return T.cuda.func_call(name, *values, source_code=source, return_type="uint32")


def arithmetic(operation: str, dtype: str, *words: Any) -> Any:
    """``add``, ``sub``, ``mul`` or ``fma`` of words that hold two numbers each, rounded once."""
    pair = PAIRS[dtype]
    name = f"warploom_{operation}_{pair}"
    return _call(name, "r" * len(words), f"{operation}.rn.{pair}", *words)


def convert(dtype: str, low: Any, high: Any) -> Any:
    """Two float32 numbers, rounded to a word."""
    pair = PAIRS[dtype]
    return _call(f"warploom_cvt_{pair}", "ff", f"cvt.rn.{pair}.f32", high, low)


def permute(first: Any, second: Any, selector: Any) -> Any:
    """Bytes of two words: nibble i of the selector chooses byte i, 0 to 3 from the first."""
    words = [
        T.uint32(word) if isinstance(word, int) else word for word in (first, second, selector)
    ]
    return _call("warploom_prmt", "rrr", "prmt.b32", *words)


def insert(word: Any, mask: int, rest: Any) -> Any:
    """The bits of a word under a mask, and those of ``rest``, which has none there.

    One instruction. From ``&`` and ``|`` ptxas 13.0 makes two, or one and a copy of a constant.
    """
    values = (word, T.uint32(mask), rest)
    # The truth table of (a & b) | c, from those of a, b and c.
    table = 0xF0 & 0xCC | 0xAA
    return _call("warploom_insert", "rrr", "lop3.b32", *values, immediate=f", {table:#x}")


def kept(word: Any) -> Any:
    """A constant word that stays in a register.

    ptxas 13.0 copies a constant anew for each instruction that has no room for it, such as the
    factors of an ``fma`` whose addends are constants, too. The bit that is added here is zero, for
    no lane comes after the one that it stands for; ptxas does not know that.
    """
    source = (
        "__forceinline__ __device__ unsigned int warploom_kept(unsigned int v) { unsigned int d; "
        'asm("{ .reg .u32 t; mov.u32 t, %%lanemask_lt; shr.u32 t, t, 31; or.b32 %0, %1, t; }" '
        ': "=r"(d) : "r"(v)); return d; }'
    )
    return T.cuda.func_call("warploom_kept", word, source_code=source, return_type="uint32")


def both(dtype: str, low: float, high: float) -> Any:
    """A constant word."""
    kind = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    bits = np.array([low, high], np.float32).astype(kind).view(np.uint16)
    return T.uint32(int(bits[0]) | int(bits[1]) << 16)


def taken(word: Any, bit: int, dtype: str) -> Any:
    """The element of a dtype that begins at a bit of a word."""
    bits = tvm.DataType(dtype).bits
    part = T.shift_right(word, T.uint32(bit)) if bit else word
    return T.reinterpret(dtype, part if bits == 32 else T.Cast(f"uint{bits}", part))


def store(address: Any, word: Any) -> Any:
    """A statement's expression: a word to an address that is a multiple of four."""
    source = (
        "__forceinline__ __device__ void warploom_store_word(void* to, unsigned int word) "
        "{ *(unsigned int*)to = word; }"
    )
    return T.cuda.func_call("warploom_store_word", address, word, source_code=source)


def store_chunk(address: Any, words: list[Any]) -> Any:
    """A statement's expression: four words to an address that is a multiple of 16."""
    parameters = ", ".join(f"unsigned int w{i}" for i in range(len(words)))
    source = (
        f"__forceinline__ __device__ void warploom_store_chunk(void* to, {parameters}) "
        "{ *(uint4*)to = make_uint4(w0, w1, w2, w3); }"
    )
    return T.cuda.func_call("warploom_store_chunk", address, *words, source_code=source)


def load(words: list[Any], address: Any, size: int) -> Any:
    """A statement's expression: ``size`` bytes, aligned, into words (a part of one, if less)."""
    count = max(1, size // 4)
    kind = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "uint2", 16: "uint4"}
    name = f"warploom_load_{size}"
    parameters = ", ".join(f"unsigned int& w{i}" for i in range(count))
    parts = ["v"] if count == 1 else [f"v.{axis}" for axis in "xyzw"[:count]]
    moves = " ".join(f"w{i} = {part};" for i, part in enumerate(parts))
    source = (
        f"__forceinline__ __device__ void {name}({parameters}, const void* from) "
        f"{{ {kind[size]} v = *(const {kind[size]}*)from; {moves} }}"
    )
    return T.cuda.func_call(name, *words, address, source_code=source)

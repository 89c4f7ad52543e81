"""Values of any dtype as the 32-bit words that instructions move.

TVM prints a reinterpretation as a cast of an address, which a constant or the result of a cast does
not have, and prints some constants in another type than theirs. So the bits of constants are
computed here, and those of all other values by a device function that takes them by value.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import ml_dtypes
import numpy as np
from tvm import DataType
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.tirx import Broadcast, FloatImm, IntImm, is_buffer_var

from warploom.errors import IllegalCombination
from warploom.language.builtins.operands import describe, dtype_of, known, place

#: Bits -> C type of so many words, their dtype in TVM. TVM's uint32x8 is a ulonglong4 in C.
WORDS = {
    32: ("unsigned int", "uint32"), 64: ("uint2", "uint32x2"), 128: ("uint4", "uint32x4"),
    256: ("ulonglong4", "uint32x8"),
}  # fmt: skip
#: Scalars whose constants TVM may print in another type -> their C type.
_INTEGERS = {
    "bool": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short",
    "uint16": "unsigned short", "int32": "int", "uint32": "unsigned int", "int64": "long long",
    "uint64": "unsigned long long",
}  # fmt: skip


def words(name: str, value: Any, bits: int, dtype: str = "") -> Any:
    """The bits of a value as an expression of one of :data:`WORDS`.

    Parameters
    ----------
    name : str
        Its name in errors.
    value : Expr, number, Buffer or TensorRegion
        A scalar, a vector, or consecutive elements of a buffer, of ``bits`` bits together.
    bits : int
        A key of :data:`WORDS`.
    dtype : str
        The dtype of a number of Python of so many bits.

    Raises
    ------
    IllegalCombination
        If the value has another size, or none.
    """
    value = getattr(value, "scalar", value)
    kind, result = WORDS[bits]
    if isinstance(value, Real) and not dtype_of(value):
        if not dtype or bits_of(dtype) != bits:
            raise IllegalCombination(
                f"{name} is the number {value!r}; it must have {bits} bits, so give it a dtype, "
                f"such as {_example(bits)}."
            )
        return _constant(np.asarray(value).astype(numpy_of(dtype)).tobytes(), bits)
    if is_buffer_var(value) or isinstance(value, TensorRegion):
        return _stored(name, value, bits)
    given = dtype_of(value)
    if not given or bits_of(given) != bits:
        raise IllegalCombination(f"{name} is {describe(value)}; it must have {bits} bits.")
    stored = constant_bytes(value)
    if stored is not None:
        return _constant(stored, bits)
    if given == result:
        return value
    function = f"warploom_words{bits}"
    copied = "memcpy(&words, &value, sizeof(words));"
    if isinstance(value, Broadcast):
        # TVM prints vectors of 256 bits, and some of 64-bit integers, as no compiler takes them.
        value, given = value.value, dtype_of(value.value)
        function += "_repeated"
        copied = (
            f"for (int i = 0; i < {bits // 8}; i += sizeof(value)) "
            "memcpy((char*)&words + i, &value, sizeof(value));"
        )
    head, parameter = "template <typename V> ", "V"
    if given in _INTEGERS:
        function, head, parameter = f"{function}_{given}", "", _INTEGERS[given]
    source = (
        f"{head}__forceinline__ __device__ {kind} {function}({parameter} value) "
        f"{{ {kind} words; {copied} return words; }}\n"
    )
    return T.cuda.func_call(function, value, source_code=source, return_type=result)


def bits_of(dtype: str) -> int:
    """Bits of a value, all lanes of a vector together; a bool is a byte."""
    parsed = DataType(dtype)
    bits = 8 if str(dtype).startswith("bool") else parsed.bits
    return bits * parsed.lanes


def numpy_of(dtype: str) -> np.dtype:
    """The numpy dtype of scalars of a dtype."""
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


def constant_bytes(value: Any) -> bytes | None:
    """Bytes of a constant in memory; None for other values, and for parts of bytes."""
    if isinstance(value, Broadcast):
        lane = constant_bytes(value.value)
        return None if lane is None else lane * int(value.lanes)
    if not isinstance(value, IntImm | FloatImm) or DataType(dtype_of(value)).bits % 8:
        return None
    return np.asarray(value.value).astype(numpy_of(dtype_of(value))).tobytes()


def require_contiguous(name: str, region: TensorRegion) -> None:
    """A region whose elements follow each other in memory.

    Raises
    ------
    IllegalCombination
        If an extent behind one of several elements is not the whole dimension.
    """
    several = False
    for dimension, extent in zip(region.region, region.source.shape, strict=True):
        length, whole = known(dimension.extent), known(extent)
        if several and (length is None or length != whole):
            raise IllegalCombination(
                f"{name} is a region of {region.source.name} with gaps; its elements must follow "
                "each other in memory, so take them along the last dimension."
            )
        several |= length != 1


def _constant(stored: bytes, bits: int) -> Any:
    kind, result = WORDS[bits]
    numbers = np.frombuffer(stored, "uint64" if bits == 256 else "uint32")
    if bits == 32:
        return IntImm("uint32", int(numbers[0]))
    letter = "unsigned long long" if bits == 256 else "unsigned int"
    names = ("x", "y", "z", "w")[: len(numbers)]
    assigned = " ".join(f"words.{name} = {name};" for name in names)
    parameters = ", ".join(f"{letter} {name}" for name in names)
    source = (
        f"__forceinline__ __device__ {kind} warploom_constant{bits}({parameters}) "
        f"{{ {kind} words; {assigned} return words; }}\n"
    )
    # TVMScript cannot read integers of more than 63 bits, so words of 64 bits come as halves.
    values = [_word64(word) if bits == 256 else T.uint32(int(word)) for word in numbers]
    return T.cuda.func_call(
        f"warploom_constant{bits}", *values, source_code=source, return_type=result
    )


def _word64(number: Any) -> Any:
    high, low = divmod(int(number), 1 << 32)
    return (T.uint64(high) << T.uint64(32)) | T.uint64(low)


def _stored(name: str, base: Any, bits: int) -> Any:
    """Consecutive elements of a buffer, in any memory."""
    buffer, indices = place(name, base)
    if buffer.layout is not None and not buffer.layout.is_trivial():
        raise IllegalCombination(
            f"{name} is {buffer.name}, whose layout is not row-major; name one element of it, or "
            "take the elements of this thread with .local()."
        )
    region = isinstance(base, TensorRegion)
    if region:
        require_contiguous(name, base)
    extents = [dimension.extent for dimension in base.region] if region else buffer.shape
    sizes = [known(extent) for extent in extents]
    size = None if None in sizes else math.prod(sizes) * bits_of(str(buffer.dtype))
    if size != bits:
        raise IllegalCombination(
            f"{name} is a part of {buffer.name} of {'?' if size is None else size} bits; it must "
            f"have {bits} bits."
        )
    kind, result = WORDS[bits]
    function = f"warploom_words{bits}_at"
    source = (
        f"template <typename V> __forceinline__ __device__ {kind} {function}(const V* place) "
        f"{{ {kind} words; memcpy(&words, place, sizeof(words)); return words; }}\n"
    )
    return T.cuda.func_call(
        function, buffer.ptr_to(indices), source_code=source, return_type=result
    )


def _example(bits: int) -> str:
    return {32: "T.float32(1)", 64: "T.float64(1)"}.get(
        bits, f"T.Broadcast(T.float32(1), {bits // 32})"
    )


def number(value: Any) -> Any:
    """A number of Python as TVM has it: bool, int32 (int64 if it needs that) or float32."""
    if isinstance(value, bool | np.bool_):
        return T.bool(bool(value))
    integer = known(value)
    if integer is not None and not dtype_of(value):
        return IntImm("int32" if -(2**31) <= integer < 2**31 else "int64", integer)
    if isinstance(value, Real) and not dtype_of(value):
        return FloatImm("float32", float(value))
    return value

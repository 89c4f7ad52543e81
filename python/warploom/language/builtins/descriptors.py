"""Matrix descriptors of operands in shared memory, field by field.

``wl.descriptor`` derives the fields from the layout of a tile; this builtin takes the fields
themselves.

Sources: PTX ISA, "Matrix Descriptor Format" of wgmma, and "Shared memory descriptor" of tcgen05.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from warploom.errors import IllegalCombination
from warploom.language.builtins.operands import (
    constant,
    describe,
    dtype_of,
    element,
    flag,
    known,
    pointer,
    word,
)
from warploom.target.spelling import read_swizzle_codes

#: Addresses and distances are counted in 16 bytes, and have 14 bits.
_CHUNK_BYTES = 16
_FIELD = range(1 << 14)
#: Bits of a tcgen05 descriptor: its version, and where its fields begin.
_VERSION = 1 << 46
_STRIDE, _BASE, _ABSOLUTE, _SWIZZLE, _LEADING = 32, 49, 52, 61, 16


def initialize_wgmma_descriptor(
    descriptor: Any,
    start_address: Any,
    layout_type_: str | int = "none",
    leading_byte_offset: Any = 0,
    stride_byte_offset: Any = 0,
) -> Any:
    """Write the descriptor of a wgmma operand.

    Parameters
    ----------
    descriptor : TensorLoad
        An element of a uint64 buffer, or a scalar ``x: T.uint64``.
    start_address : Buffer, TensorLoad or pointer
        In shared memory, a multiple of 16 bytes.
    layout_type_ : str or int
        The swizzle: ``"none"``, ``"32B"``, ``"64B"``, ``"128B"``, or the bytes 32, 64, 128. Also
        the code of the descriptor: 1, 2, 3 for rows of 128, 64, 32 bytes.
    leading_byte_offset, stride_byte_offset : int or Expr
        Distances in units of 16 bytes, 0 to 16383.

    Returns
    -------
    Call
        ``T.cuda.wgmma.encode_matrix_descriptor``.

    Raises
    ------
    IllegalCombination
        If an operand is of another kind, or a constant out of range.

    Examples
    --------
    .. code-block:: python

        descriptor: T.uint64
        wl.initialize_wgmma_descriptor(descriptor, tile, 1, 1, 64)
        B[t] = T.Cast("float32", descriptor >> T.uint64(32) & T.uint64(0x3FFF))
        # B == 64
    """
    target = element("descriptor", descriptor, "uint64")
    swizzle = read_swizzle_codes("layout_type_", layout_type_, "wgmma").tensor_map
    leading = _distance("leading_byte_offset", leading_byte_offset, "int32")
    stride = _distance("stride_byte_offset", stride_byte_offset, "int32")
    return T.cuda.wgmma.encode_matrix_descriptor(
        T.address_of(target), pointer("start_address", start_address), leading, stride, swizzle
    )


def initialize_tcgen05_descriptor(
    descriptor: Any,
    start_address: Any,
    leading_byte_offset: Any,
    stride_byte_offset: Any,
    base_offset: int = 0,
    leading_is_absolute: bool = False,
    swizzle_mode: str | int = "none",
) -> None:
    """Write the descriptor of a tcgen05 operand.

    Parameters
    ----------
    descriptor : TensorLoad
        An element of a uint64 buffer, or a scalar ``x: T.uint64``.
    start_address : Buffer, TensorLoad or pointer
        In shared memory, a multiple of 16 bytes.
    leading_byte_offset, stride_byte_offset : int or Expr
        Distances in units of 16 bytes, 0 to 16383.
    base_offset : int
        0 to 7: where in a swizzle atom the matrix begins.
    leading_is_absolute : bool
        Whether the leading distance is the address of the next chunk (of sm_103a).
    swizzle_mode : str or int
        ``"none"``, ``"32B"``, ``"64B"``, ``"128B"``, or the bytes 32, 64, 128;
        ``"128B_ATOM_32B"`` exchanges chunks of 32 bytes in rows of 128. Also the code of the
        descriptor: 2, 4, 6 for rows of 128, 64, 32 bytes, 1 for ``"128B_ATOM_32B"``.

    Raises
    ------
    IllegalCombination
        If an operand is of another kind, or a constant out of range.

    Examples
    --------
    .. code-block:: python

        descriptor: T.uint64
        wl.initialize_tcgen05_descriptor(descriptor, tile, 1, 64, swizzle_mode=2)
        B[t] = T.Cast("float32", descriptor >> T.uint64(32) & T.uint64(0x3FFF))
        # B == 64
    """
    target = element("descriptor", descriptor, "uint64")
    mode = read_swizzle_codes("swizzle_mode", swizzle_mode, "tcgen05").tcgen05
    base = constant("base_offset", base_offset, range(8))
    absolute = flag("leading_is_absolute", leading_is_absolute)
    upper = _VERSION | base << _BASE | absolute << _ABSOLUTE | mode << _SWIZZLE
    # TVMScript cannot read integers of more than 63 bits.
    bits = T.uint64(upper >> _STRIDE) << T.uint64(_STRIDE)
    address = T.cuda.cvta_generic_to_shared(pointer("start_address", start_address))
    low = T.Cast("uint64", (address >> T.uint32(4)) & T.uint32(_FIELD[-1]))
    leading = _distance("leading_byte_offset", leading_byte_offset, "uint64")
    stride = _distance("stride_byte_offset", stride_byte_offset, "uint64")
    value = bits + (stride << T.uint64(_STRIDE)) + (leading << T.uint64(_LEADING)) + low
    T.buffer_store(target.source, value, list(target.indices))


def increase_descriptor_offset(descriptor: Any, offset: Any) -> None:
    """Move a descriptor of either kind in place.

    Parameters
    ----------
    descriptor : TensorLoad
        An element of a uint64 buffer, or a scalar ``x: T.uint64``.
    offset : int or Expr
        Bytes, a multiple of 16.

    Raises
    ------
    IllegalCombination
        If an operand is of another kind, or a constant is no multiple of 16.

    Examples
    --------
    .. code-block:: python

        descriptor: T.uint64 = T.uint64(8)
        wl.increase_descriptor_offset(descriptor, 32)  # bytes
        B[t] = T.Cast("float32", descriptor)
        # B == 10
    """
    target = element("descriptor", descriptor, "uint64")
    number = known(offset)
    if number is not None and number % _CHUNK_BYTES:
        raise IllegalCombination(
            f"offset is {number} bytes; a descriptor moves by multiples of {_CHUNK_BYTES}."
        )
    if number is None and not dtype_of(offset).startswith(("int", "uint")):
        raise IllegalCombination(f"offset is {describe(offset)}; it must be an integer.")
    chunks = number // _CHUNK_BYTES if number is not None else offset >> 4
    # The carry of a negative distance must not reach the upper fields.
    low = T.uint64(_FIELD[-1])
    distance = T.Cast("uint64", chunks) if number is None else T.uint64(chunks % len(_FIELD))
    value = target - (target & low) + (target + distance & low)
    T.buffer_store(target.source, value, list(target.indices))


def _distance(name: str, value: Any, dtype: str) -> Any:
    if known(value) is not None:
        constant(name, value, _FIELD, " (units of 16 bytes)")
    return word(name, value, dtype)

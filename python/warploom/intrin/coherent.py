"""A load of global memory that stays where it stands.

The pointers of kernels are ``__restrict__``. What a kernel only reads is then constant for the
compiler: it may load it before ``griddepcontrol.wait``, when the kernel before has not written it
yet, and through a cache that does not see other kernels' stores (PTX ISA, ``ld.global.nc``).
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

_NAME = "warploom_load_coherent"
_PARTS = "\n".join(
    f"  {'else ' if bytes_ > 1 else ''}if constexpr (sizeof(T) == {bytes_}) {{ {kind} bits; "
    f'asm volatile("ld.global.{width} %0, [%1];" : "={letter}"(bits) : "l"(from)); '
    f"memcpy(&value, &bits, {bytes_}); }}"
    for bytes_, kind, width, letter in (
        (1, "unsigned short", "u8", "h"), (2, "unsigned short", "b16", "h"),
        (4, "unsigned int", "b32", "r"), (8, "unsigned long long", "b64", "l"),
    )
)  # fmt: skip
_SOURCE = (
    f"template <typename T> __forceinline__ __device__ T {_NAME}(const T* from) {{\n  T value;\n"
    f"{_PARTS}\n  return value;\n}}"
)


def coherent(address: Any, dtype: str) -> Any:
    """The element at an address of global memory, loaded neither earlier nor from another cache.

    Parameters
    ----------
    address : Expr
        A pointer to elements of the dtype.
    dtype : str
        Of 1, 2, 4 or 8 bytes.

    Examples
    --------
    >>> from tvm.tirx import decl_buffer
    >>> x = decl_buffer((8,), "float16", "x")
    >>> str(coherent(x.ptr_to([3]), "float16").ty.dtype)
    'float16'
    """
    return T.cuda.func_call(_NAME, address, source_code=_SOURCE, return_type=dtype)

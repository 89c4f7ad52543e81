"""Loads and stores of 32 to 256 bits of global memory, with predicates.

Each is one instruction, which the compiler neither splits nor merges. 256 bits are of Blackwell.

Source: PTX ISA, "ld", "st".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm.ir import TensorRegion

from warploom.errors import IllegalCombination
from warploom.language.builtins.device_code import assembly
from warploom.language.builtins.operands import known, place, predicate
from warploom.language.builtins.values import WORDS, bits_of, require_contiguous, words


@dataclass(frozen=True)
class _Form:
    """How values of one width are written in PTX, C and TVM."""

    bits: int
    suffix: str
    letter: str
    parts: tuple[str, ...]

    @property
    def kind(self) -> str:
        return WORDS[self.bits][0]

    @property
    def dtype(self) -> str:
        return WORDS[self.bits][1]

    def needs(self, name: str) -> tuple[int, str] | None:
        if self.bits < 256:
            return None
        return 100, f"{name}256 needs sm_100a; use {name}128 twice"


_XYZW = (".x", ".y", ".z", ".w")
_FORMS = {
    form.bits: form
    for form in (
        _Form(32, "b32", "r", ("",)),
        _Form(64, "v2.b32", "r", _XYZW[:2]),
        _Form(128, "v4.b32", "r", _XYZW),
        _Form(256, "v4.b64", "l", _XYZW),
    )
}


def ldg32(src: Any, pred: Any = None) -> Any:
    """Load 32 bits of global memory.

    Parameters
    ----------
    src : Buffer, TensorLoad or TensorRegion
        ``A`` (its first element), ``A[i]`` or ``A[i:j]``, aligned to as many bytes as are loaded.
        A region must have that size.
    pred : bool or Expr, optional
        Where it is false nothing is loaded, and the result is 0.

    Returns
    -------
    Expr
        uint32; of the wider loads uint32x2, uint32x4 and uint32x8.

    Raises
    ------
    IllegalCombination
        If ``src`` is not in global memory, or its size or place is another.

    Examples
    --------
    .. code-block:: python

        B[t] = T.reinterpret("float32", wl.ldg32(A[t], pred=t < 64))
        # B == np.where(t < 64, A, 0)
    """
    return _load(32, src, pred)


def ldg64(src: Any, pred: Any = None) -> Any:
    """Load 64 bits as a uint32x2; the rest as for :func:`ldg32`.

    Examples
    --------
    .. code-block:: python

        if t < 64:
            wl.stg64(B[t * 2 : t * 2 + 2], wl.ldg64(A[t * 2 : t * 2 + 2]))
        # B == A
    """
    return _load(64, src, pred)


def ldg128(src: Any, pred: Any = None) -> Any:
    """Load 128 bits as a uint32x4; the rest as for :func:`ldg32`.

    Examples
    --------
    .. code-block:: python

        if t < 32:
            wl.stg128(B[t * 4 : t * 4 + 4], wl.ldg128(A[t * 4 : t * 4 + 4]))
        # B == A
    """
    return _load(128, src, pred)


def ldg256(src: Any, pred: Any = None) -> Any:
    """Load 256 bits as a uint32x8; the rest as for :func:`ldg32`. The target must be sm_100a.

    Examples
    --------
    .. code-block:: python

        if t < 16:
            wl.stg256(B[t * 8 : t * 8 + 8], wl.ldg256(A[t * 8 : t * 8 + 8]))
        # B == A
    """
    return _load(256, src, pred)


def stg32(dst: Any, value: Any, pred: Any = None) -> Any:
    """Store 32 bits to global memory.

    Parameters
    ----------
    dst : Buffer, TensorLoad or TensorRegion
        As the source of :func:`ldg32`.
    value : Expr, number, Buffer or TensorRegion
        Any dtype of as many bits: an expression, a cast, a constant, a vector, or consecutive
        elements ``x[i:j]`` of a buffer. A number of Python has the dtype of ``dst``.
    pred : bool or Expr, optional
        Where it is false nothing is stored.

    Returns
    -------
    Call

    Raises
    ------
    IllegalCombination
        If ``dst`` is not in global memory, or its size or place, or the value's size, is another.

    Examples
    --------
    .. code-block:: python

        wl.stg32(B[t], A[t] + T.float32(1))
        wl.stg32(B[t], 2.0, pred=t < 64)
        # B == np.where(t < 64, 2, A + 1)
    """
    return _store(32, dst, value, pred)


def stg64(dst: Any, value: Any, pred: Any = None) -> Any:
    """Store 64 bits; the rest as for :func:`stg32`.

    Examples
    --------
    .. code-block:: python

        if t < 64:
            wl.stg64(B[t * 2 : t * 2 + 2], wl.ldg64(A[t * 2 : t * 2 + 2]))
        # B == A
    """
    return _store(64, dst, value, pred)


def stg128(dst: Any, value: Any, pred: Any = None) -> Any:
    """Store 128 bits; the rest as for :func:`stg32`.

    Examples
    --------
    .. code-block:: python

        if t < 32:
            wl.stg128(B[t * 4 : t * 4 + 4], wl.ldg128(A[t * 4 : t * 4 + 4]))
        # B == A
    """
    return _store(128, dst, value, pred)


def stg256(dst: Any, value: Any, pred: Any = None) -> Any:
    """Store 256 bits; the rest as for :func:`stg32`. The target must be sm_100a.

    Examples
    --------
    .. code-block:: python

        if t < 16:
            wl.stg256(B[t * 8 : t * 8 + 8], wl.ldg256(A[t * 8 : t * 8 + 8]))
        # B == A
    """
    return _store(256, dst, value, pred)


def _load(bits: int, src: Any, pred: Any) -> Any:
    form = _FORMS[bits]
    name = f"ldg{bits}"
    count = len(form.parts)
    parameters, inputs = [("const void*", _address(name, bits, src))], [("l", "v0")]
    text = f"ld.global.{form.suffix} {_operand(count, 0)}, [%{count}];"
    # Registers that are not loaded keep their initial values.
    mode = "=" if pred is None else "+"
    if pred is not None:
        parameters.append(("bool", predicate("pred", pred)))
        inputs.append(("r", "(int)v1"))
        name, text = f"{name}_if", _predicated(text, count + 1)
    return assembly(
        name,
        text,
        parameters,
        inputs,
        outputs=[(mode + form.letter, f"d{part}") for part in form.parts],
        returns=(form.kind, "{}"),
        dtype=form.dtype,
        needs=form.needs("ldg"),
    )


def _store(bits: int, dst: Any, value: Any, pred: Any) -> Any:
    form = _FORMS[bits]
    name = f"stg{bits}"
    count = len(form.parts)
    dtype = str(place(f"the place of {name}", dst)[0].dtype)
    moved = words(f"the value of {name}", value, bits, dtype)
    parameters = [("void*", _address(name, bits, dst)), (form.kind, moved)]
    inputs = [("l", "v0"), *((form.letter, f"v1{part}") for part in form.parts)]
    text = f"st.global.{form.suffix} [%0], {_operand(count, 1)};"
    if pred is not None:
        parameters.append(("bool", predicate("pred", pred)))
        inputs.append(("r", "(int)v2"))
        name, text = f"{name}_if", _predicated(text, count + 1)
    return assembly(name, text, parameters, inputs, needs=form.needs("stg"))


def _operand(count: int, first: int) -> str:
    names = ", ".join(f"%{first + i}" for i in range(count))
    return f"{{{names}}}" if count > 1 else names


def _predicated(instruction: str, operand: int) -> str:
    return f"{{ .reg .pred p; setp.ne.s32 p, %{operand}, 0; @p {instruction} }}"


def _address(name: str, bits: int, base: Any) -> Any:
    buffer, indices = place(f"the place of {name}", base)
    if buffer.scope() != "global":
        raise IllegalCombination(
            f"{name} of {buffer.name} in {buffer.scope()} memory; it must be in global memory."
        )
    width = bits_of(str(buffer.dtype))
    if isinstance(base, TensorRegion):
        require_contiguous(f"the place of {name}", base)
        size = known(math.prod(dimension.extent for dimension in base.region) * width)
        if size is not None and size != bits:
            raise IllegalCombination(
                f"{name} of a region of {size} bits of {buffer.name}; it must have {bits}."
            )
    linear = known(buffer.offset_of(indices)[0])
    if linear is not None and linear * width % bits:
        raise IllegalCombination(
            f"{name} of {buffer.name} at element {linear}; that is no multiple of {bits} bits."
        )
    return buffer.ptr_to(indices)

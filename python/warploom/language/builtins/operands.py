"""Operands of builtins: places in memory, constants of an instruction, and their checks."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from tvm import DataType
from tvm.ir import Call, TensorLoad, TensorRegion
from tvm.ir.type import PointerType, PrimType
from tvm.script import tirx as T
from tvm.tirx import Buffer, IntImm, Var, is_buffer_var

from warploom.errors import IllegalCombination


def place(name: str, base: Any) -> tuple[Buffer, list[Any]]:
    """The buffer and the indices of its element where ``base`` begins.

    Parameters
    ----------
    name : str
        Its name in errors.
    base : Buffer, TensorLoad or TensorRegion
        ``A``, ``A[i, j]`` or ``A[i:j, k:l]``.

    Raises
    ------
    IllegalCombination
        If it is none of them.
    """
    base = getattr(base, "scalar", base)
    if is_buffer_var(base):
        return base, [0] * len(base.shape)
    if isinstance(base, TensorLoad) and is_buffer_var(base.source):
        return base.source, list(base.indices)
    if isinstance(base, TensorRegion) and is_buffer_var(base.source):
        return base.source, [dimension.min for dimension in base.region]
    raise IllegalCombination(
        f"{name} is {describe(base)}; it must be a buffer, an element A[i] or a region A[i:j]."
    )


def is_place(base: Any) -> bool:
    """Whether :func:`place` takes it."""
    base = getattr(base, "scalar", base)
    if isinstance(base, TensorLoad | TensorRegion):
        return is_buffer_var(base.source)
    return is_buffer_var(base)


def pointer(name: str, base: Any) -> Any:
    """The address of a place; expressions that are pointers stay as they are.

    Raises
    ------
    IllegalCombination
        If it is neither a place nor a pointer.
    """
    if is_place(base):
        buffer, indices = place(name, base)
        return buffer.ptr_to(indices)
    if isinstance(base, Call | Var) and (
        isinstance(base.ty, PointerType) or str(getattr(base.ty, "dtype", "")) == "handle"
    ):
        return base
    raise IllegalCombination(
        f"{name} is {describe(base)}; it must be a buffer, an element A[i], a region A[i:j] or a "
        "pointer."
    )


def element(name: str, base: Any, dtype: str) -> TensorLoad:
    """One element of a buffer of that dtype, which an instruction may write.

    Raises
    ------
    IllegalCombination
        If it is none, or of another dtype.
    """
    if not is_place(base) or isinstance(base, TensorRegion):
        raise IllegalCombination(
            f"{name} is {describe(base)}; it must be an element of a {dtype} buffer, or a "
            "scalar variable."
        )
    buffer, indices = place(name, base)
    if str(buffer.dtype) != dtype:
        raise IllegalCombination(f"{name} is {buffer.dtype}; it must be {dtype}.")
    return buffer[tuple(indices)]


def constant(name: str, value: Any, allowed: range, unit: str = "") -> int:
    """An integer that an instruction has in its text.

    Raises
    ------
    IllegalCombination
        If it is no constant, or not in the range.
    """
    number = known(value)
    if number is None or number not in allowed:
        step = f"a multiple of {allowed.step} " if allowed.step > 1 else ""
        raise IllegalCombination(
            f"{name} is {describe(value)}; it must be a constant, {step}from {allowed[0]} to "
            f"{allowed[-1]}{unit}."
        )
    return number


def known(value: Any) -> int | None:
    """A value as an int, if it is a constant integer."""
    if isinstance(value, bool) or not isinstance(value, Integral | IntImm):
        return None
    return int(value)


def flag(name: str, value: Any) -> bool:
    """A bool, or 0 or 1.

    Raises
    ------
    IllegalCombination
        If it is something else.
    """
    if not isinstance(value, bool | int | IntImm) or int(value) not in (0, 1):
        raise IllegalCombination(f"{name} is {describe(value)}; it must be True or False.")
    return bool(int(value))


def word(name: str, value: Any, dtype: str = "uint32") -> Any:
    """An integer expression of that dtype.

    Raises
    ------
    IllegalCombination
        If it is no integer.
    """
    value = getattr(value, "scalar", value)
    number = known(value)
    if number is not None:
        low, high = limits(dtype)
        if not low <= number <= high:
            raise IllegalCombination(f"{name} is {number}; it must fit in {dtype}.")
        return IntImm(dtype, number)
    kind = dtype_of(value)
    if not kind.startswith(("int", "uint")) or "x" in kind:
        raise IllegalCombination(f"{name} is {describe(value)}; it must be an integer.")
    return value if kind == dtype else T.Cast(dtype, value)


def limits(dtype: str) -> tuple[int, int]:
    """Smallest and largest value of an integer dtype."""
    bits = DataType(dtype).bits
    if dtype.startswith("uint"):
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def dtype_of(value: Any) -> str:
    """The dtype of an expression; empty if it has none."""
    ty = getattr(value, "ty", None)
    return str(ty.dtype) if isinstance(ty, PrimType) else ""


def predicate(name: str, value: Any) -> Any:
    """A condition as a bool expression.

    Raises
    ------
    IllegalCombination
        If it is neither a bool nor an integer.
    """
    value = getattr(value, "scalar", value)
    if isinstance(value, bool):
        return T.bool(value)
    if known(value) is not None and not dtype_of(value):
        return T.bool(known(value) != 0)
    kind = dtype_of(value)
    if kind == "bool":
        return value
    if kind.startswith(("int", "uint")) and "x" not in kind:
        return value != IntImm(kind, 0)
    raise IllegalCombination(f"{name} is {describe(value)}; it must be a condition.")


def parity_of(value: Any) -> Any:
    """The parity of a phase: 0, 1, False, True, a condition or an integer expression.

    Raises
    ------
    IllegalCombination
        If it is another constant, or no number.
    """
    value = getattr(value, "scalar", value)
    if isinstance(value, bool):
        return int(value)
    kind = dtype_of(value)
    if kind == "bool":
        return T.Cast("int32", value)
    integer = kind.startswith(("int", "uint")) and "x" not in kind
    if known(value) in (0, 1) or (known(value) is None and integer):
        return value
    raise IllegalCombination(f"parity is {describe(value)}; it must be 0 or 1.")


def describe(value: Any) -> str:
    """A value in an error: short, with its dtype."""
    kind = dtype_of(value)
    number = known(value)
    if number is not None:
        return str(number)
    text = repr(value) if not kind else str(value)
    text = text if len(text) <= 40 else text[:37] + "..."
    return f"{text} ({kind})" if kind else text

"""Random numbers in kernels, as functions of a seed and an offset.

The same seed and offset give the same number, in whichever thread, CTA, kernel or interpreter: give
each element an offset of its own, and each launch a seed of its own.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import Call, StringImm
from tvm.script import tirx as T

from warploom.errors import IllegalCombination
from warploom.language.builtins.operands import describe, dtype_of
from warploom.language.values import philox

__all__ = ["rand", "randint", "randn"]


def randint(seed: Any, offset: Any) -> Any:
    """32 random bits, as uint32: the first word of Philox 4x32-10.

    Parameters
    ----------
    seed, offset : Expr or int
        Integers of up to 64 bits.

    Raises
    ------
    IllegalCombination
        If one of them is no integer.

    Examples
    --------
    .. code-block:: python

        for i in T.serial(256):
            C[i] = wl.randint(seed, i) % T.uint32(6)
    """
    return T.Cast("uint32", _call(philox.BITS, "uint64", "randint", seed, offset))


def rand(seed: Any, offset: Any) -> Any:
    """A number from 0 to 1, without 1, uniformly distributed: a multiple of 2**-24, as float32.

    Parameters and errors are those of :func:`randint`.

    Examples
    --------
    .. code-block:: python

        for i, j in T.grid(BM, BN):
            out[i, j] = T.if_then_else(wl.rand(seed, i * BN + j) < p, T.float32(0), x[i, j])
    """
    bits = T.Cast("uint32", _call(philox.BITS, "uint64", "rand", seed, offset))
    return T.Cast("float32", bits >> T.uint32(8)) * T.float32(2**-24)


def randn(seed: Any, offset: Any) -> Any:
    """A number with the standard normal distribution, as float32: at most 5.77 in magnitude.

    Parameters and errors are those of :func:`randint`.

    Examples
    --------
    .. code-block:: python

        for i, j in T.grid(BM, BN):
            noise[i, j] = wl.randn(seed, (b * BM + i) * N + j)
    """
    return _call(philox.NORMAL, "float32", "randn", seed, offset)


def _call(function: str, dtype: str, name: str, seed: Any, offset: Any) -> Any:
    operands = _integer(name, "seed", seed), _integer(name, "offset", offset)
    source = philox.source_of(function)
    return T.cuda.func_call(function, *operands, source_code=source, return_type=dtype)


def _integer(name: str, what: str, value: Any) -> Any:
    value = getattr(value, "scalar", value)
    if isinstance(value, int) and not isinstance(value, bool):
        return tirx.const(value % 2**64, "uint64")
    dtype = dtype_of(value) or ""
    if not dtype.startswith(("int", "uint")) or "x" in dtype:
        raise IllegalCombination(
            f"the {what} of {name} is {describe(value)}; it must be an integer of up to 64 bits."
        )
    return value if dtype == "uint64" else T.Cast("uint64", value)


def function_of(call: Call) -> str | None:
    """The device function that a call is of, if it gives random numbers."""
    if str(getattr(call.op, "name", "")) != "tirx.cuda.func_call":
        return None
    first = call.args[0]
    name = str(first.value) if isinstance(first, StringImm) else ""
    return name if name in philox.FUNCTIONS else None

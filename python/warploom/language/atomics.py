"""``wl.atomic_add`` and its like: updates of single elements, in nests."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script import tirx as T
from tvm.tirx import is_buffer_var

from warploom.errors import IllegalCombination
from warploom.language.builtins.operands import describe
from warploom.tile.updates import update_value


def _update(name: str, element: Any, value: Any) -> None:
    if not isinstance(element, TensorLoad) or not is_buffer_var(element.source):
        raise IllegalCombination(
            f"{name} updates {describe(element)}; give it an element, such as C[i, j], or write "
            f"Tx.cta.{name} for a region."
        )
    dtype = str(element.ty.dtype)
    if isinstance(value, (bool, int, float)):
        value = tirx.const(value, dtype)
    if str(value.ty.dtype) != dtype:
        raise IllegalCombination(
            f"{name} updates {element.source.name} of dtype {dtype} with a value of dtype "
            f"{value.ty.dtype}; cast it: T.cast(value, {dtype!r})."
        )
    T.buffer_store(element.source, update_value(name, element, value), list(element.indices))


def atomic_add(element: Any, value: Any) -> None:
    """Add to an element in a nest: ``wl.atomic_add(histogram[X[i]], 1)``.

    Several iterations and several CTAs may update one element; sums of floats are then in no
    certain order. A nest that updates a buffer neither stores nor reads it otherwise.

    Parameters
    ----------
    element : TensorLoad
        An element of a buffer in global memory, or of a shared tile: float32, float64, float16,
        bfloat16, or an integer of 32 or 64 bits. Outside of a global buffer nothing happens.
    value : Expr or number
        Of the dtype of the element.

    Raises
    ------
    IllegalCombination
        If ``element`` is no element of a buffer, or the value has another dtype.

    Examples
    --------
    .. code-block:: python

        for i in T.serial(256):
            wl.atomic_add(histogram[X[i]], 1)
    """
    _update("atomic_add", element, value)


def atomic_max(element: Any, value: Any) -> None:
    """Set an element to the larger of it and a value, as :func:`atomic_add`.

    A float is updated as the integer of its bits; NaN has no certain place in the order.

    Raises
    ------
    IllegalCombination
        As :func:`atomic_add`.

    Examples
    --------
    .. code-block:: python

        for i in T.serial(256):
            wl.atomic_max(Largest[group[i]], X[i])
    """
    _update("atomic_max", element, value)


def atomic_min(element: Any, value: Any) -> None:
    """Set an element to the smaller of it and a value, as :func:`atomic_add`.

    A float is updated as the integer of its bits; NaN has no certain place in the order.

    Raises
    ------
    IllegalCombination
        As :func:`atomic_add`.

    Examples
    --------
    .. code-block:: python

        for i in T.serial(256):
            wl.atomic_min(Smallest[group[i]], X[i])
    """
    _update("atomic_min", element, value)

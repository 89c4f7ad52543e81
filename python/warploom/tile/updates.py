"""Atomic updates of elements: stores whose value is a call that names the old value and another.

``buffer[i] = warploom.atomic_add(buffer[i], x)`` adds ``x``, and no other update of the element
comes between the load and the store, be it of another iteration, thread or CTA.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.tirx import BufferStore
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.tile import ir

#: Option of a copy to global memory that combines elements, as TVM calls it: ``"add"`` and so on.
REDUCE = "use_tma_reduce"
#: Prefix of the functions that such a store calls.
_PREFIX = "warploom."
UPDATES = ("atomic_add", "atomic_max", "atomic_min")


def reduce_of(copy: TilePrimitiveCall) -> str | None:
    """How a copy combines elements with those of global memory, if it does not replace them."""
    name = copy.config.get(REDUCE)
    return None if name is None else str(name)


def update_value(name: str, element: Any, operand: Any) -> Any:
    """The value of a store that updates an element."""
    return T.call_extern(str(element.ty.dtype), _PREFIX + name, element, operand)


def updated(store: BufferStore, operand: Any, indices: Any = None) -> BufferStore:
    """The same update with another operand, and perhaps elsewhere."""
    indices = list(store.indices) if indices is None else indices
    name, _ = read_update(store)
    value = update_value(name, store.buffer[tuple(indices)], operand)
    return BufferStore(store.buffer, value, indices, store.span)


def read_update(store: BufferStore) -> tuple[str, Any] | None:
    """The name of an update and its operand; None for another store."""
    call, name = store.value, ir.called_extern(store.value) or ""
    if not name.startswith(_PREFIX) or name.removeprefix(_PREFIX) not in UPDATES:
        return None
    return name.removeprefix(_PREFIX), call.args[2]

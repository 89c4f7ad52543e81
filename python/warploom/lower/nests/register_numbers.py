"""Which register of a tile holds the element that a nest indexes, as an expression."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, Var

from warploom.errors import Decline
from warploom.ops.register_tile import RegisterTile

#: Operations in an index of a tile in registers.
_INDEX_OPERATIONS = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
}


class RegisterNumbers:
    """Registers of the elements that a nest over ``tile`` indexes.

    The iterations of a nest ask for the same elements again and again, each at its own register.
    What does not depend on that is kept.

    Parameters
    ----------
    tile : RegisterTile
        An iteration of the nest is a register of it.
    counts : dict
        Loop variables of the nest -> their values, as ``tile.table``.
    """

    def __init__(self, tile: RegisterTile, counts: dict[Var, np.ndarray]) -> None:
        self._tile, self._counts = tile, counts
        self._known: list[tuple[Buffer, Any, np.ndarray]] = []

    def of(self, register_tile: RegisterTile, places: Any, at: Any) -> Any:
        """The register of ``register_tile`` with the element at ``places``, in every thread.

        Parameters
        ----------
        register_tile : RegisterTile
        places : sequence of expression
            Of the loop variables of the nest.
        at : int or expression
            The register of ``tile`` that the iteration is for.

        Raises
        ------
        Decline
            If another thread holds the element, or no expression says which register it is.
        """
        tile = self._tile
        number = _linear(self._registers(register_tile, places), tile, at)
        if number is None:
            places = ", ".join(map(str, places))
            raise Decline(
                f"A nest over {tile.buffer.name} reads {register_tile.buffer.name}[{places}], in "
                "another order than the nest counts; pass it through shared memory."
            )
        return number

    def _registers(self, register_tile: RegisterTile, places: Any) -> np.ndarray:
        """The registers of the elements at ``places`` for each register of the nest's tile."""
        for buffer, indices, registers in self._known:
            if buffer.same_as(register_tile.buffer) and _are_equal(indices, places):
                return registers
        registers = _registers_of(register_tile, places, self._counts, self._tile)
        self._known.append((register_tile.buffer, places, registers))
        return registers


def _are_equal(some: Any, others: Any) -> bool:
    return len(some) == len(others) and all(map(tvm_ffi.structural_equal, some, others))


def _registers_of(
    register_tile: RegisterTile, places: Any, counts: dict[Var, np.ndarray], tile: RegisterTile
) -> np.ndarray:
    shape = tile.table.shape
    position = []
    for place, extent in zip(places, register_tile.shape, strict=True):
        value = _values(place, counts)
        if value is None:
            raise Decline(
                f"A nest indexes {register_tile.buffer.name} by {place}; tiles in registers are "
                "indexed by expressions of the nest's loop variables and constants."
            )
        position.append(np.broadcast_to(value, shape))
        if position[-1].max() >= extent or position[-1].min() < 0:
            raise Decline(
                f"A nest over {tile.buffer.name} reads {register_tile.buffer.name}, which has "
                f"{extent} elements where {tile.buffer.name} has more; give both tiles the same "
                "extents."
            )
    elements = np.ravel_multi_index(position, register_tile.shape)
    held = np.full((shape[0], register_tile.size), -1)
    np.put_along_axis(
        held,
        register_tile.table,
        np.broadcast_to(np.array(register_tile.offsets), register_tile.table.shape),
        axis=1,
    )
    registers = np.take_along_axis(held, elements, axis=1)
    if (registers < 0).any() or (registers != registers[0]).any():
        raise Decline(
            f"A nest over {tile.buffer.name} needs elements of {register_tile.buffer.name} that "
            "other threads hold; give both the same direction, or pass them through shared memory."
        )
    return registers[0]


def _values(index: Any, counts: dict[Var, np.ndarray]) -> Any:
    """The value of an index in every thread and register; None if it depends on more."""
    if isinstance(index, tirx.IntImm):
        return int(index)
    if isinstance(index, Var):
        return counts.get(index)
    operation = _INDEX_OPERATIONS.get(type(index))
    if operation is None:
        return None
    a, b = _values(index.a, counts), _values(index.b, counts)
    return None if a is None or b is None else operation(a, b)


def _linear(registers: np.ndarray, tile: RegisterTile, at: Any) -> Any:
    """Register numbers, one for each register of ``tile``, as an expression of ``at``; None if
    they are no linear function of its digits."""
    if len(registers) == 1:
        return int(registers[0])
    digits = [d for dim in tile.dims for d in dim if d.axis == "m"]
    offsets = np.array(tile.offsets)
    expression: Any = int(registers[0])
    values = np.full(len(registers), registers[0])
    for digit in sorted(digits, key=lambda d: -d.stride):
        step = int(registers[list(tile.offsets).index(digit.stride)] - registers[0])
        if step == 0:
            continue
        values = values + offsets // digit.stride % digit.extent * step
        expression = expression + digit.of({"m": at}) * step
    if not (values == registers).all():
        return None
    return expression if isinstance(expression, int) else Analyzer().simplify(expression)

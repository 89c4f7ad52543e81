"""Mbarriers of a running tile program, whose statements happen one after the other.

Copies are complete when their statement is over, so that nothing is ever under way: a wait that
is not over at once is never over.
"""

from __future__ import annotations

from typing import Any

from warploom.errors import TileProgramError
from warploom.language.interpreter.running import Running
from warploom.language.interpreter.storage import Barrier
from warploom.tile.mbarriers import Operation, read_address


def _barrier(evaluate: Running, buffer: Any, indices: Any) -> tuple[str, Barrier]:
    storage = evaluate.storage(buffer)
    place = tuple(evaluate.integer(index) for index in indices)
    if not all(0 <= i < n for i, n in zip(place, storage.array.shape, strict=True)):
        raise TileProgramError(
            f"{storage.name}{list(place)} lies outside of {storage.name}, which has "
            f"{storage.array.size} mbarriers."
        )
    return f"{storage.name}{list(place)}", storage.array[place]


def run_operation(evaluate: Running, operation: Operation) -> None:
    """Execute a statement on an mbarrier."""
    name, barrier = _barrier(evaluate, operation.barriers, operation.indices)
    if operation.kind not in ("init", "arrive", "expect", "wait"):
        raise TileProgramError(
            f"{operation.kind} of {name} has no meaning in a tile program, whose mbarriers are "
            "initialised, arrived at, told the bytes to expect and waited for."
        )
    value = evaluate.integer(operation.value)
    if operation.kind == "init":
        if barrier.arrivals:
            raise TileProgramError(f"the mbarrier {name} is initialised twice.")
        barrier.arrivals = barrier.pending = value
        return
    if not barrier.arrivals:
        raise TileProgramError(f"the mbarrier {name} is used before it is initialised.")
    if operation.kind == "wait":
        if barrier.phase % 2 == value:
            raise TileProgramError(
                f"the wait for parity {value} of the mbarrier {name} is never over: "
                f"{barrier.arrivals - barrier.pending} of {barrier.arrivals} arrivals have "
                f"happened, and {barrier.bytes} bytes are still to come."
            )
        return
    count = value if operation.kind == "arrive" else 1
    if count > barrier.pending:
        raise TileProgramError(
            f"{count} arrivals at the mbarrier {name}, which waits for {barrier.pending} more."
        )
    barrier.pending -= count
    barrier.bytes += value if operation.kind == "expect" else 0
    barrier.advance()


def complete_bytes(evaluate: Running, address: Any, count: int) -> None:
    """A copy with ``mbar=address`` has brought ``count`` bytes."""
    place = read_address(address)
    if place is None:
        raise TileProgramError("the option mbar= of a copy must be wl.mbarrier.address(...).")
    _, barrier = _barrier(evaluate, place.source, place.indices)
    barrier.bytes -= count
    barrier.advance()

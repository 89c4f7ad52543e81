"""Mbarriers of a running tile program, whose statements happen one after the other.

Copies are complete when their statement is over, so that nothing is ever under way: a wait for what
this CTA does that is not over at once is never over. For other CTAs of the cluster wait the
instructions of :mod:`~warploom.language.interpreter.instructions`.
"""

from __future__ import annotations

from typing import Any

from warploom.errors import TileProgramError
from warploom.language.interpreter.running import Running
from warploom.language.interpreter.storage import Barrier
from warploom.tile.mbarriers import Operation, read_address


def barrier_at(evaluate: Running, buffer: Any, indices: Any) -> tuple[str, Barrier]:
    """One of a buffer of mbarriers, and its name in messages."""
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
    name, barrier = barrier_at(evaluate, operation.barriers, operation.indices)
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
    if operation.kind == "wait":
        if not is_complete(name, barrier, value):
            raise TileProgramError(
                f"the wait for parity {value} of the mbarrier {name} is never over: "
                f"{barrier.arrivals - barrier.pending} of {barrier.arrivals} arrivals have "
                f"happened, and {barrier.bytes} bytes are still to come."
            )
        return
    if operation.kind == "arrive":
        arrive(name, barrier, value)
    else:
        arrive(name, barrier, 1, announced=value)


def is_complete(name: str, barrier: Barrier, parity: int) -> bool:
    """Whether the phase of that parity is complete."""
    _require_initialised(name, barrier)
    return barrier.phase % 2 != parity


def arrive(name: str, barrier: Barrier, count: int, announced: int = 0) -> None:
    """Arrivals, which announce bytes."""
    _require_initialised(name, barrier)
    if count > barrier.pending:
        raise TileProgramError(
            f"{count} arrivals at the mbarrier {name}, which waits for {barrier.pending} more."
        )
    barrier.pending -= count
    barrier.bytes += announced
    barrier.advance()


def _require_initialised(name: str, barrier: Barrier) -> None:
    if not barrier.arrivals:
        raise TileProgramError(f"the mbarrier {name} is used before it is initialised.")


def complete_bytes(evaluate: Running, address: Any, count: int) -> None:
    """A copy with ``mbar=address`` has brought ``count`` bytes."""
    place = read_address(address)
    if place is None:
        raise TileProgramError("the option mbar= of a copy must be wl.mbarrier.address(...).")
    _, barrier = barrier_at(evaluate, place.source, place.indices)
    barrier.bytes -= count
    barrier.advance()

"""Instructions by which CTAs wait for each other, as passes emit them before roles part.

Of all PTX instructions these alone compute something: loads and stores of flags, and what a CTA
does to the shared memory of another one of its cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op, TensorLoad, Var

from warploom.errors import TileProgramError
from warploom.language.interpreter.barriers import arrive, barrier_at, is_complete
from warploom.language.interpreter.running import Running
from warploom.language.interpreter.storage import Storage
from warploom.language.interpreter.waits import Wait, Waits, wait_until
from warploom.language.rules.nests import text


@dataclass
class Cluster:
    """A cluster of CTAs.

    Attributes
    ----------
    size : int
        How many there are.
    buffers : list of dict
        For each that has begun, in the order of their ranks, the buffers in scope.
    """

    size: int = 1
    buffers: list[dict[Var, Storage]] = field(default_factory=list)


def run_instruction(evaluate: Running, cluster: Cluster, call: Call) -> Waits | None:
    """Execute one of :data:`INSTRUCTIONS`."""
    return INSTRUCTIONS[call.op.name](evaluate, cluster, *call.args)


def sets_register(call: Call) -> bool:
    """Whether an instruction writes a register, of which each warpgroup has its own."""
    return isinstance(call.args[0], TensorLoad)


def poll(evaluate: Running, statement: tirx.While) -> Waits:
    """``while`` a flag or an mbarrier has not come so far: ask once more.

    Raises
    ------
    TileProgramError
        For any other loop, of which nobody knows whether it ends.
    """
    body = statement.body
    call = body.value if isinstance(body, tirx.Evaluate) else None
    name = call.op.name if isinstance(call, Call) and isinstance(call.op, Op) else ""
    if name not in _POLLS:
        raise TileProgramError(
            f"the loop while {text(statement.condition)} does more than ask for a flag or an "
            f"mbarrier ({', '.join(_POLLS)}), and may never end; write a for loop."
        )
    wait = None
    while evaluate(statement.condition):
        if wait is not None:
            yield wait
        INSTRUCTIONS[name](evaluate, None, *call.args)
        wait = wait or Wait(_POLLS[name](evaluate, call))


def bind_pointer(evaluate: Running, statement: tirx.Bind) -> None:
    """Bind a pointer, made of a register that ``mapa`` has set."""
    registers: list[Var] = []
    tvm_ffi.structural_walk(statement.value, (Var, registers.append))
    known = [variable for variable in registers if variable in evaluate.pointers]
    if not known:
        raise TileProgramError(
            f"{text(statement.value)} is no address in the shared memory of another CTA."
        )
    evaluate.pointers[statement.var] = evaluate.pointers[known[0]]


def declare_at_pointer(evaluate: Running, statement: tirx.DeclBuffer) -> None:
    """Declare a buffer of another CTA, to which such a pointer points."""
    view, source = statement.buffer, evaluate.pointers[statement.data]
    array = source.array.reshape([evaluate.integer(extent) for extent in view.shape])
    evaluate.buffers[view] = Storage(view.name, view.scope(), array)


def _place(address: Any) -> TensorLoad:
    """The element ``b[i]`` of which an expression is the address."""
    place = address
    while isinstance(place, Call) and len(place.args) == 1:
        (place,) = place.args
    if not isinstance(place, TensorLoad):
        raise TileProgramError(f"{text(address)} is no address of an element of a buffer.")
    return place


def _load(evaluate: Running, _: Any, register: TensorLoad, address: Any, *options: Any) -> None:
    evaluate.storage(register.source).array[...] = evaluate(_place(address))


def _store(evaluate: Running, _: Any, address: Any, value: Any, *options: Any) -> None:
    place = _place(address)
    indices = [evaluate(index).astype(np.int64) for index in place.indices]
    evaluate.storage(place.source).scatter(indices, evaluate(value), np.asarray(True), False)


def _try_wait(
    evaluate: Running, _: Any, complete: TensorLoad, address: Any, parity: Any, *options: Any
) -> None:
    place = _place(address)
    name, barrier = barrier_at(evaluate, place.source, place.indices)
    done = is_complete(name, barrier, evaluate.integer(parity))
    evaluate.storage(complete.source).array[...] = done


def _arrive(evaluate: Running, _: Any, address: Any, *options: Any) -> None:
    place = _place(address)
    arrive(*barrier_at(evaluate, place.source, place.indices), 1)


def _map_shared(
    evaluate: Running, cluster: Cluster, pointer: TensorLoad, address: Any, rank: Any, *options: Any
) -> Waits:
    """The same buffer of another CTA; all CTAs of a cluster begin before one goes on with it."""
    buffer, number = _place(address).source, evaluate.integer(rank)
    if number >= cluster.size:
        raise TileProgramError(
            f"{buffer.name} of CTA {number} of a cluster that has {cluster.size} CTAs."
        )
    yield from wait_until(
        lambda: number < len(cluster.buffers) and buffer in cluster.buffers[number],
        f"CTA {number} of its cluster to allocate {buffer.name}",
    )
    evaluate.pointers[pointer.source] = cluster.buffers[number][buffer]


def _flag(evaluate: Running, call: Call) -> str:
    return f"the flag {_named(evaluate, call)}"


def _phase(evaluate: Running, call: Call) -> str:
    parity = evaluate.integer(call.args[2])
    return f"parity {parity} of the mbarrier {_named(evaluate, call)}"


def _named(evaluate: Running, call: Call) -> str:
    place = _place(call.args[1])
    return f"{place.source.name}{[evaluate.integer(index) for index in place.indices]}"


#: Name of an instruction -> what executes it.
INSTRUCTIONS: dict[str, Callable[..., Waits | None]] = {
    "tirx.ptx.ld": _load,
    "tirx.ptx.st": _store,
    "tirx.ptx.mapa": _map_shared,
    "tirx.ptx.mbarrier_arrive_nocount": _arrive,
    "tirx.ptx.mbarrier_try_wait_parity_no_hint": _try_wait,
}
#: Those that tell other CTAs to go on.
SIGNALS = ("tirx.ptx.st", "tirx.ptx.mbarrier_arrive_nocount")
#: Those that a loop repeats until what they ask for has happened -> what that is.
_POLLS: dict[str, Callable[[Running, Call], str]] = {
    "tirx.ptx.ld": _flag,
    "tirx.ptx.mbarrier_try_wait_parity_no_hint": _phase,
}

"""Elementwise nests: loops around stores into tiles, executed one statement at a time.

Iterations of a nest are independent, so that its statements may be executed one after the other,
each for all iterations at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm.tirx.stmt import BufferStore

from warploom.errors import TileProgramError
from warploom.language.interpreter.running import Running
from warploom.language.rules.iterations import own_elements
from warploom.language.rules.nests import Access, Nest, require_independent
from warploom.language.rules.places import at_place
from warploom.tile.nest import AtomicUpdate, Binding, ElementStore, Guard, Part

#: Update -> how it combines elements.
UPDATES = {"atomic_add": np.add, "atomic_max": np.maximum, "atomic_min": np.minimum}


def run_nest(evaluate: Running, nest: Nest) -> None:
    """Execute a nest.

    Raises
    ------
    TileProgramError
        If two iterations store one element, one reads an element that another stores, or one leaves
        a tile.
    """
    inner = _with_loops(evaluate, nest)
    if inner is None:
        return
    stores: dict[Any, list[Access]] = {store.buffer: [] for store in nest.stores()}
    inner = replace(inner, watched={buffer: [] for buffer in stores})
    _run(inner, nest.parts, stores)
    values = [inner.variables[v] for v in inner.loops]
    for buffer, writes in stores.items():
        reads = inner.watched[buffer]
        if writes and not own_elements(inner.loops, values, writes, reads):
            require_independent(inner.loops, values, writes, reads)


def _with_loops(evaluate: Running, nest: Nest) -> Running | None:
    """The evaluator inside of the nest; None if there is no iteration."""
    ranges = [np.array(evaluate.iterations(loop), np.int64) for loop in nest.loops]
    if not all(r.size for r in ranges):
        return None
    variables = dict(evaluate.variables)
    for axis, (loop, values) in enumerate(zip(nest.loops, ranges, strict=True)):
        shape = [-1 if a == axis else 1 for a in range(len(ranges))]
        dtype = str(loop.loop_var.ty.dtype)
        variables[loop.loop_var] = values.astype(dtype).reshape(shape)
    loops = tuple(loop.loop_var for loop in nest.loops)
    return replace(evaluate, variables=variables, loops=loops)


def _run(evaluate: Running, parts: Sequence[Part], stores: dict[Any, list[Access]]) -> None:
    for part in parts:
        evaluate = replace(evaluate, statement=part.raw)
        try:
            match part:
                case Binding():
                    evaluate.variables[part.variable] = evaluate(part.value)
                case Guard():
                    holds = evaluate(part.condition).astype(bool)
                    _run(evaluate.where(holds), part.parts, stores)
                    _run(evaluate.where(~holds), part.otherwise, stores)
                case AtomicUpdate():
                    _update(evaluate, part)
                case ElementStore():
                    _store(evaluate, part.raw, stores[part.buffer])
        except TileProgramError as error:
            raise at_place(error, part.raw) from None


def _update(evaluate: Running, update: AtomicUpdate) -> None:
    target = evaluate.storage(update.buffer)
    indices = [evaluate(index).astype(np.int64) for index in update.indices]
    shape = tuple(evaluate.variables[v].size for v in evaluate.loops)
    value = np.broadcast_to(evaluate(update.value), shape)
    places = [np.broadcast_to(index, shape) for index in indices]
    active = np.broadcast_to(evaluate.active, shape)
    by_memory = evaluate.by_memory(update.indices)
    target.update(places, value, active, by_memory, UPDATES[update.name])


def _store(evaluate: Running, store: BufferStore, stores: list[Access]) -> None:
    target = evaluate.storage(store.buffer)
    indices = [evaluate(index).astype(np.int64) for index in store.indices]
    shape = tuple(evaluate.variables[v].size for v in evaluate.loops)
    value = np.broadcast_to(evaluate(store.value), shape)
    places = [np.broadcast_to(index, shape) for index in indices]
    active = np.broadcast_to(evaluate.active, shape)
    stores.append(Access(store, indices, active, store))
    target.scatter(places, value, active, evaluate.by_memory(store.indices))

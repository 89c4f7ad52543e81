"""Element-wise nests: which loops are nests, and the rules of their iterations.

Iterations of a nest are independent: no two store one element, and none reads an element that
another stores. Statements of a nest can then be executed one after the other, each for all
iterations at once, by one thread for each element, and in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi
from tvm.ir import TensorLoad
from tvm.tirx import Var, is_buffer_var
from tvm.tirx.stmt import BufferStore, For, ForKind, Stmt

from warploom.errors import TileProgramError
from warploom.language.printing import read_print
from warploom.language.rules.places import at_place
from warploom.language.rules.scopes import TILES
from warploom.tile import ir
from warploom.tile.nest import ElementStore, Part, loops_of, parts_of, repeats_nest, stores_of


@dataclass(frozen=True)
class Nest:
    """Loops from the outermost to the innermost, and the statements in the innermost."""

    loops: tuple[For, ...]
    parts: tuple[Part, ...]

    def stores(self) -> Iterator[ElementStore]:
        """All stores, those under conditions too."""
        return stores_of(self.parts)


def is_scalar(buffer: Any) -> bool:
    """Whether a buffer is a scalar that all threads have alike."""
    return str(buffer.scope()) == "local"


def read_nest(loop: For) -> Nest | None:
    """``loop`` as an element-wise nest; None if it is a loop of the CTA.

    A nest has loops, and in the innermost bindings, stores and conditions alone, with at least one
    store to a tile or to global memory. A loop around it whose variable has no place in the indices
    of a store repeats the nest (:func:`~warploom.tile.nest.repeats_nest`).

    Raises
    ------
    TileProgramError
        If it is bound to threads, or assigns scalars beside its stores.
    """
    loops, body = loops_of(loop)
    for node in loops:
        if node.kind == ForKind.THREAD_BINDING:
            raise TileProgramError(
                f"loop {node.loop_var.name} is bound to threads; a tile program has none."
            )
    _require_no_prints(loops, body)
    parts = parts_of(body)
    if parts is None or repeats_nest(loops, parts):
        return None
    nest = Nest(loops, parts)
    stores = list(nest.stores())
    if all(is_scalar(store.buffer) for store in stores):
        return None
    for node in stores:
        if is_scalar(node.buffer):
            buffer = next(s.buffer.name for s in stores if not is_scalar(s.buffer))
            raise TileProgramError(
                f"the nest over {_names(loops)} assigns the scalar {node.buffer.name} and stores "
                f"{buffer}: its iterations are independent and carry nothing from one to the next; "
                f"bind {node.buffer.name} with T.let, or reduce with Tx.cta.sum, max or min."
            )
    return nest


def _names(loops: Sequence[For]) -> str:
    return ", ".join(loop.loop_var.name for loop in loops)


def _require_no_prints(loops: Sequence[For], body: Stmt) -> None:
    """Iterations of a nest have no order, in which lines could come.

    Raises
    ------
    TileProgramError
        If one of them prints.
    """
    statements = ir.flatten(body)
    call = next((statement for statement in statements if read_print(statement) is not None), None)
    if call is None:
        return
    stores = (store for statement in statements for store in stores_of(parts_of(statement) or ()))
    buffer = next((store.buffer.name for store in stores if not is_scalar(store.buffer)), None)
    if buffer is not None:
        raise at_place(
            TileProgramError(
                f"{read_print(call).name} stands in the nest over {_names(loops)} that stores "
                f"{buffer}, whose iterations have no order; write it behind the nest, in a loop of "
                "its own for several elements."
            ),
            call,
        )


def loads(expression: Any) -> list[TensorLoad]:
    """Elements of buffers that an expression reads."""
    result: list[TensorLoad] = []

    def visit(load: TensorLoad) -> None:
        if is_buffer_var(load.source):
            result.append(load)

    if isinstance(expression, tvm_ffi.Object):
        tvm_ffi.structural_walk(expression, (TensorLoad, visit))
    return result


def require_guard(condition: Any) -> None:
    """A condition in a nest may depend on places and on global memory, not on tiles.

    Raises
    ------
    TileProgramError
        If it reads an element of a tile.
    """
    for load in loads(condition):
        if str(load.source.scope()) in TILES:
            raise TileProgramError(
                f"the statement `if` depends on an element of the tile {load.source.name}, "
                f"{text(condition)}; which elements a nest stores may depend on loop variables, "
                "scalars and global memory alone, so write the choice as a value: "
                "T.if_then_else(condition, value, other)."
            )


def text(expression: Any) -> str:
    """The last line of the script of an expression: earlier ones declare its variables."""
    return repr(str(expression).splitlines()[-1])


@dataclass(frozen=True)
class Access:
    """Elements that a store or a read touches in each iteration of a nest.

    Attributes
    ----------
    node : BufferStore or TensorLoad
    indices : list of numpy.ndarray
        Index arrays that broadcast to the shape of the nest.
    active : numpy.ndarray of bool
        Iterations in which it happens.
    statement : Stmt
        The statement that it is part of.
    certain : bool
        Whether it is known in which iterations it happens; if not, ``active`` has all.
    """

    node: Any
    indices: list[np.ndarray]
    active: np.ndarray
    statement: Any
    certain: bool = True

    @property
    def script(self) -> str:
        """Its element as the author wrote it."""
        at = ", ".join(str(i).splitlines()[-1] for i in self.node.indices)
        buffer = self.node.buffer if isinstance(self.node, BufferStore) else self.node.source
        return f"{buffer.name}[{at}]"


def require_independent(
    loops: Sequence[Var], values: Sequence[np.ndarray], stores: list[Access], reads: list[Access]
) -> None:
    """Check that iterations store different elements of one buffer, and read only their own.

    Parameters
    ----------
    loops, values : sequences
        Loop variables, and the values of each, an array of any shape.
    stores, reads : list of Access
        Of that buffer, in this nest.

    Raises
    ------
    TileProgramError
        If two iterations store one element, or one reads an element that another stores.
    """
    shape = tuple(value.size for value in values)
    places = [
        [np.broadcast_to(i, shape).ravel() for i in access.indices] for access in (*stores, *reads)
    ]
    active = [np.broadcast_to(access.active, shape).ravel() for access in (*stores, *reads)]
    keys = _keys(places)
    number = np.arange(keys[0].size)
    owners = np.empty(0, keys[0].dtype), np.empty(0, number.dtype), np.empty(0, number.dtype)
    for which, store in enumerate(stores):
        mine, iterations = keys[which][active[which]], number[active[which]]
        order = np.argsort(mine, kind="stable")
        mine, iterations = mine[order], iterations[order]
        same = np.flatnonzero(mine[1:] == mine[:-1])
        if same.size:
            first, second = iterations[same[0]], iterations[same[0] + 1]
            where = _iteration(loops, values, first), _iteration(loops, values, second)
            error = TileProgramError(
                f"iterations {where[0]} and {where[1]} of the nest both store {store.script}; each "
                "iteration must store an element of its own, so give each loop variable a place in "
                "the indices, reduce with Tx.cta.sum, max or min over axes=, or update it with "
                "wl.atomic_add, atomic_max or atomic_min."
            )
            raise at_place(error, store.statement)
        _require_own(store, mine, iterations, owners, stores, loops, values, "store")
        merged = np.concatenate([owners[0], mine])
        order = np.argsort(merged, kind="stable")
        owners = (
            merged[order], np.concatenate([owners[1], iterations])[order],
            np.concatenate([owners[2], np.full(mine.size, which)])[order],
        )  # fmt: skip
    for which, read in enumerate(reads, start=len(stores)):
        mine, iterations = keys[which][active[which]], number[active[which]]
        _require_own(read, mine, iterations, owners, stores, loops, values, "read")


def _keys(places: list[list[np.ndarray]]) -> list[np.ndarray]:
    """Return a number for the element of each access in each iteration."""
    keys = [np.zeros(indices[0].size, np.int64) for indices in places]
    for dimension in range(len(places[0])):
        low = min(indices[dimension].min(initial=0) for indices in places)
        span = max(indices[dimension].max(initial=0) for indices in places) - low + 1
        keys = [
            key * span + indices[dimension] - low for key, indices in zip(keys, places, strict=True)
        ]
    return keys


def _require_own(
    access: Access, keys: np.ndarray, iterations: np.ndarray, owners: tuple, stores: list[Access],
    loops: Sequence[Var], values: Sequence[np.ndarray], verb: str,
) -> None:  # fmt: skip
    if not owners[0].size or not keys.size:
        return
    at = np.minimum(np.searchsorted(owners[0], keys), owners[0].size - 1)
    wrong = np.flatnonzero((owners[0][at] == keys) & (owners[1][at] != iterations))
    if not wrong.size:
        return
    mine, theirs = iterations[wrong[0]], owners[1][at[wrong[0]]]
    store = stores[int(owners[2][at[wrong[0]]])]
    where = _iteration(loops, values, mine), _iteration(loops, values, theirs)
    fix = "let each store elements of its own."
    if verb == "read":
        fix = (
            "read from a tile that the nest does not store, or write two nests; Tx.cta.cumsum, "
            "cumprod, cummax and cummin scan a tile."
        )
    error = TileProgramError(
        f"iteration {where[0]} of the nest {verb}s {access.script}, an element that iteration "
        f"{where[1]} stores as {store.script}; iterations of a nest are independent, so {fix}"
    )
    raise at_place(error, access.statement)


def _iteration(loops: Sequence[Var], values: Sequence[np.ndarray], number: int) -> str:
    """``(i = 3, j = 0)``."""
    place = np.unravel_index(int(number), tuple(value.size for value in values))
    pairs = zip(loops, values, place, strict=True)
    return "(" + ", ".join(f"{v.name} = {int(a.ravel()[p])}" for v, a, p in pairs) + ")"

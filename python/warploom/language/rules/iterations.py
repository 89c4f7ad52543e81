"""Checks the accesses of one nest before it runs, as far as its indices are known."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm_ffi
from tvm.ir import Call, TensorLoad, Var
from tvm.ir.prim import expr as prim
from tvm.tirx.stmt import BufferStore

from warploom.errors import TileProgramError
from warploom.language.rules.known import Known, Unknown
from warploom.language.rules.nests import (
    Access,
    Nest,
    loads,
    require_guard,
    require_independent,
)
from warploom.language.rules.order import require_atomic_dtype
from warploom.language.rules.places import at_place
from warploom.language.rules.ranges import outside, require_inside
from warploom.language.rules.scopes import SHARED, TILES
from warploom.language.values.expressions import Evaluator
from warploom.tile.nest import AtomicUpdate, Binding, ElementStore, Guard, Part

#: Iterations in which something happens for certain; None where only the run tells.
Active = np.ndarray | None


@dataclass
class NestCheck:
    """A nest in one world: values of the variables around it.

    Attributes
    ----------
    known : Known
    nest : Nest
    evaluate : Evaluator
        With the loop variables of the nest.
    touched : callable
        Told of each tile that is read for certain, and of each that is written, in order:
        ``touched(buffer, writes, statement)``.
    bound : dict
        Variables bound in the nest -> their values in terms of variables around it.
    """

    known: Known
    nest: Nest
    evaluate: Evaluator
    touched: Callable[[Any, bool, Any], None]
    bound: dict[Var, Any] = field(default_factory=dict)
    stores: dict[Any, list[Access]] = field(default_factory=dict)
    reads: dict[Any, list[Access]] = field(default_factory=dict)
    #: Buffer -> the atomic updates of its elements.
    updates: dict[Any, list[AtomicUpdate]] = field(default_factory=dict)

    def run(self) -> None:
        """Check every statement, and that iterations are independent."""
        self._statements(self.nest.parts, np.asarray(True))
        loops = tuple(loop.loop_var for loop in self.nest.loops)
        values = [self.evaluate.variables[v] for v in loops]
        self._require_updates()
        for buffer, stores in self.stores.items():
            reads = self.reads.get(buffer, [])
            self._refuse_open_reads(buffer, stores, reads)
            if own_elements(loops, values, stores, reads):
                continue
            # Which iterations store may be up to the data, as long as no statement reads the
            # result.
            certain = stores if reads else [store for store in stores if store.certain]
            if certain:
                require_independent(loops, values, certain, reads)

    def _statements(self, parts: Sequence[Part], active: Active) -> None:
        for part in parts:
            try:
                self._statement(part, active)
            except TileProgramError as error:
                raise at_place(error, part.raw) from None

    def _statement(self, part: Part, active: Active) -> None:
        match part:
            case Binding():
                self._values([part.value], active, part.raw)
                self.bound[part.variable] = self._inlined(part.value)
                value = self._try(part.value)
                if value is not None:
                    self.evaluate.variables[part.variable] = value
            case Guard():
                require_guard(self._inlined(part.condition))
                self._values([part.condition], active, part.raw)
                taken, otherwise = _split(active, self._try(part.condition))
                self._statements(part.parts, taken)
                self._statements(part.otherwise, otherwise)
            case AtomicUpdate():
                self._values([part.value, *part.indices], active, part.raw)
                self._update(part, active)
            case ElementStore():
                self._values([part.value, *part.indices], active, part.raw)
                self._store(part.raw, active)

    def _store(self, store: BufferStore, active: Active) -> None:
        buffer = store.buffer
        _require_rank(buffer, store.indices)
        self._require_inside(buffer, store.indices, active)
        self.touched(buffer, True, store)
        access = self._access(store, store.indices, active, store)
        self.stores.setdefault(buffer, []).append(access)

    def _update(self, update: AtomicUpdate, active: Active) -> None:
        buffer, store = update.buffer, update.raw
        scope = str(buffer.scope())
        if scope not in (*SHARED, "global"):
            raise TileProgramError(
                f"{update.name} updates {buffer.name} in scope {scope}; it must be in global or "
                "shared memory, as threads cannot reach each other's registers: reduce with "
                "Tx.cta.sum, max or min."
            )
        require_atomic_dtype(update.name, buffer.name, str(buffer.ty.dtype))
        _require_rank(buffer, store.indices)
        self._require_inside(buffer, store.indices, active)
        if scope in SHARED and active is not None and active.any():
            self.touched(buffer, False, store)
        self.touched(buffer, True, store)
        self.updates.setdefault(buffer, []).append(update)

    def _require_updates(self) -> None:
        """What a nest updates it does not touch otherwise."""
        for buffer, updates in self.updates.items():
            names = sorted({update.name for update in updates})
            other = "stores" if buffer in self.stores else "reads" if buffer in self.reads else ""
            if len(names) == 1 and not other:
                continue
            clash = f"{other} it too" if other else f"calls {names[1]} for it too"
            error = TileProgramError(
                f"the nest updates {buffer.name} with {names[0]} and {clash}; iterations have no "
                "order, so do one of them in another nest."
            )
            raise at_place(error, updates[0].raw)

    def _values(self, expressions: Sequence[Any], active: Active, statement: Any) -> None:
        for expression in expressions:
            if not loads(expression):
                continue
            for load, when in _conditional_loads(expression, self, active):
                buffer = load.source
                _require_rank(buffer, load.indices)
                if str(buffer.scope()) in TILES:
                    self._require_inside(buffer, load.indices, when)
                    if when is not None and when.any():
                        self.touched(buffer, False, statement)
                if str(buffer.scope()) != "local":
                    access = self._access(load, load.indices, when, statement)
                    self.reads.setdefault(buffer, []).append(access)

    def _access(self, node: Any, indices: Sequence[Any], active: Active, statement: Any) -> Access:
        happens = np.asarray(True) if active is None else active
        return Access(node, self._places(indices), happens, statement, active is not None)

    def _refuse_open_reads(self, buffer: Any, stores: list[Access], reads: list[Access]) -> None:
        by_memory = [
            store for store in stores if any(map(self.known.depends_on_memory, store.node.indices))
        ]
        if by_memory and reads:
            error = TileProgramError(
                f"the nest stores {by_memory[0].script}, at an index read from memory, and reads "
                f"{reads[0].script}; whether iterations are independent is then up to the data, so "
                f"read {buffer.name} into another tile first, or update it with wl.atomic_add, "
                "atomic_max or atomic_min."
            )
            raise at_place(error, by_memory[0].statement)
        for read, store in itertools.product(reads, stores):
            pairs = [
                (self._inlined(a), self._inlined(b))
                for a, b in zip(read.node.indices, store.node.indices, strict=True)
            ]
            if any(not _same(a, b) and any(map(self.known.is_open, (a, b))) for a, b in pairs):
                error = TileProgramError(
                    f"the nest stores {store.script} and reads {read.script}, whose places only "
                    "the run tells; whether iterations are independent is then up to the data, so "
                    f"read {buffer.name} into another tile first."
                )
                raise at_place(error, read.statement)

    def _require_inside(self, buffer: Any, indices: Sequence[Any], active: Active) -> None:
        if str(buffer.scope()) not in TILES or active is None:
            return
        shape = [self.known.constant(extent) for extent in buffer.ty.shape]
        for dimension, (index, extent) in enumerate(zip(indices, shape, strict=True)):
            value = self._try(index)
            if value is None or extent is None:
                continue
            wrong = outside([value], [extent]) & active
            if wrong.any():
                others = [self._try(index) for index in indices]
                places = [np.asarray(0) if index is None else index for index in others]
                places[dimension] = value
                require_inside(buffer.name, str(buffer.scope()), shape, places, wrong)

    def _places(self, indices: Sequence[Any]) -> list[np.ndarray]:
        """Index arrays; an index that is not known counts as different in each iteration of the
        loops whose variables it has."""
        return [
            self._stand_in(index) if (value := self._try(index)) is None else value
            for index in indices
        ]

    def _stand_in(self, index: Any) -> np.ndarray:
        used: set[Var] = set()
        tvm_ffi.structural_walk(self._inlined(index), (Var, used.add))
        number = np.asarray(0)
        for loop in self.nest.loops:
            values = self.evaluate.variables[loop.loop_var]
            if loop.loop_var in used:
                number = number * values.size + np.arange(values.size).reshape(values.shape)
        return number

    def _inlined(self, expression: Any) -> Any:
        if not self.bound or not isinstance(expression, tvm_ffi.Object):
            return expression
        return tvm_ffi.structural_map(
            expression, (Var, lambda var: self.bound.get(var, var)), order="post"
        )

    def _try(self, expression: Any) -> np.ndarray | None:
        try:
            return self.evaluate(expression)
        except (Unknown, TileProgramError):
            return None


def own_elements(
    loops: Sequence[Var], values: Sequence[np.ndarray], stores: list[Access], reads: list[Access]
) -> bool:
    """Whether it is plain that each iteration has elements of its own: all accesses have the same
    indices, and each loop variable is one of them, alone or beside terms that the nest does not
    change.
    """
    first = stores[0].node.indices
    for access in (*stores[1:], *reads):
        if not all(_same(a, b) for a, b in zip(first, access.node.indices, strict=True)):
            return False
    alone = [_own_variable(index, loops) for index in first]
    return all(
        array.size == 1 or any(index is not None and var.same_as(index) for index in alone)
        for var, array in zip(loops, values, strict=True)
    )


def _own_variable(index: Any, loops: Sequence[Var]) -> Var | None:
    """The loop variable that an index is, or is plus a term that is constant in the nest."""
    if isinstance(index, Var):
        return index
    if isinstance(index, prim.Add):
        for part, rest in ((index.a, index.b), (index.b, index.a)):
            if isinstance(part, Var) and any(part.same_as(v) for v in loops):
                used: set[Var] = set()
                tvm_ffi.structural_walk(rest, (Var, used.add))
                return None if used & set(loops) else part
    return None


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Var) or isinstance(b, Var):
        return bool(a.same_as(b))
    return bool(tvm_ffi.structural_equal(a, b))


def _require_rank(buffer: Any, indices: Sequence[Any]) -> None:
    if len(indices) != len(buffer.ty.shape):
        raise TileProgramError(
            f"{buffer.name} is indexed by {len(indices)} numbers; it has {len(buffer.ty.shape)} "
            "dimensions."
        )


def _split(active: Active, holds: np.ndarray | None) -> tuple[Active, Active]:
    """Where a condition holds, and where not."""
    if active is None or holds is None:
        return None, None
    truth = holds.astype(bool)
    return active & truth, active & ~truth


def _conditional_loads(
    node: Any, check: NestCheck, active: Active
) -> Iterator[tuple[TensorLoad, Active]]:
    """Loads of an expression, each with the iterations that need it."""
    if isinstance(node, TensorLoad):
        for index in node.indices:
            yield from _conditional_loads(index, check, active)
        yield node, active
        return
    if isinstance(node, prim.Select) or _is_choice(node):
        condition, *cases = (
            node.args if isinstance(node, Call)
            else (node.condition, node.true_value, node.false_value)
        )  # fmt: skip
        yield from _conditional_loads(condition, check, active)
        for case, mask in zip(cases, _split(active, check._try(condition)), strict=True):
            yield from _conditional_loads(case, check, mask)
        return
    if isinstance(node, (prim.And, prim.Or)):
        yield from _conditional_loads(node.a, check, active)
        needed = _split(active, check._try(node.a))[isinstance(node, prim.Or)]
        yield from _conditional_loads(node.b, check, needed)
        return
    for name in ("args", "a", "b", "value", "body"):
        part = getattr(node, name, ())
        for child in part if name == "args" else [part]:
            if isinstance(child, tvm_ffi.Object):
                yield from _conditional_loads(child, check, active)


def _is_choice(node: Any) -> bool:
    return isinstance(node, Call) and str(node.op.name).rpartition(".")[2] == "if_then_else"

"""Threads that share a row reduce it together: of a thread, of a warp, of a CTA, of a cluster.

Each has a number of its own, or the number and its place. Lanes exchange them by shuffles, warps
through shared memory, CTAs of a cluster through each other's shared memory (PTX ISA, "Distributed
shared memory" of the CUDA programming guide, ``mapa``, ``barrier.cluster``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var

from warploom.lower.emit.barriers import remote_view
from warploom.rows.plan import WARP, RowPlan
from warploom.rows.reductions import COMBINE, NEUTRAL, Reduction
from warploom.tile import ir

#: Threads of a warp that take part in a shuffle: all.
_EVERYONE = 0xFFFFFFFF


class SharedReduction:
    """One reduction in a kernel: what each thread has of it, and how they come to the result.

    Parameters
    ----------
    reduction : Reduction
    plan : RowPlan
    thread, rank : Var
        The number of the thread in its CTA, and of the CTA in its cluster.
    """

    def __init__(self, reduction: Reduction, plan: RowPlan, thread: Var, rank: Var) -> None:
        self.reduction, self.plan, self.thread, self.rank = reduction, plan, thread, rank
        place = reduction.place
        self.results = [reduction.result, *([] if place is None else [place.result])]
        #: What a thread has.
        self.own = [self._buffer(result, "own", 1, "local") for result in self.results]

    def start(self) -> Iterator[Stmt]:
        """Statements before the first element."""
        reduction = self.reduction
        neutral = NEUTRAL.get(reduction.combine)
        first = reduction.start
        if neutral is not None:  # the start is taken in once, at the end
            first = tirx.const(neutral, str(reduction.result.ty.dtype))
        starts = [first] if reduction.place is None else [first, reduction.place.start]
        for buffer, value in zip(self.own, starts, strict=True):
            yield tirx.AllocBuffer(buffer)
            yield tirx.BufferStore(buffer, value, [0])

    def take(self, *values: Any) -> list[Stmt]:
        """Statements that take in an element: its term and, where that is wanted, its number."""
        if self.reduction.place is None:
            mine, combine = self.own[0], COMBINE[self.reduction.combine]
            return [tirx.BufferStore(mine, combine(mine[0], values[0]), [0])]
        names = [Var(result.name, str(result.ty.dtype)) for result in self.results]
        return [
            *map(tirx.Bind, names, values),
            ir.when(
                self._is_better(names, [buffer[0] for buffer in self.own]),
                [
                    tirx.BufferStore(buffer, name, [0])
                    for buffer, name in zip(self.own, names, strict=True)
                ],
            ),
        ]

    def finish(self) -> Iterator[Stmt]:
        """Statements that give all threads of a row the result."""
        plan = self.plan
        mask = tirx.const(_EVERYONE, "uint32")
        distance = min(plan.threads, WARP) // 2
        while distance:
            theirs = [
                T.tvm_warp_shuffle_xor(mask, buffer[0], distance, WARP, WARP) for buffer in self.own
            ]
            yield from self.take(*theirs)
            distance //= 2
        warps = plan.threads // WARP
        if warps > 1:
            shared = [self._buffer(result, "all", warps, "shared") for result in self.results]
            first = T.truncmod(self.thread, WARP) == 0
            warp = T.truncdiv(self.thread, WARP)
            yield from map(tirx.AllocBuffer, shared)
            yield ir.when(first, self._stored(shared, warp))
            yield ir.evaluate(T.cuda.cta_sync())
            yield from self._gathered(shared, warps)
        if plan.cluster > 1:
            yield from self._across_cluster()
        results = [buffer[0] for buffer in self.own]
        neutral = NEUTRAL.get(self.reduction.combine)
        if neutral is not None and not _is_number(self.reduction.start, neutral):
            results[0] = COMBINE[self.reduction.combine](self.reduction.start, results[0])
        yield from map(tirx.Bind, self.results, results)

    def _across_cluster(self) -> Iterator[Stmt]:
        """Each CTA writes what it has into the shared memory of all."""
        ctas = self.plan.cluster
        slots = [self._buffer(result, "ctas", ctas, "shared") for result in self.results]
        yield from map(tirx.AllocBuffer, slots)
        peers, told = [], []
        for slot in slots:
            peer, declaration = remote_view(slot, T.truncmod(self.thread, ctas))
            peers.append(peer)
            told += declaration
        yield from told
        yield ir.when(self.thread < ctas, self._stored(peers, self.rank))
        yield ir.evaluate(T.cuda.cluster_sync())
        yield from self._gathered(slots, ctas)

    def _stored(self, buffers: Sequence[Buffer], index: Any) -> list[Stmt]:
        return [
            tirx.BufferStore(buffer, own[0], [index])
            for buffer, own in zip(buffers, self.own, strict=True)
        ]

    def _gathered(self, buffers: Sequence[Buffer], count: int) -> Iterator[Stmt]:
        """All numbers of some buffers, as a thread's own."""
        if self.reduction.place is None:
            combine = COMBINE[self.reduction.combine]
            values = [buffers[0][number] for number in range(count)]
            yield tirx.BufferStore(self.own[0], _folded(values, combine), [0])
            return
        yield from self._loaded(buffers, 0)
        for number in range(1, count):
            yield from self.take(*(buffer[number] for buffer in buffers))

    def _loaded(self, buffers: Sequence[Buffer], number: int) -> Iterator[Stmt]:
        for own, buffer in zip(self.own, buffers, strict=True):
            yield tirx.BufferStore(own, buffer[number], [0])

    def _is_better(self, new: Sequence[Any], old: Sequence[Any]) -> Any:
        """Whether another extremum, or an equal one at another place, counts instead."""
        place = self.reduction.place
        assert place is not None
        beyond = new[0] > old[0] if self.reduction.combine == "max" else new[0] < old[0]
        other = new[1] > old[1] if place.last else new[1] < old[1]
        return T.Or(beyond, T.And(new[0] == old[0], other))

    @staticmethod
    def _buffer(result: Var, part: str, size: int, scope: str) -> Buffer:
        return tirx.decl_buffer(
            (size,), str(result.ty.dtype), f"{result.name}_{part}", scope=scope
        )


def _folded(values: Sequence[Any], combine: Callable[[Any, Any], Any]) -> Any:
    """All values combined, in a tree: neighbours first, so that no chain is long."""
    values = list(values)
    while len(values) > 1:
        pairs = [combine(x, y) for x, y in zip(values[::2], values[1::2], strict=False)]
        values = [*pairs, *values[2 * len(pairs) :]]
    return values[0]


def _is_number(value: Any, number: int) -> bool:
    return isinstance(value, (tirx.IntImm, tirx.FloatImm)) and value.value == number

"""Sums, maxima and minima of rows, columns or vectors that are spread over a grid of threads.

A thread reduces its own registers in a few chains, lanes of a warp then shuffle, and warps that
share a result meet in shared memory. Every thread that has a part of a row, or of a column, has
the result; all threads have that of a vector.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Buffer, ForKind, Stmt, Var
from tvm.tirx.layout import S, TileLayout

from warploom.errors import Decline
from warploom.layout.thread_grid import ThreadGrid
from warploom.lower.nests.elements import NestContext
from warploom.ops.register_tile import LANES
from warploom.tile import ir
from warploom.tile.primitives import op_name
from warploom.tile.statement import Reduction

_COMBINE: dict[str, Callable[[Any, Any], Any]] = {"sum": operator.add, "max": T.max, "min": T.min}
#: Independent partial results of a thread: hides the latency of dependent instructions.
_CHAINS = 4
#: Results that warps pass through shared memory at a time.
_AT_A_TIME = 8
_FULL_WARP = 0xFFFFFFFF


@dataclass(frozen=True)
class GridReduction:
    """A reduction of a tile on a grid.

    Attributes
    ----------
    reduction : Reduction
    grid : ThreadGrid
    context : NestContext
    thread : Expr
        The number of the thread in its CTA.
    neutral : Expr
        The value that does not change a result.
    meet : Stmt
        A barrier of all threads.
    again : bool
        Whether the statement may be executed several times.
    """

    reduction: Reduction
    grid: ThreadGrid
    context: NestContext
    thread: Any
    neutral: Any
    meet: Stmt
    again: bool

    def lowered(self) -> list[Stmt]:
        """The statements of a thread.

        Raises
        ------
        Decline
            If it takes a part of the rows, or its result has a dtype without instructions.
        """
        call = self.reduction.raw
        to, source = call.args[0].source, call.args[1].source
        if str(to.dtype) not in ("float32", "int32"):
            raise Decline(
                f"The reduction into {to.name} has {to.dtype} results; reduce into float32 or "
                "int32, and cast after."
            )
        count = self._results(to)
        partial = _registers("partial", count, str(to.dtype))
        statements: list[Stmt] = [tirx.AllocBuffer(partial)]
        statements += self._own(source, partial, count)
        statements += self._of_warps(partial, count)
        result, own = self.context.registers(to), Var("result", "int32")
        total = partial[own]
        if bool(call.args[3]):
            total = self._combine(result[own], total)
        statements.append(
            ir.loop(own, count, [tirx.BufferStore(result, total, [own])], kind=ForKind.UNROLLED)
        )
        return statements

    # -- the operation -------------------------------------------------------------------------

    @property
    def _combine(self) -> Callable[[Any, Any], Any]:
        return _COMBINE[op_name(self.reduction.raw)]

    @property
    def _of_rows(self) -> bool:
        """Whether it reduces each row, or a vector that lies as a row does; else each column."""
        source = self.reduction.raw.args[1].source
        if len(source.shape) == 2:
            return int(self.reduction.raw.args[2][0]) % 2 == 1
        as_row = self.grid.along_columns(int(source.shape[0]))
        return tvm_ffi.structural_equal(source.layout, as_row)

    def _results(self, to: Buffer) -> int:
        return int(to.layout.storage().span("m"))

    # -- registers of a thread -----------------------------------------------------------------

    def _own(self, source: Buffer, partial: Buffer, count: int) -> list[Stmt]:
        """Reduce the registers of a thread."""
        tile = self.context.tile(source)
        each = tile.registers // count
        chains = next(chains for chains in (_CHAINS, 2, 1) if each % chains == 0)
        dtype = str(partial.dtype)
        neutral = tirx.const(self.neutral, dtype)
        parts = _registers("chains", chains, dtype)
        result, step = Var("result", "int32"), Var("step", "int32")
        body: list[Stmt] = [tirx.BufferStore(parts, neutral, [chain]) for chain in range(chains)]
        analyzer = self.context.analyzer(step, each // chains)
        analyzer.bind(result, ir.whole_range(count))
        registers = self.context.registers(source)
        parts_of = ir.ranges(self.reduction.raw.args[1])
        along = int(self._of_rows) if len(parts_of) == 2 else 0
        inner = []
        for chain in range(chains):
            number = step * chains + chain
            # Registers of a row lie one after the other; those of a column, `count` apart.
            at = result * each + number if self._of_rows else number * count + result
            value = T.Cast(dtype, registers[at]) if str(source.dtype) != dtype else registers[at]
            places = tile.coordinates(self.context.axes, at)
            tests = [
                test
                for test in _tests(analyzer.simplify(places[along]), parts_of[along])
                if not analyzer.can_prove(test)
            ]
            if tests:
                value = T.Select(functools.reduce(T.And, tests), value, neutral)
            inner.append(tirx.BufferStore(parts, self._combine(parts[chain], value), [chain]))
        body.append(ir.loop(step, each // chains, inner, kind=ForKind.UNROLLED))
        total = functools.reduce(self._combine, [parts[chain] for chain in range(chains)])
        body.append(tirx.BufferStore(partial, total, [result]))
        return [
            tirx.AllocBuffer(parts),
            ir.loop(result, count, body, kind=ForKind.UNROLLED),
        ]

    # -- warps ---------------------------------------------------------------------------------

    def _of_warps(self, partial: Buffer, count: int) -> list[Stmt]:
        """Reduce over lanes, then over the warps that share a result."""
        across = self.grid.across
        if self._of_rows:
            masks = [mask for mask in (1, 2, 4, 8, 16) if mask < across]
            warps, step, lanes = max(1, across // LANES), 1, 1
        else:
            masks = [mask for mask in (1, 2, 4, 8, 16) if mask >= across]
            step = max(1, across // LANES)
            warps, lanes = self.grid.threads // LANES // step, min(across, LANES)
        result = Var("result", "int32")
        body = [self._shuffle(partial, result, mask) for mask in masks]
        statements = []
        if body:
            statements.append(ir.loop(result, count, body, kind=ForKind.UNROLLED))
        if warps > 1:
            statements += self._through_shared(partial, count, warps, step, lanes)
        return statements

    def _shuffle(self, partial: Buffer, at: Any, mask: int) -> Stmt:
        everyone = tirx.const(_FULL_WARP, "uint32")
        theirs = T.tvm_warp_shuffle_xor(everyone, partial[at], mask, LANES, LANES)
        return tirx.BufferStore(partial, self._combine(partial[at], theirs), [at])

    def _through_shared(
        self, partial: Buffer, count: int, warps: int, step: int, lanes: int
    ) -> list[Stmt]:
        """Every ``step``-th of ``warps`` warps has parts of ``lanes`` results in its lanes."""
        every = self.grid.threads // LANES
        at_a_time = min(count, _AT_A_TIME)
        shared = tirx.decl_buffer(
            (at_a_time, every, lanes), str(partial.dtype), "between_warps", scope="shared",
            layout=TileLayout(S[(at_a_time, every, lanes)]),
        )  # fmt: skip
        warp, lane = T.truncdiv(self.thread, LANES), T.truncmod(self.thread, LANES)
        # Warps that share results: they differ in one digit of their number.
        first = T.truncdiv(warp, warps * step) * (warps * step) + T.truncmod(warp, step)
        own = T.truncmod(lane, lanes)
        statements: list[Stmt] = [tirx.AllocBuffer(shared)]
        for start in range(0, count, at_a_time):
            batch = min(at_a_time, count - start)
            if self.again or start:
                statements.append(self.meet)
            write = [
                tirx.BufferStore(shared, partial[start + number], [number, warp, own])
                for number in range(batch)
            ]
            statements += [ir.when(lane < lanes, write), self.meet]
            for number in range(batch):
                statements += self._read(
                    shared, partial, start + number, number, (warps, step, lanes, first, lane)
                )
        return statements

    def _read(
        self, shared: Buffer, partial: Buffer, at: int, number: int, places: tuple[Any, ...]
    ) -> list[Stmt]:
        """Combine the parts of all warps."""
        warps, step, lanes, first, lane = places
        if lanes == 1:
            # A lane reads the part of a warp.
            theirs = shared[number, first + T.truncmod(lane, warps) * step, 0]
            masks = [1 << bit for bit in range(warps.bit_length() - 1)]
            return [
                tirx.BufferStore(partial, theirs, [at]),
                *(self._shuffle(partial, at, mask) for mask in masks),
            ]
        own = T.truncmod(lane, lanes)
        parts = [shared[number, first + warp * step, own] for warp in range(warps)]
        return [tirx.BufferStore(partial, functools.reduce(self._combine, parts), [at])]


def _registers(name: str, count: int, dtype: str) -> Buffer:
    return ir.declare_tile((count,), dtype, name, "local", TileLayout(S[(count,)]))


def _tests(place: Any, part: tuple[Any, Any]) -> list[Any]:
    """The conditions under which a place is in a part of a dimension of a tile."""
    start, size = part
    return [place >= start, place < start + size]

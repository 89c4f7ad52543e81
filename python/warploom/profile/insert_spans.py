"""The pass that makes a kernel record its spans.

It runs when roles have parted and mbarriers are there, before tiles become registers. Each role is
a stream of records. Statements of one kind that follow each other are a span; loops and branches
with statements of several kinds are looked into. In a kernel that its author has orchestrated,
each warp is a stream, and spans are those of ``wl.span``, or if there is none, as above.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Buffer, PrimFunc, Stmt

from warploom.errors import IllegalCombination
from warploom.profile import span_kinds as kinds
from warploom.profile.device_code import Recorder
from warploom.profile.groups import Group, OpenGroup
from warploom.profile.recording import WORD_BYTES, Recording
from warploom.profile.runs import category_of, end_of_run, named_after, result_of, with_arrivals
from warploom.tile import ir
from warploom.tile.barrier_uses import SUPPLIES, barrier_uses
from warploom.tile.ids import parent_and_child
from warploom.tile.program import TileProgram
from warploom.tile.roles import role_name
from warploom.tile.scalar import ThreadScalar
from warploom.tile.spans import span_name
from warploom.tile.statement import Block, Scalar, Statement, raws, walk

#: The parameter that instrumented functions have beside their own.
PARAMETER = "timeline_records"
_LANES = 32
#: Most bytes of records: their place is an offset of 32 bits.
_MAX_BYTES = 1 << 30
#: Most warps of a CTA.
_MAX_WARPS = 32


@dataclass
class Inserted:
    """The result of the pass.

    The streams of a CTA, groups of spans by number, and the roles that complete phases of each
    mbarrier.
    """

    streams: list[str] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    suppliers: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def number(self, group: Group) -> int:
        """The number of a group."""
        if group not in self.groups:
            self.groups.append(group)
        return self.groups.index(group)


def insert_spans(recording: Recording, inserted: Inserted) -> Callable[[TileProgram], TileProgram]:
    """The pass; it writes names of streams and groups into ``inserted``."""

    def run(program: TileProgram) -> TileProgram:
        inserted.streams, inserted.groups = streams_of(program), []
        inserted.suppliers = suppliers(program)
        per_cta = len(inserted.streams)
        shape = (recording.rows, recording.ctas * per_cta)
        if shape[0] * shape[1] * WORD_BYTES > _MAX_BYTES:
            raise IllegalCombination(
                f"A recording of {recording.ctas} CTAs with {per_cta} streams each and a capacity "
                f"of {recording.capacity} takes {shape[0] * shape[1] * WORD_BYTES} bytes; allowed "
                f"are {_MAX_BYTES}, so record less."
            )
        records = tirx.decl_buffer(shape, "uint64", PARAMETER)
        walk = _Inserter(program, Recorder(records, recording, per_cta), inserted)
        body = walk.whole()
        return program.replace(func=_with_parameter(program.func, records), body=body).decided(
            f"timeline: {recording.ctas} CTAs, streams {', '.join(inserted.streams)} of "
            f"{recording.capacity} spans"
        )

    return run


def _with_parameter(func: PrimFunc, records: Buffer) -> PrimFunc:
    return PrimFunc([*func.params, records], func.body, func.ret_type, func.attrs, func.span)


def suppliers(program: TileProgram) -> dict[str, tuple[str, ...]]:
    """For each mbarrier the roles that complete its phases."""
    found: dict[str, dict[str, None]] = {}
    for statement in walk(program.block):
        name = role_name(statement.raw)
        for use in barrier_uses([statement.raw]) if name is not None else ():
            if use.kind in SUPPLIES:
                found.setdefault(use.barrier, {})[name] = None
    return {barrier: tuple(roles) for barrier, roles in found.items()}


def streams_of(program: TileProgram) -> list[str]:
    """Names of the streams of a CTA."""
    if not program.by_hand:
        return [
            role.name if role.count == 1 else f"{role.name} {number}"
            for role in program.roles
            for number in range(role.count)
        ]
    return [f"warp {number}" for number in range(_warps(program))]


def _warps(program: TileProgram) -> int:
    """Warps of a CTA that its author has orchestrated."""
    counts: list[int] = []
    factors = {("cta", "warpgroup"): 4.0, ("cta", "warp"): 1.0, ("cta", "thread"): 1 / _LANES}

    def visit(node: tirx.ScopeIdDefStmt) -> None:
        definition = getattr(node, "def")
        factor = factors.get(tuple(parent_and_child(definition)))
        if factor and definition.extents:
            count = factor
            for extent in definition.extents:
                count *= int(extent)
            counts.append(max(1, round(count)))

    for statement in program.body:
        tvm_ffi.structural_walk(statement, (tirx.ScopeIdDefStmt, visit))
    return min(max(counts, default=_MAX_WARPS), _MAX_WARPS)


class _Inserter:
    """Rewrites the body of one program."""

    def __init__(self, program: TileProgram, recorder: Recorder, inserted: Inserted) -> None:
        self.program, self.recorder, self.inserted = program, recorder, inserted
        #: Where the next record of the current stream goes.
        self.next = ThreadScalar("timeline_next", "uint32")
        self.group = OpenGroup()
        #: The end of the span that ends here, if nothing has come since that takes time.
        self.here: ThreadScalar | None = None

    def whole(self) -> tuple[Stmt, ...]:
        """The body of the kernel."""
        if not self.program.by_hand:
            return tuple(map(self._roles, self.program.block))
        rank = T.Cast("int32", T.cuda.thread_rank())
        body = self.program.block
        ids = [
            statement.raw for statement in body if isinstance(statement.raw, tirx.ScopeIdDefStmt)
        ]
        rest = tuple(
            statement for statement in body if not isinstance(statement.raw, tirx.ScopeIdDefStmt)
        )
        named = any(map(_has_spans, rest))
        inner = [*self._named(rest), *self._record()] if named else self._block(rest, False)
        chosen = T.EQ(T.truncmod(rank, _LANES), 0)
        return (*ids, *self._stream(inner, T.truncdiv(rank, _LANES), chosen))

    def _roles(self, statement: Statement) -> Stmt:
        name = role_name(statement.raw)
        if name is None:
            return statement.with_each(self._roles)
        first = 0
        for role in self.program.roles:
            if role.name == name:
                break
            first += role.count
        chosen: Any = tirx.const(True, "bool")
        if not role.one_thread:
            warp, lane = self.program.var("warp_in_warpgroup"), self.program.var("lane")
            chosen = T.And(warp == 0, lane == 0)
        self.next = ThreadScalar("timeline_next", "uint32")
        inner = self._block(statement.body, False)
        return statement.with_blocks(self._stream(inner, first + statement.raw.value, chosen))

    def _stream(self, inner: list[Stmt], number: Any, chosen: Any) -> list[Stmt]:
        start = self.next.define(self.recorder.open(number, chosen))
        return [*start, *inner, ir.evaluate(self.recorder.close(self.next.value))]

    # -- spans ---------------------------------------------------------------------------------

    def _span(
        self, statements: Callable[[], list[Stmt]], name: str, category: str, result: Any = None
    ) -> list[Stmt]:
        """A span around ``statements()``; they may have others within."""
        before = self._begin()
        begin = self.here
        inner = statements()
        if not self.group.has_room(begin):
            inner += self._record()
        end = ThreadScalar("timeline_clock", "uint32")
        clock = self.recorder.clock()
        if result is not None:
            clock = self.recorder.clock_of_result(begin.value, result)
        self.group.add(name, category, begin, end)
        self.here = end
        return [*before, *inner, *end.define(clock)]

    def _begin(self) -> list[Stmt]:
        """Statements after which ``self.here`` is the clock, if it is not yet."""
        if self.here is not None and self.group.has_room(self.here):
            return []
        self.here = ThreadScalar("timeline_clock", "uint32")
        return self.here.define(self.recorder.clock())

    def _record(self) -> list[Stmt]:
        """Record the spans that have ended."""
        group, self.group, self.here = self.group, OpenGroup(), None
        if not group.spans:
            return []
        clocks = [clock.value for clock in group.clocks]
        number = self.inserted.number(group.closed)
        return [self.next.set(self.recorder.record(self.next.value, number, clocks))]

    def _untimed(self, statement: Statement) -> list[Stmt]:
        """A statement between spans; spans that have ended are recorded before a jump."""
        before = self._record() if kinds.jumps(statement) else []
        if not isinstance(statement, Scalar):
            self.here = None
        return [*before, statement.raw]

    def _named(self, statements: Block) -> list[Stmt]:
        """Statements with the spans that the author has named."""
        result: list[Stmt] = []
        for statement in statements:
            name = span_name(statement.raw)
            if name is not None:
                inner = partial(self._named, statement.body)
                result += self._span(inner, name, category_of(name))
            elif _has_spans(statement):
                result += self._record()
                result.append(statement.with_blocks(*map(self._named_body, statement.blocks)))
            else:
                result += self._untimed(statement)
        return result

    def _named_body(self, body: Block) -> list[Stmt]:
        return [*self._named(body), *self._record()]

    def _block(self, statements: Block, in_loop: bool) -> list[Stmt]:
        """Statements of a role with spans around those that take time.

        ``in_loop``: in the loop of MMAs, where work on registers is no epilogue.
        """
        kinds_of = [kinds.kinds(statement) for statement in statements]
        last = max(
            (i for i, statement in enumerate(statements) if kinds.has_mmas(statement)),
            default=-1,
        )
        result: list[Stmt] = []
        at = 0
        while at < len(statements):
            if len(kinds_of[at]) > 1:
                result += [*self._record(), self._inside(statements[at], in_loop)]
                at += 1
                continue
            if not kinds_of[at]:
                result += self._untimed(statements[at])
                at += 1
                continue
            (kind,) = kinds_of[at]
            end = end_of_run(kinds_of, at, kind)
            if kind == kinds.MMA and result_of(statements[at:end]) is None:
                end = with_arrivals(statements, kinds_of, end)
            run = statements[at:end]
            if kind == kinds.WORK:
                name = category = kinds.COMPUTE if in_loop or at < last else kinds.EPILOGUE
            else:
                name, category = named_after(run, kind), kind
            if any(map(kinds.jumps, run)):
                result += self._record()
            mma = result_of(run) if kind == kinds.MMA else None
            result += self._span(partial(raws, run), name, category, mma)
            at = end
        return [*result, *self._record()]

    def _inside(self, statement: Statement, in_loop: bool) -> Stmt:
        in_loop |= kinds.is_mma_loop(statement)
        return statement.with_blocks(*(self._block(body, in_loop) for body in statement.blocks))


def _has_spans(statement: Statement) -> bool:
    return any(span_name(inner.raw) is not None for inner in walk((statement,)))

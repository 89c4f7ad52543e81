"""Split-K and stream-K reduction through a workspace: CTAs wait for each other's sums.

Each warpgroup reduces the rows that it computes with the same warpgroup of the other CTA: its
threads store, meet at their named barrier, and one of them sets a flag with release semantics. On
the other side each thread waits for the flag of another CTA with acquire semantics, and the barrier
tells the others. So neither CTA stops as a whole, and the warp that loads goes on with the next
segment. Only then are the sums read: small ones of several CTAs at a time, since the latency of a
read takes longer than its bytes.

A workspace holds anything before a launch, and no kernel prepares it
(:mod:`~warploom.lower.emit.given_word`). Each flag that is set is waited for by one thread, which
clears it: so the workspace is left without the word, for the next launch, for a CUDA graph that
replays this one, and for whoever gets the memory.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var

from warploom.lower.analysis.consumers import consumers
from warploom.lower.emit.given_word import FLAG_DTYPE, clear_flag, set_flag, wait_for_flag
from warploom.lower.emit.named_barriers import one_consumer
from warploom.lower.emit.threads import leader, orchestrated, thread_in_warpgroup
from warploom.lower.nests.fragment_order import ANY_ORDER
from warploom.lower.passes.reduce_in_clusters import reduce_in_clusters
from warploom.target import SM90A
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.statement import Block, Copy, Given, Loop, Statement, Taken, walk

#: Sums of other CTAs that a thread reads at a time, in registers and in CTAs.
_REGISTERS_AT_A_TIME, _CTAS_AT_A_TIME = 32, 4


def reduce_splits(program: TileProgram) -> TileProgram:
    """Give the reductions of a program whose tiles are registers of warpgroups their flags."""
    given = next((given for given in walk(program.block) if isinstance(given, Given)), None)
    if given is None:
        return program
    if program.hints.reduce_through == "cluster":
        return reduce_in_clusters(program)
    slots = given.body[0].to.source.shape[0]
    shape = (slots, consumers(program))
    flags = tirx.decl_buffer(shape, FLAG_DTYPE, "sums_given", scope="global")
    body = tuple(_statement(statement, flags, program) for statement in program.block)
    host = (*program.host, tirx.AllocBuffer(flags))
    return program.replace(body=body, host=host).decided(
        f"flags: {shape[0]} x {shape[1]}, one for each warpgroup and slot, cleared by who waits"
    )


def _statement(statement: Statement, flags: Buffer, program: TileProgram) -> Stmt:
    match statement:
        case Given(body=copies):
            flag = ir.address(flags, statement.slot, program.var("warpgroup"))
            return ir.seq([*map(_given, copies), orchestrated(_release(flag, program))])
        case Loop(body=(Taken() as taken,)):
            acquired = orchestrated(_acquire(statement, taken, flags, program))
            return ir.seq([acquired, *_sums(statement, taken.body)])
    return statement.with_each(lambda inner: _statement(inner, flags, program))


def _given(copy: Copy) -> Stmt:
    """A nest from registers to the workspace, of which the order of elements is free."""
    (slot, (row, _), (column, _)) = ir.ranges(copy.to)
    y, x = (Var(name, "int32") for name in ("y", "x"))
    tile = copy.source.source
    store = tirx.BufferStore(copy.to.source, tile[y, x], [slot[0], row + y, column + x])
    return ir.nest([y, x], map(int, tile.shape), [store], {ANY_ORDER: 1})


def _sums(peers: Loop, nests: Block) -> list[Stmt]:
    """Loops that add the sums of all other CTAs, in their order."""
    taken = []
    for nest in nests:
        outer = nest.loops[0]
        taken.append(ir.loop(outer.loop_var, outer.extent, [outer.body], {ANY_ORDER: 1}))
    elements = sum(math.prod(map(int, nest.stores[0].buffer.shape)) for nest in nests)
    registers = max(1, elements // SM90A.warpgroup)
    together = max(1, min(_CTAS_AT_A_TIME, _REGISTERS_AT_A_TIME // registers))

    def of(peer: Any) -> list[Stmt]:
        return ir.renewed([tirx.Bind(peers.var, peer), *taken])

    some, rest = Var("some", "int32"), Var("rest", "int32")
    rounds: Any = 0
    loops = []
    if together > 1:
        rounds = T.truncdiv(peers.extent, together)
        several = [one for number in range(together) for one in of(some * together + number)]
        loops = [ir.loop(some, rounds, several)]
    return [*loops, ir.loop(rest, peers.extent - rounds * together, of(rounds * together + rest))]


def _release(flag: Any, program: TileProgram) -> list[Stmt]:
    """Set the flag; a CTA that sees it also sees the stores of this warpgroup's threads."""
    return [one_consumer(program), ir.when(leader(program), [set_flag(flag)])]


def _acquire(peers: Loop, taken: Taken, flags: Buffer, program: TileProgram) -> list[Stmt]:
    """Wait for the flags of all; then the threads of this warpgroup see the sums that they guard.

    Each thread waits for another flag, and clears it: nobody else waits for it.
    """
    turn = Var("turn", "int32")
    threads, thread = SM90A.warpgroup, thread_in_warpgroup(program)
    slot = ir.substitute(taken.slot, {peers.var: turn * threads + thread})
    flag = ir.address(flags, slot, program.var("warpgroup"))
    wait = [*wait_for_flag(flag), clear_flag(flag)]
    turns = T.truncdiv(peers.extent - thread + (threads - 1), threads)
    return [ir.loop(turn, turns, wait), one_consumer(program)]

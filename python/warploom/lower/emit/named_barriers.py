"""The use of the 16 named barriers of a CTA: all are assigned here.

0 is that of the whole CTA, which ``T.cuda.cta_sync`` uses; 1 to 3 are those of the consumer
warpgroups, one each; 4 to 6 are their MMA ordering barriers; 15 is that of all consumer warpgroups.
The other barriers are free.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.tirx import Stmt

from warploom.lower.analysis.consumers import consumers
from warploom.target import SM90A
from warploom.tile import ir
from warploom.tile.program import TileProgram

_FIRST_WARPGROUP, _FIRST_MMA_ORDER, _EVERY_CONSUMER = 1, 4, 15


def warpgroup_barrier(warpgroup: Any) -> Any:
    """The number of the barrier of one consumer warpgroup."""
    return warpgroup + _FIRST_WARPGROUP


def warpgroup_sync(warpgroup: Any) -> Stmt:
    """A barrier of the threads of one consumer warpgroup."""
    return ir.evaluate(T.cuda.warpgroup_sync(warpgroup_barrier(warpgroup)))


def consumers_sync(warpgroups: int) -> Stmt:
    """A barrier of all ``warpgroups`` consumer warpgroups."""
    threads = warpgroups * SM90A.warpgroup
    return ir.evaluate(T.ptx.bar.sync(T.uint32(_EVERY_CONSUMER), T.uint32(threads)))


def wait_for_mma_order(warpgroup: Any) -> Stmt:
    """Wait at the MMA ordering barrier until the previous warpgroup has issued its MMAs."""
    threads = T.uint32(2 * SM90A.warpgroup)
    return ir.evaluate(T.ptx.bar.sync(T.Cast("uint32", warpgroup + _FIRST_MMA_ORDER), threads))


def pass_mma_order(warpgroup: Any, warpgroups: int) -> Stmt:
    """Let the next of so many warpgroups issue its MMAs."""
    following = T.truncmod(warpgroup + 1, warpgroups)
    threads = T.uint32(2 * SM90A.warpgroup)
    return ir.evaluate(T.ptx.bar.arrive(T.Cast("uint32", following + _FIRST_MMA_ORDER), threads))


def one_consumer(program: TileProgram) -> Stmt:
    """A barrier of the threads of one warpgroup."""
    return warpgroup_sync(program.var("warpgroup"))


def all_consumers(program: TileProgram) -> Stmt:
    """A barrier of all warpgroups that compute."""
    if consumers(program) == 1:
        return one_consumer(program)
    return consumers_sync(consumers(program))

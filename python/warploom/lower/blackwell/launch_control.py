"""Tiles that clusters take over from others that have not started: cluster launch control.

The grid has a cluster for each tile. Those that the GPU has started ask for the next one when they
are about to need it: a thread of the first CTA cancels the launch of another cluster, whose tile is
theirs then (:mod:`~warploom.lower.emit.handed_out`). The answer comes to every CTA's shared memory.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Stmt

from warploom.lower.emit import barriers
from warploom.lower.emit.barriers import Position
from warploom.lower.emit.handed_out import HandedOut
from warploom.tile import ir
from warploom.tile.scalar import ThreadScalar

#: The value for the first CTA of a cluster where no cluster is left to take over.
_NONE = 0xFFFFFFFF

_TRY_CANCEL = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"


class LaunchControl(HandedOut):
    """Tiles of clusters that have not started."""

    #: One answer that is being read, one for the role that is a tile ahead, one to come.
    words, ahead = 4, 3

    def describe(self) -> str:
        """A sentence for the record of decisions."""
        return f"tiles: asked for by a warp, {self.ahead} answers ahead"

    def begin(self, tile: Any) -> list[Stmt]:
        """Nothing: the GPU knows which clusters it has started."""
        return []

    def ask_for(self, at: Position) -> list[Stmt]:
        """Expect the answer's bytes; the first CTA's thread cancels a cluster for all."""
        expect = barriers.expect(self.full, at.index, 4 * self.words)
        everywhere = ".multicast::cluster::all" if self.size > 1 else ""
        cancel = T.ptx[f"{_TRY_CANCEL}{everywhere}.b128"](
            ir.address(self.answers, at.index, 0), ir.address(self.full, at.index)
        )
        asks = self.program.var("cta_in_cluster") == 0 if self.size > 1 else True
        return [expect, ir.when(asks, [self.free(at), ir.evaluate(cancel)])]

    def answered(self, at: Position, none: Any) -> tuple[list[Stmt], Any]:
        """The tile of the cluster that was cancelled; ``none`` if there was no other."""
        there = ThreadScalar("there", "uint32")
        # Scripts have no scalar variables of 128 bits: an array of one, by its alignment.
        answer = tirx.decl_buffer((1,), "uint128", "answer", scope="local", data_alignment=16)
        cta = ThreadScalar("first_cta", "uint32")
        query = T.ptx.clusterlaunchcontrol.query_cancel
        place = ir.address(self.answers, at.index, 0)
        first = query.get_first_ctaid__x.b32.b128(cta.value, answer[0], pred=there.value)
        tile = T.truncdiv(T.Cast("int32", cta.value), self.size)
        read = [
            tirx.AllocBuffer(answer),
            tirx.AllocBuffer(there.buffer),
            *cta.define(T.uint32(_NONE)),
            ir.evaluate(T.ptx["ld.shared.b128"](answer[0], place)),
            ir.evaluate(query.is_canceled.pred.b128(there.value, answer[0])),
            ir.evaluate(first),
        ]
        return read, T.Select(cta.value == T.uint32(_NONE), none, tile)

    def before_release(self) -> list[Stmt]:
        """An engine writes the next answer: as the manual's example of query_cancel has it."""
        return [ir.evaluate(T.ptx.fence.proxy.async_.shared__cta())]

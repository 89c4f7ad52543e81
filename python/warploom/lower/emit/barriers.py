"""Emission of mbarriers and of the rings of shared-memory stages that they guard.

A ring has two mbarriers a stage. ``full``: one arrival, of the producer, that announces the bytes
of the stage, and those bytes. ``empty``: one arrival of each consumer warpgroup of each CTA whose
copies land in this stage. A stage and its phase are where a role is in the ring; the producer
starts a phase ahead, since all stages are free at first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import PointerType, PrimType
from tvm.script import tirx as T
from tvm.tirx import Buffer, ForKind, Stmt, Var

from warploom.lower.analysis.clusters import is_in
from warploom.lower.analysis.rings import PipelinePlan, Ring
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.scalar import ThreadScalar


def initialise(barrier: Buffer, arrivals: int) -> Stmt:
    """Phase 0 of every mbarrier, by whichever thread executes it."""
    stage = Var("i", "int32")
    init = T.ptx.mbarrier.init.shared.b64(ir.address(barrier, stage), T.uint32(arrivals))
    return ir.loop(stage, int(barrier.shape[0]), [ir.evaluate(init)], kind=ForKind.UNROLLED)


def publish() -> list[Stmt]:
    """Make initialised mbarriers known to the cluster and to the TMA engine."""
    return [
        ir.evaluate(T.ptx.fence.mbarrier_init.release.cluster()),
        ir.evaluate(T.ptx.fence.proxy.async_.shared__cta()),
    ]


def meet(cluster: bool) -> list[Stmt]:
    """All threads wait for each other, those of the cluster or of the CTA.

    Of a cluster, no memory is ordered but mbarriers that are published: the order of all else would
    make each thread wait until the GPU has seen its stores.
    """
    if not cluster:
        return [ir.evaluate(T.cuda.cta_sync())]
    return [
        ir.evaluate(T.ptx.barrier.cluster.arrive.relaxed.aligned()),
        ir.evaluate(T.ptx.barrier.cluster.wait.acquire.aligned()),
    ]


def wait(barrier: Buffer, stage: Any, parity: Any) -> Stmt:
    """Wait until the phase of that parity has completed."""
    return ir.evaluate(T.cuda.mbarrier_wait(ir.address(barrier, stage), parity))


def arrive(barrier: Buffer, stage: Any) -> Stmt:
    """Arrive once at an mbarrier of this CTA."""
    return ir.evaluate(T.ptx.mbarrier.arrive.shared.b64(ir.address(barrier, stage), T.uint32(1)))


def arrive_remote(view: Buffer, stage: Any) -> Stmt:
    """Arrive once at an mbarrier of the CTA that ``view`` is in."""
    return ir.evaluate(T.ptx.mbarrier.arrive.shared__cluster.b64(ir.address(view, stage)))


def expect(barrier: Buffer, stage: Any, count: int) -> Stmt:
    """Arrive once, and announce ``count`` bytes."""
    call = T.ptx.mbarrier.arrive.expect_tx.shared.b64(ir.address(barrier, stage), T.uint32(count))
    return ir.evaluate(call)


def remote_view(barrier: Buffer, cta: Any) -> tuple[Buffer, list[Stmt]]:
    """The same mbarriers, or the same tile, of another CTA, and their declarations."""
    dtype = str(barrier.dtype)
    place = ThreadScalar(f"{barrier.name}_at", "uint64")
    start = ir.address(barrier, *[0] * len(barrier.shape))
    where = T.ptx.mapa.u64(place.value, start, T.Cast("uint32", cta))
    pointer_type = PointerType(PrimType(dtype), "shared")
    pointer = Var(f"{barrier.name}_remote", pointer_type)
    view = tirx.decl_buffer(
        barrier.shape, dtype, f"{barrier.name}_of_peer", scope="shared", data=pointer,
        data_alignment=barrier.data_alignment,
    )  # fmt: skip
    declaration = [
        tirx.AllocBuffer(place.buffer),
        ir.evaluate(where),
        tirx.Bind(pointer, T.reinterpret(pointer_type, place.value)),
        tirx.DeclBuffer(view, data=pointer),
    ]
    return view, declaration


@dataclass(frozen=True)
class Remote:
    """Mbarriers of other CTAs, one for each lane.

    Attributes
    ----------
    view : Buffer
        Those of the CTA whose rank is the number of this lane.
    chosen : Expr
        Whether this lane's CTA takes part.
    """

    view: Buffer
    chosen: Any


def find_peers(rings: list[Ring], program: TileProgram) -> tuple[dict[str, Remote], list[Stmt]]:
    """For rings that CTAs share the ``empty`` barriers of those CTAs, and their declarations."""
    peers: dict[str, Remote] = {}
    statements: list[Stmt] = []
    for ring in rings:
        if ring.shared_by == 1:
            continue
        lane, cluster = program.var("lane"), program.id("cta_in_cluster")
        (size,) = (int(extent) for extent in cluster.extents)
        view, declaration = remote_view(ring.empty, T.truncmod(lane, size))
        statements += declaration
        mask = ring.released_in(program.var("cta_in_cluster"))
        if not isinstance(mask, int):
            scalar = ThreadScalar(f"{ring.name}_peers", "uint32")
            statements += scalar.define(mask)
            mask = scalar.value
        peers[ring.name] = Remote(view, is_in(lane, mask))
    return peers, statements


@dataclass
class Position:
    """Where one role is in a ring."""

    stages: int
    stage: ThreadScalar
    phase: ThreadScalar

    @classmethod
    def named(cls, name: str, stages: int) -> Position:
        """A position with variables of its own."""
        return cls(stages, ThreadScalar(f"{name}_stage"), ThreadScalar(f"{name}_phase"))

    def define(self, phase: int) -> list[Stmt]:
        """At stage 0, before the phase of that parity has completed."""
        return [*self.stage.define(0), *self.phase.define(phase)]

    @property
    def index(self) -> Any:
        """The stage, as an index."""
        return 0 if self.stages == 1 else self.stage.value

    def advance(self) -> list[Stmt]:
        """Go to the next stage; after the last, the next phase begins."""
        flip = self.phase.set(T.bitwise_xor(self.phase.value, 1))
        if self.stages == 1:
            return [flip]
        return [
            self.stage.set(self.stage.value + 1),
            ir.when(self.stage.value == self.stages, [self.stage.set(0), flip]),
        ]

    def advance_by(self, count: Any) -> list[Stmt]:
        """Go so many stages on."""
        passed = self.stage.value + count
        flips = T.bitwise_and(T.truncdiv(passed, self.stages), 1)
        return [
            self.phase.set(T.bitwise_xor(self.phase.value, flips)),
            self.stage.set(T.truncmod(passed, self.stages)),
        ]


def positions(plan: PipelinePlan) -> dict[str, Position]:
    """Where a role is in each ring."""
    return {use.ring.name: Position.named(use.ring.name, use.ring.stages) for use in plan.uses}

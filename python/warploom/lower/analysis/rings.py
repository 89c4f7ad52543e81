"""Rings of stages in shared memory, and where a program uses them: the parts of a plan."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx
from tvm.tirx import Buffer
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.lower.analysis.clusters import Pairs, Peers, writers
from warploom.lower.analysis.shared_tiles import stacked, tile_bytes
from warploom.target.tcgen05 import PAIR
from warploom.tile.scopes import is_shared
from warploom.tile.statement import Block, Load, Loop, Statement


def mbarriers(name: str, count: int) -> Buffer:
    """``count`` mbarriers; the pass ``AllocateShared`` gives them a place."""
    return tirx.decl_buffer((count,), "uint64", name, scope="mbarrier", data_alignment=8)


@dataclass
class Ring:
    """Loads that travel together through stages of shared memory.

    Attributes
    ----------
    loads : list of TilePrimitiveCall
        The copies that fill a stage, in the order of the program; of all places that load it.
    tiles : dict
        Logical tile -> buffer with a leading dimension of stages.
    stages : int
        Stages of the ring.
    peers : list of Peers or None
        For each load the CTAs of the cluster that share it, each loading a part for all.
    pairs : Pairs or None
        The pairs of CTAs whose MMAs read this ring: the barrier ``full`` of the first CTA of a
        pair then counts the loads of both.
    """

    name: str
    loads: list[TilePrimitiveCall]
    tiles: dict[Buffer, Buffer]
    stages: int
    peers: list[Peers | None]
    pairs: Pairs | None = None
    full: Buffer = field(init=False)
    empty: Buffer = field(init=False)

    def __post_init__(self) -> None:
        self.full = mbarriers(f"{self.name}_full", self.stages)
        self.empty = mbarriers(f"{self.name}_empty", self.stages)

    @property
    def shared_by(self) -> int:
        """CTAs that write into a stage of this CTA; 1 if only it does."""
        return writers(filter(None, self.peers), 0)[0]

    def released_in(self, rank: Any) -> Any:
        """CTAs that must know when this one has read a stage, one bit each; None for itself."""
        if self.pairs is not None:
            # CTAs that share a load write into the stages of other pairs.
            every = (1 << PAIR * self.pairs.count) - 1
            return every if any(self.peers) else self.pairs.mask
        return writers(filter(None, self.peers), rank)[1]

    def peers_of(self, load: TilePrimitiveCall) -> Peers | None:
        """The CTAs that share one of the loads."""
        return next(
            peers for own, peers in zip(self.loads, self.peers, strict=True) if own.same_as(load)
        )


@dataclass(frozen=True)
class RingUse:
    """Where a ring lives: positions in the block that holds its loads.

    Attributes
    ----------
    name : str
        Its own, also where a ring is loaded in several places.
    loads : list of TilePrimitiveCall
        The copies that fill a stage here.
    block : tuple of Statement
        The statements of the block.
    first, last : int
        The first and the last of them that touch a tile of the ring, loads apart.
    loop : Loop or None
        The loop whose body the block is.
    """

    ring: Ring
    name: str
    loads: list[TilePrimitiveCall]
    block: Block
    first: int
    last: int
    loop: Loop | None

    def has(self, load: Statement) -> bool:
        """Whether a statement is one of the loads."""
        return any(own.same_as(load.raw) for own in self.loads)

    def is_in(self, statements: Block) -> bool:
        """Whether statements are the block."""
        return len(self.block) == len(statements) and all(
            a.raw.same_as(b.raw) for a, b in zip(self.block, statements, strict=True)
        )


@dataclass(frozen=True)
class PipelinePlan:
    """All rings of a program, in its order."""

    uses: tuple[RingUse, ...]

    @property
    def rings(self) -> list[Ring]:
        """The rings, each once."""
        return list({use.ring.name: use.ring for use in self.uses}.values())

    def of_block(self, statements: Block) -> list[RingUse]:
        """The rings whose loads stand in a block."""
        return [use for use in self.uses if use.is_in(statements)]

    def ring_of(self, load: Load) -> Ring:
        """The ring that a load is one of."""
        return self.use_of(load).ring

    def use_of(self, load: Load) -> RingUse:
        """The use that a load is one of."""
        return next(use for use in self.uses if use.has(load))

    def buffers(self) -> list[Buffer]:
        """The shared memory of all rings, each buffer once."""
        return list(dict.fromkeys(b for ring in self.rings for b in ring.tiles.values()))

    def describe(self) -> list[str]:
        """A sentence for each ring."""
        lines = []
        for ring in self.rings:
            size = sum(tile_bytes(tile) for tile in ring.tiles)
            text = (
                f"ring of {', '.join(tile.name for tile in ring.tiles)}: {ring.stages} stages of "
                f"{size} bytes"
            )
            if ring.pairs:
                text += ", of both CTAs of a pair together"
            text += "".join(
                f", {load.args[0].source.name} multicast to {peers.count} CTAs"
                for load, peers in zip(ring.loads, ring.peers, strict=True) if peers
            )  # fmt: skip
            lines.append(text)
        return lines

    def tiles(self) -> dict[Buffer, Ring]:
        """Logical tile -> its ring."""
        return {tile: ring for ring in self.rings for tile in ring.tiles}


def in_same_memory(uses: list[RingUse]) -> PipelinePlan:
    """The plan of rings that take turns: those of the same tile fill the same shared memory."""
    largest: dict[Buffer, Buffer] = {}
    for use in uses:
        for tile, buffer in use.ring.tiles.items():
            if tile not in largest or int(buffer.shape[0]) > int(largest[tile].shape[0]):
                largest[tile] = buffer
    for use in uses:
        use.ring.tiles = {tile: largest[tile] for tile in use.ring.tiles}
    return PipelinePlan(tuple(uses))


def with_stages(use: RingUse, stages: int) -> RingUse:
    """A ring with another number of stages."""
    ring = use.ring
    tiles = {tile: stacked(tile, stages) for tile in ring.tiles}
    return dataclasses.replace(
        use, ring=Ring(ring.name, ring.loads, tiles, stages, ring.peers, ring.pairs)
    )


def is_consumer_tile(tile: Buffer, plan: PipelinePlan) -> bool:
    """Whether a shared tile is written by the consumers themselves."""
    return is_shared(tile) and tile not in plan.tiles()

"""Tiles that are handed out as a kernel runs: a thread asks for the next one, every role reads it.

A CTA begins with the tile of its own number. One thread of it, or of its cluster, asks for the next
tile a while before the others need it; the answer comes to the shared memory of every CTA, where
all roles read it. Some answers may be on the way: a ring with two mbarriers for each of them.

* ``full``, in every CTA: one arrival, of the CTA's own asking thread, and the bytes of the answer
  where an engine writes it.
* ``empty``, in the first CTA: one arrival of each reader of each CTA.

Who answers is a class of its own: :mod:`~warploom.lower.blackwell.launch_control` cancels CTAs that
have not started, :mod:`~warploom.lower.emit.tile_counter` counts in global memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt

from warploom.lower.analysis.rings import mbarriers
from warploom.lower.emit import barriers
from warploom.lower.emit.barriers import Position
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.scalar import ThreadScalar
from warploom.tile.statement import Loop, Statement, block


class HandedOut:
    """The tiles of one program, and those who read which are next.

    Parameters
    ----------
    program : TileProgram
    tiles : Loop
        Its loop over tiles.
    readers : int
        Threads, and warps of consumers, that read an answer in each CTA; the thread that multiplies
        apart, where several CTAs have one.
    group : int
        CTAs that have one thread that multiplies; 0 where all who multiply are among the readers.
    """

    #: 32-bit words of an answer, and answers that may be on the way.
    words, ahead = 1, 1

    def __init__(self, program: TileProgram, tiles: Loop, readers: int, group: int = 0) -> None:
        self.program, self.tiles = program, tiles
        self.readers, self.group = readers, group
        shape = (self.ahead, self.words)
        self.answers = tirx.decl_buffer(shape, "uint32", "answers", scope="shared")
        self.full: Buffer = mbarriers("answers_full", self.ahead)
        self.empty: Buffer = mbarriers("answers_empty", self.ahead)

    # -- who answers -----------------------------------------------------------------------------

    def describe(self) -> str:
        """A sentence for the record of decisions."""
        raise NotImplementedError

    def begin(self, tile: Any) -> list[Stmt]:
        """What the asking thread does before it asks for the first time; ``tile`` is its own."""
        raise NotImplementedError

    def ask_for(self, at: Position) -> list[Stmt]:
        """What the asking thread does for an answer, in every CTA."""
        raise NotImplementedError

    def answered(self, at: Position, none: Any) -> tuple[list[Stmt], Any]:
        """The tile of an answer that is there, at least ``none`` if there is no other tile.

        Statements come first that read it.
        """
        raise NotImplementedError

    def before_release(self) -> list[Stmt]:
        """What a reader does before it tells that it has read."""
        return []

    @property
    def workspace(self) -> tuple[Stmt, ...]:
        """What the host allocates in global memory."""
        return ()

    # -- the rest --------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """CTAs of a cluster."""
        cluster = self.program.id("cta_in_cluster")
        return 1 if cluster is None else int(cluster.extents[0])

    def allocate(self) -> list[Stmt]:
        """Allocations of all that is in shared memory."""
        return [tirx.AllocBuffer(buffer) for buffer in (self.answers, self.full, self.empty)]

    def initialise(self) -> list[Stmt]:
        """Statements that initialise the barriers."""
        multiplying = self.size // self.group if self.group else 0
        arrivals = self.size * self.readers + multiplying
        return [barriers.initialise(self.full, 1), barriers.initialise(self.empty, arrivals)]

    def follow(self, statements: Sequence[Stmt], name: str, warp: bool = False) -> list[Stmt]:
        """The program of a role, whose loop over tiles now takes those that come.

        Parameters
        ----------
        name : str
            Of the role, for its variables.
        warp : bool
            Whether whole warps execute it, or one thread does.
        """
        reader = _Reader(self, name, warp)

        def followed(statement: Statement) -> Stmt:
            if not is_dynamic(statement):
                return statement.with_each(followed)
            body = ir.substitute(statement.raw.body, {statement.var: reader.tile.value})
            return reader.while_there_are(statement.extent, [body])

        return [*reader.start(), *map(followed, block(statements))]

    def ask(self) -> list[Stmt]:
        """The program of the thread that asks, in every CTA: the first one's asks for all."""
        reader = _Reader(self, "asking", warp=False)
        asking = reader.while_there_are(self.tiles.extent, self.ask_for(reader.at))
        return [*reader.start(), *self.begin(reader.tile.value), asking]

    def free(self, at: Position) -> Stmt:
        """Wait until all have read what an answer will overwrite."""
        return barriers.wait(self.empty, at.index, T.bitwise_xor(at.phase.value, 1))


def tiles_handed_out(program: TileProgram) -> Loop | None:
    """The loop over tiles of a program, if they are handed out as the kernel runs."""
    return next((statement for statement in program.block if is_dynamic(statement)), None)


def is_dynamic(statement: Statement) -> bool:
    """Whether a statement is the loop over tiles that are handed out as the kernel runs."""
    return isinstance(statement, Loop) and statement.dynamic


class _Reader:
    """A role that reads the answers."""

    def __init__(self, tiles: HandedOut, name: str, warp: bool) -> None:
        self.tiles, self.warp = tiles, warp
        self.tile = ThreadScalar(f"{name}_tile")
        self.at = Position.named(f"{name}_answer", tiles.ahead)
        self.remote = barriers.remote_view(tiles.empty, 0) if tiles.size > 1 else None

    def start(self) -> list[Stmt]:
        """Its variables; its first tile is that of its own cluster."""
        cta, size = self.tiles.program.var("cta"), self.tiles.size
        first = T.truncdiv(cta, size) if size > 1 else cta
        declared = self.remote[1] if self.remote else []
        return [*declared, *self.tile.define(first), *self.at.define(0)]

    def while_there_are(self, tiles: Any, body: Sequence[Stmt]) -> Stmt:
        """A loop over the tiles that come, of ``tiles`` in all."""
        return tirx.While(self.tile.value < tiles, ir.seq([*body, *self._next(tiles)]))

    def _next(self, none: Any) -> list[Stmt]:
        """Read the next answer; the tile is at least ``none`` if there is no other."""
        at = self.at
        read, tile = self.tiles.answered(at, none)
        return [
            barriers.wait(self.tiles.full, at.index, at.phase.value),
            *read,
            self.tile.set(tile),
            *self.tiles.before_release(),
            *self._release(),
            *at.advance(),
        ]

    def _release(self) -> list[Stmt]:
        """Tell the first CTA that this role has read the answer."""
        tiles, at = self.tiles, self.at
        if self.remote is None:
            arrival = barriers.arrive(tiles.empty, at.index)
        else:
            arrival = barriers.arrive_remote(self.remote[0], at.index)
        if not self.warp:
            return [arrival]
        first = tiles.program.var("lane") == 0
        return [ir.evaluate(T.cuda.warp_sync()), ir.when(first, [arrival])]

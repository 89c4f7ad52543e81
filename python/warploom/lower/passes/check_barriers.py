"""Refuses mbarriers of the author that cannot be initialised before the roles part."""

from __future__ import annotations

from tvm import tirx
from tvm.tirx import Buffer
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import Decline
from warploom.lower.analysis.own_barriers import operations
from warploom.tile.annotations import MBAR
from warploom.tile.mbarriers import read_address
from warploom.tile.program import TileProgram
from warploom.tile.statement import ForLoader, Statement, walk


def check_own_barriers(program: TileProgram) -> TileProgram:
    """The program, if its mbarriers can be initialised before the roles part.

    Raises
    ------
    Decline
        If one is initialised in a loop or branch, twice, late or not at all; if an instruction
        other than those of the language names one; or if a copy signals something else.
    """
    ready: set[tuple[Buffer, tuple[int, ...]]] = set()
    for depth, _, statement in operations(program.block):
        name = statement.barriers.name
        if statement.kind not in ("init", "arrive", "expect", "wait"):
            raise Decline(
                f"{statement.kind} names the mbarrier {name}, and no pass knows which thread is to "
                "execute it; write wl.mbarrier.init, arrive, expect or wait, or define ids of "
                "threads and orchestrate the whole kernel."
            )
        places = [int(i) for i in statement.indices if isinstance(i, tirx.IntImm)]
        if statement.kind == "init":
            key = statement.barriers, tuple(places)
            if depth or len(places) != len(statement.indices) or key in ready:
                raise Decline(
                    f"The mbarrier {name} is initialised in a loop or branch, or twice; do it "
                    "once, outside of them: the roles have not yet parted there."
                )
            ready.add(key)
        elif not any(buffer.same_as(statement.barriers) for buffer, _ in ready):
            raise Decline(
                f"The mbarrier {name} is used before wl.mbarrier.init has initialised it; do that "
                "first."
            )
    for statement in walk(program.block):
        if isinstance(statement.raw, TilePrimitiveCall) and MBAR in statement.raw.config:
            _check_signal(statement)
    return program


def _check_signal(statement: Statement) -> None:
    call = statement.raw
    if not isinstance(statement, ForLoader):
        raise Decline(
            f"The copy into {call.args[0].source.name} signals an mbarrier and is no load into "
            "shared memory; drop mbar=, it completes when it is over."
        )
    if read_address(call.config[MBAR]) is None:
        raise Decline(
            f"The load of {call.args[0].source.name} signals something that is no mbarrier; write "
            "mbar=wl.mbarrier.address(...)."
        )

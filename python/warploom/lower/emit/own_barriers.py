"""Mbarriers that the author of a tile program operates, beside those that passes insert.

Loads with ``mbar=`` are no part of the plan: no ring, no wait and no release comes with them, for
the author has written all that. The passes only assign roles. The thread that loads executes
these copies, announces their bytes, and all that ``wl.loading`` contains; the computing threads
wait, all of them, and when all have come to an arrival one of them arrives. One thread initialises
all mbarriers before the roles part. Statement after statement this is what the program says, so
that phases and parities are those of the sequential program.
"""

from __future__ import annotations

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Stmt
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import Decline
from warploom.language.printing import read_print
from warploom.lower.emit import barriers
from warploom.lower.emit.fill_stages import own_copies
from warploom.lower.emit.prints import by_this_thread
from warploom.tile import ir
from warploom.tile.ids import parent_and_child
from warploom.tile.mbarriers import read_operation
from warploom.tile.primitives import op_name
from warploom.tile.program import TileProgram
from warploom.tile.statement import (
    Block,
    ForLoader,
    Initialised,
    Marked,
    Scalar,
    Statement,
    raws,
    walk,
)


def initialised_by_one_thread(body: Block) -> list[Stmt]:
    """The statements of a kernel by hand, with the initialisation for ``wl.alloc_barrier``.

    One thread initialises these mbarriers, and the others meet it behind that: of the cluster, for
    they arrive at each other's mbarriers.

    Raises
    ------
    Decline
        If it stands in a loop or branch, where not all threads come, or come more than once.
    """
    cluster = _has_clusters(body)

    def outside(statements: Block) -> list[Stmt]:
        kept: list[Stmt] = []
        for statement in statements:
            match statement:
                case Initialised(body=inner):
                    kept += [
                        ir.when(T.cuda.thread_rank() == 0, raws(inner)),
                        *barriers.publish(),
                        *barriers.meet(cluster),
                    ]
                case Marked(body=inner) | ForLoader(blocks=(inner,)):
                    kept.append(statement.with_blocks(outside(inner)))
                case _:
                    _require_no_initialisation(statement)
                    kept.append(statement.raw)
        return kept

    return outside(body)


def _has_clusters(body: Block) -> bool:
    definitions = (
        statement.raw for statement in walk(body) if isinstance(statement.raw, tirx.ScopeIdDefStmt)
    )
    return any(
        "cluster" in parent_and_child(getattr(definition, "def")) for definition in definitions
    )


def _require_no_initialisation(statement: Statement) -> None:
    for inner in walk((statement,)):
        if isinstance(inner, Initialised):
            raise Decline(
                f"wl.alloc_barrier of {inner.body[0].operation.barriers.name} stands in a loop or "
                "branch; write it outside of them, where all threads come once."
            )


def by_one_consumer(program: TileProgram, statement: Stmt) -> Stmt:
    """A statement that the first thread of the computing warpgroups executes."""
    ids = [program.var(kind) for kind in ("warpgroup", "warp_in_warpgroup", "lane")]
    return ir.when(T.And(T.And(ids[0] == 0, ids[1] == 0), ids[2] == 0), [statement])


def for_loading_thread(statement: Statement) -> list[Stmt]:
    """Statements of the loading thread for a statement of the author's ``wl.loading()``.

    Raises
    ------
    Decline
        If the statement is one that takes more than a thread.
    """
    raw = statement.raw
    if isinstance(statement, ForLoader) and statement.copies:
        return own_copies(raw)
    if isinstance(statement, Scalar) or read_operation(raw) is not None:
        return [raw]
    if read_print(raw) is not None:
        return [by_this_thread(raw)]
    if not statement.blocks:
        refusal = (
            f"{op_name(raw)} into {raw.args[0].source.name}"
            if isinstance(raw, TilePrimitiveCall)
            else type(raw).__name__
        )
        raise Decline(
            f"wl.loading() contains {refusal}; the one thread that executes it makes copies with "
            "mbar=, operates mbarriers, sets scalars and prints, so write other statements outside."
        )
    bodies = [
        [s for inner in block for s in for_loading_thread(inner)] for block in statement.blocks
    ]
    return (
        bodies[0]
        if isinstance(statement, (ForLoader, Marked))
        else [statement.with_blocks(*bodies)]
    )

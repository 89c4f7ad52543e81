"""Which thread of a warpgroup acts alone, and statements that bring their own synchronisation."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Stmt

from warploom.ops.register_tile import LANES
from warploom.tile import ir
from warploom.tile.annotations import ORCHESTRATED
from warploom.tile.program import TileProgram


def leader(program: TileProgram) -> Any:
    """Return the condition of the thread of a warpgroup that issues stores."""
    return T.And(program.var("warp_in_warpgroup") == 0, program.var("lane") == 0)


def thread_in_warpgroup(program: TileProgram) -> Any:
    """The number of a thread in its warpgroup."""
    return program.var("warp_in_warpgroup") * LANES + program.var("lane")


def orchestrated(statements: list[Stmt]) -> Stmt:
    """Statements that bring their own synchronisation, as one."""
    return tirx.AttrStmt(0, ORCHESTRATED, ir.as_expr(1), ir.seq(statements))

"""Who does which statement of a program for Blackwell: the tensor core's thread, or the threads."""

from __future__ import annotations

from collections.abc import Iterator

from tvm import tirx
from tvm.tirx import Buffer, Stmt

from warploom.tile import ir
from warploom.tile.effects import effects
from warploom.tile.kinds import is_for_loading_thread, is_gemm, is_load
from warploom.tile.statement import is_nest
from warploom.transform.handovers import Role


def leaves(statements: list[Stmt]) -> Iterator[tuple[Role, Stmt]]:
    """All statements with a role, in the order of the program; control flow is looked into."""
    for one in statements:
        if is_load(one) or is_for_loading_thread(one):
            continue
        if isinstance(one, (tirx.AllocBuffer, tirx.DeclBuffer)):
            continue
        if is_gemm(one):
            yield Role.TENSOR_CORE, one
        elif is_nest(one) or not ir.children(one):
            yield Role.THREADS, one
        else:
            for body in ir.children(one):
                yield from leaves(ir.flatten(body))


def roles_of(statements: list[Stmt], tile: Buffer) -> list[Role]:
    """Who touches a tile, in the order of the program."""
    return [role for role, one in leaves(statements) if tile in effects(one).touched]

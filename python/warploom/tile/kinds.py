"""Questions about raw statements, for passes that do not read views yet."""

from __future__ import annotations

from tvm.tirx import Stmt
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.tile import ir
from warploom.tile.scopes import is_global, is_shared
from warploom.tile.statement import CTA_GROUP, MBAR, ForLoader, Load, Mma, Scalar, view


def is_scalar(statement: Stmt) -> bool:
    """Whether a statement defines or sets a variable that all threads have alike."""
    return isinstance(view(statement), Scalar)


def is_load(statement: Stmt) -> bool:
    """Whether a statement copies from global to shared memory, and passes see to its barriers."""
    return isinstance(view(statement), Load)


def is_own_load(statement: Stmt) -> bool:
    """Whether a statement is a load that signals an mbarrier of the author."""
    return (
        isinstance(statement, TilePrimitiveCall)
        and ir.op_name(statement) in ("copy", "copy_async")
        and is_shared(statement.args[0].source)
        and is_global(statement.args[1].source)
        and MBAR in statement.config
    )


def is_for_loading_thread(statement: Stmt) -> bool:
    """Whether the author leaves a statement to the thread that loads, and sees to its barriers."""
    return isinstance(view(statement), ForLoader)


def is_gemm(statement: Stmt) -> bool:
    """Whether a statement is a product of tiles."""
    return isinstance(view(statement), Mma)


def cta_group(product: TilePrimitiveCall) -> int:
    """CTAs that compute a product together."""
    return int(product.config.get(CTA_GROUP, 1))

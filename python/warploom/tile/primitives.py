"""Calls of tile primitives, as passes make, change and name them."""

from __future__ import annotations

from typing import Any

from tvm.ir import Op
from tvm.tirx.exec_scope import ExecScope
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.tile import ir


def tile_call(
    like: TilePrimitiveCall,
    *args: Any,
    scope: str | None = None,
    dispatch: str | None = None,
    **config: Any,
) -> TilePrimitiveCall:
    """The primitive of ``like`` on other arguments; ``config`` is added to its options."""
    call = TilePrimitiveCall(
        *args,
        op=like.op,
        workspace=like.workspace,
        config={**like.config, **config},
        dispatch=dispatch if dispatch is not None else like.dispatch,
        scope=ExecScope(scope) if scope is not None else like.scope,
    )
    return ir.written_at(call, like.span)


def primitive(
    name: str, *args: Any, scope: str = "thread", dispatch: str | None = None, **config: Any
) -> TilePrimitiveCall:
    """A call of the tile primitive ``name``."""
    op = Op.get(f"tirx.tile.{name}")
    return TilePrimitiveCall(
        *args, op=op, config=config, dispatch=dispatch, scope=ExecScope(scope)
    )


def op_name(call: TilePrimitiveCall) -> str:
    """Name of a tile primitive, such as ``"gemm_async"``."""
    return call.op.name.removeprefix("tirx.tile.")


def is_scaled(call: TilePrimitiveCall) -> bool:
    """Whether a ``gemm_async`` has scales: A, B and theirs stand before the three flags."""
    return len(call.args) == 8

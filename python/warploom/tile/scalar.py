"""Scalars of each thread: passes define them, assign to them, and state the bounds of them."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt

from warploom.tile import ir
from warploom.tile.assumption import read_assumption


class ThreadScalar:
    """A variable of each thread, which statements assign to."""

    def __init__(self, name: str, dtype: str = "int32") -> None:
        self.buffer = tirx.decl_buffer((1,), dtype, name, scope="local")

    @property
    def value(self) -> Any:
        """The value that the scalar holds."""
        return self.buffer[0]

    def define(self, value: Any) -> list[Stmt]:
        """Statements that bring it into being."""
        return [tirx.AllocBuffer(self.buffer), self.set(value)]

    def set(self, value: Any) -> Stmt:
        """``self = value``."""
        return tirx.BufferStore(self.buffer, ir.as_expr(value, str(self.buffer.dtype)), [0])


def below(value: Any, extent: Any) -> Stmt:
    """The fact that ``0 <= value < extent``, for passes: it does nothing."""
    return ir.evaluate(T.assume(T.And(value >= 0, value < extent)))


def bound_of(statement: Stmt) -> tuple[Buffer, Any] | None:
    """The scalar and the extent of :func:`below`; None for any other statement."""
    match read_assumption(statement):
        case tirx.And(a=tirx.GE(a=TensorLoad() as scalar), b=tirx.LT(a=value, b=extent)):
            return (scalar.source, extent) if value.same_as(scalar) else None
    return None

"""The reads and writes of every statement of a tile program.

The one table that passes ask; a primitive that is not in it is declined by name. When the effects
have happened is the matter of the modules that insert waits: :mod:`warploom.lower.hopper.mma_waits`
for wgmma, :mod:`warploom.lower.blackwell.tile_barriers` for tcgen05,
:mod:`warploom.lower.emit.barriers` for TMA loads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorRegion
from tvm.tirx import Buffer, Stmt, Var
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import Decline
from warploom.tile import ir
from warploom.tile.primitives import is_scaled, op_name


@dataclass(frozen=True)
class Effects:
    """Buffers that a statement touches."""

    reads: frozenset[Buffer]
    writes: frozenset[Buffer]

    @property
    def touched(self) -> frozenset[Buffer]:
        """Buffers that a statement reads or writes."""
        return self.reads | self.writes


#: Primitive -> position of the destination, positions of the sources.
_OPERANDS: dict[str, tuple[int, tuple[int, ...]]] = {
    "copy": (0, (1,)),
    "copy_async": (0, (1,)),
    "gather": (0, (1,)),
    "scatter": (0, (1,)),
    "gemm_async": (0, (1, 2)),
    "sum": (0, (1,)),
    "max": (0, (1,)),
    "min": (0, (1,)),
}

REDUCTIONS = ("sum", "max", "min")
#: Arguments of an MMA with a sparse A: the result, A, B, metadata, and three flags.
_SPARSE_ARGUMENTS = 7


def known(call: TilePrimitiveCall) -> bool:
    """Whether the primitive is in the table."""
    return op_name(call) in _OPERANDS


def destination(call: TilePrimitiveCall) -> TensorRegion:
    """Buffers that a primitive writes."""
    return call.args[_OPERANDS[op_name(call)][0]]


def sources(call: TilePrimitiveCall) -> list[TensorRegion]:
    """The tiles that a primitive reads, with the metadata or the scales of an MMA."""
    read = [call.args[index] for index in _OPERANDS[op_name(call)][1]]
    if op_name(call) != "gemm_async":
        return read
    return [*read, *call.args[3:5]] if is_scaled(call) else [*read, *call.args[3:-3]]


def sparse_metadata(call: TilePrimitiveCall) -> TensorRegion | None:
    """The metadata of an MMA's sparse A, which follows the operands; None if A is dense."""
    sparse = op_name(call) == "gemm_async" and len(call.args) == _SPARSE_ARGUMENTS
    return call.args[3] if sparse else None


def accumulates(call: TilePrimitiveCall) -> Any:
    """Whether an MMA or a reduction adds to its destination: a bool or an expression."""
    value = call.args[-1] if op_name(call) in ("gemm_async", *REDUCTIONS) else False
    return bool(value.value) if isinstance(value, tirx.IntImm) else value


def effects(statement: Stmt) -> Effects:
    """Return the reads and writes of a statement, with all statements in it.

    Raises
    ------
    Decline
        If it contains a primitive that no pass knows.
    """
    reads: set[Buffer] = set()
    writes: set[Buffer] = set()

    def primitive(call: TilePrimitiveCall) -> None:
        if not known(call):
            raise Decline(
                f"No pass knows the primitive {op_name(call)}; a tile program has "
                f"{', '.join(sorted(_OPERANDS))}, and nests of element-wise stores."
            )
        writes.add(destination(call).source)
        reads.update(source.source for source in sources(call))
        if accumulates(call) is not False:
            reads.add(destination(call).source)

    def load(expression: Any) -> None:
        reads.update(v for v in ir.uses(expression) if ir.is_buffer(v))

    def store(node: tirx.BufferStore) -> None:
        writes.add(node.buffer)
        for part in (node.value, *node.indices):
            load(part)

    def visit(node: Any) -> None:
        if isinstance(node, TilePrimitiveCall):
            primitive(node)
            for part in (*node.args, *node.config.values()):
                for dimension in getattr(part, "region", ()):
                    load(dimension.min)
                if not isinstance(part, TensorRegion) and isinstance(part, tvm_ffi.Object):
                    load(part)
        elif isinstance(node, tirx.BufferStore):
            store(node)
        elif isinstance(node, tirx.SeqStmt):
            for statement in node.seq:
                visit(statement)
        elif isinstance(node, tirx.For):
            load(node.min)
            load(node.extent)
            visit(node.body)
        elif isinstance(node, tirx.While):
            load(node.condition)
            visit(node.body)
        elif isinstance(node, tirx.IfThenElse):
            load(node.condition)
            visit(node.then_case)
            if node.else_case is not None:
                visit(node.else_case)
        elif isinstance(node, (tirx.Bind, tirx.Evaluate)):
            load(node.value)
        elif isinstance(node, tirx.AttrStmt):
            load(node.value)
            visit(node.body)

    visit(statement)
    return Effects(frozenset(reads), frozenset(writes))


def variables(statement: Stmt) -> set[Var]:
    """Variables, no buffers, that a statement uses."""
    return {v for v in ir.uses(statement) if not ir.is_buffer(v)}


def together(parts: Iterable[Effects]) -> Effects:
    """Buffers that several statements read and write together."""
    every = list(parts)
    reads = frozenset().union(*(effects.reads for effects in every))
    return Effects(reads, frozenset().union(*(effects.writes for effects in every)))

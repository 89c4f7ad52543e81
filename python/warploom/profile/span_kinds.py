"""Which span of a timeline a statement of a role belongs to.

Statements are told apart as passes have written them, tiles still whole: waits for mbarriers,
loads, products, and work on registers. What is none of these (scalars, arrivals, barriers of
threads) is part of a span only between two statements of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvm import tirx
from tvm.ir import Call
from tvm.tirx import Stmt
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.tile import ir
from warploom.tile.mbarriers import read_address, read_operation
from warploom.tile.scopes import is_global, is_tile
from warploom.tile.statement import PIPELINED, ForLoader, Load, Mma, Nest, Scalar, view

WAIT, LOAD, MMA, WORK = "wait", "load", "mma", "work"
#: What the work of threads on registers is called: within the loop of products, and after it.
COMPUTE, EPILOGUE = "compute", "epilogue"
#: Categories of spans in the order that legends have.
CATEGORIES = (WAIT, LOAD, MMA, COMPUTE, EPILOGUE)

#: How the names of instructions begin that belong to products.
_PRODUCT_OPS = ("tirx.ptx.wgmma_", "tirx.ptx.tcgen05_commit", "tirx.ptx.tcgen05_mma")
#: Those of them that order products, and are none.
_ORDER_OPS = ("_fence", "_commit_group", "_wait_group", "_commit", "_commit_multicast")
#: Calls after which the statements that follow are not executed.
_JUMP_OPS = ("tirx.break_loop", "tirx.continue_loop", "tirx.thread_return")
_PRODUCT_WAIT_OP = "tirx.ptx.wgmma_wait_group"
_WAIT_OP = "tirx.cuda.mbarrier_wait"
_LOOPS = (tirx.For, tirx.While)
_JUMPS = (tirx.Break, tirx.Continue, tirx.Return)


def kinds(statement: Stmt) -> set[str]:
    """The kinds of all parts of a statement: of ``WAIT``, ``LOAD``, ``MMA`` and ``WORK``."""
    own = _kind(statement)
    if own is not None:
        return {own}
    return {kind for inner in _inside(statement) for kind in kinds(inner)}


def _inside(statement: Stmt) -> Iterator[Stmt]:
    for body in ir.children(statement):
        yield from ir.flatten(body)


def _kind(statement: Stmt) -> str | None:
    """The kind of a statement that is one as a whole."""
    found = view(statement)
    if isinstance(found, Mma):
        return MMA
    if isinstance(found, Load) or (isinstance(found, ForLoader) and found.copies):
        return LOAD
    if isinstance(found, Scalar):
        return None
    if isinstance(statement, TilePrimitiveCall) or isinstance(found, Nest):
        return WORK
    if isinstance(statement, tirx.BufferStore):
        return WORK if is_tile(statement.buffer) or is_global(statement.buffer) else None
    operation = read_operation(statement)
    if operation is not None and operation.kind in ("wait", "expect"):
        return WAIT if operation.kind == "wait" else LOAD
    name = _op_name(statement)
    if name == _WAIT_OP:
        return WAIT
    return MMA if name.startswith(_PRODUCT_OPS) else None


def _op_name(statement: Stmt) -> str:
    """The name of the op that a statement calls for its effect; empty if it does not."""
    call = statement.value if isinstance(statement, tirx.Evaluate) else None
    return str(getattr(call.op, "name", "")) if isinstance(call, Call) else ""


def jumps(statement: Stmt) -> bool:
    """Whether a statement, or a part of it, leaves a loop, its trip or the kernel."""
    own = isinstance(statement, _JUMPS) or _op_name(statement) in _JUMP_OPS
    return own or any(map(jumps, _inside(statement)))


def is_wait_for_products(statement: Stmt) -> bool:
    """Whether a statement waits until products of this warpgroup are complete."""
    return _op_name(statement) == _PRODUCT_WAIT_OP


def is_product(statement: Stmt) -> bool:
    """Whether a statement is a product of tiles, or an instruction of one."""
    name = _op_name(statement)
    order = name.removeprefix("tirx.ptx.wgmma").removeprefix("tirx.ptx.tcgen05")
    multiplies = name.startswith(_PRODUCT_OPS) and order not in _ORDER_OPS
    return multiplies or isinstance(view(statement), Mma)


def has_products(statement: Stmt) -> bool:
    """Whether a statement multiplies, or is a loop that stands for that in another role."""
    return _is_pipelined(statement) or is_product(statement) or any(
        map(has_products, _inside(statement))
    )


def is_loop_of_products(statement: Stmt) -> bool:
    """Whether a statement is a loop that multiplies itself, not only a loop within it does."""

    def multiplies(one: Stmt) -> bool:
        inner = not isinstance(one, _LOOPS) or _is_unrolled(one)
        return is_product(one) or (inner and any(map(multiplies, _inside(one))))

    loop = isinstance(statement, _LOOPS) and not _is_unrolled(statement)
    return loop and (_is_pipelined(statement) or any(map(multiplies, _inside(statement))))


def _is_pipelined(statement: Stmt) -> bool:
    return isinstance(statement, tirx.For) and PIPELINED in statement.annotations


def _is_unrolled(statement: Stmt) -> bool:
    """Whether a loop is the author's way to write the same statement several times."""
    return isinstance(statement, tirx.For) and statement.kind == tirx.ForKind.UNROLLED


def subjects(statement: Stmt, kind: str) -> list[str]:
    """Names of the barriers, loaded tiles or accumulators of a statement's parts of a kind."""
    if kind == WAIT:
        operation = read_operation(statement)
        if operation is not None:
            return [operation.barriers.name]
        if isinstance(statement, tirx.Evaluate) and isinstance(statement.value, Call):
            places = map(read_address, statement.value.args)
            return [place.source.name for place in places if place is not None]
    elif isinstance(statement, TilePrimitiveCall):
        return [statement.args[0].source.name] if _kind(statement) == kind else []
    return [name for inner in _inside(statement) for name in subjects(inner, kind)]



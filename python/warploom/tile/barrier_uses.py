"""Which mbarriers statements wait for, and which they complete: what waits for what.

It reads statements at any stage of a lowering: barriers are buffers of scope ``mbarrier`` first,
and words of shared memory later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad
from tvm.tirx import Buffer, Stmt
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.tile.mbarriers import SCOPE, WAIT_WITH_HINT

#: Kinds of uses: of those that wait, and of those that complete a phase.
WAIT, ARRIVE, EXPECT, COPY, COMMIT, INIT = "wait", "arrive", "expect", "copy", "commit", "init"
SUPPLIES = (ARRIVE, EXPECT, COPY, COMMIT)
_WAITS = ("tirx.cuda.mbarrier_wait", WAIT_WITH_HINT, "try_wait", "test_wait")


@dataclass(frozen=True)
class BarrierUse:
    """A statement that uses barriers.

    Attributes
    ----------
    barrier : str
        Name of the buffer of barriers.
    kind : str
        ``"wait"``, ``"arrive"``, ``"expect"`` (arrives and announces bytes), ``"copy"``,
        ``"commit"`` (of MMAs) or ``"init"``.
    """

    barrier: str
    kind: str


def barrier_uses(statements: Iterable[Stmt]) -> list[BarrierUse]:
    """The different uses of barriers in statements, in the order of the program."""
    found: dict[BarrierUse, None] = {}

    def note(kind: str, expressions: Iterable[Any]) -> None:
        for barrier in map(barrier_of, expressions):
            if barrier is not None:
                found.setdefault(BarrierUse(str(barrier.name), kind))

    def visit(node: tirx.Evaluate | TilePrimitiveCall) -> None:
        if isinstance(node, TilePrimitiveCall):
            note(COPY, node.config.values())
        elif isinstance(node.value, Call):
            note(_kind(node.value), node.value.args)

    for statement in statements:
        tvm_ffi.structural_walk(statement, ((tirx.Evaluate, TilePrimitiveCall), visit), order="pre")
    return list(found)


def barrier_of(expression: Any) -> Buffer | None:
    """The buffer of barriers of which an expression is an address; None if it is none."""
    while isinstance(expression, Call) and expression.args:
        expression = expression.args[0]
    if not isinstance(expression, TensorLoad) or not tirx.is_buffer_var(expression.source):
        return None
    buffer = expression.source
    words = buffer.scope().startswith("shared") and str(buffer.dtype) == "uint64"
    return buffer if words or buffer.scope() == SCOPE else None


def _kind(call: Call) -> str:
    name = str(call.op.name)
    values = (getattr(one, "value", None) for one in call.args)
    words = [value for value in values if isinstance(value, str)]
    if name in _WAITS or any(word in _WAITS or word.endswith(WAIT_WITH_HINT) for word in words):
        return WAIT
    for kind, signs in (
        (INIT, ("init",)), (EXPECT, ("expect_tx",)), (COMMIT, ("commit", "tcgen05")),
        (ARRIVE, ("arrive",)),
    ):  # fmt: skip
        if any(sign in word for word in words for sign in signs) or any(
            name.endswith(sign) or f"_{sign}" in name for sign in signs
        ):
            return kind
    return ARRIVE if "mbarrier" in name else COPY

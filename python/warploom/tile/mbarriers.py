"""Mbarriers that the author of a program operates: how passes recognise the statements.

:mod:`warploom.language.mbarrier` and :mod:`warploom.language.builtins` write them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm.ir import Call, TensorLoad
from tvm.tirx import Buffer, is_buffer_var
from tvm.tirx.stmt import Evaluate

from warploom.tile.hints import PREFIX

SCOPE = "mbarrier"
#: Attribute of statements that only the thread that loads executes.
LOADING = PREFIX + "loading"
#: Attribute of the initialisation that :func:`alloc_barrier` writes; passes choose its thread.
INITIALISED = PREFIX + "alloc_barrier"
#: The device function of a wait with a suspend-time hint.
WAIT_WITH_HINT = "mbarrier_wait_with_hint"


@dataclass(frozen=True)
class Operation:
    """A statement on one mbarrier.

    Attributes
    ----------
    kind : str
        ``"init"``, ``"arrive"``, ``"expect"``, ``"wait"``; the name of the instruction for
        anything else that names an mbarrier.
    barriers : Buffer
        The buffer of scope ``mbarrier``.
    indices : tuple
        Which of them.
    value : Expr
        Arrivals, bytes, or the parity.
    """

    kind: str
    barriers: Buffer
    indices: tuple[Any, ...]
    value: Any = None


_KINDS = {
    "tirx.ptx.mbarrier_init": "init",
    "tirx.ptx.mbarrier_arrive": "arrive",
    "tirx.ptx.mbarrier_arrive_expect_tx": "expect",
    "tirx.cuda.mbarrier_wait": "wait",
    f"warploom_{WAIT_WITH_HINT}": "wait",
}


def read_operation(statement: Any) -> Operation | None:
    """The operation that a statement is; None if it names no mbarrier."""
    call = statement.value if isinstance(statement, Evaluate) else None
    if not isinstance(call, Call):
        return None
    for argument in call.args:
        place = read_address(argument)
        if place is not None:
            name, arguments = str(call.op.name), list(call.args)
            if name == "tirx.cuda.func_call":
                name, *arguments = str(arguments[0].value), *arguments[1:]
            value = arguments[1] if len(arguments) > 1 else None
            return Operation(_KINDS.get(name, name), place.source, tuple(place.indices), value)
    return None


def read_address(expression: Any) -> TensorLoad | None:
    """The element ``b[i]`` of a buffer of mbarriers of which an expression is the address."""
    while isinstance(expression, Call) and len(expression.args) == 1:
        (expression,) = expression.args
    if not isinstance(expression, TensorLoad) or not is_buffer_var(expression.source):
        return None
    return expression if expression.source.scope() == SCOPE else None

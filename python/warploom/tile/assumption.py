"""``T.assume(condition)``: a fact that holds where it stands, and that nothing is executed for.

Passes note facts about their scalars by it, and so may an author.
"""

from __future__ import annotations

from typing import Any

from tvm.ir import Call, Op
from tvm.tirx import Stmt
from tvm.tirx.stmt import Evaluate

_ASSUME = Op.get("tirx.assume")


def read_assumption(statement: Stmt) -> Any:
    """The condition that a statement assumes; None for any other statement."""
    call = statement.value if isinstance(statement, Evaluate) else None
    return call.args[0] if isinstance(call, Call) and call.op.same_as(_ASSUME) else None

"""Stores of single elements outside of loops are nests of one iteration.

``Out[b] = total[0, 0]`` and ``wl.atomic_add(Out[0], total[0, 0])`` say what they mean without a
loop; checks, the interpreter and passes know elements in nests alone.
"""

from __future__ import annotations

from tvm import tirx
from tvm.tirx import PrimFunc, Stmt, Var

from warploom.tile import ir
from warploom.tile.nest import read_nest


def with_single_stores(func: PrimFunc) -> PrimFunc:
    """The function with a loop of one iteration around each such store.

    Parameters
    ----------
    func : PrimFunc
        A tile program whose roles have not parted.
    """
    body = _wrapped(func.body)
    return func if body.same_as(func.body) else func.with_body(body)


def _wrapped(statement: Stmt) -> Stmt:
    if isinstance(statement, tirx.BufferStore):
        if str(statement.buffer.scope()) == "local":
            return statement
        return ir.written_at(ir.loop(Var("one", "int32"), 1, [statement]), statement.span)
    if isinstance(statement, tirx.SeqStmt):
        each = [_wrapped(inner) for inner in statement.seq]
        same = all(new.same_as(old) for new, old in zip(each, statement.seq, strict=True))
        return statement if same else ir.seq(each)
    if isinstance(statement, tirx.IfThenElse):
        cases = [statement.then_case, statement.else_case]
        new = [case if case is None else _wrapped(case) for case in cases]
        if all(a is b or a.same_as(b) for a, b in zip(new, cases, strict=True)):
            return statement
        return tirx.IfThenElse(statement.condition, *new, statement.span)
    if isinstance(statement, tirx.For) and read_nest(statement) is not None:
        return statement
    if isinstance(statement, (tirx.For, tirx.While, tirx.AttrStmt)):
        body = _wrapped(statement.body)
        return statement if body.same_as(statement.body) else ir.with_body(statement, [body])
    return statement

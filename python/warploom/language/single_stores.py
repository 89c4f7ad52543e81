"""Stores of single elements outside of loops are nests of one iteration.

``Out[b] = total[0, 0]`` and ``wl.atomic_add(Out[0], total[0, 0])`` say what they mean without a
loop; checks, the interpreter and passes know elements in nests alone.
"""

from __future__ import annotations

from tvm import tirx
from tvm.tirx import PrimFunc, Stmt, Var

from warploom.language.rules.nests import read_nest
from warploom.tile import ir


def with_single_stores(func: PrimFunc) -> PrimFunc:
    """The function with a loop of one iteration around each such store.

    Parameters
    ----------
    func : PrimFunc
        A tile program whose roles have not parted.
    """
    body = _wrapped(func.body, ())
    return func if body.same_as(func.body) else func.with_body(body)


def _wrapped(statement: Stmt, counters: tuple[Var, ...]) -> Stmt:
    """The statement in loops with these variables, none of which counts elements."""
    if isinstance(statement, tirx.BufferStore):
        # An element for each iteration is that of a nest, which the rules have words for.
        counted = any(ir.uses(index) & set(counters) for index in statement.indices)
        if str(statement.buffer.scope()) == "local" or counted:
            return statement
        return ir.written_at(ir.loop(Var("one", "int32"), 1, [statement]), statement.span)
    if isinstance(statement, tirx.SeqStmt):
        each = [_wrapped(inner, counters) for inner in statement.seq]
        same = all(new.same_as(old) for new, old in zip(each, statement.seq, strict=True))
        return statement if same else ir.seq(each)
    if isinstance(statement, tirx.IfThenElse):
        cases = [statement.then_case, statement.else_case]
        new = [case if case is None else _wrapped(case, counters) for case in cases]
        if all(a is b or a.same_as(b) for a, b in zip(new, cases, strict=True)):
            return statement
        return tirx.IfThenElse(statement.condition, *new, statement.span)
    if isinstance(statement, tirx.For):
        if read_nest(statement) is not None:
            return statement
        counters = (*counters, statement.loop_var)
    if isinstance(statement, (tirx.For, tirx.While, tirx.AttrStmt)):
        body = _wrapped(statement.body, counters)
        return statement if body.same_as(statement.body) else ir.with_body(statement, [body])
    return statement

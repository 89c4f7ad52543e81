"""``wl.exit_if``: a CTA ends early. The rest of the kernel is a branch that it does not take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import PrimFunc, Stmt
from tvm.tirx.stmt import Evaluate

from warploom.errors import TileProgramError
from warploom.language.builtins.operands import predicate
from warploom.messages.blame import line_of
from warploom.tile import ir

#: The function that the statement calls.
_MARK = "warploom.exit_if"


def exit_if(condition: Any) -> Any:
    """End the CTA where a condition holds: ``wl.exit_if(b * BM >= length[s])``.

    No statement behind it is executed by that CTA. It stands at the top level of a kernel: a loop
    ends by its extent or is a ``while``, and a branch has the rest of its statements in an ``if``.

    Parameters
    ----------
    condition : Expr or bool
        The same for the whole CTA: of ids of CTAs, scalars, and elements of global memory or of
        shared tiles.

    Returns
    -------
    Call
        A statement, where it stands alone.

    Raises
    ------
    IllegalCombination
        If it is no condition.

    Examples
    --------
    .. code-block:: python

        b, s = T.cta_id([T.ceildiv(M, BM), S])
        wl.exit_if(b * BM >= length[s])
    """
    return T.call_extern("int32", _MARK, predicate("condition", condition))


def read_exit(statement: Any) -> Any:
    """The condition under which a statement ends the CTA; None for another statement."""
    call = statement.value if isinstance(statement, Evaluate) else None
    return call.args[1] if ir.called_extern(call) == _MARK else None


def without_exits(func: PrimFunc) -> PrimFunc:
    """A function with branches in the place of exits.

    Raises
    ------
    TileProgramError
        If an exit stands in a loop or a branch.
    """
    if not any(True for _ in _exits(func.body)):
        return func
    body = _kept(func.body)
    left = next(_exits(body), None)
    if left is not None:
        line = line_of(left.span)
        message = (
            "wl.exit_if stands in a loop, a branch or a block; it ends a CTA at the top level of "
            "the kernel, so end the loop by its extent or a while, or write an `if` around what "
            "follows."
        )
        raise TileProgramError("\n".join([message, *([] if line is None else line.quoted())]))
    return PrimFunc(func.params, body, func.ret_type, func.attrs, func.span)


def _exits(node: Any) -> Iterator[Evaluate]:
    found: list[Evaluate] = []

    def visit(evaluation: Evaluate) -> None:
        if read_exit(evaluation) is not None:
            found.append(evaluation)

    tvm_ffi.structural_walk(node, (Evaluate, visit))
    return iter(found)


def _kept(statement: Stmt) -> Stmt:
    """A statement with nothing behind it, and with branches in the place of its exits."""
    statements = ir.flatten(statement)
    for number, part in enumerate(statements):
        condition = read_exit(part)
        if condition is None:
            continue
        rest = statements[number + 1 :]
        # Tiles and scalars are declared for the whole kernel.
        declared = [one for one in rest if isinstance(one, (tirx.AllocBuffer, tirx.DeclBuffer))]
        others = [one for one in rest if not any(one.same_as(other) for other in declared)]
        if not others:
            return ir.seq([*statements[:number], *declared])
        branch = tirx.IfThenElse(T.Not(condition), _kept(ir.seq(others)), None, part.span)
        return ir.seq([*statements[:number], *declared, branch])
    last = statements[-1] if statements else None
    if isinstance(last, tirx.AttrStmt):
        return ir.seq([*statements[:-1], ir.with_body(last, [_kept(last.body)])])
    return statement

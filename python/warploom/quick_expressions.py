"""Expressions in TVMScript, compiled once for each form.

TVM's parser evaluates each part of an expression by itself: it makes a Python syntax tree of it,
compiles that and evaluates the code. Parts have few forms, as what is inside of them has been
evaluated before and stands there as a temporary name: ``f(t_0, t_1)``, ``t_0.dtype``. A build of a
model evaluates tens of thousands. Here the code of a form is kept.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

#: Forms that are kept.
_KEPT = 4096

_codes: dict[Any, types.CodeType] = {}


class _Unknown(Exception):
    """A node has no key."""


def compiled_once(stock: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """``_eval_expr`` of TVM's evaluator, which compiles each form of an expression once.

    The code is evaluated as TVM does it, with the table of values as globals: macros find their
    parser there.
    """

    @functools.wraps(stock)
    def evaluate(node: Any, values: dict[str, Any] | None) -> Any:
        try:
            key = _key(node)
        except _Unknown:
            return stock(node, values)
        code = _codes.get(key)
        if code is None:
            if len(_codes) >= _KEPT:
                _codes.clear()
            code = _codes[key] = _compiled(node)
        return eval(code, {} if values is None else values)

    return evaluate


def _compiled(node: Any) -> types.CodeType:
    import ast

    from tvm.script.parser.core import doc

    expression = ast.Expression(body=doc.from_doc(node))
    return compile(ast.fix_missing_locations(expression), filename="<ast>", mode="eval")


def _key(node: Any) -> Any:
    """What expressions with the same code have in common.

    Raises
    ------
    _Unknown
        For nodes that are evaluated as TVM does it.
    """
    read = _KEYS.get(type(node).__name__)
    if read is None:
        raise _Unknown
    return read(node)


def _constant(node: Any) -> Any:
    # 1, 1.0 and True are equal, and so are 0.0 and -0.0.
    return "constant", type(node.value).__name__, repr(node.value)


def _each(nodes: Any) -> tuple[Any, ...]:
    return tuple(map(_key, nodes))


_KEYS: dict[str, Callable[[Any], Any]] = {
    "Name": lambda node: node.id,
    "Constant": _constant,
    "Attribute": lambda node: ("attribute", _key(node.value), node.attr),
    "Starred": lambda node: ("starred", _key(node.value)),
    "keyword": lambda node: (node.arg, _key(node.value)),
    "Call": lambda node: ("call", _key(node.func), _each(node.args), _each(node.keywords)),
    "Subscript": lambda node: ("subscript", _key(node.value), _key(node.slice)),
    "Tuple": lambda node: ("tuple", _each(node.elts)),
    "List": lambda node: ("list", _each(node.elts)),
}


def install() -> None:
    """Make TVM's parser compile each form of an expression once."""
    from tvm.script.parser.core import evaluator

    if not hasattr(evaluator._eval_expr, "__wrapped__"):
        evaluator._eval_expr = compiled_once(evaluator._eval_expr)

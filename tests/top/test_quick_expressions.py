"""Expressions for TVM's parser: each form is compiled once, and has the value that TVM finds."""

from __future__ import annotations

import types

import pytest
from tvm.script.parser.core import doc, evaluator

from warploom import quick_expressions

_stock = evaluator._eval_expr.__wrapped__
_VALUES = {
    "x": 3, "y": [4, 5, 6], "pair": (7, 8), "options": {"key": 9},
    "f": lambda *args, **kwargs: (args, sorted(kwargs.items())),
    "space": types.SimpleNamespace(inner=types.SimpleNamespace(z=-0.0)),
}  # fmt: skip


def parsed(text: str) -> doc.AST:
    return doc.parse(text, mode="eval").body


@pytest.mark.parametrize(
    "text",
    [
        "x", "len", "space.inner.z", "f()", "f(x, y, key=x)", "f(*pair, x, **options)", "y[1]",
        "y[0:2]", "y[-1]", "(x, *pair)", "[x, y]", "f(1)", "f(1.0)", "f(True)", "f('1')", "f(None)",
        "f(0.0)", "f(-0.0)", "x + y[0]", "[i for i in y]", "(lambda a: a + x)(2)",
        "f(b'1', 1j, ...)",
    ],
)  # fmt: skip
def test_values_are_those_of_tvm(text):
    for _ in range(2):  # compiled, and kept
        wanted, found = (
            evaluate(parsed(text), dict(_VALUES)) for evaluate in (_stock, evaluator._eval_expr)
        )
        assert type(found) is type(wanted)
        # To the sign of zero, and the type of each constant.
        assert found is wanted or repr(found) == repr(wanted)


def test_a_form_is_compiled_once(monkeypatch):
    node = "unheard_of(first, second.third)[fourth]"
    values = {"unheard_of": lambda *args: args, "first": 1, "second": space(third=2), "fourth": 1}
    assert evaluator._eval_expr(parsed(node), dict(values)) == 2

    def refuse(*_):
        raise AssertionError("it is compiled again")

    monkeypatch.setattr(quick_expressions, "_compiled", refuse)
    assert evaluator._eval_expr(parsed(node), {**values, "second": space(third=5)}) == 5
    with pytest.raises(AssertionError, match="compiled again"):
        evaluator._eval_expr(parsed(node.replace("fourth", "fifth")), dict(values))


def space(**values: int) -> types.SimpleNamespace:
    return types.SimpleNamespace(**values)


def test_no_more_forms_are_kept_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(quick_expressions, "_KEPT", 8)
    monkeypatch.setattr(quick_expressions, "_codes", {})
    for number in range(30):
        assert evaluator._eval_expr(parsed(f"f({number})"), dict(_VALUES)) == ((number,), [])
        assert len(quick_expressions._codes) <= 8


def test_errors_are_those_of_python():
    for text, error in [("nowhere", NameError), ("x.nothing", AttributeError), ("x()", TypeError)]:
        for evaluate in (_stock, evaluator._eval_expr):
            with pytest.raises(error):
                evaluate(parsed(text), dict(_VALUES))

"""Sources for TVM's parser: each is read and parsed once, and is what TVM finds."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.script import ir as I
from tvm.script import tirx as T
from tvm.script.parser.core import doc
from tvm.script.parser.core.diagnostics import Source

from warploom import quick_sources


def _function(width: int):
    def main(A: T.Buffer((8,), "float32")):
        for i in T.serial(width):
            A[i] = T.float32(width)

    return main


def _fields(source: Source) -> dict:
    return dict(vars(source))


def _stock(program) -> Source:
    source = Source.__new__(Source)
    Source.__init__.__wrapped__(source, program)
    return source


def test_the_text_of_a_function_is_that_of_tvm_and_is_looked_for_once(monkeypatch):
    first = Source(_function(3))
    assert _fields(first) == _fields(_stock(_function(4)))

    def refuse(*_):
        raise AssertionError("the text is looked for again")

    monkeypatch.setattr("tvm.script.parser.core.diagnostics.getsourcelines", refuse)
    again = Source(_function(5))
    assert _fields(again) == _fields(first)
    assert again.full_source is first.full_source


def test_functions_of_one_file_share_its_text_and_keep_their_own():
    first, other = Source(_function(3)), Source(_fields)
    assert first.full_source is other.full_source
    assert first.source != other.source
    assert other.source.startswith("def _fields")


def test_a_text_is_parsed_once_and_gives_the_tree_of_tvm():
    text = "def of_this_test(x):\n    y = x + 1\n"
    first = Source(text).as_ast()
    assert Source(text).as_ast() is first
    assert doc.from_doc(first).body[0].name == "of_this_test"
    with pytest.raises(SyntaxError):
        Source("def of_this_test(:").as_ast()


def test_trees_with_classes_are_made_anew():
    text = "class Module:\n    def f(x):\n        pass\n"
    assert Source(text).as_ast() is not Source(text).as_ast()


def test_values_around_a_function_are_not_kept():
    def made(width: int):
        @T.prim_func
        def main(A: T.Buffer((8,), "float32")):
            for i in T.serial(width):
                A[i] = T.float32(width)

        return main

    three, five = made(3), made(5)
    assert not tvm_ffi.structural_equal(three, five)
    for function, width in ((three, 3), (five, 5)):
        tensor = tvm.runtime.tensor(np.full(8, -1, "float32"))
        tvm.compile(function.with_attr("global_symbol", "main"), "llvm")["main"](tensor)
        expected = np.where(np.arange(8) < width, width, -1)
        np.testing.assert_array_equal(tensor.numpy(), expected.astype("float32"))


def test_a_module_is_read_twice():
    def module():
        @I.ir_module
        class Module:
            @T.prim_func
            def main(A: T.Buffer((8,), "float32")):
                for i in T.serial(8):
                    A[i] = T.float32(0)

        return Module

    tvm.ir.assert_structural_equal(module(), module())


def test_a_kept_text_is_for_its_code_alone():
    function = _function(7)
    # As if the code of a function that is gone had been where this one is now.
    gone = (_fields.__code__, {"source": "of another code"})
    quick_sources._found[id(function.__code__)] = gone
    assert Source(function).source.startswith("def main(A")


def test_functions_within_a_function_are_read_twice():
    """TVM's parser takes the decorators of such functions from their syntax trees."""

    def function():
        @T.prim_func
        def main(A: T.Buffer((8,), "float32")):
            @T.inline
            def clear(i):
                A[i] = T.float32(0)

            for i in T.serial(8):
                clear(i)

        return main

    tvm.ir.assert_structural_equal(function(), function())

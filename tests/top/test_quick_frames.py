"""Frames for TVM's parser: those of ``inspect``, without a walk through all modules."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import pytest
from tvm.script import ir as I
from tvm.script import tirx as T

from warploom import quick_frames


def _both() -> tuple[list[Any], list[Any]]:
    return inspect.stack(), quick_frames.quick_stack()


def test_frames_are_those_of_inspect() -> None:
    stock, quick = _both()
    outer = quick_frames.quick_outer_frames(sys._getframe())
    assert [one.frame for one in quick] == [one.frame for one in stock]
    assert [one.frame for one in outer] == [one.frame for one in stock[1:]]
    assert [one.function for one in quick] == [one.function for one in stock]
    assert [one.filename for one in quick] == [one.filename for one in stock]
    assert [one.lineno for one in quick[1:]] == [one.lineno for one in stock[1:]]


def test_the_lines_that_the_parser_reads() -> None:
    stock, quick = _both()
    assert [one.code_context for one in quick[1:3]] == [one.code_context for one in stock[1:3]]
    assert quick[1].code_context == ["    stock, quick = _both()\n"]
    assert [one.positions for one in quick[1:3]] == [one.positions for one in stock[1:3]]
    assert quick_frames.quick_stack(0)[0].code_context is None


def test_code_without_a_file_has_no_line() -> None:
    found: dict[str, Any] = {"quick_frames": quick_frames}
    exec("frames = quick_frames.quick_stack()", found)
    assert found["frames"][0].code_context is None
    assert found["frames"][0].filename == "<string>"


@pytest.mark.parametrize("name", quick_frames._ASKING)
def test_tvm_asks_for_quick_frames_and_others_do_not(name: str) -> None:
    assert sys.modules[name].inspect.stack is quick_frames.quick_stack
    assert inspect.stack is not quick_frames.quick_stack
    assert sys.modules[name].inspect.isfunction is inspect.isfunction


def test_functions_in_classes_and_names_in_annotations_are_found() -> None:
    width = 8

    @I.ir_module
    class Module:
        @T.prim_func
        def main(A: T.Buffer((width,), "float32")):
            for i in T.serial(width):
                A[i] = T.float32(0)

        @T.prim_func(private=True)
        def other(A: T.Buffer((width,), "float32")):
            A[0] = T.float32(1)

    assert {each.name_hint for each in Module.get_global_vars()} == {"main", "other"}
    assert int(Module["main"].params[0].shape[0]) == width

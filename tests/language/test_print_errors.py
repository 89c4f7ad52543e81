"""Errors of ``wl.print``, and of prints in tile programs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

from warploom import language as wl
from warploom.errors import IllegalCombination, TileProgramError
from warploom.language.printing import read_print
from warploom.lower.lowerings import lower

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    ("values", "options", "sentence"),
    [
        (("{} {}", 1), {}, "has 2 places, and 1 values follow"),
        (("none", 1), {}, "has 0 places, and 1 values follow"),
        (("{0}", 1), {}, "has the place {0}; places .* are {} or"),
        (("{x}", 1), {}, "has the place {x}"),
        (("{!r}", 1), {}, "has the place {!r}"),
        (("{", 1), {}, "is wrong: .* write {{ and }} for braces"),
        (("{:^5}", 1), {}, "{:^5} is no place of wl.print"),
        (("{:<05}", 1), {}, "0 takes a width, and no side"),
        (("{:f}", 1), {}, "has the letter 'f', and the value is an integer; allowed are d, x, X"),
        (("{:d}", 1.5), {}, "has the letter 'd', and the value is a float"),
        (("{:.3}", 1), {}, "has a precision, and the value is an integer"),
        (("{:+}", T.uint8(1)), {}, "has a sign, and the value is an unsigned integer"),
        (("{:#}", 1), {}, "has the flag #"),
        (("{:q}", "text"), {}, "a string, is wrong"),
        (("a\0b",), {}, "ends it on GPUs"),
        (("{}", 2**64), {}, "it has at most 64 bits"),
        (("{}", None), {}, "must be a number, a bool, a pointer or a string"),
        ((" {}" * 33, *range(33)), {}, "has 33 values; a GPU prints at most 32"),
        (("a",), {"thread": 1024}, "thread is 1024; a CTA has threads 0 to 1023"),
        (("a",), {"thread": -1}, "thread is -1"),
        (("a",), {"thread": 1.5}, "thread is 1.5; it must be an integer or None"),
        (("a",), {"predicate": "x"}, "predicate is 'x'; it must be a condition"),
    ],
)
def test_what_cannot_be_printed(values, options, sentence):
    with pytest.raises(IllegalCombination, match=re.escape(sentence).replace(r"\.\*", ".*")):
        wl.print(*values, **options)


def test_several_tiles_and_vectors_are_refused():
    buffer, dynamic = T.Buffer((4, 4), "float32"), T.Buffer((4, T.int32()), "float32")
    vector = T.Broadcast(T.float32(1), 4)
    for statement, sentence in (
        (lambda: wl.print("{} {}", buffer, buffer[0:2, 0]), "value 0 is the whole buffer .*, and"),
        (lambda: wl.print("{} {}", buffer[0:2, 0], buffer), "value 0 is a region, and wl.print"),
        (lambda: wl.device_assert(True, "{}", buffer), "wl.device_assert none; print elements"),
        (lambda: wl.print(dynamic), "with an extent that only the launch knows"),
        (lambda: wl.print("{}", vector), "print the elements of a vector"),
        (lambda: wl.device_assert(3.5, "{}", 1), "condition is 3.5; it must be a condition"),
        (lambda: wl.device_assert(False, "{}"), "wl.device_assert has 1 places, and 0 values"),
    ):
        with pytest.raises(IllegalCombination, match=sentence):
            statement()


def tile_program(statement: Callable[[Any], Any], nest: bool = False) -> Any:
    """A tile program with a statement of tiles, behind a nest or in it."""

    @T.prim_func
    def func(A: T.Buffer((64, 64), "float32"), index: T.Buffer((4,), "int32")):
        T.device_entry()
        T.cta_id([1])
        S = T.alloc_buffer((64, 64), "float32", scope="shared")
        I_s = T.alloc_buffer((64,), "int32", scope="shared")
        F = T.alloc_buffer((64, 64), "float32", scope="fragment")
        late = T.alloc_buffer((64, 64), "float32", scope="shared")
        bars = wl.mbarrier.alloc(2)
        for x in range(64):
            I_s[x] = x
        for y, x in T.grid(64, 64):
            S[y, x] = A[y, x]
            F[y, x] = A[y, x]
            if nest:
                wl.print("{}", y)
        statement((S, I_s, F, late, bars, A))
        for y, x in T.grid(64, 64):
            late[y, x] = S[y, x]
            A[y, x] = F[y, x]

    return func


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        (lambda t: T.evaluate(wl.print("a", thread=3)), "names a thread, and a tile program has"),
        (lambda t: T.evaluate(wl.print("a", thread=None)), "leave thread= out"),
        (lambda t: T.evaluate(wl.print("{}", t[0].data)), "prints the address"),
        (lambda t: T.evaluate(wl.print("{}", t[0][64, 0])), r"S\[64, 0\] lies outside of S"),
        (lambda t: T.evaluate(wl.print("{}", t[2][0, -1])), r"F\[0, -1\] lies outside of F"),
        (lambda t: T.evaluate(wl.print("{}", t[2][t[1][0], 0])), "at an index from the tile I_s"),
        (lambda t: T.evaluate(wl.print("{}", t[4][0])), "prints the mbarrier"),
        (lambda t: T.evaluate(wl.print("{}", t[3][0, 0])), "late"),
        (lambda t: T.evaluate(T.cuda.printf("a\n")), r"write wl\.print\(text, values\)"),
        (lambda t: T.evaluate(wl.print("{}", T.cuda.thread_rank())), "thread_rank is not defined"),
    ],
)
def test_rules_of_tile_programs(statement, sentence):
    func = tile_program(statement)
    args = [np.zeros((64, 64), "float32"), np.zeros(4, "int32")]
    messages = set()
    for refuse in (lambda: wl.interpret(func, args), lambda: lower(func)):
        with pytest.raises(TileProgramError, match=sentence) as caught:
            refuse()
        assert "test_print_errors.py" in str(caught.value)
        messages.add(str(caught.value))
    assert len(messages) == 1


def test_nests_do_not_print():
    func = tile_program(lambda _: None, nest=True)
    for refuse in (lambda: wl.interpret(func, []), lambda: lower(func)):
        with pytest.raises(TileProgramError, match=r"wl\.print stands in the nest over .* behind"):
            refuse()


def test_read_print():
    text = 'a "b" \\ é\n{}'
    statement = tvm.tirx.Evaluate(wl.print(text, 7, thread=None))
    found = read_print(statement)
    assert found.text == text and found.thread is None and found.always
    assert read_print(tvm.tirx.Evaluate(0)) is None

"""``wl.print`` and ``wl.device_assert``: print values of a kernel, on GPUs, on the emulator and
where it is interpreted; a condition that does not hold ends the kernel, too.

A statement is a call of a mark, which passes read back with :func:`read_print` and make code of
where they know which thread has the values (:mod:`warploom.lower.emit.prints`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi
from tvm import DataType, tirx
from tvm.ir import Call, StringImm, TensorRegion
from tvm.ir.type import PointerType
from tvm.script import tirx as T
from tvm.tirx import IntImm, Stmt
from tvm.tirx.stmt import Evaluate

from warploom.errors import IllegalCombination
from warploom.language.builtins.indices import MAX_THREADS
from warploom.language.builtins.operands import describe, dtype_of, known, predicate
from warploom.language.print_format import MOST_VALUES, POINTER, Format, Kind, kind_of
from warploom.language.printed_tiles import is_tile, print_tile
from warploom.tile import ir

#: The functions that these statements call until passes make code of them -> their names.
MARKS = {"warploom.print": "wl.print", "warploom.assert": "wl.device_assert"}
_PRINT, _ASSERT = MARKS
#: Environment variable; with the value 0 no print statement becomes code.
SWITCH = "WARPLOOM_PRINT"
#: In place of a thread: all of them.
_ALL = -1


def print(*values: Any, predicate: Any = None, thread: Any = 0) -> Any:
    r"""Print a line: ``wl.print("row {}: {:.3f}", i, acc[i, 0])``.

    One thread of each CTA prints. In a tile program each CTA prints once for each time that it
    comes to the statement, and values may be elements of any tile: which thread holds them is the
    matter of the passes. In a kernel by hand, values are those of the thread that prints, which
    alone computes them. With ``WARPLOOM_PRINT=0`` the statement is no code at all.

    Parameters
    ----------
    *values : str, Expr or number
        First a text with ``{}`` for each further value; without a text the values follow each
        other, with a blank between. A place may have the form ``{:>8.3f}``: a side ``<`` or
        ``>``, a sign, ``#``, ``0``, a width, a precision and a letter. Without a letter, integers
        and bools print as ``d``, floats of all widths as ``g`` (6 digits; ``{:.9g}`` has all of a
        float32), pointers as ``0x...``; ``x`` prints the bits of the dtype. NaN has no sign.
        A value may be a tile or a region of constant extents, in a tile program: then there is a
        line for every 16 elements of a row, with the other values in each of them, and the form
        of its place is that of its elements.
    predicate : Expr or bool, optional
        Whether to print, for the thread that would.
    thread : int, Expr or None
        The thread that prints, by its rank in the CTA; None for every thread. A tile program has
        no threads: leave it out.

    Returns
    -------
    Call
        A statement, where it stands alone.

    Raises
    ------
    IllegalCombination
        If the text has another number of places than there are values, if a value is a vector, or
        if a place does not fit a dtype. At most 32 values, and one tile.

    Examples
    --------
    .. code-block:: python

        wl.print("k {}: acc[0, 0] is {:.4f}", k, acc[0, 0], predicate=k % 8 == 0)
        wl.print("k {}, {:.2f}", k, acc)
    """
    condition = _condition("predicate", predicate)
    if isinstance(condition, IntImm) and not int(condition):
        condition = None
    return _statement(_PRINT, values, condition, thread)


def device_assert(condition: Any, *values: Any) -> Any:
    """End the kernel where a condition does not hold: ``wl.device_assert(k > 0, "k is {}", k)``.

    The kernel prints the author's line and the text, and stops: the next call of CUDA returns an
    error, and no kernel runs in the process any more. ``wl.interpret`` and the emulator
    raise an error. As ``wl.print``, the statement may read elements of any tile. It is code with
    ``WARPLOOM_PRINT=0``, too.

    Parameters
    ----------
    condition : Expr or bool
        What holds.
    *values : str, Expr or number
        Text and values, as in :func:`print`.

    Returns
    -------
    Call
        A statement, where it stands alone.

    Raises
    ------
    IllegalCombination
        As :func:`print`.

    Examples
    --------
    .. code-block:: python

        wl.device_assert(length[b] <= ROWS, "sequence {} has {} rows", b, length[b])
    """
    holds = _condition("condition", condition)
    fails = T.bool(not int(holds)) if isinstance(holds, IntImm) else T.Not(holds)
    if isinstance(fails, IntImm) and not int(fails):
        fails = None
    return _statement(_ASSERT, values or ("it does not hold",), fails, 0)


def _statement(mark: str, values: tuple[Any, ...], condition: Any, thread: Any) -> Any:
    """A call of a mark; nothing where the condition is None."""
    name = MARKS[mark]
    text, *rest = values if values and isinstance(values[0], str) else (None, *values)
    if text is None:
        text = " ".join(["{}"] * len(rest))
    form = Format.parse(text)
    tiles = [number for number, value in enumerate(rest) if is_tile(value)]
    if mark == _PRINT and len(tiles) == 1 and len(form.sources) == len(rest):
        if is_on() and condition is not None:
            _print_tile(form, rest, tiles[0], condition, thread)
        return T.int32(0)
    if len(form.sources) != len(rest):
        raise IllegalCombination(
            f"the text {text!r} of {name} has {len(form.sources)} places, and {len(rest)} values "
            "follow it; write one {} for each value."
        )
    text, rest = _with_strings(form, rest)
    if len(rest) > MOST_VALUES:
        raise IllegalCombination(
            f"{name} has {len(rest)} values; a GPU prints at most {MOST_VALUES} at a time, so "
            "use two statements."
        )
    form = Format.parse(text)
    expressions = [_value(number, value) for number, value in enumerate(rest)]
    for number, (place, expression) in enumerate(zip(form.places, expressions, strict=True)):
        place.check(number, _kind(number, expression)[0])
    if condition is None:
        return T.int32(0)
    return T.call_extern("int32", mark, _escaped(text), _thread(thread), condition, *expressions)


def _print_tile(form: Format, values: list[Any], number: int, condition: Any, thread: Any) -> None:
    """A statement for each line of a tile, with the other values in their places."""
    texts, sources = [*map(_braces, form.texts)], [_place(source) for source in form.sources]
    before = "".join(text + place for text, place in zip(texts, sources[:number], strict=False))
    before += texts[number]
    after = texts[number + 1] + "".join(
        place + text for place, text in zip(sources[number + 1 :], texts[number + 2 :], strict=True)
    )

    def line(place: str, coordinates: list[Any], elements: list[Any]) -> None:
        text = f"{before}{place}{f' {sources[number]}' * len(elements)}{after}"
        printed = values[:number] + coordinates + elements + values[number + 1 :]
        T.evaluate(_statement(_PRINT, (text, *printed), condition, thread))

    print_tile(values[number], number, line)


def _place(source: str) -> str:
    return "{" + (f":{source}" if source else "") + "}"


def _with_strings(form: Format, values: list[Any]) -> tuple[str, list[Any]]:
    """The text with strings among the values in their places, and the other values."""
    text, rest = _braces(form.texts[0]), []
    for number, (source, value) in enumerate(zip(form.sources, values, strict=True)):
        if isinstance(value, StringImm):
            value = str(value.value)
        if isinstance(value, str):
            try:
                text += _braces(format(value, source))
            except ValueError as error:
                raise IllegalCombination(
                    f"the place {{:{source}}} of value {number}, a string, is wrong: {error}."
                ) from None
        else:
            text += _place(source)
            rest.append(value)
        text += _braces(form.texts[number + 1])
    return text, rest


def _braces(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _escaped(text: str) -> str:
    """ASCII without line breaks, which TVMScript prints and reads as they are."""
    if "\0" in text:
        raise IllegalCombination(
            "the text of wl.print has the character \\0, which ends it on GPUs; leave it out."
        )
    return text.encode("unicode_escape").decode("ascii")


def _value(number: int, value: Any) -> Any:
    """A value as an expression."""
    value = getattr(value, "scalar", value)
    if isinstance(value, np.generic):
        return tirx.const(value.item(), value.dtype.name)
    if isinstance(value, bool):
        return T.bool(value)
    if isinstance(value, int):
        for dtype in ("int32", "int64", "uint64"):
            limits = np.iinfo(dtype)
            if limits.min <= value <= limits.max:
                return IntImm(dtype, value)
        raise IllegalCombination(f"value {number} of wl.print is {value}; it has at most 64 bits.")
    if isinstance(value, float):
        return T.float64(value)
    if is_tile(value):
        noun = "a region" if isinstance(value, TensorRegion) else f"the whole buffer {value.name}"
        raise IllegalCombination(
            f"value {number} is {noun}, and wl.print takes one tile in a statement, "
            "wl.device_assert none; print elements, such as A[i, j], or use two statements."
        )
    _kind(number, value)
    return value


def _kind(number: int, value: Any) -> tuple[Kind, int]:
    pointer = isinstance(getattr(value, "ty", None), PointerType)
    dtype = "handle" if pointer else dtype_of(value)
    kind = kind_of(dtype) if dtype else None
    if kind is None:
        raise IllegalCombination(
            f"value {number} of wl.print is {describe(value)}; it must be a number, a bool, a "
            "pointer or a string: print the elements of a vector one by one."
        )
    return kind, 64 if kind is POINTER else DataType(dtype).bits


def _condition(name: str, given: Any) -> Any:
    return T.bool(True) if given is None else predicate(name, given)


def _thread(given: Any) -> Any:
    if given is None:
        return IntImm("int32", _ALL)
    number = known(given)
    if number is not None:
        if not 0 <= number < MAX_THREADS:
            raise IllegalCombination(
                f"thread is {number}; a CTA has threads 0 to {MAX_THREADS - 1}, and None is all."
            )
        return IntImm("int32", number)
    given = getattr(given, "scalar", given)
    if not dtype_of(given).startswith(("int", "uint")):
        raise IllegalCombination(f"thread is {describe(given)}; it must be an integer or None.")
    return given if dtype_of(given) == "int32" else T.Cast("int32", given)


@dataclass(frozen=True)
class Print:
    """A print statement, or an assertion.

    Attributes
    ----------
    text : str
        As its author wrote it.
    thread : Expr or None
        The thread that prints, by its rank in the CTA; None for all.
    predicate : Expr
        Whether to print; of an assertion, whether it fails.
    values : tuple of Expr
    call : Call
        The text in the program.
    """

    text: str
    thread: Any
    predicate: Any
    values: tuple[Any, ...]
    call: Call

    @property
    def mark(self) -> str:
        """The function that it calls."""
        return _text(self.call.args[0])

    @property
    def name(self) -> str:
        """The function that the author calls."""
        return MARKS[self.mark]

    @property
    def ends_kernel(self) -> bool:
        """Whether the kernel ends after it has printed."""
        return self.mark == _ASSERT

    @property
    def format(self) -> Format:
        """Its text, taken apart."""
        return Format.parse(self.text)

    @property
    def kinds(self) -> list[tuple[Kind, int]]:
        """Kind and bits of each value."""
        return [_kind(number, value) for number, value in enumerate(self.values)]

    @property
    def always(self) -> bool:
        """Whether there is no predicate."""
        return isinstance(self.predicate, IntImm) and bool(int(self.predicate))


def read_print(statement: Any) -> Print | None:
    """The print statement that a statement is; None if it is another."""
    call = statement.value if isinstance(statement, Evaluate) else None
    if not is_mark(call):
        return None
    _, text, thread, condition, *values = call.args
    plain = _text(text).encode("ascii").decode("unicode_escape")
    thread = None if known(thread) == _ALL else thread
    return Print(plain, thread, condition, tuple(values), call)


def is_mark(node: Any) -> bool:
    """Whether a node is the call of a print statement or an assertion."""
    return ir.called_extern(node) in MARKS


def _text(string: Any) -> str:
    return str(getattr(string, "value", string))


def is_on(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether print statements print."""
    return environ.get(SWITCH) != "0"


def map_prints(node: Any, change: Callable[[Stmt, Print], Stmt]) -> Any:
    """A statement with another one in place of each print statement in it."""

    def visit(evaluation: Evaluate) -> Stmt:
        call = read_print(evaluation)
        return evaluation if call is None else change(evaluation, call)

    return tvm_ffi.structural_map(node, (Evaluate, visit), order="post")


def has_prints(node: Any) -> bool:
    """Whether a statement is a print statement, or has one in it."""
    prints = False

    def visit(evaluation: Evaluate) -> None:
        nonlocal prints
        prints = prints or read_print(evaluation) is not None

    tvm_ffi.structural_walk(node, (Evaluate, visit))
    return prints

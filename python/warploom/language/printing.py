"""``wl.print``: prints values of a kernel, on GPUs, on the emulator and where it is interpreted.

A statement is a call of :data:`MARK`, which passes read back with :func:`read_print` and make code
of where they know which thread has the values (:mod:`warploom.lower.emit.prints`).
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
from tvm.tirx import IntImm, Stmt, is_buffer_var
from tvm.tirx.stmt import Evaluate

from warploom.errors import IllegalCombination
from warploom.language.builtins.indices import MAX_THREADS
from warploom.language.builtins.operands import describe, dtype_of, known, predicate
from warploom.language.print_format import MOST_VALUES, POINTER, Format, Kind, kind_of

#: The function that a print statement calls until passes make code of it.
MARK = "warploom.print"
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
        If the text has another number of places than there are values, if a value is a whole
        buffer, a region or a vector, or if a place does not fit a dtype. At most 32 values.

    Examples
    --------
    >>> wl.print("k {}: acc[0, 0] is {:.4f}", k, acc[0, 0], predicate=k % 8 == 0)
    """
    text, *rest = values if values and isinstance(values[0], str) else (None, *values)
    if text is None:
        text = " ".join(["{}"] * len(rest))
    form = Format.parse(text)
    if len(form.sources) != len(rest):
        raise IllegalCombination(
            f"the text {text!r} of wl.print has {len(form.sources)} places, and {len(rest)} values "
            "follow it; write one {} for each value."
        )
    text, rest = _with_strings(form, rest)
    if len(rest) > MOST_VALUES:
        raise IllegalCombination(
            f"wl.print has {len(rest)} values; a GPU prints at most {MOST_VALUES} at a time, so "
            "use two statements."
        )
    form = Format.parse(text)
    expressions = [_value(number, value) for number, value in enumerate(rest)]
    for number, (place, expression) in enumerate(zip(form.places, expressions, strict=True)):
        place.check(number, _kind(number, expression)[0])
    condition = _condition(predicate)
    if isinstance(condition, IntImm) and not int(condition):
        return T.int32(0)
    return T.call_extern("int32", MARK, _escaped(text), _thread(thread), condition, *expressions)


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
            text += "{" + (f":{source}" if source else "") + "}"
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
    if is_buffer_var(value) or isinstance(value, TensorRegion):
        noun = "a region" if isinstance(value, TensorRegion) else f"the whole buffer {value.name}"
        raise IllegalCombination(
            f"value {number} of wl.print is {noun}; print elements, such as A[i, j], in a loop if "
            "there are several."
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


def _condition(given: Any) -> Any:
    return T.bool(True) if given is None else predicate("predicate", given)


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
    """A print statement.

    Attributes
    ----------
    text : str
        As its author wrote it.
    thread : Expr or None
        The thread that prints, by its rank in the CTA; None for all.
    predicate : Expr
        Whether to print.
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
    if not isinstance(call, Call) or not is_mark(call):
        return None
    _, text, thread, condition, *values = call.args
    plain = str(getattr(text, "value", text)).encode("ascii").decode("unicode_escape")
    thread = None if known(thread) == _ALL else thread
    return Print(plain, thread, condition, tuple(values), call)


def is_mark(call: Call) -> bool:
    """Whether a call is that of a print statement."""
    if str(getattr(call.op, "name", "")) != "tirx.call_extern" or not len(call.args):
        return False
    return str(getattr(call.args[0], "value", call.args[0])) == MARK


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

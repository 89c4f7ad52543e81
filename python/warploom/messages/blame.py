"""The statement of a program that a message is about, from the names in the message.

Passes name the operand or the hint that is in their way. They work on statements that passes
before them have made, so that the author's statement is found here, in the program as it came.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Var
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.messages.frames import ARROW, Line, is_authors
from warploom.spans import file_of, flat

_NAME = re.compile(r"[A-Za-z_]\w*")
#: "A" before another word is an article, unless it is the name of a buffer in a list.
_ARTICLE = re.compile(r"\b[Aa] (?=[a-z])(?!of\b|and\b|or\b|has\b|is\b|in\b)")
_PREFIX = "warploom."


def with_place(message: str, func: tirx.PrimFunc) -> str:
    """A message with the author's line behind it, if a statement of the program is found.

    Parameters
    ----------
    message : str
        A sentence that names buffers or hints of the program.
    func : PrimFunc
        The program, as its author has written it.
    """
    if ARROW in message:  # its place is known already
        return message
    line = find_line(message, func)
    return message if line is None else "\n".join([message, *line.quoted()])


def without_place(message: str) -> str:
    """A message of :func:`with_place` as it was before."""
    return message.split(f"\n{ARROW}", 1)[0]


def find_line(message: str, func: tirx.PrimFunc) -> Line | None:
    """The line of the statement with the first name of a message, and most of the others.

    For the name of the program itself it is its first line. Programs of the package, or without
    places, have no line.
    """
    named = list(dict.fromkeys(_NAME.findall(_ARTICLE.sub("", message))))
    statements = _statements(func)
    for name in named:
        using = [(line, names) for line, names in statements if name in names]
        if using:
            return max(using, key=lambda entry: len(entry[1].intersection(named)))[0]
        if name == (func.attrs or {}).get("global_symbol"):
            return line_of(
                next((param.span for param in func.params if param.span is not None), None)
            )
    return None


def _statements(func: tirx.PrimFunc) -> list[tuple[Line, set[str]]]:
    """Every statement with a line of the author's, and the names in its head, in order."""
    lines: list[tuple[Line, set[str]]] = []

    def visit(statement: tirx.Stmt) -> None:
        line = line_of(statement.span)
        if line is None:
            return
        names = set(_names(statement))
        if isinstance(statement, tirx.AttrStmt):  # its span is that of all that it is about
            last = getattr(statement.span, "end_line", line.number)
            lines.extend((_line_of_hint(name, line, last), {name}) for name in names)
        else:
            lines.append((line, names))

    tvm_ffi.structural_walk(func.body, (tirx.Stmt, visit), order="pre")
    return lines


def _line_of_hint(name: str, first: Line, last: int) -> Line:
    """The line between two that sets a hint; the first if none does."""
    lines = (Line(first.path, number) for number in range(first.number, int(last) + 1))
    return next((line for line in lines if re.search(rf"\b{name}\s*=", line.text)), first)


def _names(statement: tirx.Stmt) -> Iterator[str]:
    if isinstance(statement, tirx.AttrStmt):
        if statement.attr_key.startswith(_PREFIX):
            yield re.sub(r"_\d$", "", statement.attr_key.removeprefix(_PREFIX))
        return
    if isinstance(statement, tirx.For):
        yield statement.loop_var.name
        yield from (key.removeprefix(_PREFIX) for key in statement.annotations)
        heads: list[Any] = [statement.min, statement.extent]
    elif isinstance(statement, tirx.AllocBuffer):
        yield statement.buffer.name
        return
    elif isinstance(statement, tirx.IfThenElse):
        heads = [statement.condition]
    elif isinstance(statement, (tirx.BufferStore, tirx.Bind, tirx.Evaluate, TilePrimitiveCall)):
        heads = [statement]
    else:
        return
    if isinstance(statement, TilePrimitiveCall):
        yield statement.op.name.rpartition(".")[2]
    names: list[str] = []
    for head in heads:
        tvm_ffi.structural_walk(head, (Var, lambda var: names.append(str(var.name))))
    yield from names


def line_of(span: Any) -> Line | None:
    """The outermost line of a span that is the author's; None if there is none."""
    for one in flat(span):
        if one.line > 0 and is_authors(file_of(one)):
            return Line(file_of(one), int(one.line))
    return None

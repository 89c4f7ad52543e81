"""Spans of a program: parts with a name, whose time a timeline shows (``wl.span``)."""

from __future__ import annotations

import tvm_ffi
from tvm.tirx import PrimFunc, Stmt
from tvm.tirx.stmt import AttrStmt

from warploom.tile.hints import PREFIX

#: Attribute around the statements of a span; its value is the name.
SPAN = PREFIX + "span"


def span_name(statement: Stmt) -> str | None:
    """The name of the span that a statement is; None if it is none."""
    if not isinstance(statement, AttrStmt) or statement.attr_key != SPAN:
        return None
    return str(getattr(statement.value, "value", statement.value))


def drop_spans(func: PrimFunc) -> PrimFunc:
    """The function without ``wl.span``; itself if it has none."""
    has_spans = False

    def drop(attribute: AttrStmt) -> Stmt:
        nonlocal has_spans
        if span_name(attribute) is None:
            return attribute
        has_spans = True
        return attribute.body

    body = tvm_ffi.structural_map(func.body, (AttrStmt, drop), order="post")
    if not has_spans:
        return func
    return PrimFunc(func.params, body, func.ret_type, func.attrs, func.span)

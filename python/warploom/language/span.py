"""``wl.span``: names a part of a kernel whose time a timeline shows."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm.script import tirx as T
from tvm.tirx import PrimFunc, Stmt
from tvm.tirx.stmt import AttrStmt

from warploom.errors import IllegalCombination
from warploom.language.hints import PREFIX

_KEY = PREFIX + "span"


def span(name: str) -> Any:
    """``with wl.span("softmax"):`` a span of the timeline of a kernel, orchestrated by hand.

    :func:`warploom.profile.instrument` makes it record when each warp begins and ends it; spans
    may be nested. All other compilations drop it: the kernel is the one without. So does a tile
    program without threads, whose spans are those of its roles. A name that begins with ``wait``,
    ``load``, ``mma`` or ``epilogue`` puts a span into that category.

    Parameters
    ----------
    name : str
        What a timeline shows; not empty.

    Raises
    ------
    IllegalCombination
        If ``name`` is no text.
    """
    if not isinstance(name, str) or not name:
        raise IllegalCombination(f"A span is called {name!r}; its name is a text, not empty.")
    return T.attr({_KEY: name})


def span_name(statement: Stmt) -> str | None:
    """The name of the span that a statement is; None if it is none."""
    if not isinstance(statement, AttrStmt) or statement.attr_key != _KEY:
        return None
    return str(getattr(statement.value, "value", statement.value))


def drop_spans(func: PrimFunc) -> PrimFunc:
    """The function without ``wl.span``; itself if it has none."""
    found = False

    def drop(one: AttrStmt) -> Stmt:
        nonlocal found
        if span_name(one) is None:
            return one
        found = True
        return one.body

    body = tvm_ffi.structural_map(func.body, (AttrStmt, drop), order="post")
    if not found:
        return func
    return PrimFunc(func.params, body, func.ret_type, func.attrs, func.span)

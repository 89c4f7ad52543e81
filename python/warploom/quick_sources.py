"""The sources of functions in TVMScript, read and parsed once.

TVM writes its op schedules as functions in TVMScript, which are defined anew at each call and then
parsed anew, although their text never changes. A model calls them a thousand times. Here the text
of a function is found once for its code, and the syntax tree of a text is made once.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Callable
from typing import Any

#: Functions whose text is kept, and texts whose syntax trees are.
_KEPT = 4096

#: Texts whose syntax trees TVM's parser changes.
_CHANGED = re.compile(r"\bclass |^[ \t]+@", re.M)

_found: dict[int, tuple[types.CodeType, dict[str, Any]]] = {}
_texts: dict[str, str] = {}


def once_for_each_code(stock: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """``Source.__init__`` of TVM's parser, which looks for the text of a function only once.

    Only functions that no decorator has wrapped: the text of others is that of what they wrap.
    """

    @functools.wraps(stock)
    def init(self: Any, program: Any) -> None:
        if type(program) is not types.FunctionType or hasattr(program, "__wrapped__"):
            stock(self, program)
            return
        code = program.__code__
        known = _found.get(id(code))
        if known is not None and known[0] is code:
            vars(self).update(known[1])
            return
        stock(self, program)
        # All functions of a file share its text.
        self.full_source = _texts.setdefault(self.full_source, self.full_source)
        if len(_found) >= _KEPT:
            _found.clear()
            _texts.clear()
        _found[id(code)] = (code, dict(vars(self)))

    return init


def once_for_each_text(stock: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``Source.as_ast`` of TVM's parser, which parses each text only once.

    TVM's parser changes the syntax trees of functions in classes, and of decorated functions in
    functions (``T.inline``), so that those are made anew.
    """

    @functools.lru_cache(_KEPT)
    def parsed(text: str) -> Any:
        return stock(types.SimpleNamespace(source=text))

    @functools.wraps(stock)
    def as_ast(self: Any) -> Any:
        return stock(self) if _CHANGED.search(self.source) else parsed(self.source)

    return as_ast


def install() -> None:
    """Make TVM's parser read and parse each function once."""
    from tvm.script.parser.core.diagnostics import Source

    if not hasattr(Source.__init__, "__wrapped__"):
        Source.__init__ = once_for_each_code(Source.__init__)
        Source.as_ast = once_for_each_text(Source.as_ast)

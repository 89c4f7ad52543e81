"""Places in sources: TVM gives a statement one span, or several where calls lie in each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def flat(span: Any) -> Iterator[Any]:
    """The spans of single places in a span, the outermost first; nothing for None.

    Examples
    --------
    >>> from tvm.ir import SequentialSpan, SourceName, Span
    >>> call, inner = (Span(SourceName(name), 1, 1, 0, 9) for name in ("author.py", "helper.py"))
    >>> [str(one.source_name.name) for one in flat(SequentialSpan([call, inner]))]
    ['author.py', 'helper.py']
    >>> list(flat(None))
    []
    """
    if span is None:
        return
    if hasattr(span, "spans"):
        for part in span.spans:
            yield from flat(part)
    else:
        yield span


def file_of(span: Any) -> str:
    """The path of a single place."""
    return str(span.source_name.name)

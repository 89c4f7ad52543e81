"""``wl.span``: names a part of a kernel whose time a timeline shows."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from warploom.errors import IllegalCombination
from warploom.tile.spans import SPAN


def span(name: str) -> Any:
    """``with wl.span("softmax"):`` a span of the timeline of a kernel, orchestrated by hand.

    :func:`warploom.profile.instrument` makes it record when each warp begins and ends it; spans
    may be nested. All other compilations drop it: the kernel is the one without. So does a tile
    program without threads, whose spans are those of its roles. A name that begins with ``wait``,
    ``load``, ``mma`` or ``epilogue`` puts a span into that category.

    Parameters
    ----------
    name : str
        The name in a timeline; not empty.

    Raises
    ------
    IllegalCombination
        If ``name`` is no text.

    Examples
    --------
    .. code-block:: python

        with wl.span("wait for A"):
            full.wait(0, phase)
        with wl.span("mma"):
            ...
    """
    if not isinstance(name, str) or not name:
        raise IllegalCombination(f"A span is called {name!r}; its name is a text, not empty.")
    return T.attr({SPAN: name})

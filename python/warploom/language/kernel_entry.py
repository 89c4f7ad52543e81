"""The kernels of a function that launches several."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from warploom.tile.hints import DEVICE_ENTRY


def kernel() -> Any:
    """One kernel of a function with several: ``with wl.kernel():``, in place of
    ``T.device_entry()``.

    Kernels run one after the other, so a kernel reads what all CTAs of those before it have
    written. Each is a tile program, or defines ids of threads; a kernel by hand that uses what
    another has written executes ``T.ptx.griddepcontrol.wait()`` first, for it may start early.
    Statements in front are of the host: ``T.let`` values, ``assert``, views, and workspaces
    (``T.alloc_buffer(..., scope="global")``). A kernel without CTAs is not launched.

    Examples
    --------
    .. code-block:: python

        sums = T.alloc_buffer((parts, n), "float32", scope="global")
        with wl.kernel():
            part, j = T.cta_id([parts, n // 128])
            ...
        with wl.kernel():
            j = T.cta_id([n // 128])
            ...
    """
    return T.attr({DEVICE_ENTRY: True})

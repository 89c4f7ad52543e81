"""Control flow."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T


def loop_break() -> Any:
    """Leave the innermost loop, which must not be unrolled or parallel.

    Returns
    -------
    Call
        ``T.break_loop()``.

    Examples
    --------
    .. code-block:: python

        B[t] = T.float32(0)
        for i in T.serial(128):
            if i == 3:
                wl.loop_break()
            B[t] = A[i]
        # B == A[2]
    """
    return T.break_loop()

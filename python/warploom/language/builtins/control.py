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
    """
    return T.break_loop()

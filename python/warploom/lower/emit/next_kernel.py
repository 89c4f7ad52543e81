"""A kernel beside those before and after it in its stream: programmatic dependent launch."""

from __future__ import annotations

from tvm.script import tirx as T
from tvm.tirx import Stmt

from warploom.tile import ir


def let_next_start() -> Stmt:
    """The next kernel of the stream may be launched when all CTAs have come here, or ended."""
    return ir.evaluate(T.ptx.griddepcontrol.launch_dependents())


def wait_for_last() -> Stmt:
    """Wait until the kernel before this one in its stream has ended; its stores are visible."""
    return ir.evaluate(T.ptx.griddepcontrol.wait())

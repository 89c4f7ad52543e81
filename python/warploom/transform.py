"""The passes that lower tile programs, as TVM has passes: ``warploom.transform.SpecializeWarps()``.

:mod:`warploom.lower.tvm_passes` makes them, :mod:`warploom.lower.lowerings` has their order.
"""

from __future__ import annotations

from warploom.lower import tvm_passes
from warploom.lower.trace import LoweringTrace
from warploom.lower.tvm_passes import *  # noqa: F403

__all__ = ["LoweringTrace", *tvm_passes.__all__]

"""warploom: tensor cores of Hopper for TIRx programs of stock Apache TVM.

Importing it, or ``import tvm`` alone, registers its op schedules with TVM.
"""

from __future__ import annotations

from warploom._version import __version__, check_requirements
from warploom.errors import IllegalCombination, ToolchainError, WarploomError

# Before TVM is imported: a wrong version gets one clear error and no side effects of the wrong TVM.
check_requirements()

from warploom import plugin  # noqa: E402

plugin.register()

__all__ = ["IllegalCombination", "ToolchainError", "WarploomError", "__version__"]

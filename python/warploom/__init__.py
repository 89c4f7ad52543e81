"""warploom: tensor cores of Hopper for TIRx programs of stock Apache TVM.

Importing it, or ``import tvm`` alone, registers its op schedules with TVM.
"""

from __future__ import annotations

import sys
from pathlib import Path

from warploom import plugin
from warploom._version import __version__
from warploom.errors import IllegalCombination, ToolchainError, WarploomError

# The command line registers by itself, when a command needs TVM: `warploom --help` stays quick,
# and `warploom doctor` can tell what is wrong with a TVM that registration would reject.
if [Path(argument).name for argument in sys.argv[:1]] != ["warploom"]:
    plugin.register()

__all__ = ["IllegalCombination", "ToolchainError", "WarploomError", "__version__"]

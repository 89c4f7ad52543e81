"""warploom: tensor cores of Hopper for TIRx programs of stock Apache TVM.

Importing it, or ``import tvm`` alone, registers its op schedules with TVM.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warploom import plugin
from warploom._version import __version__
from warploom.errors import (
    ArgumentError,
    IllegalCombination,
    TileProgramError,
    ToolchainError,
    WarploomError,
)

if TYPE_CHECKING:  # __getattr__ below imports these when they are first used
    from warploom import sparse, torch, transform
    from warploom.compiler.report import compile_report
    from warploom.language.calls.arguments import TensorSpec
    from warploom.language.calls.kernel import jit
    from warploom.language.tuning.decorator import autotune
    from warploom.lower.trace import lower_trace
    from warploom.meta_schedule.do_bench import do_bench
    from warploom.target.tvm_target import cuda_target, target_from_device

# The command line registers by itself, when a command needs TVM: `warploom --help` stays quick,
# and `warploom doctor` can tell what is wrong with a TVM that registration would reject. Where
# there is no TVM at all, kernels that were compiled elsewhere can still be measured.
if [Path(argument).name for argument in sys.argv[:1]] != ["warploom"] and find_spec("tvm"):
    plugin.register()

#: Functions of the package's face -> the module they are imported from when first used.
_LAZY = {
    "TensorSpec": "warploom.language.calls.arguments",
    "autotune": "warploom.language.tuning.decorator",
    "compile_report": "warploom.compiler.report",
    "cuda_target": "warploom.target.tvm_target",
    "do_bench": "warploom.meta_schedule.do_bench",
    "jit": "warploom.language.calls.kernel",
    "lower_trace": "warploom.lower.trace",
    "target_from_device": "warploom.target.tvm_target",
}

#: Modules that are imported when first used.
_LAZY_MODULES = ("sparse", "torch", "transform")

__all__ = [
    "ArgumentError",
    "IllegalCombination",
    "TensorSpec",
    "TileProgramError",
    "ToolchainError",
    "WarploomError",
    "__version__",
    "autotune",
    "compile_report",
    "cuda_target",
    "do_bench",
    "jit",
    "lower_trace",
    "sparse",
    "target_from_device",
    "torch",
    "transform",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY_MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_LAZY_MODULES})

"""A CPU that executes the PTX of TVM's CUDA kernels, for machines without a GPU.

With ``WARPLOOM_EMULATOR=1`` in the environment before ``import tvm``, ``tvm.cuda(0)`` is an
emulated device of compute capability 9.0 and ``tvm.cuda(1)`` one of 10.0
(``WARPLOOM_EMULATOR_ARCH=sm_100a`` exchanges the two). Stock TVM compiles, loads and launches
kernels on them as on a GPU. It is functional: results are those of the PTX, times are those of the
CPU and say nothing about a GPU.

An unknown instruction is an error when a kernel is loaded, which names instruction and line.
Deadlocks, accesses out of bounds and misaligned accesses are errors of the launch.
"""

from __future__ import annotations

import dataclasses
import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from warploom.errors import IllegalCombination, ToolchainError
from warploom.runtime.emulator_libraries import OPT_IN
from warploom.runtime.emulator_state import enable, enable_without_gpu, is_enabled, is_requested

if TYPE_CHECKING:  # __getattr__ below imports these when they are first used
    from warploom.emulator.api import explore, run
    from warploom.emulator.binding import EmulatorError
    from warploom.emulator.result import LaunchReport, Result

__all__ = [
    "OPT_IN",
    "EmulatorError",
    "LaunchReport",
    "Result",
    "clear_launch_reports",
    "clear_reports",
    "enable",
    "enable_without_gpu",
    "executed_instructions",
    "explore",
    "is_enabled",
    "is_requested",
    "launch_reports",
    "reports",
    "run",
    "set_checks",
    "set_instruction_limit",
    "set_report",
    "set_schedule",
    "set_seed",
]

#: Names that importing this package need not load -> the module that has it.
_LAZY = {
    "EmulatorError": "warploom.emulator.binding",
    "LaunchReport": "warploom.emulator.result",
    "Result": "warploom.emulator.result",
    "explore": "warploom.emulator.api",
    "run": "warploom.emulator.api",
}


def set_seed(seed: int) -> None:
    """Choose the schedule of all later launches: which warp runs, when a copy completes.

    Parameters
    ----------
    seed : int
        From 0 to 2**64 - 1. Equal seeds give equal schedules; ``WARPLOOM_EMULATOR_SEED``, or else
        1, is the default of a process.

    Examples
    --------
    >>> emulator.set_seed(7)  # doctest: +SKIP
    """
    _change(seed=seed)


def set_schedule(name: str) -> None:
    """Choose the strategy of all later launches, one of ``settings.SCHEDULES``.

    ``"late"`` and ``"early"`` complete asynchronous operations as late or as early as the memory
    model allows; ``"far-ahead"`` lets one warp run until it has to wait.

    Examples
    --------
    >>> emulator.set_schedule("far-ahead")  # doctest: +SKIP
    """
    _change(schedule=name)


def set_checks(on: bool) -> None:
    """Whether later launches are searched for races, missing fences and misuse.

    ``WARPLOOM_EMULATOR_CHECK=1`` is how a process starts with them.

    Examples
    --------
    >>> emulator.set_checks(True)  # doctest: +SKIP
    """
    _change(checks=on)


def set_report(on: bool) -> None:
    """Whether later launches are counted, for :func:`launch_reports`.

    Examples
    --------
    >>> emulator.set_report(True)  # doctest: +SKIP
    """
    _change(report=on)


def reports() -> list[dict[str, Any]]:
    """Return the reports of checks and of failed launches since the last :func:`clear_reports`.

    Each is a dictionary with its ``kind`` and ``text``; the failure of a launch is its last report.

    Examples
    --------
    >>> executable(a, b, c)  # doctest: +SKIP
    >>> [report["kind"] for report in emulator.reports()]  # doctest: +SKIP
    ['data race']
    """
    return _binding().call_json("reports")


def launch_reports() -> list[LaunchReport]:
    """Return a report of each launch since :func:`clear_launch_reports`; see ``set_report``.

    Examples
    --------
    >>> emulator.set_report(True)  # doctest: +SKIP
    >>> executable(a, b, c)  # doctest: +SKIP
    >>> print(emulator.launch_reports()[-1])  # doctest: +SKIP
    """
    from warploom.emulator.result import LaunchReport

    return [LaunchReport(counts) for counts in _binding().call_json("launch_reports")]


def clear_reports() -> None:
    """Clear the list of :func:`reports`.

    Examples
    --------
    >>> emulator.clear_reports()
    >>> emulator.reports()
    []
    """
    _binding().call("clear_reports")


def clear_launch_reports() -> None:
    """Clear the list of :func:`launch_reports`.

    Examples
    --------
    >>> emulator.clear_launch_reports()
    >>> emulator.launch_reports()
    []
    """
    _binding().call("clear_launch_reports")


def set_instruction_limit(limit: int) -> None:
    """Bound the instructions that the warps of one launch execute, so that endless loops end.

    ``WARPLOOM_EMULATOR_INSTRUCTIONS`` sets the bound that a process starts with.

    Raises
    ------
    IllegalCombination
        If it is no int from 0 to 2**64 - 1.

    Examples
    --------
    >>> emulator.set_instruction_limit(10**9)  # doctest: +SKIP
    """
    if not isinstance(limit, int) or isinstance(limit, bool) or not 0 <= limit < 1 << 64:
        raise IllegalCombination(f"The limit is {limit!r}; allowed are 0 to 2**64 - 1.")
    _binding().call("set_instruction_limit", limit)


def executed_instructions() -> int:
    """Instructions that the warps of all launches of this process have executed.

    Examples
    --------
    >>> before = emulator.executed_instructions()
    >>> emulator.executed_instructions() - before
    0
    """
    return int(_binding().call("instructions"))


def _change(**changes: Any) -> None:
    from warploom.emulator import settings

    _binding()
    settings.apply(dataclasses.replace(settings.current(), **changes))


def _binding() -> ModuleType:
    if not is_enabled():
        raise ToolchainError(
            f"The emulator is not in use; call warploom.emulator.enable() or set {OPT_IN}=1."
        )
    from warploom.emulator import binding

    return binding


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)

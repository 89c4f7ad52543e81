"""Functions of the plugin for lower parts of the package, which may not import it.

Registering with TVM is the business of :mod:`warploom.plugin` alone. A part that needs it done, or
what came of it, calls a hook of this module; the plugin provides the hooks when it is imported,
which ``import warploom`` does.

Examples
--------
>>> cuda_runtime().driver.kind
'emulator'
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

_T = TypeVar("_T")


class Hook(Generic[_T]):
    """A function without arguments that a higher part provides.

    Parameters
    ----------
    purpose : str
        The effect of a call, for the error where no part has provided it.
    """

    def __init__(self, purpose: str) -> None:
        self._purpose = purpose
        self._function: Callable[[], _T] | None = None

    def provide(self, function: Callable[[], _T]) -> None:
        """The function that later calls run."""
        self._function = function

    def __call__(self) -> _T:
        """Run the function.

        Raises
        ------
        RuntimeError
            If no part has provided it.
        """
        if self._function is None:
            raise RuntimeError(f"To {self._purpose}, import warploom.plugin first.")
        return self._function()


class CudaRuntime(Protocol):
    """The part of :class:`warploom.runtime.driver.CudaRuntime` that lower packages use."""

    driver: Any

    def ensure_loaded(self) -> Any:
        """Load the CUDA runtime of TVM if that has not been done."""

    def enable_emulator(self) -> None:
        """Put the emulated devices in the place of the driver."""


#: Registers warploom with TVM; returns the CUDA runtime of the process, or None where TVM has no
#: compiler in it. The second call registers nothing.
cuda_runtime: Hook[CudaRuntime | None] = Hook("register with TVM")
#: Registers the operators of Relax that our passes call; the second call does nothing.
register_relax_operators: Hook[None] = Hook("register operators of Relax")
#: The function that tunes a task of :mod:`warploom.language.tuning`: it takes the task, options,
#: and whether to search although there is a record.
tuner: Hook[Callable[..., Any]] = Hook("tune programs")

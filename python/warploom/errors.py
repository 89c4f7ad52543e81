"""The errors that warploom raises for bad input, and its warnings.

Every message is one sentence that names the offending value, the rule, and the allowed values.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from html import escape
from typing import Any

__all__ = [
    "ArgumentError",
    "CacheWarning",
    "CompilerError",
    "Decline",
    "DispatchError",
    "EmulatedTimeWarning",
    "IllegalCombination",
    "LoweringWarning",
    "MachineCodeWarning",
    "NoRegisters",
    "NoSharedMemory",
    "NotMeasuredWarning",
    "NotSaved",
    "StockScheduleWarning",
    "TileProgramError",
    "TileProgramWarning",
    "ToolchainError",
    "UnknownGpuWarning",
    "WarploomError",
    "WarploomWarning",
    "WrongCandidateWarning",
]


class WarploomError(ValueError):
    """Base class of all errors that a user of warploom can cause.

    A notebook shows one that is the value of a cell as a box with its message.

    Examples
    --------
    >>> try:
    ...     warploom.cuda_target("a100")
    ... except warploom.WarploomError as error:
    ...     print(type(error).__name__)
    IllegalCombination
    """

    def _repr_html_(self) -> str:
        style = "border-left: 4px solid #d55e00; padding: .2em .8em; white-space: pre-wrap;"
        name, message = escape(type(self).__name__), escape(str(self))
        return f'<div style="{style}"><b>{name}</b>\n<pre>{message}</pre></div>'


@contextlib.contextmanager
def reading(path: Any, kind: str) -> Iterator[None]:
    """Name the file and its format in errors of a block that understands its contents.

    Examples
    --------
    >>> with reading("goals.json", "list of goals"):
    ...     rows = json.loads("nonsense")
    Traceback (most recent call last):
    WarploomError: goals.json is no list of goals: Expecting value: line 1 column 1 (char 0).
    """
    try:
        yield
    except WarploomError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, EOFError) as error:
        reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__} {error}"
        raise WarploomError(f"{path} is no {kind}: {reason}.") from error


class IllegalCombination(WarploomError):
    """A shape, dtype, major-ness or swizzle that the hardware does not have.

    Examples
    --------
    >>> warploom.cuda_target("sm_90")
    Traceback (most recent call last):
    warploom.errors.IllegalCombination: ...
    """


class ToolchainError(WarploomError, RuntimeError):
    """A compiler, header, library or driver that is missing or of the wrong version.

    Examples
    --------
    >>> from warploom._version import check_requirements
    >>> check_requirements(lambda name: "0.26.0")
    Traceback (most recent call last):
    warploom.errors.ToolchainError: apache-tvm 0.26.0 is installed, but ...
    """


class DispatchError(WarploomError, RuntimeError):
    """A tile primitive that no op schedule can lower.

    Examples
    --------
    >>> try:
    ...     tvm.compile(mod, target)  # doctest: +SKIP
    ... except errors.DispatchError as error:
    ...     print(error)  # each op schedule, and why it does not take the primitive
    """


class CompilerError(WarploomError, RuntimeError):
    """CUDA source that the compiler rejects; the message names the file with its log.

    Examples
    --------
    >>> try:
    ...     tvm.compile(mod, target, tir_pipeline="warploom")  # doctest: +SKIP
    ... except errors.CompilerError as error:
    ...     print(error)  # names the file with the compiler's log
    """


class NotSaved(WarploomError):
    """The measurements of a search cannot be written; the search ends at once.

    Examples
    --------
    >>> raise NotSaved.of("work/warploom_trials.jsonl", OSError(28, "No space left on device"))
    Traceback (most recent call last):
    NotSaved: work/warploom_trials.jsonl cannot be written: No space left on device; ...
    """

    @classmethod
    def of(cls, path: Any, error: OSError) -> NotSaved:
        """The error for a file that the system refuses to write."""
        return cls(
            f"{path} cannot be written: {error.strerror or error}; make it writable and run the "
            "same again: what was saved before is kept."
        )


class TileProgramError(WarploomError):
    """A statement that is no part of the language of tile programs, or breaks one of its rules.

    Examples
    --------
    >>> wl.interpret(program, [])
    Traceback (most recent call last):
    warploom.errors.TileProgramError: ...
    """


class ArgumentError(WarploomError, TypeError):
    """An argument that does not fit the kernel that is called with it.

    The message names the argument, its shape or dtype, and what is allowed.

    Examples
    --------
    >>> kernel = warploom.jit(program)
    >>> kernel(np.zeros(3, "float16"))
    Traceback (most recent call last):
    warploom.errors.ArgumentError: ...
    """


class Decline(WarploomError):
    """A pass leaves a program alone.

    The message is one sentence that names the operand, the rule, and the fix.

    Examples
    --------
    >>> raise errors.Decline("A of 3 columns is no tile of TMA; pad it to a multiple of 8")
    Traceback (most recent call last):
    warploom.errors.Decline: A of 3 columns is no tile of TMA; pad it to a multiple of 8
    """


class NoRegisters(Decline):
    """What threads hold needs more registers than they have.

    Examples
    --------
    >>> issubclass(errors.NoRegisters, errors.Decline)
    True
    """


class NoSharedMemory(Decline):
    """What a CTA holds needs more shared memory than it has.

    Examples
    --------
    >>> issubclass(errors.NoSharedMemory, errors.Decline)
    True
    """


class WarploomWarning(UserWarning):
    """Base class of all warnings: the program works, but likely not as its author wants.

    ``warnings.simplefilter("error", WarploomWarning)`` makes errors of them.

    Examples
    --------
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", errors.WarploomWarning)
    ...     executable = tvm.compile(mod, target, tir_pipeline="warploom")  # doctest: +SKIP
    """


class TileProgramWarning(WarploomWarning):
    """A statement of a tile program that is legal and probably a mistake.

    Examples
    --------
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", errors.TileProgramWarning)
    ...     executable = tvm.compile(mod, target, tir_pipeline="warploom")  # doctest: +SKIP
    """


class LoweringWarning(WarploomWarning):
    """A hint that the passes did not follow, or a lowering other than the preferred one.

    Examples
    --------
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", errors.LoweringWarning)
    ...     executable = tvm.compile(mod, target, tir_pipeline="warploom")  # doctest: +SKIP
    """


class MachineCodeWarning(WarploomWarning):
    """Machine code that is slower than its program: spills, serialised wgmma, lost setmaxnreg.

    Examples
    --------
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", errors.MachineCodeWarning)
    ...     executable = tvm.compile(mod, target, tir_pipeline="warploom")  # doctest: +SKIP
    """


class StockScheduleWarning(WarploomWarning):
    """A function that got TVM's own schedule, since warploom's kernel for it cannot be built.

    Examples
    --------
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", errors.StockScheduleWarning)
    ...     executable = tvm.compile(mod, target, tir_pipeline="warploom")  # doctest: +SKIP
    """


class EmulatedTimeWarning(WarploomWarning):
    """A time that was asked for on the emulator, where it says nothing about a GPU.

    Examples
    --------
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", errors.EmulatedTimeWarning)
    ...     executable = tvm.compile(mod, target, tir_pipeline="warploom")  # doctest: +SKIP
    """


class NotMeasuredWarning(WarploomWarning):
    """A choice that was to be measured, and is the model's.

    Examples
    --------
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", errors.NotMeasuredWarning)
    ...     executable = tvm.compile(mod, target, tir_pipeline="warploom")  # doctest: +SKIP
    """


class WrongCandidateWarning(WarploomWarning):
    """A config of a search whose kernel computes something else than the reference.

    Examples
    --------
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", errors.WrongCandidateWarning)
    ...     executable = tvm.compile(mod, target, tir_pipeline="warploom")  # doctest: +SKIP
    """


class CacheWarning(WarploomWarning):
    """A cache that is not used, or cannot be written, or an entry of it that is damaged.

    Examples
    --------
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", errors.CacheWarning)
    ...     executable = tvm.compile(mod, target, tir_pipeline="warploom")  # doctest: +SKIP
    """


class UnknownGpuWarning(WarploomWarning):
    """A GPU of which nothing was measured: kernels are right, and may be chosen badly.

    Examples
    --------
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", errors.UnknownGpuWarning)
    ...     executable = tvm.compile(mod, target, tir_pipeline="warploom")  # doctest: +SKIP
    """

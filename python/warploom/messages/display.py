"""Shows errors to the author of a program: the message, the author's line, no inner frames.

Stock TVM hides the errors of its parser: the hook that it puts into ``sys.excepthook`` prints
nothing of a ``DiagnosticError`` but a note about ``TVM_BACKTRACE``. Errors of warploom come with
dozens of frames of TVM. :func:`install` changes how both are shown, and neither error. With
``TVM_BACKTRACE=1``, and under pytest, everything is shown as stock TVM shows it.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import sys
from types import TracebackType
from typing import Any

from warploom.errors import DispatchError, WarploomError, WarploomWarning
from warploom.messages.frames import ARROW, author_line

#: Errors that TVM raises for wrong arguments, at the author's own call, begin so.
_OF_CALLS = ("Mismatched ", "Expected ", "unknown dtype ")
#: The text that TVM puts behind the message of a failed launch.
_LAUNCH = "\n grid="
#: The text behind the message of an error in a pass of TVM: the module of the pass.
_PROGRAM = "\n\nError in pass: "
_NOTE = "note: run with `TVM_BACKTRACE=1` environment variable to display a backtrace."


def install() -> None:
    """Show errors in this process; called once, when the plugin is registered."""
    stock = sys.excepthook

    def hook(kind: type, error: BaseException, trace: TracebackType | None) -> None:
        from tvm.error import DiagnosticError

        text = None
        if not _wants_everything():
            # A failure here must not take the error's place.
            with contextlib.suppress(Exception):
                text = render(error, trace)
        if text is None:
            return stock(kind, error, trace)
        print(text, file=sys.stderr)
        # For this class stock prints its note alone, and ends the processes that TVM has started.
        stock(DiagnosticError, error, trace)

    if _is_plain(stock):
        sys.excepthook = hook
    _install_in_notebook()


def render(error: BaseException, trace: TracebackType | None = None) -> str | None:
    """The lines to show for an error; None for those that Python shows as they are.

    Parameters
    ----------
    error : BaseException
    trace : traceback, optional
        By default that of the error.

    Examples
    --------
    >>> print(render(IllegalCombination("No target for 'sm_80'; allowed are h200, b200.")))
    IllegalCombination: No target for 'sm_80'; allowed are h200, b200.
    """
    from tvm.error import DiagnosticError

    if isinstance(error, DiagnosticError):
        from warploom.messages.advice import with_advice

        return with_advice(str(error))
    line = author_line(error.__traceback__ if trace is None else trace)
    message = _of_emulator(error) or _of_call(error)
    if isinstance(error, (WarploomError, WarploomWarning)):
        text = _condensed(str(error)) if isinstance(error, DispatchError) else str(error)
        message = f"{type(error).__name__}: {text}"
    if message is None or line is None:
        return None
    # The line that is at fault is in the message already, or it is the author's call.
    shown = [f"called at {line.path}:{line.number}"] if ARROW in message else line.quoted()
    return "\n".join([message, *shown])


def _condensed(message: str) -> str:
    """The reasons of all op schedules in one line, without the program that TVM prints behind."""
    head, *rest = message.partition(_PROGRAM)[0].rstrip().splitlines() or [""]
    reasons = list(itertools.takewhile(lambda line: line.startswith("  "), rest))
    if reasons:
        head = f"{head.rstrip('.')}: {'; '.join(line.strip().rstrip('.') for line in reasons)}."
    call, *place = rest[len(reasons) :] or [""]
    return "\n".join([head, *(place or [call])])


def _of_emulator(error: BaseException) -> str | None:
    """Return the emulator's report of an error of TVM's launch, which has all CUDA source in it."""
    _, begin, report = str(error).partition("CUDALaunch Error: warploom emulator: ")
    return f"EmulatorError: {report.partition(_LAUNCH)[0]}" if begin else None


def _of_call(error: BaseException) -> str | None:
    """The message of an error of TVM about an argument of the author's own call, and the fix."""
    message = str(error)
    if not isinstance(error, (TypeError, ValueError)) or not message.startswith(_OF_CALLS):
        return None
    if not hasattr(error, "__tvm_ffi_error__"):
        return None
    from warploom.messages.advice import advice

    head, *rest = message.splitlines()
    short = "\n".join([head, " ".join(line.strip() for line in rest)]) if rest else head
    fix = advice(message, "")
    return f"{type(error).__name__}: {short}" + (f"; {fix}" if fix else "")


def _wants_everything() -> bool:
    import tvm

    return tvm._should_print_backtrace()


def _is_plain(hook: Any) -> bool:
    """Whether a hook is TVM's around Python's own: others want to see every error themselves."""
    if getattr(hook, "__module__", None) != "tvm":
        return False
    return sys.__excepthook__ in inspect.getclosurevars(hook).nonlocals.values()


def _install_in_notebook() -> None:
    """IPython does not ask ``sys.excepthook``; it takes one handler for chosen classes."""
    find = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = find() if find is not None else None
    if shell is None or getattr(shell, "custom_exceptions", ()):
        return
    from tvm.error import DiagnosticError, InternalError

    def show(shell: Any, kind: type, error: Any, trace: Any, tb_offset: Any = None) -> Any:
        text = None if _wants_everything() else render(error, trace)
        if text is None:
            return shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
        print(f"{text}\n{_NOTE}", file=sys.stderr)
        return []

    ours = (WarploomError, WarploomWarning)
    shell.set_custom_exc((DiagnosticError, InternalError, *ours), show)

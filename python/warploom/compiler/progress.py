"""A progress bar for builds of several kernels: how many are done, and which is next.

It is on the terminal only, from :data:`_PATIENCE` seconds on, and goes away at the end. Elsewhere
nothing is printed.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

#: Set to 0, no bar is shown.
SWITCH = "WARPLOOM_PROGRESS"
#: Builds of fewer kernels show no bar.
_SEVERAL = 4
#: Seconds of a stage before its bar appears.
_PATIENCE = 1.0


class Bar:
    """The progress of a stage of a build.

    Parameters
    ----------
    stage : str
        Such as ``"Compiling"``.
    total : int
        Kernels.
    console : rich.console.Console, optional
        By default the standard error.
    clock : callable
        Seconds.
    """

    def __init__(
        self,
        stage: str,
        total: int,
        console: Any = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stage, self.total, self.done = stage, total, 0
        self._console, self._clock, self._start = console, clock, clock()
        self._lock, self._shown, self._task = threading.Lock(), None, None

    def next(self, name: str) -> None:
        """Say which kernel is worked on now."""
        self._show(name)

    def finish(self, name: str) -> None:
        """Count a kernel, or kernels whose names have commas between, as done."""
        with self._lock:
            self.done += len(name.split(","))
        self._show(name)

    def close(self) -> None:
        """Take the bar away."""
        if self._shown is not None:
            self._shown.stop()

    def _show(self, name: str) -> None:
        with self._lock:
            if self._shown is None:
                if self._clock() - self._start < _PATIENCE:
                    return
                self._open()
            self._shown.update(self._task, completed=self.done, kernel=name)

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TextColumn("{task.fields[kernel]}"),
        )  # fmt: skip
        console = self._console or Console(stderr=True)
        self._shown = Progress(*columns, console=console, transient=True, refresh_per_second=4)
        self._task = self._shown.add_task(self.stage, total=self.total, kernel="")
        with contextlib.suppress(Exception):  # another display of rich is live: this one is none
            self._shown.start()


def counted(stage: str, functions: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """The functions of a module one by one, by ``GlobalVar``, with a bar that counts them."""
    with bar(stage, len(functions)) as shown:
        for variable, function in functions.items():
            if shown is not None:
                shown.next(variable.name_hint)
            yield variable, function
            if shown is not None:
                shown.finish(variable.name_hint)


@contextlib.contextmanager
def bar(stage: str, total: int) -> Iterator[Bar | None]:
    """The bar of a stage; None where none is wanted: see :func:`is_wanted`."""
    if not is_wanted(total):
        yield None
        return
    shown = Bar(stage, total)
    try:
        yield shown
    finally:
        shown.close()


def is_wanted(total: int, environ: Mapping[str, str] = os.environ, stream: Any = None) -> bool:
    """Whether a stage of so many kernels shows a bar.

    So on a terminal, in the process that the user has started, unless :data:`SWITCH` says no.
    """
    import multiprocessing  # late: it takes longer to import than all else here

    stream = sys.stderr if stream is None else stream
    on_terminal = bool(getattr(stream, "isatty", lambda: False)())
    own = multiprocessing.parent_process() is None
    return total >= _SEVERAL and own and on_terminal and environ.get(SWITCH) != "0"

"""The time that a process has had: seconds in which it waited for a core are not its own.

A time limit tells a call that hangs from a call that works. On a machine with more work than cores
a process can wait for most of the time, and would be killed for the work of other processes.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

_PROC = Path("/proc")
#: Of its wall time, a process has at least one part in so many: every time limit ends.
_MOST = 20


def waited(pid: int, proc: Path = _PROC) -> float:
    """Seconds for which a process was ready to run and had no core, by its unluckiest thread.

    Linux counts them in ``/proc/<pid>/task/<tid>/schedstat``, in nanoseconds: the second number
    (Linux, ``Documentation/scheduler/sched-stats.rst``). 0.0 where the kernel does not count.
    """
    seconds = 0
    for file in (proc / str(pid) / "task").glob("*/schedstat"):
        with contextlib.suppress(OSError, IndexError, ValueError):  # the thread may have ended
            seconds = max(seconds, int(file.read_text().split()[1]))
    return seconds * 1e-9


class OwnTime:
    """A clock that stands still while a process waits for a core.

    Parameters
    ----------
    pid : int
        The process.

    Examples
    --------
    >>> clock = OwnTime(os.getpid())
    >>> clock.seconds() < 1
    True
    """

    def __init__(self, pid: int) -> None:
        self._pid, self._begin, self._waited = pid, time.monotonic(), waited(pid)

    def seconds(self) -> float:
        """Since the clock was made; at least one part in twenty of the wall time."""
        wall = time.monotonic() - self._begin
        return max(wall - max(waited(self._pid) - self._waited, 0.0), wall / _MOST)

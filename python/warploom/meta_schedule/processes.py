"""Processes that call functions for us and may be lost: by a crash, a hang, or a kill.

TVM's own workers watch the time inside the process, where a call that never returns to Python
cannot be interrupted. Here the caller watches, and kills.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from warploom.errors import WarploomError

#: Seconds that a process may take to import TVM, on a machine that is busy.
_START_SECONDS = 120.0
_TAIL = 400


class WorkerLost(WarploomError):
    """A process ended, or was killed because it took too long."""


class CallFailed(WarploomError):
    """What a process was asked to call raised an exception."""


class Worker:
    """One process, started when it is first needed and again after it was lost.

    Parameters
    ----------
    environment : mapping, optional
        Environment variables to add.
    lose_failed : bool
        Whether a process is not used again once something that it called has raised.
    """

    def __init__(
        self, environment: Mapping[str, str] | None = None, lose_failed: bool = False
    ) -> None:
        self.environment = dict(environment or {})
        self.lose_failed = lose_failed
        self._process: subprocess.Popen | None = None
        self._connection: Connection | None = None
        self._errors: Any = None

    @property
    def pid(self) -> int | None:
        """Its process id, while it runs."""
        return self._process.pid if self._process is not None else None

    def call(self, function: Callable[..., Any], *arguments: Any, timeout: float) -> Any:
        """``function(*arguments)``, in the process.

        A process that was used before may have been killed since, by nothing that this call does:
        if it ends, the call is made once more in a new one.

        Raises
        ------
        CallFailed
            If it raises; with the exception's type and message.
        WorkerLost
            If the process ended, or the call took more than ``timeout`` seconds.
        """
        request = cloudpickle.dumps((function, arguments))
        is_new = self._process is None or self._process.poll() is not None
        for last in (True,) if is_new else (False, True):
            if last:
                self.close()
                self._start()
            try:
                self._connection.send_bytes(request)
                succeeded, value = self._receive(timeout)
                break
            except (OSError, EOFError):
                if last:
                    raise self._lost("it ended") from None
        if succeeded:
            return value
        if self.lose_failed:
            self.close()
        raise CallFailed(value)

    def close(self) -> None:
        """Kill the process."""
        process, self._process = self._process, None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if process is not None:
            process.kill()
            process.wait()
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _start(self) -> None:
        mine, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "warploom.meta_schedule.worker", str(theirs.fileno()),
                 str(os.getpid())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
            )  # fmt: skip
        self._connection = Connection(mine.detach())
        try:
            self._receive(_START_SECONDS)
        except (OSError, EOFError):
            raise self._lost("it did not start") from None

    def _receive(self, timeout: float) -> Any:
        if not self._connection.poll(timeout):
            raise self._lost(f"it took more than {timeout:g} s")
        return cloudpickle.loads(self._connection.recv_bytes())

    def _lost(self, reason: str) -> WorkerLost:
        with contextlib.suppress(subprocess.TimeoutExpired):  # the socket closes before it ends
            self._process.wait(0.5)
        status = self._process.poll()
        ended = "" if status is None else f" with status {status}"
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip()[-_TAIL:]
        self.close()
        return WorkerLost(f"A worker process was lost: {reason}{ended}. {said}".strip())


class Pool:
    """Several processes side by side.

    Parameters
    ----------
    environments : sequence of mapping
        One for each process: what to add to its environment variables.
    lose_failed : bool
        As :class:`Worker` has it.
    """

    def __init__(
        self, environments: Sequence[Mapping[str, str]], lose_failed: bool = False
    ) -> None:
        self.workers = [Worker(one, lose_failed) for one in environments]
        self._free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self.workers:
            self._free.put(worker)
        self._threads = ThreadPoolExecutor(len(self.workers), thread_name_prefix="warploom-pool")

    def submit(self, function: Callable[..., Any], *arguments: Any, timeout: float) -> Future[Any]:
        """Call a function in whichever process is free first; as :meth:`Worker.call`."""
        return self._threads.submit(self._call, function, arguments, timeout)

    def _call(self, function: Callable[..., Any], arguments: Sequence[Any], timeout: float) -> Any:
        worker = self._free.get()
        try:
            return worker.call(function, *arguments, timeout=timeout)
        finally:
            self._free.put(worker)

    def close(self) -> None:
        """Kill all processes; calls that have not begun are cancelled."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self.workers:
            worker.close()

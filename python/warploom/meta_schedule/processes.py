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
from warploom.meta_schedule.own_time import OwnTime

#: Seconds that a process may take to import TVM, on a machine that is busy.
_START_SECONDS = 120.0
#: Seconds that a process may take to end once it has closed its socket.
_END_SECONDS = 10.0
#: Between two looks at whether a process has had all its time.
_LEAST_SECONDS = 0.01
_TAIL = 400


class WorkerLost(WarploomError):
    """A process ended, or was killed because it took too long."""


class WorkerEnded(WorkerLost):
    """A process ended in the middle of a call, before its time was over."""


class CallFailed(WarploomError):
    """A function that a process was asked to call raised an exception."""


class _Process:
    """An operating-system process that has begun to start."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        mine, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        with theirs:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "warploom.meta_schedule.worker", str(theirs.fileno()),
                 str(os.getpid())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
            )  # fmt: skip
        self._connection = Connection(mine.detach())
        self.pid = self._popen.pid

    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def send(self, request: bytes) -> None:
        self._connection.send_bytes(request)

    def receive(self, timeout: float) -> Any:
        """The value that the process sends.

        Raises
        ------
        TimeoutError
            If it sends nothing for so many seconds of its own time (:class:`OwnTime`).
        OSError, EOFError
            If it has ended.
        """
        clock = OwnTime(self.pid)
        while not self._connection.poll(max(timeout - clock.seconds(), _LEAST_SECONDS)):
            if clock.seconds() >= timeout:
                raise TimeoutError(f"it took more than {timeout:g} s")
        return cloudpickle.loads(self._connection.recv_bytes())

    def last_words(self, ended: bool) -> str:
        """How it ended, and the end of its output."""
        if ended:
            with contextlib.suppress(subprocess.TimeoutExpired):  # the socket closes first
                self._popen.wait(_END_SECONDS)
        status = self._popen.poll()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip()[-_TAIL:]
        return f"{'' if status is None else f' with status {status}'}. {said}".rstrip()

    def kill(self) -> None:
        self._connection.close()
        self._popen.kill()
        self._popen.wait()
        self._errors.close()


class Worker:
    """A process, started when it is first needed and again after it was lost.

    Once one was lost, another one is kept ready to take the place of the next.

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
        self._process: _Process | None = None
        self._spare: _Process | None = None
        self._has_lost = False

    @property
    def pid(self) -> int | None:
        """Its process id, while it runs."""
        return self._process.pid if self._process is not None else None

    def call(
        self, function: Callable[..., Any], *arguments: Any, timeout: float, once: bool = False
    ) -> Any:
        """``function(*arguments)``, in the process.

        A process that was used before may have been killed since, by nothing that this call does:
        if it ends, the call is made once more in a new one, unless ``once`` says no.

        Raises
        ------
        CallFailed
            If it raises; with the exception's type and message.
        WorkerEnded
            If the process ended.
        WorkerLost
            If the call took more than ``timeout`` seconds, without those in which the process
            waited for a core of a busy machine.
        """
        request = cloudpickle.dumps((function, arguments))
        is_new = self._process is None or not self._process.is_alive()
        for last in (True,) if is_new else (False, True):
            if last:
                self._lose()
                self._start()
            try:
                self._process.send(request)
                succeeded, value = self._process.receive(timeout)
                break
            except TimeoutError as late:
                raise self._lost(str(late), ended=False) from None
            except (OSError, EOFError):
                if last or once:
                    raise self._lost("it ended") from None
        if succeeded:
            return value
        if self.lose_failed:
            self._lose()
        raise CallFailed(value)

    def close(self) -> None:
        """Kill the process."""
        for process in (self._process, self._spare):
            if process is not None:
                process.kill()
        self._process = self._spare = None

    def _start(self) -> None:
        """Make the process that is ready the current one.

        A process that ends while it starts has called nothing: another takes its place, once.
        """
        for last in (False, True):
            process, self._spare = self._spare, None
            if process is None or not process.is_alive():
                process = _Process(self.environment)
            self._process = process
            if self._has_lost:
                self._spare = _Process(self.environment)
            try:
                process.receive(_START_SECONDS)
                return
            except TimeoutError as late:
                raise self._lost(str(late), ended=False) from None
            except (OSError, EOFError):
                if last:
                    raise self._lost("it did not start") from None
                self._lose()

    def _lose(self) -> None:
        """Kill the process, if there is one, and have another one ready."""
        process, self._process = self._process, None
        if process is not None:
            self._has_lost = True
            self._spare = self._spare or _Process(self.environment)
            process.kill()

    def _lost(self, reason: str, ended: bool = True) -> WorkerLost:
        words = self._process.last_words(ended)
        self._lose()
        kind = WorkerEnded if ended else WorkerLost
        return kind(f"A worker process was lost: {reason}{words}")


class Pool:
    """Several processes side by side.

    Parameters
    ----------
    environments : sequence of mapping
        One for each process: additions to its environment variables.
    lose_failed : bool
        As :class:`Worker` has it.
    """

    def __init__(
        self, environments: Sequence[Mapping[str, str]], lose_failed: bool = False
    ) -> None:
        self.workers = [Worker(environment, lose_failed) for environment in environments]
        self._free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self.workers:
            self._free.put(worker)
        self._threads = ThreadPoolExecutor(len(self.workers), thread_name_prefix="warploom-pool")

    def submit(self, function: Callable[..., Any], *arguments: Any, timeout: float) -> Future[Any]:
        """Call a function in whichever process is free first; as :meth:`Worker.call`."""
        return self.submit_to(lambda worker: worker.call(function, *arguments, timeout=timeout))

    def submit_to(self, use: Callable[[Worker], Any]) -> Future[Any]:
        """Call a function here, in a thread, with whichever process is free first."""
        return self._threads.submit(self._use, use)

    def _use(self, use: Callable[[Worker], Any]) -> Any:
        worker = self._free.get()
        try:
            return use(worker)
        finally:
            self._free.put(worker)

    def close(self) -> None:
        """Kill all processes; calls that have not begun are cancelled."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self.workers:
            worker.close()

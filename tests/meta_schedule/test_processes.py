"""Worker processes: values, exceptions, hangs, crashes, and the end of whoever started them."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import time

import cloudpickle
import pytest

from warploom.meta_schedule import own_time, processes
from warploom.meta_schedule.artifact import new_folder
from warploom.meta_schedule.processes import CallFailed, Pool, Worker, WorkerEnded, WorkerLost

#: Worker processes cannot import a test.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def worker():
    made = Worker({"WARPLOOM_TEST_MARK": "7"})
    yield made
    made.close()


def _hold_the_interpreter() -> None:
    """Sleep without releasing the interpreter's lock, as a call into a hanging driver may."""
    ctypes.PyDLL(None).sleep(600)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"


def test_nobody_else_can_reach_a_worker_or_what_it_is_given(worker, tmp_path):
    """The socket has no name to connect to; libraries and logs are in folders of the user."""
    worker.call(os.getpid, timeout=60)
    with socket.socket(fileno=os.dup(worker._process._connection.fileno())) as mine:
        assert mine.family == socket.AF_UNIX and mine.getsockname() == mine.getpeername() == ""
    folder = new_folder(str(tmp_path))
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.in_turn(3)
def test_a_process_calls_functions_until_one_is_lost(worker):
    def twice(value):
        return 2 * value, os.environ["WARPLOOM_TEST_MARK"], os.getpid()

    doubled, mark, first = worker.call(twice, 21, timeout=10)
    assert (doubled, mark) == (42, "7") and first == worker.pid != os.getpid()
    with pytest.raises(CallFailed, match="ZeroDivisionError: integer division"):
        worker.call(lambda: 1 // 0, timeout=10)
    assert worker.call(os.getpid, timeout=10) == first, "an exception costs no process"
    start = time.monotonic()
    with pytest.raises(WorkerLost, match=r"more than 0\.5 s"):
        worker.call(_hold_the_interpreter, timeout=0.5)
    assert time.monotonic() - start < 500, "it does not wait for the end of the call"
    assert not _is_alive(first)
    with pytest.raises(WorkerLost, match=r"(?s)with status -9\..*some last words"):
        worker.call(_crash, timeout=10)
    assert worker.call(twice, 1, timeout=10)[0] == 2
    os.kill(worker.pid, signal.SIGKILL)
    assert worker.call(twice, 2, timeout=10)[0] == 4, "nothing that the call did"


@pytest.mark.in_turn(3)
def test_seconds_without_a_core_do_not_count(worker, monkeypatch):
    """A call outlives its limit by what its process has waited for, and not by more."""
    worker.call(os.getpid, timeout=10)
    start = time.monotonic()
    monkeypatch.setattr(own_time, "waited", lambda pid: time.monotonic() - start)
    assert worker.call(_sleep, 1.0, timeout=0.2) == 1.0
    with pytest.raises(WorkerLost, match=r"more than 0\.2 s"):
        worker.call(_sleep, 600.0, timeout=0.2)  # it has at least a twentieth of the time
    assert time.monotonic() - start < 500


def _sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def test_the_thread_that_waited_most_counts(tmp_path):
    for thread, text in {
        "7": "5 2000000000 3",
        "8": "1 3500000000 9",
        "9": "",
        "10": "x y",
    }.items():
        (tmp_path / "7" / "task" / thread).mkdir(parents=True)
        (tmp_path / "7" / "task" / thread / "schedstat").write_text(text)
    assert own_time.waited(7, tmp_path) == 3.5
    assert own_time.waited(8, tmp_path) == 0.0, "a kernel that does not count"
    assert own_time.waited(os.getpid()) >= 0.0


def _crash() -> None:
    os.write(2, b"some last words\n")
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("killed", [1, 100])  # the first, and each that begins to start
def test_a_process_that_is_killed_while_it_starts_is_replaced_once(worker, monkeypatch, killed):
    """It has called nothing yet, so whatever was to be called is not at fault."""
    left = [killed]

    class Killed(processes._Process):
        def __init__(self, environment):
            super().__init__(environment)
            if left[0]:
                left[0] -= 1
                self._popen.kill()

    monkeypatch.setattr(processes, "_Process", Killed)
    if killed == 1:
        assert worker.call(os.getpid, timeout=60) == worker.pid
    else:
        with pytest.raises(WorkerEnded, match="it did not start with status -9"):
            worker.call(os.getpid, timeout=60)
        left[0] = 0
        assert worker.call(os.getpid, timeout=60) == worker.pid


def test_a_pool_goes_on_when_its_processes_are_killed():
    pool = Pool([{"NUMBER": str(number)} for number in range(2)], lose_failed=True)
    try:
        pids = {pool.submit(_number_and_pid, timeout=10).result() for _ in range(2)}
        found = [pool.submit(_number_and_pid, timeout=10) for _ in range(6)]
        assert {one.result()[0] for one in found} <= {"0", "1"} and pids
        with pytest.raises(CallFailed, match="once"):
            pool.submit(_fail, timeout=10).result()
        assert sum(one.pid is None for one in pool.workers) >= 1, "it is not used again"
        assert pool.submit(_number_and_pid, timeout=10).result()[0] in ("0", "1")
    finally:
        pool.close()
    assert all(one.pid is None for one in pool.workers)


def _number_and_pid() -> tuple[str, int]:
    return os.environ["NUMBER"], os.getpid()


def _fail() -> None:
    raise RuntimeError("once")


def test_processes_end_with_whoever_started_them(run_python):
    code = """
import os, signal
from warploom.meta_schedule import own_time, processes
from warploom.meta_schedule.processes import Worker
worker = Worker()
print(worker.call(os.getpid, timeout=60), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = run_python(code)
    assert done.returncode == -signal.SIGKILL
    pid = int(done.stdout)
    for _ in range(600):
        if not _is_alive(pid):
            return
        time.sleep(0.1)
    pytest.fail("the worker outlived its parent")


@pytest.mark.in_turn(3)
def test_a_call_that_is_made_once_is_not_repeated(worker, tmp_path):
    marks = tmp_path / "marks"

    def mark_and_end():
        with marks.open("a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGKILL)

    worker.call(os.getpid, timeout=10)
    with pytest.raises(WorkerEnded, match="it ended"):
        worker.call(mark_and_end, timeout=10, once=True)
    assert marks.read_text() == "x"
    worker.call(os.getpid, timeout=10)
    with pytest.raises(WorkerEnded, match="it ended"):
        worker.call(mark_and_end, timeout=10)
    assert marks.read_text() == "xxx", "it may have been killed by something else, once"


@pytest.mark.in_turn(3)
def test_another_process_is_ready_once_one_was_lost(worker):
    assert worker.call(os.getpid, timeout=10) and worker._spare is None
    for _ in range(2):
        with pytest.raises(WorkerLost, match="more than"):
            worker.call(_hold_the_interpreter, timeout=0.2)
        ready = worker._spare.pid
        assert worker.pid is None
        assert worker.call(os.getpid, timeout=10) == ready != worker._spare.pid
    current, spare = worker.pid, worker._spare.pid
    os.kill(spare, signal.SIGKILL)
    os.kill(current, signal.SIGKILL)
    assert worker.call(os.getpid, timeout=10) not in (current, spare)
    worker.close()
    assert worker.pid is None and worker._spare is None

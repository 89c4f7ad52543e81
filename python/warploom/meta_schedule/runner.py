"""Measures candidates on the GPUs of this machine, each in a process that may be lost."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.runner import (
    PyRunner,
    PyRunnerFuture,
    RunnerFuture,
    RunnerInput,
    RunnerResult,
)

from warploom import emulator
from warploom.errors import NotSaved, WarploomError
from warploom.meta_schedule.artifact import Facts, read_facts
from warploom.meta_schedule.builder import promises
from warploom.meta_schedule.measure import (
    Argument,
    Listener,
    Measurement,
    compare_candidates,
    prepare,
    run_candidate,
)
from warploom.meta_schedule.processes import Pool, Worker, WorkerEnded

#: The variable by which CUDA numbers the GPUs that a process sees.
_VISIBLE = "CUDA_VISIBLE_DEVICES"
#: A candidate that takes so many times as long as the slowest of its task hangs.
_PATIENCE = 10.0
#: A candidate whose process ends is tried so often: something else may have killed it.
_ATTEMPTS = 3


def _visible(devices: Sequence[int]) -> list[str]:
    """Return the value of the variable, for devices by the numbers that this process knows."""
    mine = os.environ.get(_VISIBLE, "")
    names = [name for name in mine.split(",") if name]
    if names and max(devices) >= len(names):
        raise WarploomError(f"There is no GPU {max(devices)}: {_VISIBLE} is {mine!r}.")
    return [names[device] if names else str(device) for device in devices]


class PooledRunner(PyRunner):
    """Gives candidates to processes, and their results to listeners.

    Parameters
    ----------
    pool : Pool
        After an error of CUDA, such as an illegal address, a process can do nothing more with it:
        the pool must lose processes that failed.
    timeout_sec : float
        After which a candidate counts as hanging.
    listener : callable, optional
        Called with the facts of each trial, its measurement or None, and the error or "".
    """

    def __init__(self, pool: Pool, timeout_sec: float, listener: Listener | None) -> None:
        super().__init__()
        self.pool, self.timeout_sec, self.listener = pool, timeout_sec, listener
        #: Measurements by workload, kernel and arguments.
        self._known: dict[tuple[Any, ...], Measurement] = {}

    def run(self, runner_inputs: list[RunnerInput]) -> list[RunnerFuture]:
        return [_Trial(self._begin(runner_input)) for runner_input in runner_inputs]

    def _begin(self, runner_input: RunnerInput) -> Future[Measurement]:
        path, taken = str(runner_input.artifact_path), arguments(runner_input)
        trial: Future[Measurement] = Future()

        def start(built: Future[str] | None) -> None:
            try:
                facts = read_facts(path)  # TVM removes them together with the library
            except OSError:
                facts = Facts("")
            if built is not None and built.exception() is not None:
                self._end(trial, facts, built)
            else:
                running = self.submit_once(path, str(runner_input.device_type), taken, facts)
                running.add_done_callback(lambda done: self._end(trial, facts, done))

        promised = promises.pop(path, None)
        if promised is None:
            start(None)
        else:
            promised.add_done_callback(start)
        return trial

    def _end(self, trial: Future[Measurement], facts: Facts, done: Future[Any]) -> None:
        """Tell the result of a trial to the listener, and then to TVM.

        An exception of the listener ends the search, since TVM asks for the result of each trial: a
        future only logs exceptions of its own callbacks.
        """
        try:
            if self.listener is not None:
                self.listener(facts, *outcome(done))
        except Exception as error:
            trial.set_exception(error)
        else:
            _copy(done, trial)

    def submit(
        self, artifact: str, device_type: str, taken: tuple[Argument, ...]
    ) -> Future[Measurement]:
        """Begin to measure a library on whichever device is free first."""
        raise NotImplementedError

    def submit_once(
        self, artifact: str, device_type: str, taken: tuple[Argument, ...], facts: Facts
    ) -> Future[Measurement]:
        """As :meth:`submit`; the measurement of an equal kernel, if there is one already."""
        key = (facts.workload, facts.kernel, taken)
        if key in self._known:
            known: Future[Measurement] = Future()
            known.set_result(self._known[key])
            return known
        running = self.submit(artifact, device_type, taken)
        if facts.kernel:
            running.add_done_callback(lambda done: self._remember(key, done))
        return running

    def _remember(self, key: tuple[Any, ...], done: Future[Measurement]) -> None:
        if not done.cancelled() and done.exception() is None and not done.result().wrong:
            self._known[key] = done.result()

    def close(self) -> None:
        """End the processes."""
        self.pool.close()


@derived_object
class Runner(PooledRunner):
    """``runner=warploom.meta_schedule.Runner()`` for MetaSchedule's tuning functions.

    A candidate that hangs, crashes or computes something wrong costs only itself: its process is
    killed, and the next candidate gets a new one.

    Parameters
    ----------
    devices : sequence of int
        GPUs of this machine that work side by side.
    timeout_sec : float
        After which the first candidate of a task counts as hanging, and the preparation of a task
        as failed: its inputs, and the right result.
    least_sec : float
        Later candidates count as hanging after ten times what the slowest of their task has taken,
        but not before so many seconds. On the emulator they have ``timeout_sec`` as well.
    listener : callable, optional
        Called with the facts of each trial, its measurement or None, and the error or "".
    environment : mapping, optional
        Environment variables of the processes, besides those of this one.

    Examples
    --------
    >>> with wms.Runner(devices=(0, 1), timeout_sec=10) as runner:  # doctest: +SKIP
    ...     ms.tune_tir(mod, target, "work_dir", 64, space=wms.Space(), runner=runner)
    """

    def __init__(
        self,
        devices: Sequence[int] = (0,),
        timeout_sec: float = 30.0,
        least_sec: float = 2.0,
        listener: Listener | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        environments = [{**(environment or {}), _VISIBLE: one} for one in _visible(devices)]
        pool = Pool(environments, lose_failed=True)
        super().__init__(pool, timeout_sec, listener)
        self.least_sec = timeout_sec if emulator.is_enabled() else min(least_sec, timeout_sec)
        self._slowest: dict[tuple[Argument, ...], float] = {}

    def submit(
        self, artifact: str, device_type: str, taken: tuple[Argument, ...]
    ) -> Future[Measurement]:
        return self.pool.submit_to(
            lambda worker: self._trial(worker, (artifact, device_type, 0, taken))
        )

    def _trial(self, worker: Worker, call: tuple[Any, ...]) -> Measurement:
        """Measure a candidate; again if its process was killed, but not for its time."""
        task = call[-1]
        for attempt in range(_ATTEMPTS):
            try:
                # Each process sees one GPU, as its first.
                worker.call(prepare, *call, timeout=self.timeout_sec)
                begin = time.monotonic()
                measurement = worker.call(
                    run_candidate, *call, timeout=self._limit(task), once=True
                )
                break
            except WorkerEnded:
                if attempt == _ATTEMPTS - 1:
                    raise
        if not measurement.wrong:
            took = time.monotonic() - begin
            self._slowest[task] = max(took, self._slowest.get(task, 0.0))
        return measurement

    def _limit(self, task: tuple[Argument, ...]) -> float:
        """Seconds that a candidate may take, by the tensors that its task has."""
        if task not in self._slowest:
            return self.timeout_sec
        return min(self.timeout_sec, max(self.least_sec, _PATIENCE * self._slowest[task]))

    def compare(
        self, artifacts: Sequence[str], device_type: str, taken: tuple[Argument, ...], rounds: int
    ) -> Future[list[Measurement]]:
        """Begin to measure libraries of one function side by side, on one device.

        Each runs once in each of ``rounds`` rounds, so that clock and temperature are the same
        for all; the watchdog waits for as long as it would for all of them one after another.
        """
        return self.pool.submit(
            compare_candidates, tuple(artifacts), device_type, 0, taken, rounds,
            timeout=self.timeout_sec * len(artifacts),
        )  # fmt: skip


def arguments(runner_input: RunnerInput) -> tuple[Argument, ...]:
    """Shapes and dtypes of the tensors that a candidate takes."""
    return tuple(
        (tuple(int(extent) for extent in info.shape), str(info.dtype))
        for info in runner_input.args_info
    )


def _copy(done: Future[Measurement], to: Future[Measurement]) -> None:
    if done.exception() is None:
        to.set_result(done.result())
    else:
        to.set_exception(done.exception())


def outcome(future: Future[Measurement]) -> tuple[Measurement | None, str]:
    """The times of a trial that succeeded, or None and why it did not."""
    try:
        measurement = future.result()
    except NotSaved:
        raise
    except WarploomError as error:
        return None, str(error)
    return (None, measurement.wrong) if measurement.wrong else (measurement, "")


@derived_object
class _Trial(PyRunnerFuture):
    def __init__(self, future: Future[Measurement]) -> None:
        super().__init__()
        self.future = future

    def done(self) -> bool:
        return self.future.done()

    def result(self) -> RunnerResult:
        measurement, error = outcome(self.future)
        return RunnerResult(list(measurement.seconds) if measurement else None, error or None)

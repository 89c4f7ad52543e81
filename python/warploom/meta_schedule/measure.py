"""What a worker process does with a built candidate: check its result, then time it.

A process keeps inputs and the right result of the task that it measured last, since candidates of
one task mostly follow each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tvm
from tvm.runtime import Tensor

from warploom.bench.timing import Sampling, measure
from warploom.errors import WarploomError
from warploom.meta_schedule.artifact import Facts, read_facts
from warploom.meta_schedule.clocks import sm_clock
from warploom.meta_schedule.cuda_timer import CudaTimer
from warploom.meta_schedule.reference import exact_input, is_wrong, normal_input

#: Input sets together exceed this many bytes: twice the largest L2 cache (60 MB on GH100).
_ROTATING_BYTES = 2 * 60 * 1000 * 1000
_MOST_SETS = 32
#: Kernels that run for less are replayed from a graph: launching them would be measured else.
_GRAPH_SECONDS = 200e-6
#: Kernel executions in a graph, at least.
_GRAPH_EXECUTIONS = 20
#: Samples of a candidate, and of one that runs for longer than the second number of seconds.
_ROUNDS, _LONG_ROUNDS, _LONG = 5, 3, 5e-3
_IDLE_SECONDS = 0.01

#: Shape and dtype of a parameter.
Argument = tuple[tuple[int, ...], str]


@dataclass(frozen=True)
class Measurement:
    """What is known of a candidate that ran.

    Attributes
    ----------
    seconds : tuple of float
        Of one execution, in each sample.
    clock : int or None
        MHz of the multiprocessors right after the samples.
    wrong : str
        How its result differs from the reference; if it does, there are no times.
    """

    seconds: tuple[float, ...]
    clock: int | None
    wrong: str = ""


#: What is told of each trial: its facts, its times or None, and why there are none.
Listener = Callable[[Facts, Measurement | None, str], None]


@dataclass
class _Task:
    """Inputs on the device, and the right results for the first set of them."""

    workload: str
    checked: list[Tensor]
    right: dict[int, np.ndarray] = field(default_factory=dict)
    poison: dict[int, Tensor] = field(default_factory=dict)
    timed: list[list[Tensor]] = field(default_factory=list)


class Place(Protocol):
    """A device that candidates run on, here or elsewhere."""

    device: Any

    def load(self, library: str) -> Callable[..., Any]:
        """The function ``main`` of a library."""

    def launching(self) -> AbstractContextManager:
        """A context for launches."""

    def wait(self) -> None:
        """Until the device has nothing to do."""

    def time(self, kernel: Any, sets: list[list[Tensor]]) -> tuple[tuple[float, ...], int | None]:
        """Seconds of one execution in each sample, and the clock in MHz if it is known."""


class LocalPlace:
    """A device of this process."""

    def __init__(self, device: Any) -> None:
        self.device, self.timer = device, CudaTimer(device)

    def load(self, library: str) -> Any:
        return tvm.runtime.load_module(library)["main"]

    def launching(self) -> AbstractContextManager:
        return self.timer.on_stream()

    def wait(self) -> None:
        self.timer.idle(0.0)

    def time(self, kernel: Any, sets: list[list[Tensor]]) -> tuple[tuple[float, ...], int | None]:
        """By the burst protocol; short kernels in CUDA graphs."""

        def launch(index: int) -> None:
            kernel(*sets[index])

        estimate = self.timer.elapsed(lambda: launch(0), lambda: launch(1 % len(sets)))
        executions, timed = 1, launch
        if estimate < _GRAPH_SECONDS:
            executions = math.ceil(_GRAPH_EXECUTIONS / len(sets)) * len(sets)
            replay = self.timer.capture(launch, len(sets), executions)

            def timed(_: int) -> None:
                replay()

        rounds = _LONG_ROUNDS if estimate > _LONG else _ROUNDS
        sampling = Sampling("burst", rounds, _IDLE_SECONDS, launches=1, warm_launches=1)
        found = measure({"": timed}, self.timer, sampling, len(sets), executions)[""]
        return found.samples, sm_clock()()


_last: list[_Task] = []
_places: dict[tuple[str, int], LocalPlace] = {}


def run_candidate(
    artifact: str, device_type: str, device_id: int, arguments: tuple[Argument, ...]
) -> Measurement:
    """As :func:`try_candidate`, on a device of this process."""
    key = (device_type, device_id)
    if key not in _places:
        _places[key] = LocalPlace(tvm.runtime.device(*key))
    return try_candidate(_places[key], artifact, arguments)


def try_candidate(place: Place, artifact: str, arguments: tuple[Argument, ...]) -> Measurement:
    """Load and check one candidate, and time it if it is right.

    Parameters
    ----------
    place : Place
        Where it runs.
    artifact : str
        The library, with facts beside it.
    arguments : tuple of (shape, dtype)
        The tensors that it takes.
    """
    facts = read_facts(artifact)
    kernel = place.load(artifact)
    with place.launching():
        task = _task(facts, place, arguments)
        wrong = _wrong(kernel, facts, task, place)
        if wrong:
            _last.clear()  # a kernel that stores where it should not may have changed the inputs
            return Measurement((), None, wrong)
        if not task.timed:
            task.timed = _input_sets(facts, place, arguments)
        return Measurement(*place.time(kernel, task.timed))


def _task(facts: Facts, place: Place, arguments: tuple[Argument, ...]) -> _Task:
    if _last and _last[0].workload == facts.workload:
        return _last[0]
    _last.clear()
    rng = np.random.default_rng(int(facts.workload or "0", 16) % 2**32)
    inputs = [exact_input(*one, rng) for one in arguments]
    task = _Task(facts.workload, [tvm.runtime.tensor(one, place.device) for one in inputs])
    for number in facts.outputs:
        task.poison[number] = tvm.runtime.tensor(poison(inputs[number]), place.device)
    if facts.reference:
        if not Path(facts.reference).exists():
            raise WarploomError("The function could not be compiled to check results with.")
        task.right = _right(facts, place, inputs)
    _last.append(task)
    return task


def _right(facts: Facts, place: Place, inputs: list[np.ndarray]) -> dict[int, np.ndarray]:
    """What the parameters that are written should hold, by their positions."""
    if facts.on_host:
        tensors = [tvm.runtime.tensor(one) for one in inputs]
        tvm.runtime.load_module(facts.reference)["main"](*tensors)
    else:
        tensors = [tvm.runtime.tensor(one, place.device) for one in inputs]
        place.load(facts.reference)(*tensors)
        place.wait()
    return {number: tensors[number].numpy() for number in facts.outputs}


def _wrong(kernel: Any, facts: Facts, task: _Task, place: Place) -> str:
    """How the results of a kernel differ from the right ones; empty if they do not."""
    for number in facts.outputs:
        task.checked[number].copyfrom(task.poison[number])
    kernel(*task.checked)
    place.wait()
    for number, right in task.right.items():
        difference = is_wrong(task.checked[number].numpy(), right)
        if difference:
            return f"Parameter {number} is wrong: {difference}."
    return ""


def poison(like: np.ndarray) -> np.ndarray:
    """An array of NaN, or of the largest value where there is no NaN."""
    made = np.empty_like(like)
    made.reshape(-1).view("uint8")[:] = 0x7F if made.dtype.kind == "i" else 0xFF
    return made


def _input_sets(facts: Facts, place: Place, arguments: tuple[Argument, ...]) -> list[list[Tensor]]:
    """Sets of arguments that together do not fit into the L2 cache."""
    rng = np.random.default_rng(1)
    inputs = [normal_input(*one, rng) for one in arguments]
    read = sum(one.nbytes for number, one in enumerate(inputs) if number not in facts.outputs)
    count = min(_MOST_SETS, max(2, math.ceil(_ROTATING_BYTES / max(1, read))))
    return [[tvm.runtime.tensor(one, place.device) for one in inputs] for _ in range(count)]

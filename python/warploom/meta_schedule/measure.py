"""The work of a worker process on a built candidate: check its result, then time it.

A process keeps inputs and right results of the tasks that it measured last, since their next
candidates will follow.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm.runtime import Tensor
from tvm.tirx import PrimFunc

from warploom import emulator
from warploom.errors import WarploomError
from warploom.meta_schedule.artifact import RESULTS, Facts, read_facts
from warploom.meta_schedule.place import LocalPlace, Place
from warploom.meta_schedule.reference import exact_input, is_wrong, normal_input
from warploom.target.dtypes import bits_of

#: Input sets together exceed this many bytes: twice the largest L2 cache (60 MB on GH100).
ROTATING_BYTES = 2 * 60 * 1000 * 1000
_MOST_SETS = 32
#: Part of a device's memory for the tensors of tasks that a process keeps, apart from those of the
#: task in hand. A search goes round-robin over tasks, and prepares a lost task again.
_KEPT_PART = 0.4

#: Shape and dtype of a parameter.
Argument = tuple[tuple[int, ...], str]


def arguments_of(func: PrimFunc) -> tuple[Argument, ...]:
    """Of the parameters of a function whose extents are known."""
    return tuple(
        (tuple(int(extent) for extent in param.shape), str(param.dtype)) for param in func.params
    )


@dataclass(frozen=True)
class Measurement:
    """The measurement of a candidate that ran.

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


#: The report of each trial: its facts, its times or None, and why there are none.
Listener = Callable[[Facts, Measurement | None, str], None]


@dataclass
class _Task:
    """Inputs on the device, and the right results for the first set of them.

    Parameters that are written hold ``before`` when a candidate begins: the input where it counts,
    and otherwise poison.
    """

    workload: str
    checked: list[Tensor]
    right: dict[int, np.ndarray] = field(default_factory=dict)
    before: dict[int, Tensor] = field(default_factory=dict)
    timed: list[list[Tensor | float]] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        sets = (self.checked, self.before.values(), *self.timed)
        return sum(
            math.prod(t.shape) * bits_of(str(t.dtype)) // 8
            for tensors in sets
            for t in tensors
            if isinstance(t, Tensor)
        )


_tasks: OrderedDict[str, _Task] = OrderedDict()
_places: dict[tuple[str, int], LocalPlace] = {}


def run_candidate(
    artifact: str, device_type: str, device_id: int, arguments: tuple[Argument, ...]
) -> Measurement:
    """As :func:`try_candidate`, on a device of this process."""
    return try_candidate(_place(device_type, device_id), artifact, arguments)


def prepare(
    artifact: str, device_type: str, device_id: int, arguments: tuple[Argument, ...]
) -> None:
    """Prepare a task before its first candidate: inputs, and the right result."""
    place, facts = _place(device_type, device_id), read_facts(artifact)
    with place.launching():
        task = _task(facts, place, arguments)
        if not task.timed:
            task.timed = _input_sets(facts, place, arguments)


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
    kernel = place.load(artifact)
    with place.launching():
        facts = read_facts(artifact)
        task, wrong = _checked(kernel, facts, place, arguments)
        if wrong:
            return Measurement((), None, wrong)
        if facts.is_program and emulator.is_enabled():
            return Measurement((_once(kernel, place, task),), None)
        return Measurement(*place.time(kernel, task.timed))


def _once(kernel: Any, place: Place, task: _Task) -> float:
    """Seconds of one execution, where they mean nothing."""
    begin = time.perf_counter()
    kernel(*task.timed[0])
    place.wait()
    return time.perf_counter() - begin


def compare_candidates(
    artifacts: Sequence[str], device_type: str, device_id: int, arguments: tuple[Argument, ...],
    rounds: int,
) -> list[Measurement]:  # fmt: skip
    """Check candidates of one task, and time those that are right side by side.

    Parameters
    ----------
    artifacts : sequence of str
        Libraries of the same function, with facts beside them.
    device_type, device_id : str, int
        A device of this process.
    arguments : tuple of (shape, dtype)
        The tensors that each takes.
    rounds : int
        Samples of each.

    Returns
    -------
    list of Measurement
        In the same order.
    """
    place = _place(device_type, device_id)
    kernels = [place.load(artifact) for artifact in artifacts]
    with place.launching():
        wrong, right, task = [], [], None
        for number, (kernel, path) in enumerate(zip(kernels, artifacts, strict=True)):
            checked, text = _checked(kernel, read_facts(path), place, arguments)
            wrong.append(text)
            if not text:
                right.append(number)
                task = checked
        if task is None:
            return [Measurement((), None, text) for text in wrong]
        times, clock = place.compare([kernels[number] for number in right], task.timed, rounds)
    seconds = dict(zip(right, times, strict=True))
    return [
        Measurement((), None, text) if text else Measurement(seconds[number], clock)
        for number, text in enumerate(wrong)
    ]


def _place(device_type: str, device_id: int) -> LocalPlace:
    key = (device_type, device_id)
    if key not in _places:
        _places[key] = LocalPlace(tvm.runtime.device(*key))
    return _places[key]


def _checked(
    kernel: Any, facts: Facts, place: Place, arguments: tuple[Argument, ...]
) -> tuple[_Task, str]:
    """A task with inputs to time it with, and how the results of a kernel differ from right."""
    task = _task(facts, place, arguments)
    wrong = _wrong(kernel, facts, task, place)
    if wrong:
        _tasks.clear()  # a kernel that stores where it should not may have changed the inputs
    elif not task.timed:
        task.timed = _input_sets(facts, place, arguments)
    return task, wrong


def _task(facts: Facts, place: Place, arguments: tuple[Argument, ...]) -> _Task:
    if facts.workload in _tasks:
        _tasks.move_to_end(facts.workload)
        return _tasks[facts.workload]
    most = _KEPT_PART * (place.device.total_global_memory or 0)
    while sum(task.nbytes for task in _tasks.values()) > most:
        _tasks.popitem(last=False)
    inputs = inputs_of_check(facts, arguments)
    task = _Task(facts.workload, [tvm.runtime.tensor(array, place.device) for array in inputs])
    for number in facts.outputs:
        task.before[number] = tvm.runtime.tensor(before(facts, inputs, number), place.device)
    if facts.reference:
        if not Path(facts.reference).exists():
            raise WarploomError("The function could not be compiled to check results with.")
        task.right = _right(facts, place, inputs)
    _tasks[facts.workload] = task
    return task


def inputs_of_check(facts: Facts, arguments: Sequence[Argument]) -> list[np.ndarray]:
    """The tensors that results are checked with: drawn from a seed of the task's, or given."""
    rng = np.random.default_rng(int(facts.workload or "0", 16) % 2**32)
    inputs = [exact_input(*argument, rng, not facts.exact) for argument in arguments]
    return _with_given(facts, inputs)


def before(facts: Facts, inputs: Sequence[np.ndarray], number: int) -> np.ndarray:
    """What a parameter that is written holds when a candidate begins."""
    return inputs[number] if number in facts.updated else poison(inputs[number])


def _with_given(facts: Facts, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The tensors of a task, of which some are the user's and not random."""
    if facts.given:
        with np.load(facts.given) as given:
            for number in map(int, given.files):
                inputs[number] = given[str(number)].view(inputs[number].dtype)
    return inputs


def with_numbers(facts: Facts, tensors: Sequence[Any]) -> list[Any]:
    """All arguments of a function: tensors, and between them the numbers that it takes."""
    merged = list(tensors)
    for at, value in facts.numbers:
        merged.insert(at, value)
    return merged


def _right(facts: Facts, place: Place, inputs: list[np.ndarray]) -> dict[int, np.ndarray]:
    """The right contents of parameters that are written, by their positions."""
    if facts.reference.endswith(RESULTS):
        with np.load(facts.reference) as right:
            return {n: right[str(n)].view(inputs[n].dtype) for n in facts.outputs}
    if facts.on_host:
        tensors = [tvm.runtime.tensor(array) for array in inputs]
        tvm.runtime.load_module(facts.reference)["main"](*tensors)
    else:
        tensors = [tvm.runtime.tensor(array, place.device) for array in inputs]
        place.load(facts.reference)(*tensors)
        place.wait()
    return {number: tensors[number].numpy() for number in facts.outputs}


def _wrong(kernel: Any, facts: Facts, task: _Task, place: Place) -> str:
    """How the results of a kernel differ from the right ones; empty if they do not."""
    for number in facts.outputs:
        task.checked[number].copyfrom(task.before[number])
    _wait_for_copies(place)
    kernel(*with_numbers(facts, task.checked))
    place.wait()
    exact = facts.exact and not facts.rounded
    for number, right in task.right.items():
        found = task.checked[number].numpy()
        if facts.in_part:
            found = _where_known(found, right, task.before[number].numpy())
        difference = is_wrong(found, right, exact)
        if difference:
            return f"Parameter {number} is wrong: {difference}."
    return ""


def _wait_for_copies(place: Place) -> None:
    """TVM copies on the default stream, which the stream of the launches does not wait for."""
    place.device.sync()


def _where_known(found: np.ndarray, right: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Results, with those of the reference where that has none of its own."""
    view = f"u{right.itemsize}"
    unknown = right.view(view) == before.view(view)
    return np.where(unknown, right.view(view), found.view(view)).view(right.dtype)


def poison(like: np.ndarray) -> np.ndarray:
    """An array of NaN, or of the largest value where there is no NaN."""
    made = np.empty_like(like)
    made.reshape(-1).view("uint8")[:] = {"i": 0x7F, "b": 1}.get(made.dtype.kind, 0xFF)
    return made


def input_sets(nbytes: int) -> int:
    """How many sets of so many bytes do not fit into the L2 cache together; two at least."""
    return min(_MOST_SETS, max(2, math.ceil(ROTATING_BYTES / max(1, nbytes))))


def _input_sets(
    facts: Facts, place: Place, arguments: tuple[Argument, ...]
) -> list[list[Tensor | float]]:
    """Sets of arguments that together do not fit into the L2 cache."""
    rng = np.random.default_rng(1)
    inputs = [normal_input(*argument, rng, not facts.exact) for argument in arguments]
    inputs = _with_given(facts, inputs)
    read = sum(array.nbytes for number, array in enumerate(inputs) if number not in facts.outputs)
    count = input_sets(read)
    first = [tvm.runtime.tensor(array, place.device) for array in inputs]
    sets = [first, *([_copy(tensor) for tensor in first] for _ in range(count - 1))]
    _wait_for_copies(place)
    return [with_numbers(facts, tensors) for tensors in sets]


def _copy(tensor: Tensor) -> Tensor:
    return tvm.runtime.empty(tensor.shape, tensor.dtype, tensor.device).copyfrom(tensor)

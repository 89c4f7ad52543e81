"""A device that candidates run on: it loads their libraries, and times their kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import tvm
from tvm.runtime import Tensor

from warploom.meta_schedule.cuda_timer import CudaTimer
from warploom.runtime.nvml import sm_clock
from warploom.timing import Launch, Sampling, measure

#: Kernels that run for less are replayed from a graph: launching them would be measured else.
GRAPH_SECONDS = 200e-6
#: Launches whose shortest time is the estimate: a host that is interrupted makes one of them long,
#: and a short kernel that is then not replayed from a graph would be given the time of a launch.
_ESTIMATES = 5
#: Kernel executions in a graph, at least.
_GRAPH_EXECUTIONS = 20
#: Samples of a candidate, and of one that runs for longer than the second number of seconds.
_ROUNDS, _LONG_ROUNDS, _LONG = 5, 3, 5e-3
_IDLE_SECONDS = 0.01


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
        (times,), clock = self.compare([kernel], sets)
        return times, clock

    def compare(
        self, kernels: Sequence[Any], sets: list[list[Tensor]], rounds: int | None = None
    ) -> tuple[list[tuple[float, ...]], int | None]:
        """As :meth:`time` for several kernels, each once in each round.

        Parameters
        ----------
        kernels : sequence
            Functions of a loaded library; all do the same.
        sets : list of list of Tensor
            Their arguments, of which successive launches get successive ones.
        rounds : int, optional
            Samples of each; by default fewer for kernels that take long.

        Returns
        -------
        list of tuple of float
            Seconds of one execution, by kernel.
        int or None
            MHz of the multiprocessors at the end.
        """
        launches = [_launcher(kernel, sets) for kernel in kernels]
        estimates = [self._estimate(launch, len(sets)) for launch in launches]
        executions = 1
        if min(estimates) < GRAPH_SECONDS:
            executions = math.ceil(_GRAPH_EXECUTIONS / len(sets)) * len(sets)
            launches = [self._in_graph(launch, len(sets), executions) for launch in launches]
        count = rounds or (_LONG_ROUNDS if max(estimates) > _LONG else _ROUNDS)
        sampling = Sampling("burst", count, _IDLE_SECONDS, launches=1, warm_launches=1)
        named = {str(number): launch for number, launch in enumerate(launches)}
        times = measure(named, self.timer, sampling, len(sets), executions)
        return [times[name].samples for name in named], sm_clock()

    def _estimate(self, launch: Launch, sets: int) -> float:
        """Seconds of one execution: the shortest of several, unless one is short or very long."""
        shortest = math.inf
        for _ in range(_ESTIMATES):
            seconds = self.timer.elapsed(lambda: launch(0), lambda: launch(1 % sets))
            shortest = min(shortest, seconds)
            if not GRAPH_SECONDS <= shortest <= _LONG:
                break
        return shortest

    def _in_graph(self, launch: Launch, sets: int, executions: int) -> Launch:
        replay = self.timer.capture(launch, sets, executions)
        return lambda _: replay()


def _launcher(kernel: Any, sets: list[list[Tensor]]) -> Launch:
    return lambda index: kernel(*sets[index])

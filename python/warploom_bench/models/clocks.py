"""Wall and host time of steps, interleaved, and time by kernel, by PyTorch's profiler."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from warploom.timing import rotated
from warploom_bench.models.results import Runner

Step = Callable[[], object]


def alternate(
    competitors: Mapping[str, tuple[Step, Runner]],
    wait: Step,
    rounds: int,
    steps: int,
    idle: float = 0.02,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Take samples of all competitors in turn, so that drifts of the clock hit all alike.

    Parameters
    ----------
    competitors : Mapping
        Name -> what a step calls, and where its samples go.
    wait : callable
        Returns when the device has nothing to do.
    rounds, steps : int
        Samples are ``rounds * steps``; one step of each round before them warms up.
    idle : float
        Seconds of rest before each turn.
    clock : callable
        Seconds.
    """
    for number in range(rounds):
        for name in rotated(list(competitors), number):
            step, runner = competitors[name]
            wait()
            time.sleep(idle)
            step()
            for _ in range(steps):
                wait()
                start = clock()
                step()
                returned = clock()
                wait()
                runner.wall.append(1e3 * (clock() - start))
                runner.host.append(1e3 * (returned - start))


def profiled(torch: Any, step: Step, steps: int) -> dict[str, tuple[float, float]]:
    """Milliseconds and launches of each kernel of a step.

    Call it last in a process: what a profiler leaves behind can end a process.
    """
    from torch.profiler import ProfilerActivity, profile

    step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    return {
        event.key: (event.self_device_time_total / 1e3 / steps, event.count / steps)
        for event in found.key_averages()
        if event.self_device_time_total > 0
    }

"""Wall and host time of steps, interleaved, and time by kernel, by PyTorch's profiler."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
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
    """Milliseconds and launches of each kernel of a step; the times are those of :func:`own_times`.

    Call it last in a process: what a profiler leaves behind can end a process.
    """
    from torch.profiler import ProfilerActivity, profile

    step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(steps):
            step()
            # TVM's cache writes the tables of the next pass over those that this one reads.
            torch.cuda.synchronize()
    spans = [
        Span(event.name, event.time_range.start, event.time_range.end)
        for event in found.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
    ]
    launches = Counter(span.name for span in spans)
    return {
        name: (microseconds / 1e3 / steps, launches[name] / steps)
        for name, microseconds in own_times(spans).items()
    }


@dataclass(frozen=True)
class Span:
    """When a kernel ran, in microseconds."""

    name: str
    start: float
    end: float


def own_times(spans: Iterable[Span]) -> dict[str, float]:
    """By kernel, the time in which no kernel ran any more that had begun before it.

    A kernel that is launched early (programmatic dependent launch) waits for its predecessor on the
    GPU, and a profiler counts the wait as its time: of two kernels in a row, the time of the first
    would count twice. These times add up to the time in which the GPU computes.

    Examples
    --------
    The norm begins with the GEMM, and takes 3 us when that has ended:

    >>> own_times([Span("gemm", 0, 40), Span("norm", 1, 43)])
    {'gemm': 40, 'norm': 3}
    """
    times: dict[str, float] = {}
    over = -math.inf
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        own = max(0, span.end - max(span.start, over))
        times[span.name] = times.get(span.name, 0) + own
        over = max(over, span.end)
    return times

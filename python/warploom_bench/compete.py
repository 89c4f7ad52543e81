"""Checks and times functions that compute the same: all elements, all input sets, all replays."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from warploom.timing import Launch, Statistics, burst, host_cost, measure, sustained
from warploom_bench.check import Deviation, worst_of
from warploom_bench.few_rows import FILLERS, behind
from warploom_bench.report import Comparison, Entry, Shape
from warploom_bench.torch_timer import TorchTimer, capture

#: Computations of fewer operations are replayed from a CUDA graph: they run for less than about a
#: millisecond, and the host's hiccups would show if they were launched one by one.
GRAPH_OPERATIONS = 600e9
#: Least executions in a graph; a multiple of the input sets.
_GRAPH_EXECUTIONS = 20
#: Most launches in a row by which the host's cost is found, and about how long they may take.
_HOST_LAUNCHES, _HOST_SECONDS = 50, 0.02
#: GEMMs of at most so many rows are also timed behind kernels that are not theirs.
FEW_ROWS = 128


def compare_competitors(
    torch: Any,
    shape: Shape,
    competitors: Mapping[str, Callable[[Any], object]],
    sets: Sequence[Any],
    check: Callable[[Any], Deviation],
    allowed_error: float,
    rounds: int,
    burst_only: bool,
    poison: float = math.nan,
) -> Comparison:
    """Check and time functions of operand sets; ours is the first.

    Every result of every set is checked after launches in a row, and again after the replay of a
    CUDA graph where one is timed.

    Parameters
    ----------
    sets : sequence
        Operands of successive launches, with the result as ``c``, or as ``found`` where a library
        allocates it.
    check : callable
        Compares the result in a set with its reference.
    poison : float
        The value in results before they are computed.
    """
    deviations = {
        name: _check(torch, lambda run=run: _all(run, sets), sets, check, poison)
        for name, run in competitors.items()
    }
    launches: dict[str, Launch] = {name: _launch(run, sets) for name, run in competitors.items()}
    timed, executions = launches, 1
    if shape.operations < GRAPH_OPERATIONS:
        executions = -(-_GRAPH_EXECUTIONS // len(sets)) * len(sets)
        timed = {}
        for name, launch in launches.items():
            replay = capture(torch, launch, len(sets), executions)
            deviation = _check(torch, replay, sets, check, poison)
            deviations[name] = worst_of(deviations[name], deviation)
            timed[name] = _replay(replay)
    times = _time(torch, timed, len(sets), executions, rounds, burst_only)
    if getattr(shape, "m", math.inf) <= FEW_ROWS and executions > 1:
        times |= {filler: behind(torch, filler, launches, len(sets), rounds) for filler in FILLERS}
    by_name = {name: {key: of[name] for key, of in times.items()} for name in competitors}
    return Comparison(
        shape,
        tuple(
            Entry(name, by_name[name], deviations[name], allowed_error,
                  _host_cost(torch, launches[name], by_name[name]))
            for name in competitors
        ),
    )  # fmt: skip


def _all(competitor: Callable[[Any], object], sets: Sequence[Any]) -> None:
    """Launches in a row, as they are timed: kernels that are launched before their predecessor ends
    must not disturb it."""
    for operands in sets:
        competitor(operands)


def _check(
    torch: Any,
    run: Callable[[], object],
    sets: Sequence[Any],
    check: Callable[[Any], Deviation],
    poison: float,
) -> Deviation:
    """The worst deviation of all sets, after a run over poisoned results."""
    run()  # compiles, loads and allocates whatever the first call does
    torch.cuda.synchronize()
    for operands in sets:
        _fill(_result(operands), poison)
    torch.cuda.synchronize()
    run()
    torch.cuda.synchronize()
    return worst_of(*map(check, sets))


def _result(operands: Any) -> Any:
    result = getattr(operands, "result", None)
    return operands.c if result is None else result


def _fill(tensor: Any, value: float) -> None:
    tensor.fill_(value)


def _launch(competitor: Callable[[Any], object], sets: Sequence[Any]) -> Launch:
    return lambda index: competitor(sets[index])


def _replay(replay: Callable[[], object]) -> Launch:
    return lambda index: replay()


def _time(
    torch: Any,
    launches: Mapping[str, Launch],
    sets: int,
    executions: int,
    rounds: int,
    burst_only: bool,
) -> dict[str, dict[str, Statistics]]:
    """Statistics of each competitor, by protocol and name."""
    timer = TorchTimer(torch)
    times = {"burst": measure(launches, timer, burst(rounds), sets, executions)}
    if not burst_only:
        slowest = max(times_of.median for times_of in times["burst"].values())
        sampling = sustained(slowest * executions)
        times["sustained"] = measure(launches, timer, sampling, sets, executions)
    return times


def _host_cost(torch: Any, launch: Launch, times: Mapping[str, Statistics]) -> float:
    """Seconds of a call, with fewer calls of long kernels."""
    median = next(iter(times.values())).median
    launches = max(5, min(_HOST_LAUNCHES, round(_HOST_SECONDS / median)))
    return host_cost(launch, torch.cuda.synchronize, launches)

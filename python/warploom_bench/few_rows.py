"""Times of short kernels that follow a kernel which has nothing to do with them.

In a row of its like, a kernel with programmatic dependent launch may prefetch its weights while its
predecessor runs. In a model its predecessor is another kernel, or none. So short kernels are also
timed behind a filler, in interleaved CUDA graphs: (filler, kernel) and the filler alone. The
difference is the time that the kernel adds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from warploom.errors import WarploomError
from warploom.timing import Launch, Statistics, burst, measure
from warploom_bench.torch_timer import TorchTimer, capture

#: Executions in a graph, at least.
_EXECUTIONS = 20
#: Cycles of a kernel of one thread, about 10 us.
_SLEEP_CYCLES = 20_000
#: Bytes of a copy that fills the GPU, and the L2 cache, for about as long.
_COPY_BYTES = 24 << 20


def _sleep(torch: Any) -> Callable[[], object]:
    return lambda: torch.cuda._sleep(_SLEEP_CYCLES)


def _copy(torch: Any) -> Callable[[], object]:
    source = torch.ones(_COPY_BYTES // 4, device="cuda")
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


#: Protocol -> the function that makes its filler. ``alone``: the GPU does nothing else; ``behind a
#: copy``: the predecessor fills the GPU.
FILLERS: Mapping[str, Callable[[Any], Callable[[], object]]] = {
    "alone": _sleep,
    "behind a copy": _copy,
}


def behind(
    torch: Any, filler: str, launches: Mapping[str, Launch], sets: int, rounds: int
) -> dict[str, Statistics]:
    """Seconds that each competitor adds behind a filler.

    Parameters
    ----------
    filler : str
        Of :data:`FILLERS`.
    launches : mapping from name to Launch
    sets : int
        Input sets of a launch.
    rounds : int
        Samples of each competitor; each has a sample of the filler in the same round.

    Raises
    ------
    WarploomError
        If a competitor takes no longer with its kernel than without.
    """
    fill = FILLERS[filler](torch)
    executions = -(-_EXECUTIONS // sets) * sets

    def followed(launch: Launch) -> Launch:
        def run(index: int) -> None:
            fill()
            launch(index)

        return run

    def graph(launch: Launch) -> Launch:
        replay = capture(torch, launch, sets, executions)
        return lambda _: replay()

    graphs = {name: graph(followed(launch)) for name, launch in launches.items()}
    alone = "only the filler"
    graphs[alone] = graph(lambda _: fill())
    times = measure(graphs, TorchTimer(torch), burst(rounds), sets, executions)
    without = times.pop(alone)
    return {name: _difference(name, of, without) for name, of in times.items()}


def _difference(name: str, with_it: Statistics, without: Statistics) -> Statistics:
    added = tuple(a - b for a, b in zip(with_it.samples, without.samples, strict=True))
    if min(added) <= 0:
        raise WarploomError(f"{name} adds no time to a filler; its kernel may not have run.")
    return Statistics(added, with_it.mhz, with_it.watts)

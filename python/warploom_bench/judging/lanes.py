"""Work of several GPUs side by side, each with cases of its own.

A process keeps the inputs and the right results of a case, which take longer to prepare than a
config takes to measure. So all configs of a case are measured by the process of one GPU, which also
makes their times those of one GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

Result = TypeVar("Result")


def in_lanes(lanes: Sequence[Iterable[Result]]) -> Iterator[Result]:
    """The results of all lanes as they come; a lane waits for none of the others.

    Parameters
    ----------
    lanes : sequence of iterable
        Each is followed in a thread of its own, unless there is only one. An exception of a lane is
        raised when its turn has come, and the others end first.

    Examples
    --------
    >>> sorted(in_lanes([[1, 3], [2, 4]]))
    [1, 2, 3, 4]
    """
    if len(lanes) == 1:
        yield from lanes[0]
        return
    found: SimpleQueue[tuple[bool, Result | BaseException | None]] = SimpleQueue()

    def follow(lane: Iterable[Result]) -> None:
        end: BaseException | None = None
        try:
            for result in lane:
                found.put((True, result))
        except BaseException as error:
            end = error
        found.put((False, end))

    with ThreadPoolExecutor(max(1, len(lanes)), thread_name_prefix="warploom-judge") as threads:
        for lane in lanes:
            threads.submit(follow, lane)
        left = len(lanes)
        while left:
            is_result, value = found.get()
            if is_result:
                yield value  # type: ignore[misc]
            else:
                left -= 1
                if value is not None:
                    raise value  # type: ignore[misc]

"""One GPU with what probes need: its facts, memory with known contents, launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from warploom.errors import WarploomError
from warploom_bench.machine.device_code import (
    BEGIN,
    BEGIN_NS,
    END,
    END_NS,
    FACTOR,
    SLOTS,
    SM,
    SUM,
    SUMMAND,
)
from warploom_bench.machine.probe import ROW_BYTES, Probe

_WORDS_OF_A_ROW = ROW_BYTES // 4

#: Writes the words that :func:`sum_of_words` knows.
FILL = Probe("fill", r"""
MB_PROBE {
  const long long rows = p[0];
  uint4* to = (uint4*)data;
  const long long all = rows * 8, stride = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += stride) {
    unsigned w = (unsigned)(4 * i) * MB_FACTOR + MB_SUMMAND;
    to[i] = make_uint4(w, w + MB_FACTOR, w + 2 * MB_FACTOR, w + 3 * MB_FACTOR);
  }
}
""", threads=512)  # fmt: skip


def sum_of_words(first: int, count: int) -> int:
    """The sum, modulo 2**32, of ``count`` words of memory from word ``first`` on.

    Word ``i`` is ``i * FACTOR + SUMMAND``: bits that look random, and whose sums are known.
    """
    places = count * first + count * (count - 1) // 2
    return (places * FACTOR + count * SUMMAND) % 2**32


class Memory(Protocol):
    """Arrays on the device; see :class:`warploom_bench.machine.device.RuntimeMemory`."""

    def put(self, values: np.ndarray) -> Any:
        """A copy on the device."""

    def empty(self, rows: int, columns: int) -> Any:
        """A float16 matrix of any contents."""

    def get(self, array: Any) -> np.ndarray:
        """A copy on the host, made after all launches have ended."""


@dataclass(frozen=True)
class Effort:
    """How much is executed.

    Attributes
    ----------
    repeats : int
        Samples of each reading.
    steps : int
        Most steps of a loop: few on the emulator, where times mean nothing.
    long_ms : float
        Milliseconds of kernels that must run long.
    """

    repeats: int = 9
    steps: int = 1 << 30
    long_ms: float = 400.0


USUAL, QUICK = Effort(), Effort(repeats=3, long_ms=60.0)
#: For the emulator: everything runs and is checked, as briefly as possible.
BRIEF = Effort(repeats=2, steps=3, long_ms=0.0)


class Out:
    """What a launch has written: places of each CTA, by name."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    @property
    def cycles(self) -> np.ndarray:
        """Of each CTA, between its two clocks."""
        return self.values[:, END] - self.values[:, BEGIN]

    @property
    def begin_ns(self) -> np.ndarray:
        """When each CTA began, in nanoseconds of the GPU's timer."""
        return self.values[:, BEGIN_NS]

    @property
    def end_ns(self) -> np.ndarray:
        """When each CTA ended."""
        return self.values[:, END_NS]

    @property
    def sums(self) -> np.ndarray:
        """What each CTA has added up, modulo 2**32."""
        return self.values[:, SUM] % 2**32

    @property
    def sms(self) -> np.ndarray:
        """The SM of each CTA."""
        return self.values[:, SM]


class Rig:
    """A GPU that is measured.

    Parameters
    ----------
    load : callable
        Probe -> function ``(parameters, data, out)``.
    memory : Memory
    sms : int
    l2_bytes : int
    effort : Effort
    """

    def __init__(
        self, load: Callable[[Probe], Callable[..., Any]], memory: Memory, sms: int, l2_bytes: int,
        effort: Effort = USUAL,
    ) -> None:  # fmt: skip
        self.sms, self.l2_bytes, self.effort = sms, l2_bytes, effort
        self._load, self._memory = load, memory
        self._filled: tuple[int, Any] | None = None
        self._nothing = memory.put(np.zeros((8, ROW_BYTES // 2), np.float16))

    def steps(self, wanted: int) -> int:
        """So many steps of a loop, or the few that the effort allows."""
        return min(wanted, self.effort.steps)

    @property
    def clusters_of(self) -> Callable[[int], int]:
        """CTAs in clusters of a size that surely run at a time: three quarters of the SMs."""
        return lambda size: max(1, self.sms * 3 // 4 // size) * size

    def filled(self, rows: int) -> Any:
        """At least so many rows of memory, with the words of :func:`sum_of_words`."""
        if self._filled is None or self._filled[0] < rows:
            self._filled = None
            array = self._memory.empty(rows, ROW_BYTES // 2)
            self.launch(FILL, [rows], 4 * self.sms, array)
            self._filled = rows, array
        return self._filled[1]

    def forget(self) -> None:
        """Memory no longer holds these words: a probe has written to it."""
        self._filled = None

    @property
    def filled_rows(self) -> int:
        """How many rows :meth:`filled` has given last."""
        return self._filled[0] if self._filled else 0

    def scratch(self, rows: int, columns: int = ROW_BYTES // 2) -> Any:
        """Memory of any contents, for probes that write."""
        return self._memory.empty(rows, columns)

    def put(self, values: np.ndarray) -> Any:
        """A copy of a matrix on the device; float16, as wide as a probe's rows."""
        return self._memory.put(values)

    def get(self, array: Any) -> np.ndarray:
        """A copy of an array of the device."""
        return self._memory.get(array)

    def launch(self, probe: Probe, parameters: Sequence[int], ctas: int, data: Any = None) -> Out:
        """Run a probe once and wait for it."""
        return self.launch_row(probe, [parameters], ctas, data)[0]

    def launch_row(
        self, probe: Probe, parameters: Sequence[Sequence[int]], ctas: int, data: Any = None,
        before: tuple[Probe, Sequence[int]] | None = None,
    ) -> list[Out]:  # fmt: skip
        """Run a probe once for each list of parameters, back to back, and wait for all.

        ``before`` runs first: a kernel long enough for the host to be ahead of the GPU.
        """
        assert ctas % probe.cluster == 0
        function = self._load(probe)
        data = self._nothing if data is None else data
        given = [self._memory.put(self._parameters(one)) for one in parameters]
        outs = [self._memory.put(np.zeros((ctas, SLOTS), np.int64)) for _ in parameters]
        if before is not None:
            first, own = before
            busy = self._memory.put(self._parameters(own))
            unused = self._memory.put(np.zeros((1, SLOTS), np.int64))
            self._load(first)(busy, self._nothing, unused)
        for one, out in zip(given, outs, strict=True):
            function(one, data, out)
        return [Out(self._memory.get(out)) for out in outs]

    def _parameters(self, values: Sequence[int]) -> np.ndarray:
        assert len(values) <= SLOTS
        return np.array([*values, *[0] * (SLOTS - len(values))], np.int32)

    def sample(self, take: Callable[[], float]) -> list[float]:
        """As many samples as the effort asks for, after one that does not count."""
        take()
        return [take() for _ in range(self.effort.repeats)]

    def check(self, what: str, found: np.ndarray, expected: np.ndarray) -> None:
        """Refuse a probe that has not done what it should.

        Raises
        ------
        WarploomError
            If results differ.
        """
        if not np.array_equal(found, expected):
            at = tuple(np.argwhere(np.asarray(found) != np.asarray(expected))[0])
            raise WarploomError(
                f"The probe of {what} is wrong: its result {at} is {np.asarray(found)[at]} and "
                f"should be {np.asarray(expected)[at]}; nothing that it measures counts."
            )

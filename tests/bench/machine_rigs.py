"""Rigs for tests of ``bench machine``: a small emulated GPU, and one that executes nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from warploom_bench.machine.device import RuntimeMemory
from warploom_bench.machine.device_code import BEGIN, BEGIN_NS, END, END_NS, SLOTS, SM, SUM
from warploom_bench.machine.probe import Probe, compile_probe
from warploom_bench.machine.rig import BRIEF, Out, Rig

#: SMs and bytes of L2 of the small GPU: as few CTAs and bytes as there can be.
SMS, L2_BYTES = 4, 1 << 17


@functools.cache
def main_of(probe: Probe) -> Callable[..., None]:
    """The function of a probe, compiled once a process."""
    return compile_probe(probe)["main"]


def emulated(change: Callable[[Probe], Probe] = lambda probe: probe) -> Rig:
    """A rig on the first device, whose probes are changed."""
    return Rig(lambda probe: main_of(change(probe)), RuntimeMemory(), SMS, L2_BYTES, BRIEF)


class HostMemory:
    """Arrays of NumPy in place of those of a device."""

    def put(self, values: np.ndarray) -> np.ndarray:
        return values.copy()

    def empty(self, rows: int, columns: int) -> np.ndarray:
        # Large memory is only asked for, and costs nothing until it is written.
        return np.empty((rows, columns), np.float16)

    def get(self, array: np.ndarray) -> np.ndarray:
        return array


class Unexecuted(Rig):
    """A rig of an H200's size on which probes take random times, and are not checked."""

    def __init__(self, rng: np.random.Generator, sms: int = 132) -> None:
        super().__init__(lambda _: lambda *_: None, HostMemory(), sms, 50 << 20)
        self.rng = rng
        self.probes: set[str] = set()

    def launch_row(
        self, probe: Probe, parameters: Sequence[Sequence[int]], ctas: int, data: Any = None,
        before: Any = None,
    ) -> list[Out]:  # fmt: skip
        assert ctas >= 1 and ctas % probe.cluster == 0
        assert all(len(one) <= SLOTS and max([0, *one]) < 2**31 for one in parameters)
        self.probes |= {probe.name} | ({before[0].name} if before else set())
        return [Out(self._times(ctas, 1000 * at)) for at in range(len(parameters))]

    def _times(self, ctas: int, after: int) -> np.ndarray:
        out = self.rng.integers(1, 100, (ctas, SLOTS))
        out[:, [END, END_NS]] = out[:, [BEGIN, BEGIN_NS]] + self.rng.integers(200, 900, (ctas, 2))
        out[:, [BEGIN_NS, END_NS]] += after
        out[:, SUM + 1] = out[:, BEGIN] + 10  # what else a probe has timed
        out[:, SM] = np.arange(ctas) % self.sms
        return out

    def check(self, what: str, found: np.ndarray, expected: np.ndarray) -> None:
        assert what and np.shape(found) == np.shape(expected), what

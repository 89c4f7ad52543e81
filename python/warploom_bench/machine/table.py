"""All measurements, in the order in which the command makes them."""

from __future__ import annotations

from typing import Any

from warploom_bench.kernels import Kernel
from warploom_bench.machine import (
    arithmetic,
    atomics,
    barriers,
    clusters,
    launches,
    loads,
    mainloop,
    memory,
    mma,
    stores,
)
from warploom_bench.machine.measurement import Measurement
from warploom_bench.machine.probe import Probe, compile_probe
from warploom_bench.machine.rig import FILL

#: The clock under load comes last: it heats the GPU.
MEASUREMENTS: dict[str, Measurement] = {
    one.name: one
    for module in (
        barriers, launches, loads, memory, stores, clusters, atomics, arithmetic, mainloop, mma,
    )
    for one in module.MEASUREMENTS
}  # fmt: skip

PROBES: dict[str, Probe] = {}
for _probe in (FILL, *(probe for one in MEASUREMENTS.values() for probe in one.probes)):
    assert PROBES.setdefault(_probe.name, _probe) == _probe, _probe.name


def kernel_of(probe: Probe) -> Kernel:
    """A probe's kernel, for a folder of compiled kernels."""
    return Kernel(compile_named, (probe.name, probe.digest))


def compile_named(name: str, digest: str) -> Any:
    """The executable of a probe, for a process that compiles; ``digest`` is in the kernel's key."""
    assert PROBES[name].digest == digest
    return compile_probe(PROBES[name])

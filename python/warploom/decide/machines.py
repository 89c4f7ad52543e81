"""The machine of each GPU: the constants that were found on an H200, scaled by the GPU's facts.

SMs, clusters that fit, clock, memory and the L2 cache differ between GPUs of an architecture; what
an SM does in a cycle does not. A GPU that is not in the table, and that ``warploom bench machine``
has measured, has its own rates.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tvm.target import Target

from warploom.decide.machine import H200, Machine
from warploom.errors import IllegalCombination
from warploom.target.gpus import GPUS, Gpu
from warploom.target.limits import SM90A
from warploom.target.measured import measured
from warploom.target.tvm_target import gpu_of

#: Constants that are taken from a measurement: rates of a single unit, and sizes. The others were
#: found together, on whole kernels, and do not fit a constant that was found alone. A measurement
#: that cannot be true is not in the file.
_MEASURED = frozenset({
    "clock", "tensor_bytes", "shared_bytes", "receive_bytes", "l2_bytes", "distinct_bytes",
    "store_bytes", "l2_capacity", "dram_bytes", "fma_lanes", "alu_lanes", "mufu_lanes",
    "convert_lanes",
})  # fmt: skip

#: What other GPUs were measured to differ in beside their data sheets. A copy moves 3.02 TB/s, and
#: reads and results of 300 GEMMs together 3.18 (H100 SXM, 2026-11-26; the data sheet says 3.35).
_DIFFERENT = {"h100": {"dram_bytes": 3.18e6}}


def machine_of(gpu: Gpu) -> Machine:
    """The constants of a GPU.

    Examples
    --------
    >>> from warploom.target.gpus import GPUS
    >>> machine_of(GPUS["h100-pcie"]).sms
    114
    """
    found = None if gpu.name in GPUS else measured(gpu.name, gpu.sms)
    if found is None:
        return _scaled(gpu)
    rates = {name: value for name, value in found.constants.items() if name in _MEASURED}
    return replace(_scaled(gpu), **rates)


@lru_cache(maxsize=32)
def _scaled(gpu: Gpu) -> Machine:
    usual = H200.gpu
    if gpu == usual:
        return H200
    cache = gpu.l2_bytes / usual.l2_bytes
    scaled = replace(
        H200,
        gpu=gpu,
        clock=gpu.clock / 1e6,
        dram_bytes=H200.dram_bytes * gpu.dram_bandwidth / usual.dram_bandwidth,
        l2_capacity=H200.l2_capacity * cache,
        # Slices of the cache deliver at once: where there are fewer, all of it delivers less.
        l2_bytes=H200.l2_bytes * min(1.0, cache),
        distinct_bytes=H200.distinct_bytes * min(1.0, cache),
        l2_store_bytes=H200.l2_store_bytes * min(1.0, cache),
    )
    return replace(scaled, **_DIFFERENT.get(gpu.name, {}))


def arch_for(target: Target | None = None) -> str:
    """The architecture that decisions are made for, ``"sm_90a"`` where no target says another.

    Parameters
    ----------
    target : Target, optional
        By default the current target.
    """
    target = target or Target.current(allow_none=True)
    if target is None:
        return SM90A.name
    try:
        return gpu_of(target).arch.name
    except IllegalCombination:  # of another kind, or of an architecture that is none of ours
        return SM90A.name


def machine_for(target: Target | None = None) -> Machine:
    """The machine that decisions are made for.

    Parameters
    ----------
    target : Target, optional
        By default the current target; without one, or where it is none of Hopper's, an H200.
    """
    target = target or Target.current(allow_none=True)
    if target is None:
        return H200
    try:
        gpu = gpu_of(target)
    except IllegalCombination:  # of another kind, or of an architecture that is none of ours
        return H200
    return machine_of(gpu) if gpu.arch is SM90A else H200

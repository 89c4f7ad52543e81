"""Which GPU a live device is: one of the table, or with measured facts, or its driver's."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from warploom.errors import UnknownGpuWarning
from warploom.target.gpus import GPUS, USUAL, Gpu, find_gpu
from warploom.target.limits import Arch
from warploom.target.measured import machine_file, measured
from warploom.warn import warn

if TYPE_CHECKING:
    from tvm.runtime import Device

#: Values of ``cudaDeviceAttr``: kHz, bits.
_MEMORY_CLOCK, _MEMORY_BUS = 36, 37
#: What the emulator calls its devices.
_EMULATED = "warploom emulator"
#: Names of unknown GPUs that a warning has named.
_warned: set[str] = set()


def gpu_of_device(device: Device, arch: Arch) -> Gpu:
    """The GPU of a live device of an architecture.

    A GPU that is not in the table has the facts that ``warploom bench machine`` has measured
    (:mod:`warploom.target.measured`), or else those of its driver.

    Warns
    -----
    UnknownGpuWarning
        Once a process for a GPU that is neither in the table nor measured.

    Raises
    ------
    IllegalCombination
        If the file with its measured facts cannot be read.
    """
    name, sms = str(device.device_name), int(device.multi_processor_count)
    if name.startswith(_EMULATED):
        return _emulated(device, arch, sms)
    gpu = find_gpu(name, arch, sms)
    if gpu is None:
        found = measured(name, sms)
        if found is not None:
            return Gpu(_spelled(name), arch, **found.facts)
        gpu = _unknown(device, name, arch, sms)
        if name not in _warned:
            _warned.add(name)
            warn(
                f"warploom has no facts of the GPU {name!r} with {sms} SMs; kernels are right, and "
                "are chosen by what its driver says. Run `warploom bench machine` to measure it: "
                f"later processes read {machine_file(name)}.",
                UnknownGpuWarning,
            )
    return gpu


def _emulated(device: Device, arch: Arch, sms: int) -> Gpu:
    """The usual GPU of an architecture, or the first one with as many SMs."""
    same = [gpu for gpu in (USUAL[arch.name], *GPUS.values()) if (gpu.arch, gpu.sms) == (arch, sms)]
    return same[0] if same else _unknown(device, str(device.device_name), arch, sms)


def _unknown(device: Device, name: str, arch: Arch, sms: int) -> Gpu:
    """A GPU with the facts of its driver; where the driver is silent, those of the usual one."""
    usual = USUAL[arch.name]
    bits = _attribute(_MEMORY_BUS, device.index)
    # The clock of double data rate memory: a bit for each edge.
    bandwidth = 2e3 * _attribute(_MEMORY_CLOCK, device.index) * bits / 8
    return Gpu(
        _spelled(name),
        arch,
        sms,
        int(device.l2_cache_size_bytes) or usual.l2_bytes,
        bandwidth or usual.dram_bandwidth,
        1e3 * float(device.max_clock_rate) or usual.clock,
        0,
    )


def _spelled(name: str) -> str:
    """A name as a model has it, which separates its facts by semicolons."""
    return name.replace(";", ",")


def _attribute(number: int, device: int) -> int:
    """An attribute of a device by the CUDA runtime that the process has loaded; 0 if unknown."""
    try:
        get = ctypes.CDLL("libcudart.so.13").cudaDeviceGetAttribute
    except (OSError, AttributeError):
        return 0
    value = ctypes.c_int(0)
    return value.value if get(ctypes.byref(value), number, device) == 0 else 0

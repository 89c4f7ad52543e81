"""The GPUs: what differs between products that have the same architecture.

Sources: NVIDIA's data sheets of each product (SMs or CUDA cores, memory bandwidth, boost clock,
power), the H100 and Blackwell architecture white papers (the chip of an H100 has 60 MB of L2, and
50 where one of six stacks of memory is missing), and the MIG user guide with ``nvidia-smi mig
-lgip`` (slices of a GPU).
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

from warploom.errors import IllegalCombination
from warploom.target.clusters_that_fit import clusters_that_fit
from warploom.target.limits import SM90A, SM100A, Arch

_MIB = 1 << 20


@dataclass(frozen=True)
class Gpu:
    """A product, or a slice of one (MIG): what kernels are planned for.

    Attributes
    ----------
    name : str
        What users say: ``"h100-pcie"``.
    arch : Arch
    sms : int
        Multiprocessors.
    l2_bytes : int
        Capacity of the L2 cache.
    dram_bandwidth : float
        Bytes a second, as the data sheet has it.
    clock : float
        Boost clock of the SMs in Hz.
    watts : int
        Limit of the power of the whole product; 0 where it is not known.

    Examples
    --------
    >>> GPUS["h200"].sms
    132
    """

    name: str
    arch: Arch
    sms: int
    l2_bytes: int
    dram_bandwidth: float
    clock: float
    watts: int

    def __post_init__(self) -> None:
        assert self.name and self.sms > 0 and self.l2_bytes > 0 and self.watts >= 0
        assert self.dram_bandwidth > 0 and self.clock > 0

    @property
    def gpcs(self) -> int:
        """Groups of SMs (GPCs), as few as have all of them.

        Examples
        --------
        >>> GPUS["h200"].gpcs, GPUS["h20"].gpcs
        (8, 5)
        """
        return -(-self.sms // self.arch.sms_per_gpc)

    def clusters(self, size: int) -> int:
        """How many clusters of a size run at a time, each CTA on an SM of its own."""
        return clusters_that_fit(self.arch, self.sms, size)

    def resident(self, cluster: int = 1, per_sm: int = 1) -> int:
        """How many CTAs run at a time, so many on an SM, each of a cluster on an SM of its own.

        A grid of 66 clusters of four with two CTAs an SM took 1.7 times as long as of 60: the last
        six began when others had ended (H100, 2026-11-26).
        """
        return self.clusters(cluster) * cluster * per_sm

    @property
    def model(self) -> str:
        """The attribute ``model`` of a target for this GPU: its name, and facts if it is unknown.

        :func:`gpu_of_model` is the inverse.
        """
        if GPUS.get(self.name) == self:
            return self.name
        facts = (f"{key}={getattr(self, key)!r}" for key in _FACTS)
        return "; ".join([self.name, *facts])


#: What a target says of a GPU that is not in the table.
_FACTS = {"sms": int, "l2_bytes": int, "dram_bandwidth": float, "clock": float, "watts": int}

#: Slices by MIG profile: SMs, eighths of memory and of L2.
_SLICES = {"1g": (16, 1), "2g": (32, 2), "3g": (60, 4), "4g": (64, 4), "7g": (132, 8)}


def _slices(whole: Gpu) -> tuple[Gpu, ...]:
    """The MIG slices of a GPU of 132 SMs."""
    return tuple(
        dataclasses.replace(
            whole, name=f"{whole.name}-{profile}", sms=sms,
            l2_bytes=whole.l2_bytes * eighths // 8,
            dram_bandwidth=whole.dram_bandwidth * eighths / 8,
        )
        for profile, (sms, eighths) in _SLICES.items()
    )  # fmt: skip


_H100 = Gpu("h100", SM90A, 132, 50 * _MIB, 3.35e12, 1.98e9, 700)
_H200 = Gpu("h200", SM90A, 132, 60 * _MIB, 4.8e12, 1.98e9, 700)
_B200 = Gpu("b200", SM100A, 148, 126 * _MIB, 8.0e12, 1.965e9, 1000)

#: The GPUs whose facts are known, by name. ``h100`` and ``h200`` are the SXM modules.
GPUS: dict[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        _H100,
        Gpu("h100-pcie", SM90A, 114, 50 * _MIB, 2.0e12, 1.755e9, 350),
        Gpu("h100-nvl", SM90A, 132, 60 * _MIB, 3.9e12, 1.785e9, 400),
        _H200,
        Gpu("h200-nvl", SM90A, 132, 60 * _MIB, 4.8e12, 1.785e9, 600),
        Gpu("gh200", SM90A, 132, 60 * _MIB, 4.0e12, 1.98e9, 1000),
        Gpu("h20", SM90A, 78, 60 * _MIB, 4.0e12, 1.98e9, 400),
        *_slices(_H100),
        *_slices(_H200),
        _B200,
    )
}

for _gpu in GPUS.values():
    # Multiprocessors come in pairs (TPCs), of which products disable some.
    assert _gpu.sms % 2 == 0 and 2 <= _gpu.sms <= 8 * _gpu.arch.sms_per_gpc
    assert 4 * _MIB <= _gpu.l2_bytes <= 256 * _MIB and 1e11 <= _gpu.dram_bandwidth <= 1e13
    assert 1e9 <= _gpu.clock <= 3e9 and 100 <= _gpu.watts <= 2000

#: The GPU that is meant where only an architecture is named.
USUAL: dict[str, Gpu] = {gpu.arch.name: gpu for gpu in (_H200, _B200)}

#: How drivers spell the products, in the order in which they are tried.
_NAMES = {
    "h100-pcie": r"H100 PCIe",
    "h100-nvl": r"H100 NVL",
    "h100": r"H100",
    "h200-nvl": r"H200 NVL",
    "gh200": r"GH200",
    "h200": r"H200",
    "h20": r"H20",
    "b200": r"B200",
}


def most_resident(arch: Arch, cluster: int = 1, per_sm: int = 1) -> int:
    """CTAs in clusters of a size that run at a time on the largest GPU of an architecture."""
    return max(gpu.resident(cluster, per_sm) for gpu in GPUS.values() if gpu.arch is arch)


def find_gpu(driver_name: str, arch: Arch, sms: int) -> Gpu | None:
    """The GPU of the table that a driver calls by a name and gives so many SMs; None if unknown.

    Examples
    --------
    >>> find_gpu("NVIDIA H100 80GB HBM3 MIG 2g.20gb", SM90A, 32).name
    'h100-2g'
    """
    for name, spelling in _NAMES.items():
        if re.search(rf"\b{spelling}\b", driver_name):
            profile = re.search(r"\bMIG (\dg)\.", driver_name)
            gpu = GPUS.get(f"{name}-{profile[1]}" if profile else name)
            return gpu if gpu is not None and (gpu.arch, gpu.sms) == (arch, sms) else None
    return None


def gpu_of_model(model: str, arch: Arch) -> Gpu:
    """The GPU that :attr:`Gpu.model` stands for; the usual one of ``arch`` where it is empty.

    Raises
    ------
    IllegalCombination
        If the text is no model, or the GPU has another architecture.
    """
    if not model:
        return USUAL[arch.name]
    name, *facts = model.split("; ")
    gpu = GPUS.get(name)
    if facts:
        try:
            values = dict(fact.split("=") for fact in facts)
            gpu = Gpu(name, arch, **{key: kind(values[key]) for key, kind in _FACTS.items()})
        except (AssertionError, KeyError, ValueError):
            gpu = None
    if gpu is None or gpu.arch is not arch:
        allowed = ", ".join(one.name for one in GPUS.values() if one.arch is arch)
        raise IllegalCombination(
            f"The target's model is {model!r}; allowed with {arch.name} are {allowed}, or what "
            "warploom.target.target_from_device gives."
        )
    return gpu

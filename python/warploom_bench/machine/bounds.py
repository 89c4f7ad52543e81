"""What a reading can be on any Hopper: one outside is a fault of the probe, and no constant.

A probe may measure its own loop, or what the compiler left of it. Bounds are wide: they come from
widths of ports and pipes, from published measurements, and from what kernels reach.

Sources: NVIDIA, "H100 Tensor Core GPU Architecture" and "CUDA C++ Programming Guide" (throughput of
arithmetic instructions, compute capability 9.0); Luo et al., "Dissecting the NVIDIA Hopper
Architecture through Microbenchmarking", arXiv 2501.12084 (latencies, distributed shared memory);
Chips and Cheese, "Nvidia's H100" (L2 and memory).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from warploom_bench.machine.measurement import Reading


@dataclass(frozen=True)
class Bound:
    """The range of readings.

    Attributes
    ----------
    measurement : str
        A regular expression that the whole name matches.
    case : str
        A regular expression that the beginning of the case matches.
    low, high : float
        In the unit of the measurement.
    why : str
    each_sm : bool
        Whether both are those of one SM, and the reading is that of all SMs.
    """

    measurement: str
    case: str
    low: float
    high: float
    why: str
    each_sm: bool = False

    def __post_init__(self) -> None:
        assert 0 <= self.low < self.high and self.why
        re.compile(self.measurement), re.compile(self.case)

    def holds(self, name: str, case: str) -> bool:
        """Whether it is the bound of a reading, if no row before it is."""
        return bool(re.fullmatch(self.measurement, name) and re.match(self.case, case))


_LINE = "a port of an SM is a line of 128 bytes a cycle at most"
_HBM = "memory of an H200 delivers 4.8 TB/s, that of the smallest slice 0.25 TB/s"
_PIPE = "lanes of a pipe, CUDA C++ Programming Guide, throughput of arithmetic instructions"

#: The first row that holds counts.
BOUNDS = (
    Bound("mbarrier", "round trip", 80, 2000, "four operations of shared memory, 20 cycles each"),
    Bound("mbarrier", "", 5, 200, "one operation of shared memory"),
    Bound("named-barrier", "", 8, 200, "a barrier of a CTA takes tens of cycles"),
    Bound("timer-tick", "", 1, 2000, "the timer's steps are 32 ns or 1 us"),
    Bound("launch", "", 0.5, 20, "empty kernels follow each other within microseconds"),
    Bound("dependent-launch", "", 0.2, 10, "kernels follow each other within microseconds"),
    Bound("cta-skew", "", 0, 5, "all CTAs of a wave begin within a microsecond"),
    Bound("next-cta", "", 50, 5000, "a CTA begins within microseconds after another's end"),
    Bound("roles", "", 10, 5000, "barriers and setmaxnreg: operations within an SM"),
    Bound("tma-latency", "L2", 300, 2500, "a thread's load from L2 takes 200, and TMA longer"),
    Bound("tma-latency", "DRAM", 500, 4000, "a thread's load from memory takes 450"),
    Bound("tma-loaded-latency", "", 400, 8000, "as without load, and queues"),
    Bound("tma-first", "", 400, 5000, "a load from L2, with the fetch of a tensor map"),
    Bound("tma-fill", "", 0.9, 10, "memory is slower than L2"),
    Bound("tma-per-box", "8 rows", 8, 150, "1 KB at 128 bytes a cycle; kernels load as many"),
    Bound("tma-per-box", "64 rows", 64, 205, "8 KB at 128 to 40 bytes a cycle"),
    Bound("tma-per-box", "256 rows", 256, 820, "32 KB at 128 to 40 bytes a cycle"),
    Bound("tma-bandwidth", "one SM, L2", 40, 128, f"{_LINE}; kernels receive about 79"),
    Bound("tma-bandwidth", "one SM, DRAM", 5, 128, _LINE),
    Bound("tma-bandwidth", "all SMs, L2", 15, 128, f"{_LINE}; published: 5 TB/s and more", True),
    Bound("tma-bandwidth", "all SMs, DRAM", 100, 2800, _HBM),
    Bound("dram-read", "", 2e5, 4.9e6, _HBM),
    Bound("l2-capacity", "", 2, 128, _LINE, True),
    Bound("l2-halves", "", 0, 1, "a place between two times"),
    Bound("same-line", "", 250, 6000, f"32 KB: {_LINE}"),
    Bound("outside-rows", "", 4, 3000, "8 KB at most, on all SMs"),
    Bound("load-latency", "L2", 150, 450, "published: 200 to 300"),
    Bound("load-latency", "DRAM", 450, 1500, "published: 480 to 800; an L2 hit takes under 450"),
    Bound("thread-bandwidth", "reads, one SM", 32, 128, _LINE),
    Bound("thread-bandwidth", "writes, one SM", 16, 128, _LINE),
    Bound("thread-bandwidth", ".*all SMs, L2", 8, 128, _LINE, True),
    Bound("thread-bandwidth", ".*DRAM", 100, 2800, _HBM),
    Bound("store-chunk", ".*8 rows", 8, 1000, "1 KB at 128 bytes a cycle"),
    Bound("store-chunk", "", 64, 1000, "8 KB at 128 bytes a cycle"),
    Bound("store-bandwidth", "one SM", 8, 128, _LINE),
    Bound("store-bandwidth", "all SMs, L2", 8, 128, _LINE, True),
    Bound("store-bandwidth", "all SMs, DRAM", 100, 2800, _HBM),
    Bound("partial-lines", "", 0.9, 8, "1.875 lines instead of one, or sectors that are read"),
    Bound("dsmem-latency", "load", 100, 500, "published: 180"),
    Bound("dsmem-latency", "", 100, 5000, "operations with fences of the GPU"),
    Bound("dsmem-bandwidth", "", 4, 64, "published: 3.3 TB/s of all SMs, 14 of each"),
    Bound("dsmem-sum", "", 1000, 50000, "64 KB and two barriers of a cluster"),
    Bound("red-add", "", 50, 5e6, "one sum in several cycles, or some of each SM in a cycle"),
    Bound("workspace", "", 0.5, 20, "a fence, a flag and two ways through the L2 cache"),
    Bound("ex2|tanh|rcp", "", 8, 16.2, f"16 {_PIPE}"),
    Bound("ex2-f16x2|tanh-f16x2", "", 8, 32.4, f"16 {_PIPE}"),
    Bound("f32-to-.*|e4m3-to-f16", "", 40, 130, f"64 {_PIPE}; two elements each"),
    Bound("int4-to-f16", "", 40, 130, f"64 {_PIPE}; two instructions for two elements"),
    Bound("fma", "", 60, 129, f"128 {_PIPE}"),
    Bound("max", "", 30, 65, f"64 {_PIPE}"),
    Bound("row-max", "", 4, 16.2, f"32 lanes of shuffles, two of them an element; {_PIPE}"),
    Bound("epilogue", "", 1.9, 10, "256 bytes of a warpgroup at 128 bytes a cycle"),
    Bound("mainloop", "loads", 380, 8000, f"48 KB: {_LINE}"),
    Bound("mainloop", "", 1020, 8000, "2 x 4 MMAs of 128 cycles"),
    Bound("overlap", "", 1, 32, "64 is the end of the search: nothing was there to overlap"),
    Bound("clock", "light", 900, 2100, "boost clocks of Hopper GPUs are 1755 to 1980 MHz"),
    Bound("clock", "", 500, 2100, "boost clocks of Hopper GPUs are 1755 to 1980 MHz"),
    Bound("clock-fall", "", 0, 1e7, "power is averaged over milliseconds to seconds"),
)  # fmt: skip


def bound_of(name: str, case: str) -> Bound:
    """The bound of a reading.

    Raises
    ------
    KeyError
        If there is none.

    Examples
    --------
    >>> bound_of("load-latency", "DRAM").low
    450
    """
    if name.startswith("wgmma-"):
        return _of_mma(name, case)
    for one in BOUNDS:
        if one.holds(name, case):
            return one
    raise KeyError(f"{name} {case} has no row in BOUNDS")


def _of_mma(name: str, case: str) -> Bound:
    """Of an instruction: half as many cycles as columns, times warpgroups, or a bit more."""
    found = re.fullmatch(r"[rs]s n=(\d+), (\d) warpgroups?", case)
    if found is None:
        raise KeyError(f"{name} {case} has no bound")
    columns, warpgroups = map(int, found.groups())
    least = columns / 2 * warpgroups
    why = "4096 bytes of multiply-adds a cycle; narrow instructions take up to 64 cycles more"
    return Bound(re.escape(name), re.escape(case), 0.97 * least, 1.3 * least + 64, why)


def implausible(reading: Reading, sms: int) -> str:
    """Why a reading cannot be true; empty if it can.

    Parameters
    ----------
    reading : Reading
    sms : int
        SMs of the GPU.
    """
    bound = bound_of(reading.name, reading.case)
    scale = sms if bound.each_sm else 1
    low, high = bound.low * scale, bound.high * scale
    if low <= reading.value <= high:
        return ""
    return f"implausible: not in {low:,.4g} to {high:,.4g} {reading.unit} ({bound.why})"

"""Kernels in a stream: the time between two, clusters, PDL, and CTAs that follow each other."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from warploom_bench.machine.measurement import Measurement, Samples
from warploom_bench.machine.probe import Probe
from warploom_bench.machine.rig import Rig

#: Shared memory that leaves no place for a second CTA on an SM.
_MOST = 200 * 1024
#: Launches whose times are taken together.
_ROW = 100
#: Nanoseconds that a kernel works before a row: the host is ahead of the GPU by then.
_AHEAD_NS = 4_000_000

#: Spins for so many nanoseconds, and counts the threads.
SPIN_SOURCE = r"""
MB_PROBE {
  long long ns = mb_ns(), begin = mb_clock(), now = ns;
  for (int s = 0; s < p[1] && now - ns < p[0]; ++s) now = mb_ns();
  const int threads = __syncthreads_count(1);
  if (threadIdx.x == 0) {
    mb_times(out, begin, mb_clock(), ns, mb_ns());
    out[blockIdx.x * MB_SLOTS + 5] = threads;
  }
}
"""
EMPTY = Probe("empty", SPIN_SOURCE)
FULL = Probe("empty-full", SPIN_SOURCE, threads=384, shared=_MOST)
EARLY = Probe("empty-early", SPIN_SOURCE, threads=384, shared=_MOST, early=True)
CLUSTERS = {
    size: dataclasses.replace(FULL, name=f"empty-cluster-{size}", cluster=size)
    for size in (2, 4, 8)
}

#: Three warpgroups, of which one gives registers to the others: the roles of a GEMM.
ROLES = Probe("roles", r"""
MB_PROBE {
  __shared__ unsigned long long barrier[16];
  long long ns = mb_ns(), begin = mb_clock();
  if (threadIdx.x == 0) {
    for (int i = 0; i < 16; ++i) mb_barrier_init(mb_address(barrier + i), 1);
    mb_barriers_ready();
  }
  __syncthreads();
  long long ready = mb_clock();
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;" : : : "memory");
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;" : : : "memory");
    if (threadIdx.x == 128) {
      mb_times(out, begin, mb_clock(), ns, mb_ns());
      out[blockIdx.x * MB_SLOTS + 6] = ready;
    }
  }
  mb_sum(out, 1);
}
""", threads=384)  # fmt: skip

_FOREVER = 1 << 30


def _counted(rig: Rig, probe: Probe, sums: np.ndarray) -> None:
    rig.check(probe.name, sums, np.full(len(sums), probe.threads))


def _gap(rig: Rig, probe: Probe, ctas: int) -> float:
    """Microseconds from one kernel of a row to the next."""
    count = max(3, rig.steps(_ROW))
    spin = min(_AHEAD_NS, rig.effort.steps), _FOREVER
    outs = rig.launch_row(probe, [[0, 0]] * count, ctas, before=(EMPTY, spin))
    for out in outs:
        _counted(rig, probe, out.sums)
    # The first ones may have waited for the host.
    begins = [int(out.begin_ns.min()) for out in outs][count // 5 :]
    return (begins[-1] - begins[0]) / (len(begins) - 1) / 1e3


def launch(rig: Rig) -> Samples:
    """Kernels that do nothing: of one CTA, of all SMs, of clusters, launched early (PDL)."""
    yield "one CTA", rig.sample(lambda: _gap(rig, EMPTY, 1))
    yield "all SMs", rig.sample(lambda: _gap(rig, FULL, rig.sms))
    for size, probe in CLUSTERS.items():
        ctas = rig.clusters_of(size)
        yield f"clusters of {size}", rig.sample(lambda probe=probe, n=ctas: _gap(rig, probe, n))
    yield "all SMs, PDL", rig.sample(lambda: _gap(rig, EARLY, rig.sms))


def dependent(rig: Rig) -> Samples:
    """From the last CTA of a kernel that works to the first thread of the next that may read it."""
    work = min(8000, rig.effort.steps), _FOREVER
    for name, probe in (("usual", FULL), ("PDL", EARLY)):

        def take(probe=probe) -> float:
            count = max(3, rig.steps(24))
            ahead = min(_AHEAD_NS, rig.effort.steps), _FOREVER
            outs = rig.launch_row(probe, [work] * count, rig.sms, before=(EMPTY, ahead))
            for out in outs:
                _counted(rig, probe, out.sums)
            gaps = [
                float(np.median(after.begin_ns) - before.end_ns.max())
                for before, after in itertools.pairwise(outs)
            ]
            return float(np.median(gaps[len(gaps) // 4 :])) / 1e3

        yield name, rig.sample(take)


def skew(rig: Rig) -> Samples:
    """From the first CTA of a kernel to the last one, each on an SM of its own."""
    work = [min(4000, rig.effort.steps), _FOREVER]

    def take() -> float:
        out = rig.launch(FULL, work, rig.sms)
        _counted(rig, FULL, out.sums)
        return float(out.begin_ns.max() - out.begin_ns.min()) / 1e3

    yield "all SMs", rig.sample(take)


def next_cta(rig: Rig) -> Samples:
    """From the end of a CTA to the beginning of the next on the same SM, by the SM's clock."""
    work = [min(3000, rig.effort.steps), _FOREVER]

    def take() -> float:
        out = rig.launch(FULL, work, 6 * rig.sms)
        _counted(rig, FULL, out.sums)
        gaps = []
        for sm in np.unique(out.sms):
            own = out.values[out.sms == sm]
            own = own[np.argsort(own[:, 0])]
            gaps += list(own[1:, 0] - own[:-1, 1])
        return float(np.median(gaps)) if gaps else 0.0

    yield "one CTA an SM", rig.sample(take)


def roles(rig: Rig) -> Samples:
    """The prologue of a kernel with roles: mbarriers, then registers that change hands."""
    taken = []
    for _ in range(rig.effort.repeats + 1):
        out = rig.launch(ROLES, [], rig.sms)
        _counted(rig, ROLES, out.sums)
        taken.append((np.median(out.values[:, 6] - out.values[:, 0]),
                      np.median(out.values[:, 1] - out.values[:, 6])))  # fmt: skip
    yield "mbarriers", [float(one[0]) for one in taken[1:]]
    yield "registers", [float(one[1]) for one in taken[1:]]


_EMPTIES = (EMPTY, FULL, EARLY, *CLUSTERS.values())
MEASUREMENTS = (
    Measurement("launch", "us", "from an empty kernel to the next", _EMPTIES, launch),
    Measurement(
        "dependent-launch", "us", "from a kernel's end to the next", (EMPTY, FULL, EARLY), dependent
    ),
    Measurement("cta-skew", "us", "from the first CTA of a kernel to the last", (FULL,), skew),
    Measurement("next-cta", "cycles", "from a CTA's end to the next on its SM", (FULL,), next_cta),
    Measurement("roles", "cycles", "the prologue of a kernel with roles", (ROLES,), roles),
)

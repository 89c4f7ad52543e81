"""Clusters: shared memory of other CTAs, barriers between CTAs, sums through shared memory."""

from __future__ import annotations

import numpy as np

from warploom_bench.machine.device_code import FACTOR, SUMMAND
from warploom_bench.machine.measurement import Measurement, Samples
from warploom_bench.machine.probe import Probe
from warploom_bench.machine.rig import Rig

#: What a launch does.
CHASE, READ, COPY, ARRIVE, SYNC, REDUCE = range(6)
#: Bytes of a CTA's tile, and threads.
_TILE, _THREADS = 64 * 1024, 256
#: Bytes of a bulk copy, and how many of them a CTA sends at a time.
_COPY, _FEW, _MANY = 32 * 1024, 1, 5
_WORDS = _TILE // 4

SOURCE = r"""
MB_INLINE uint4 remote(unsigned address) {
  uint4 w;
  asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w) : "r"(address) : "memory");
  return w;
}
MB_PROBE {
  const int steps = p[0], mode = p[1], zero = p[2], size = p[3];
  unsigned char* tile = mb_aligned(raw);
  __shared__ unsigned long long barrier;
  const int rank = mb_rank(), next = (rank + 1) % size, t = threadIdx.x;
  const unsigned here = mb_address(tile), there = mb_of_cta(here, next);
  const unsigned own = mb_address(&barrier), other = mb_of_cta(own, next);
  for (int i = t; i < 16384; i += 256)
    ((unsigned*)tile)[i] = (unsigned)(rank * 16384 + i) * MB_FACTOR + MB_SUMMAND;
  if (t == 0) {
    mb_barrier_init(own, 1);
    mb_barriers_ready();
  }
  mb_fence_async();
  __syncthreads();
  mb_cluster_sync();
  unsigned sum = 0;
  long long ns = mb_ns(), begin = mb_clock();
  if (mode == 0) {
    unsigned w = 0;
    if (t == 0)
      for (int s = 0; s < steps; ++s) {
        asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(w)
                     : "r"(there + s % 1024 * 4 + w * zero) : "memory");
        sum += w;
      }
  } else if (mode == 1) {
    // Threads change places from step to step, by lines: the compiler would load all words once,
    // before the loop, if the addresses were the same.
    #pragma unroll 1
    for (int s = 0; s < steps; ++s) {
      const unsigned mine = there + ((t + 8 * s) & 255) * 16;
      uint4 w[16];
      #pragma unroll
      for (int i = 0; i < 16; ++i) w[i] = remote(mine + i * 4096);
      #pragma unroll
      for (int i = 0; i < 16; ++i) sum += w[i].x + w[i].y + w[i].z + w[i].w;
    }
  } else if (mode == 2) {
    // The first part of the tile goes to several parts of the neighbour's, step after step.
    const int copies = p[4];
    for (int s = 0; s < steps; ++s) {
      if (t == 0) {
        mb_expect(own, copies * 32768);
        for (int i = 1; i <= copies; ++i)
          asm volatile(
              "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
              "[%0], [%1], %2, [%3];"
              : : "r"(there + i * 32768), "r"(here), "r"(32768), "r"(other) : "memory");
      }
      mb_wait(own, s & 1);
      // Nobody may send the next copies while this CTA may read the last ones.
      mb_cluster_sync();
    }
    for (int i = t; i < copies * 8192; i += 256) sum += ((unsigned*)tile)[8192 + i];
  } else if (mode == 3) {
    // CTAs 0 and 1 arrive at each other's barriers in turn.
    if (t == 0 && rank < 2) {
      const unsigned to = mb_of_cta(own, 1 - rank);
      for (int s = 0; s < steps; ++s) {
        if (rank == 1) mb_wait(own, s & 1);
        asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];"
                     : : "r"(to) : "memory");
        if (rank == 0) mb_wait(own, s & 1);
        ++sum;
      }
    }
  } else if (mode == 4) {
    for (int s = 0; s < steps; ++s) mb_cluster_sync();
    sum = t == 0;
  } else {
    // CTA r adds up part r of all tiles.
    const int part = 65536 / size;
    for (int s = 0; s < steps; ++s) {
      mb_cluster_sync();
      uint4 total = make_uint4(0, 0, 0, 0);
      for (int at = t * 16; at < part; at += 4096) {
        uint4 w = make_uint4(0, 0, 0, 0);
        #pragma unroll 8
        for (int cta = 0; cta < size; ++cta) {
          const uint4 more = remote(mb_of_cta(here + rank * part + at, cta));
          w.x += more.x; w.y += more.y; w.z += more.z; w.w += more.w;
        }
        total.x += w.x; total.y += w.y; total.z += w.z; total.w += w.w;
      }
      sum += total.x + total.y + total.z + total.w;
      mb_cluster_sync();
    }
  }
  __syncthreads();
  long long end = mb_clock();
  mb_cluster_sync();
  mb_sum(out, sum);
  if (t == 0) mb_times(out, begin, end, ns, mb_ns());
}
"""

SIZES = (2, 4, 8)
PROBES = {
    size: Probe(
        f"cluster-{size}", SOURCE, threads=_THREADS, cluster=size, shared=(1 + _MANY) * _COPY
    )
    for size in SIZES
}  # fmt: skip


def sums(mode: int, size: int, steps: int, copies: int = 1) -> np.ndarray:
    """What each CTA of a cluster should have added up."""
    tiles = (np.arange(size * _WORDS, dtype=object) * FACTOR + SUMMAND).reshape(size, _WORDS)
    after = np.roll(tiles, -1, 0)  # the tile of the next CTA
    if mode == CHASE:
        found = [sum(row[s % 1024] for s in range(steps)) for row in after]
    elif mode == READ:
        found = [steps * sum(row) for row in after]
    elif mode == COPY:
        found = [copies * sum(row[: _COPY // 4]) for row in np.roll(tiles, 1, 0)]
    elif mode == ARRIVE:
        found = [steps if rank < 2 else 0 for rank in range(size)]
    elif mode == SYNC:
        found = [1] * size
    else:
        part = _WORDS // size
        found = [steps * sum(tiles[:, r * part : (r + 1) * part].ravel()) for r in range(size)]
    return np.array([one % 2**32 for one in found])


def _measure(
    rig: Rig, mode: int, size: int, wanted: int, clusters: int = 1, copies: int = 1
) -> list[float]:
    """Cycles of a step of the median CTA."""
    steps = rig.steps(wanted)
    once = sums(mode, size, steps, copies)

    def take() -> float:
        out = rig.launch(PROBES[size], [steps, mode, 0, size, copies], clusters * size)
        rig.check(f"mode {mode} of clusters of {size}", out.sums, np.tile(once, clusters))
        taken = out.cycles[: clusters * size]
        return float(taken[0] if mode in (CHASE, ARRIVE) else np.median(taken)) / steps

    return rig.sample(take)


def latency(rig: Rig) -> Samples:
    """A load after a load, an arrival after an arrival, a barrier of the cluster."""
    for size in SIZES:
        yield f"load, cluster of {size}", _measure(rig, CHASE, size, 1000)
        yield f"arrival and back, cluster of {size}", _measure(rig, ARRIVE, size, 1000)
        yield f"barrier of the cluster, {size}", _measure(rig, SYNC, size, 1000)


def bandwidth(rig: Rig) -> Samples:
    """Bytes a cycle that a CTA gets from its neighbour: by loads, and by bulk copies.

    A step of many copies takes longer than a step of few by the bytes alone: latency and barrier
    are the same.
    """
    for size in SIZES:
        many = rig.clusters_of(size) // size
        for where, clusters in (("one cluster", 1), ("all SMs", many)):
            cycles = _measure(rig, READ, size, 200, clusters)
            yield f"loads, cluster of {size}, {where}", [_TILE / one for one in cycles]
            few, more = (
                _measure(rig, COPY, size, 50, clusters, copies) for copies in (_FEW, _MANY)
            )
            moved = (_MANY - _FEW) * _COPY
            yield (
                f"bulk copies, cluster of {size}, {where}",
                [moved / max(1.0, b - a) for a, b in zip(few, more, strict=True)],
            )


def reduction(rig: Rig) -> Samples:
    """The sum of the CTAs' tiles of 64 KB, a part of it by each of them."""
    for size in SIZES:
        yield f"cluster of {size}", _measure(rig, REDUCE, size, 50, rig.clusters_of(size) // size)


_ALL = tuple(PROBES.values())
MEASUREMENTS = (
    Measurement("dsmem-latency", "cycles", "one CTA of a cluster and another", _ALL, latency),
    Measurement("dsmem-bandwidth", "bytes/cycle", "what a CTA gets from another", _ALL, bandwidth),
    Measurement("dsmem-sum", "cycles", "the sum of tiles of 64 KB in a cluster", _ALL, reduction),
)

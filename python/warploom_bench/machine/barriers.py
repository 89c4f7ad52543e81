"""Synchronisation within a CTA: mbarriers, named barriers; and the GPU's timer."""

from __future__ import annotations

import numpy as np

from warploom_bench.machine.measurement import Measurement, Samples
from warploom_bench.machine.probe import Probe
from warploom_bench.machine.rig import Rig

#: Two warps give each other a word in turn; or one thread asks a barrier that is complete.
MBARRIER = Probe("mbarrier", r"""
MB_PROBE {
  const int steps = p[0], mode = p[1];
  __shared__ unsigned long long barrier[2];
  __shared__ int word;
  const unsigned ping = mb_address(barrier), pong = mb_address(barrier + 1);
  if (threadIdx.x == 0) {
    word = 0;
    mb_barrier_init(ping, 1);
    mb_barrier_init(pong, 1);
    mb_barriers_ready();
  }
  __syncthreads();
  long long ns = mb_ns(), begin = mb_clock();
  if (mode == 0) {
    if (threadIdx.x == 0)
      for (int s = 0; s < steps; ++s) {
        ++*(volatile int*)&word;
        mb_arrive(ping);
        mb_wait(pong, s & 1);
      }
    if (threadIdx.x == 32)
      for (int s = 0; s < steps; ++s) {
        mb_wait(ping, s & 1);
        ++*(volatile int*)&word;
        mb_arrive(pong);
      }
  } else if (threadIdx.x == 0) {
    mb_arrive(ping);
    for (int s = 0; s < steps; ++s) mb_wait(ping, 0);
    word = steps;
  }
  long long end = mb_clock();
  __syncthreads();
  if (threadIdx.x == 0) {
    mb_times(out, begin, end, ns, mb_ns());
    mb_sum(out, word);
  }
}
""", threads=64)  # fmt: skip

NAMED = Probe("named-barrier", r"""
MB_PROBE {
  const int steps = p[0], threads = p[1];
  __shared__ int word;
  if (threadIdx.x == 0) word = 0;
  __syncthreads();
  long long ns = mb_ns(), begin = mb_clock();
  if ((int)threadIdx.x < threads)
    for (int s = 0; s < steps; ++s) mb_named(1, threads);
  long long end = mb_clock();
  // One thread after the other counts: a barrier that lets threads through too soon loses counts.
  if ((int)threadIdx.x < threads)
    for (int warp = 0; warp < threads / 32; ++warp) {
      if ((int)threadIdx.x == 32 * warp) ++*(volatile int*)&word;
      mb_named(1, threads);
    }
  __syncthreads();
  if (threadIdx.x == 0) {
    mb_times(out, begin, end, ns, mb_ns());
    mb_sum(out, word);
  }
}
""", threads=512)  # fmt: skip

TIMER = Probe("timer", r"""
MB_PROBE {
  long long ns = mb_ns(), begin = mb_clock(), least = 1 << 30, last = ns;
  for (int s = 0; s < p[0]; ++s) {
    long long now = mb_ns();
    if (now != last && now - last < least) least = now - last;
    last = now;
  }
  if (threadIdx.x == 0) {
    mb_times(out, begin, mb_clock(), ns, last);
    out[6] = least;
    mb_sum(out, p[0]);
  }
}
""", threads=32)  # fmt: skip


def _run(rig: Rig, probe: Probe, parameters: list[int], counted: int) -> np.ndarray:
    out = rig.launch(probe, parameters, 1)
    rig.check(probe.name, out.sums, np.array([counted]))
    return out.values[0]


def mbarrier(rig: Rig) -> Samples:
    """An arrival and the wait of another warp for it; and a wait that need not wait."""
    steps = rig.steps(2000)

    def take(mode: int, counted: int) -> float:
        begin, end = _run(rig, MBARRIER, [steps, mode], counted)[:2]
        return float(end - begin) / steps

    yield "round trip of two warps", rig.sample(lambda: take(0, 2 * steps))
    yield "wait, complete", rig.sample(lambda: take(1, steps))


def named(rig: Rig) -> Samples:
    """``bar.sync`` of so many threads."""
    steps = rig.steps(2000)

    def take(threads: int) -> float:
        begin, end = _run(rig, NAMED, [steps, threads], threads // 32)[:2]
        return float(end - begin) / steps

    for threads in (64, 128, 256, 384, 512):
        yield f"{threads} threads", rig.sample(lambda threads=threads: take(threads))


def timer(rig: Rig) -> Samples:
    """The step of ``%globaltimer``, and the clock of an SM that does little."""
    reads = rig.steps(200000)
    taken = [_run(rig, TIMER, [reads], reads) for _ in range(rig.effort.repeats)]
    yield "ns", [float(one[6]) for one in taken]


MEASUREMENTS = (
    Measurement("mbarrier", "cycles", "arrivals and waits in one CTA", (MBARRIER,), mbarrier),
    Measurement("named-barrier", "cycles", "bar.sync", (NAMED,), named),
    Measurement("timer-tick", "ns", "the step of the GPU's timer", (TIMER,), timer),
)

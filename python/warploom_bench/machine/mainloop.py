"""The loop of a GEMM: loads and MMAs apart and together, with a producer warp and without."""

from __future__ import annotations

import numpy as np

from warploom_bench.machine.copies import COPIES, flush
from warploom_bench.machine.measurement import Measurement, Samples
from warploom_bench.machine.mma_text import KINDS, issue
from warploom_bench.machine.probe import ROW_BYTES, Probe
from warploom_bench.machine.rig import Rig

#: What a launch does.
LOAD, MMA, SELF, WAIT = 1, 2, 4, 8
#: Rows of a stage: A of two warpgroups and B, in boxes of 128 rows.
_A_ROWS, _B_ROWS, _BOX = 128, 256, 128
_STAGE_ROWS, _STAGES = _A_ROWS + _B_ROWS, 4
STAGE_BYTES = _STAGE_ROWS * ROW_BYTES

SOURCE = (
    issue(KINDS["f16"], 256, registers=False)
    + r"""
MB_INLINE unsigned long long descriptor(unsigned address) {
  return (unsigned long long)((address & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
MB_INLINE void request(unsigned stage, unsigned long long map, int row, unsigned barrier) {
  mb_expect(barrier, 49152);
  #pragma unroll
  for (int i = 0; i < 3; ++i) mb_load_box(stage + i * 16384, map, 0, row + i * 128, barrier);
}
MB_PROBE {
  const int steps = mb_uniform(p[0]), what = mb_uniform(p[1]), parts = mb_uniform(p[2]);
  const int rows = p[3] * 384, spread = p[4], write_row = p[5], readers = p[6];
  const bool load = what & 1, mma = what & 2, self = what & 4, wait = what & 8;
  unsigned char* ring = mb_aligned(raw);
  __shared__ unsigned long long full[4], empty[4];
  if (threadIdx.x == 0) {
    for (int i = 0; i < 4; ++i) {
      mb_barrier_init(mb_address(full + i), 1);
      mb_barrier_init(mb_address(empty + i), 2);
    }
    mb_barriers_ready();
  }
  if (!load) {
    // One stage for all steps, in each place of the ring.
    for (int piece = threadIdx.x; piece < 4 * 3072; piece += blockDim.x) {
      const int row = piece % 3072 / 8, column = piece % 8 ^ row % 8;
      *(uint4*)(ring + piece / 3072 * 49152 + row * 128 + column * 16) =
          ((const uint4*)data)[piece % 3072];
    }
    mb_fence_async();
  }
  __syncthreads();
  // A division here, and none in the loops.
  int row = (int)((long long)(blockIdx.x / readers) * spread % p[3]) * 384;
  const unsigned base = mb_address(ring);
  auto next = [&](int at) {
    request(base + at * 49152, map, __shfl_sync(1u, row, 0), mb_address(full + at));
    row += 384;
    if (row >= rows) row -= rows;
  };
  if (wait) {  // barriers that are complete all the time
    if (threadIdx.x == 0)
      for (int i = 0; i < 4; ++i) mb_arrive(mb_address(full + i));
    __syncthreads();
  }
  long long ns = mb_ns(), begin = mb_clock(), end = begin;
  if (threadIdx.x < 128) {
    if (threadIdx.x == 0 && load && !self)
      for (int s = 0; s < steps; ++s) {
        const int at = s % 4;
        if (s >= 4) mb_wait(mb_address(empty + at), s / 4 - 1 & 1);
        next(at);
      }
  } else {
    const int group = threadIdx.x / 128 - 1, t = threadIdx.x % 128;
    float d[128];
    #pragma unroll
    for (int i = 0; i < 128; ++i) d[i] = 0;
    if (self && load && threadIdx.x == 128)
      for (int s = 0; s < 3 && s < steps; ++s) next(s);
    for (int s = 0; s < steps; ++s) {
      const int at = s % 4;
      if (load || wait) mb_wait(mb_address(full + at), wait ? 0 : s / 4 & 1);
      if (mma) {
        const unsigned long long a = descriptor(base + at * 49152 + group * 8192);
        const unsigned long long b = descriptor(base + at * 49152 + 16384);
        asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
        for (int k = 0; k < parts; ++k) issue_256(d, a + 2 * k, b + 2 * k);
        asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" : : : "memory");
      }
      if (load && self) {
        // The MMAs of the step before have ended: its stage is free once both groups are here.
        mb_named(1, 256);
        if (threadIdx.x == 128 && s + 3 < steps) next((s + 3) % 4);
      } else if (load && t == 0 && s > 0) {
        mb_arrive(mb_address(empty + (s - 1) % 4));
      }
      __syncwarp();
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" : : : "memory");
    #pragma unroll
    for (int i = 0; i < 128; ++i) asm volatile("" : "+f"(d[i]) : : "memory");
    end = mb_clock();
    if (threadIdx.x == 128) mb_times(out, begin, end, ns, mb_ns());
    if (write_row && blockIdx.x == 0) {
      unsigned char* behind = (unsigned char*)data + (long long)write_row * 128;
      float* to = (float*)behind + (threadIdx.x - 128) * 128;
      #pragma unroll
      for (int i = 0; i < 128; ++i) to[i] = d[i];
    }
  }
}
"""
)

PROBE = Probe(
    "mainloop", SOURCE, threads=384, shared=_STAGES * STAGE_BYTES, box=_BOX
)  # fmt: skip
#: Rows of memory that D of a CTA takes.
_D_ROWS = 256 * 128 * 4 // ROW_BYTES


def check(rig: Rig, what: int, parts: int) -> None:
    """D of a CTA after a few steps over three stages of small integers."""
    stages, steps = 3, 6
    rng = np.random.default_rng(5)
    rows = rng.integers(-2, 3, (stages * _STAGE_ROWS, ROW_BYTES // 2)).astype(np.float16)
    behind = np.full((_D_ROWS, ROW_BYTES // 2), np.nan, np.float16)
    data = rig.put(np.concatenate([rows, behind]))
    rig.launch(PROBE, [steps, what, parts, stages, 1, len(rows), 1], 1, data)
    found = np.ascontiguousarray(rig.get(data)[len(rows) :]).reshape(-1).view(np.float32)
    expected = np.zeros((_A_ROWS, _B_ROWS))
    if what & MMA:
        for step in range(steps):
            stage = rows.reshape(stages, _STAGE_ROWS, -1)[step % stages if what & LOAD else 0]
            wide = stage[:, : 16 * parts].astype(np.float64)
            expected += wide[:_A_ROWS] @ wide[_A_ROWS:].T
    thread, i = np.meshgrid(np.arange(256), np.arange(128), indexing="ij")
    row = thread // 32 * 16 + thread % 32 // 4 + 8 * (i // 2 % 2)
    held = expected[row, i // 4 * 8 + thread % 4 * 2 + i % 2]
    rig.check(f"a loop, {what}", found.astype(np.float64).reshape(256, 128), held)


def order(first: float, second: float, together: float) -> float:
    """The order of the norm that joins two times: 1 if they add up, large if the longer hides all.

    Examples
    --------
    >>> round(order(3.0, 4.0, 5.0), 6)
    2.0
    """
    most = 64.0
    if together <= max(first, second) or not min(first, second) > 0:
        return most
    if together >= first + second:
        return 1.0
    low, high = 1.0, most
    for _ in range(60):
        middle = (low + high) / 2
        joined = max(first, second) * (1 + (min(first, second) / max(first, second)) ** middle) ** (
            1 / middle
        )
        low, high = (middle, high) if joined > together else (low, middle)
    return (low + high) / 2


#: CTAs that load the same stages, as those of a row of tiles do: loads then take about as long as
#: MMAs, and one does not hide all of the other.
_READERS_L2, _READERS_DRAM = 8, 4


def _cycles(rig: Rig, what: int, parts: int, cold: bool) -> float:
    """Cycles of a step of all SMs, with stages in the L2 cache or in memory."""
    stages = max(2, rig.steps(int((12 if cold else 0.25) * rig.l2_bytes) // STAGE_BYTES))
    readers = _READERS_DRAM if cold else _READERS_L2
    each = max(1, stages * readers // rig.sms) if cold else 7
    steps = rig.steps(min(each, 400) if cold else 400)
    data = rig.filled(stages * _STAGE_ROWS)
    if cold:
        flush(rig, max(2, rig.steps(6 * rig.l2_bytes // (64 * ROW_BYTES))))
        data = rig.filled(stages * _STAGE_ROWS)
    out = rig.launch(PROBE, [steps, what, parts, stages, each, 0, readers], rig.sms, data)
    return float(np.median(out.cycles)) / steps


def overlap(rig: Rig) -> Samples:
    """The order of the norm that joins loads and MMAs of a step, by the MMAs of a stage."""
    for what in (LOAD, MMA, LOAD | MMA):
        check(rig, what, 3)
    for where, cold in (("L2", False), ("DRAM", True)):
        for parts in (2, 3, 4):

            def take(parts=parts, cold=cold) -> float:
                loads, mmas, both = (
                    _cycles(rig, what, parts, cold) for what in (LOAD, MMA, LOAD | MMA)
                )
                return order(loads, mmas, both)

            yield f"{where}, {parts} of 4 MMAs", rig.sample(take)


def step(rig: Rig) -> Samples:
    """A step of 128 x 256 x 64, by who loads."""
    for name, what in (
        ("loads alone", LOAD), ("MMAs alone", MMA), ("MMAs and waits", MMA | WAIT),
        ("a warp loads", LOAD | MMA),
        ("a consumer loads", LOAD | MMA | SELF),
    ):  # fmt: skip
        check(rig, what, 4)
        yield name, rig.sample(lambda what=what: _cycles(rig, what, 4, cold=False))


MEASUREMENTS = (
    Measurement("mainloop", "cycles", "a step of a float16 GEMM on all SMs", (PROBE,), step),
    Measurement(
        "overlap", "order", "of the norm that joins loads and MMAs of a step",
        (PROBE, COPIES[256]), overlap,
    ),
)  # fmt: skip

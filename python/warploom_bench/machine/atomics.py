"""Sums in global memory: ``red.global.add``, and tiles through a workspace (split-K)."""

from __future__ import annotations

import itertools

import numpy as np

from warploom_bench.machine.measurement import Measurement, Samples
from warploom_bench.machine.probe import ROW_BYTES, Probe
from warploom_bench.machine.rig import Rig

_THREADS = 256

#: Threads add ones to their words; a region of words belongs to so many CTAs.
REDUCE = Probe("red", r"""
MB_PROBE {
  const int steps = p[0], words = p[1], region = p[2], sharers = p[3];
  float* mine = (float*)data + (long long)(blockIdx.x / sharers) * region;
  int at = (int)threadIdx.x % words;
  __syncthreads();
  long long ns = mb_ns(), begin = mb_clock();
  for (int s = 0; s < steps; ++s) {
    asm volatile("red.global.add.f32 [%0], %1;" : : "l"(mine + at), "f"(1.0f) : "memory");
    at = (at + 256) % words;
  }
  // The unit of the L2 cache is behind by then: a sum that returns tells when it has caught up.
  float last = atomicAdd(mine + at, 0.0f);
  asm volatile("" : : "f"(last) : "memory");
  __syncthreads();
  long long end = mb_clock();
  if (threadIdx.x == 0) mb_times(out, begin, end, ns, mb_ns());
}
""", threads=_THREADS)  # fmt: skip

#: Bytes of the largest tile in the workspace, and of the smallest.
_TILE, _SMALL = 64 * 1024, 8 * 1024

#: CTAs 2i and 2i + 1: the second stores a tile and a flag, the first waits and adds the tile up.
WORKSPACE = Probe("workspace", r"""
MB_PROBE {
  const int tag = p[0], flag_row = p[1], pieces = p[2], t = threadIdx.x, pair = blockIdx.x / 2;
  uint4* tile = (uint4*)((unsigned char*)data + (long long)pair * 65536);
  int* flag = (int*)((unsigned char*)data + (long long)(flag_row + pair) * 128);
  unsigned sum = 0;
  __syncthreads();
  long long ns = mb_ns(), begin = mb_clock();
  if (blockIdx.x % 2) {
    for (int i = t; i < pieces; i += 256) {
      const unsigned w = (unsigned)(4 * i + tag) * MB_FACTOR + MB_SUMMAND;
      tile[i] = make_uint4(w, w + MB_FACTOR, w + 2 * MB_FACTOR, w + 3 * MB_FACTOR);
    }
    __syncthreads();
    if (t == 0)
      asm volatile("{fence.acq_rel.gpu; st.release.gpu.global.s32 [%0], %1;}"
                   : : "l"(flag), "r"(tag) : "memory");
  } else {
    if (t == 0) {
      int seen;
      do {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
      } while (seen != tag);
    }
    __syncthreads();
    for (int i = t; i < pieces; i += 512) {
      uint4 w[2];
      #pragma unroll
      for (int j = 0; j < 2; ++j)
        asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w[j].x), "=r"(w[j].y), "=r"(w[j].z), "=r"(w[j].w)
                     : "l"(tile + i + 256 * j) : "memory");
      #pragma unroll
      for (int j = 0; j < 2; ++j) sum += w[j].x + w[j].y + w[j].z + w[j].w;
    }
  }
  __syncthreads();
  long long end = mb_clock(), end_ns = mb_ns();
  mb_sum(out, sum);
  if (t == 0) mb_times(out, begin, end, ns, end_ns);
}
""", threads=_THREADS)  # fmt: skip


def reductions(rig: Rig) -> Samples:
    """Sums of float32 in a microsecond of the whole GPU, a word of each lane side by side."""
    steps = rig.steps(200)
    cases = {
        "one SM": (1, 1 << 14, 1), "all SMs, own words": (rig.sms, 1 << 14, 1),
        "all SMs, same words": (rig.sms, 1 << 14, rig.sms),
        "all SMs, one line": (rig.sms, 32, rig.sms), "all SMs, one word": (rig.sms, 1, rig.sms),
    }  # fmt: skip
    for name, (ctas, words, sharers) in cases.items():
        regions = -(-ctas // sharers)
        rows = max(1, regions * words * 4 // ROW_BYTES)

        def take(ctas=ctas, words=words, sharers=sharers, rows=rows, name=name) -> float:
            data = rig.put(np.zeros((rows, ROW_BYTES // 2), np.float16))
            out = rig.launch(REDUCE, [steps, words, words, sharers], ctas, data)
            added = np.ascontiguousarray(rig.get(data)).view(np.float32).astype(np.float64).sum()
            rig.check(f"sums of {name}", np.array([added]), np.array([ctas * _THREADS * steps]))
            ns = max(1, int(out.end_ns.max() - out.begin_ns.min()))
            return 1e3 * ctas * _THREADS * steps / ns

        yield name, rig.sample(take)


def workspace(rig: Rig) -> Samples:
    """From the first store of a tile by one CTA to the last word read by another.

    By the size of the tile: latency is what a tile without bytes would take.
    """
    tags = itertools.count(1)
    for name, pairs in (("one pair", 1), ("all SMs", rig.sms // 2)):
        flags = pairs * _TILE // ROW_BYTES
        data = rig.put(np.zeros((flags + pairs, ROW_BYTES // 2), np.float16))
        for bytes_ in (_SMALL, _TILE):

            def take(pairs=pairs, flags=flags, data=data, bytes_=bytes_) -> float:
                tag = next(tags)
                out = rig.launch(WORKSPACE, [tag, flags, bytes_ // 16], 2 * pairs, data)
                words = (np.arange(bytes_ // 4, dtype=object) + tag) * 2654435761 + 12345
                rig.check("a workspace", out.sums[::2], np.full(pairs, sum(words) % 2**32))
                return float(np.median(out.end_ns[::2] - out.begin_ns[1::2])) / 1e3

            yield f"{bytes_ // 1024} KB, {name}", rig.sample(take)


MEASUREMENTS = (
    Measurement("red-add", "sums/us", "red.global.add.f32", (REDUCE,), reductions),
    Measurement(
        "workspace", "us", "a tile from CTA to CTA through memory", (WORKSPACE,), workspace
    ),
)

"""Loads and stores of threads: latency, and bandwidth of one SM and of all."""

from __future__ import annotations

import itertools

import numpy as np

from warploom_bench.machine.copies import BOX_BYTES, COPIES, flush
from warploom_bench.machine.measurement import Measurement, Samples
from warploom_bench.machine.probe import ROW_BYTES, Probe
from warploom_bench.machine.rig import Rig, sum_of_words

_WORDS = ROW_BYTES // 4
_THREADS = 512
#: Bytes that all threads of a CTA move in a step: eight times 16 each.
_STEP = _THREADS * 128

#: Each address depends on the word before it, times zero.
CHASE = Probe("chase", r"""
MB_PROBE {
  const int steps = p[0], zero = p[1];
  const long long stride = p[2], words = (long long)p[3] * 32, start = p[4];
  const unsigned* base = (const unsigned*)data;
  unsigned sum = 0, w = 0;
  long long at = start;
  if (threadIdx.x == 0) {
    long long ns = mb_ns(), begin = mb_clock();
    for (int s = 0; s < steps; ++s) {
      asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(w) : "l"(base + at + w * zero) : "memory");
      sum += w;
      at += stride;
      if (at >= words) at -= words;
    }
    mb_times(out, begin, mb_clock(), ns, mb_ns());
    mb_sum(out, sum);
  }
}
""", threads=32)  # fmt: skip

#: Each CTA goes over rows of its own, several times.
SWEEP = Probe("sweep", r"""
MB_PROBE {
  const int steps = p[0], passes = p[1], store = p[2];
  uint4* mine = (uint4*)data + (long long)blockIdx.x * steps * 8 * blockDim.x;
  unsigned sum = 0;
  __syncthreads();
  long long ns = mb_ns(), begin = mb_clock();
  for (int pass = 0; pass < passes; ++pass) {
    for (int s = 0; s < steps; ++s) {
      uint4* at = mine + (long long)s * 8 * blockDim.x + threadIdx.x;
      if (store) {
        for (int i = 0; i < 8; ++i) {
          const unsigned w =
              (unsigned)((at - (uint4*)data + i * blockDim.x) * 4) * MB_FACTOR + MB_SUMMAND + store;
          at[i * blockDim.x] = make_uint4(w, w + MB_FACTOR, w + 2 * MB_FACTOR, w + 3 * MB_FACTOR);
        }
      } else {
        uint4 got[8];
        #pragma unroll
        for (int i = 0; i < 8; ++i)
          asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                       : "=r"(got[i].x), "=r"(got[i].y), "=r"(got[i].z), "=r"(got[i].w)
                       : "l"(at + i * blockDim.x) : "memory");
        #pragma unroll
        for (int i = 0; i < 8; ++i) sum += got[i].x + got[i].y + got[i].z + got[i].w;
      }
    }
  }
  __syncthreads();
  long long end = mb_clock();
  if (!store) mb_sum(out, sum);
  if (threadIdx.x == 0) mb_times(out, begin, end, ns, mb_ns());
}
""", threads=_THREADS)  # fmt: skip


def latency(rig: Rig) -> Samples:
    """A load that waits for the one before: from the L2 cache, and from memory.

    No line of memory is loaded twice, and other memory has gone through the L2 cache in between.
    """
    far = max(8, 6 * rig.l2_bytes // ROW_BYTES)
    starts = itertools.count()
    for name, rows, stride in (("L2 hit", 1 << 13, 96), ("DRAM", far, 32 * 4099)):
        missing = name == "DRAM"
        steps = rig.steps(2000)
        words = rows * _WORDS
        stride = stride % words

        def take(steps=steps, stride=stride, words=words, missing=missing) -> float:
            if missing:
                flush(rig, max(2, rig.steps(6 * rig.l2_bytes // BOX_BYTES)))
            start = 64 * next(starts) % words if missing else 0
            at = (start + np.arange(steps, dtype=np.int64) * stride) % words
            total = sum(sum_of_words(int(one), 1) for one in at) % 2**32
            data = rig.filled(words // _WORDS)
            parameters = [steps, 0, stride, words // _WORDS, start]
            out = rig.launch(CHASE, parameters, 1, data)
            rig.check("chases", out.sums, np.array([total]))
            return float(out.cycles[0]) / steps

        yield name, rig.sample(take)


def _sweep(rig: Rig, ctas: int, bytes_: float, passes: int, store: int) -> list[float]:
    """Bytes per cycle of all CTAs together that go over so many bytes, ``passes`` times."""
    steps = max(1, rig.steps(int(bytes_) // (ctas * _STEP)))
    passes = rig.steps(passes)
    rows = ctas * steps * _STEP // ROW_BYTES
    data = rig.filled(rows)

    def take() -> float:
        out = rig.launch(SWEEP, [steps, passes, store], ctas, data)
        if not store:
            words = steps * _STEP // 4
            sums = [passes * sum_of_words(cta * words, words) % 2**32 for cta in range(ctas)]
            rig.check("sweeps", out.sums, np.array(sums))
        return ctas * passes * steps * _STEP / float(np.median(out.cycles))

    return rig.sample(take)


def _check_stores(rig: Rig) -> None:
    """What threads store is what the host finds."""
    rows, moved = _STEP // ROW_BYTES, 77
    data = rig.put(np.full((rows, ROW_BYTES // 2), np.nan, np.float16))
    rig.launch(SWEEP, [1, 1, moved], 1, data)
    words = (np.arange(rows * _WORDS, dtype=np.uint64) * 2654435761 + 12345 + moved) % 2**32
    rig.check("stores", rig.get(data).view(np.uint32).ravel(), words.astype(np.uint32))


def bandwidth(rig: Rig) -> Samples:
    """Bytes that threads move in a cycle. Stores change what memory holds."""
    _check_stores(rig)
    near, far = rig.l2_bytes / 4, 12 * rig.l2_bytes
    for kind, store in (("reads", 0), ("writes", 1 << 16)):
        yield f"{kind}, one SM, L2", _sweep(rig, 1, near / 8, 4, store)
        # One CTA an SM: registers leave no place for two, and the second would wait for the first.
        yield f"{kind}, all SMs, L2", _sweep(rig, rig.sms, near, 10, store)
        yield f"{kind}, all SMs, DRAM", _sweep(rig, rig.sms, far, 1, store)
    rig.forget()


MEASUREMENTS = (
    Measurement(
        "load-latency", "cycles", "a thread's load after a load", (CHASE, COPIES[256]), latency
    ),
    Measurement(
        "thread-bandwidth", "bytes/cycle", "loads and stores of threads", (SWEEP,), bandwidth
    ),
)

"""Stores of chunks: from registers through shared memory by TMA, or by threads."""

from __future__ import annotations

import numpy as np

from warploom_bench.machine.device_code import FACTOR, SUMMAND
from warploom_bench.machine.measurement import Measurement, Samples
from warploom_bench.machine.probe import ROW_BYTES, Probe
from warploom_bench.machine.rig import Rig

_ROWS = 64
_BYTES = _ROWS * ROW_BYTES
#: Bits of the parameter that says what a step does.
WRITE, PUBLISH, TMA, THREADS = 1, 2, 4, 8

SOURCE = r"""
MB_PROBE {
  const int steps = p[0], what = p[1], each = p[2], pitch = p[3];
  unsigned char* ring = mb_aligned(raw);
  const unsigned t = threadIdx.x;
  auto value = [&](int box, int piece) {
    const unsigned w = (unsigned)(box * 2048 + piece * 4) * MB_FACTOR + MB_SUMMAND;
    return make_uint4(w, w + MB_FACTOR, w + 2 * MB_FACTOR, w + 3 * MB_FACTOR);
  };
  if (!(what & 1) && (what & 4)) {
    // What is stored again and again: box 0, twice.
    for (int piece = t; piece < 1024; piece += 128) {
      const int row = piece / 8 % 64, column = piece % 8 ^ row % 8;
      *(uint4*)(ring + piece / 512 * 8192 + row * 128 + column * 16) = value(0, piece % 512);
    }
    mb_fence_async();
  }
  __syncthreads();
  long long ns = mb_ns(), begin = mb_clock();
  for (int s = 0; s < steps; ++s) {
    const int box = blockIdx.x * each + s;
    unsigned char* place = ring + s % 2 * 8192;
    if (what & 1) {
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int piece = i * 128 + t, row = piece / 8, column = piece % 8 ^ row % 8;
        *(uint4*)(place + row * 128 + column * 16) = value(box, piece);
      }
    }
    if (what & 2) {
      mb_fence_async();
      mb_named(1, 128);
    }
    if ((what & 4) && t == 0) {
      mb_store_box(mb_address(place), map, 0, box * 64);
      mb_commit();
      mb_wait_read<1>();
    }
    __syncwarp();
    if (what & 2) mb_named(2, 128);
    if (what & 8) {
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int piece = i * 128 + t;
        unsigned char* row = (unsigned char*)data + (long long)(box * 64 + piece / 8) * pitch;
        *(uint4*)(row + piece % 8 * 16) = value(box, piece);
      }
    }
  }
  long long issued = mb_clock();
  if ((what & 4) && t == 0) mb_wait_stores();
  __syncthreads();
  long long end = mb_clock();
  if (t == 0) {
    mb_times(out, begin, end, ns, mb_ns());
    out[blockIdx.x * MB_SLOTS + 6] = issued;
  }
}
"""

#: Lines of a row that lies across lines: seven of eight rows take two.
CROSSING_LINES = 1.875
#: Rows that begin with a line of 128 bytes, and rows of which seven of eight lie in two lines.
ALIGNED = Probe("store", SOURCE, shared=2 * _BYTES, box=_ROWS)
CROSSING = Probe("store-crossing", SOURCE, shared=2 * _BYTES, box=_ROWS, pitch=ROW_BYTES + 16)
#: Boxes of the first 8 rows of each 64: a step as before, with few bytes.
_FEW_ROWS = 8
SMALL = Probe("store-small", SOURCE, shared=2 * _BYTES, box=_FEW_ROWS)


def _check(rig: Rig, probe: Probe, what: int) -> None:
    """Six boxes, which two CTAs store, in memory of NaNs: more than a ring has places."""
    boxes, width = 6, probe.pitch // 2
    data = rig.put(np.full((boxes * _ROWS, width), np.nan, np.float16))
    rig.launch(probe, [3, what, 3, probe.pitch], 2, data)
    words = (np.arange(boxes * _BYTES // 4, dtype=np.uint64) * FACTOR + SUMMAND) % 2**32
    expected = words.astype(np.uint32).reshape(boxes * _ROWS, ROW_BYTES // 4)
    if not what & WRITE and what & TMA:
        expected = np.tile(expected[:_ROWS], (boxes, 1))
    found = np.ascontiguousarray(rig.get(data)[:, : ROW_BYTES // 2]).view(np.uint32)
    stored = np.arange(boxes * _ROWS) % _ROWS < (probe.box if what & TMA else _ROWS)
    rig.check(f"{probe.name} {what}", found[stored], expected[stored])
    rest = found[~stored].view(np.float16)
    rig.check("what is not stored", np.isnan(rest), np.full(rest.shape, True))
    after = rig.get(data)[:, ROW_BYTES // 2 :]
    rig.check("what lies between rows", np.isnan(after), np.full(after.shape, True))


def _cycles(rig: Rig, probe: Probe, what: int, ctas: int, bytes_: float) -> list[float]:
    """Cycles of a step in a set of so many bytes: each CTA stores boxes of its own, each once."""
    each = max(1, rig.steps(int(bytes_) // _BYTES // ctas))
    steps = rig.steps(min(4000, each))
    data = rig.scratch(ctas * each * _ROWS, probe.pitch // 2)

    def take() -> float:
        out = rig.launch(probe, [steps, what, each, probe.pitch], ctas, data)
        return float(np.median(out.cycles)) / steps

    return rig.sample(take)


def chunk(rig: Rig) -> Samples:
    """A chunk of 64 rows of 128 bytes that a warpgroup stores, and the parts of that.

    An SM stores 32 bytes in a cycle: bytes alone take most of the time of whole chunks. What a
    chunk takes beside them is that of a chunk of 8 rows.
    """
    near = rig.l2_bytes / 4
    for name, probe, what in (
        ("registers, shared memory, TMA", ALIGNED, WRITE | PUBLISH | TMA),
        ("fences, barriers, TMA", ALIGNED, PUBLISH | TMA),
        ("fences, barriers, TMA of 8 rows", SMALL, PUBLISH | TMA),
        ("shared memory alone", ALIGNED, WRITE), ("threads", ALIGNED, THREADS),
    ):  # fmt: skip
        if what & (TMA | THREADS):
            _check(rig, probe, what)
        yield name, _cycles(rig, probe, what, 1, near)


def bandwidth(rig: Rig) -> Samples:
    """Bytes that one thread's TMA stores move in a cycle."""
    _check(rig, ALIGNED, TMA)
    near, far = rig.l2_bytes / 2, 6 * rig.l2_bytes
    for name, ctas, size in (
        ("one SM, L2", 1, near),
            ("all SMs, L2", rig.sms, near),
            ("all SMs, DRAM", rig.sms, far),
    ):  # fmt: skip
        cycles = _cycles(rig, ALIGNED, TMA, ctas, size)
        yield name, [ctas * _BYTES / one for one in cycles]


def partial(rig: Rig) -> Samples:
    """How much longer stores take whose rows of 128 bytes lie in 1.875 lines instead of one."""
    near, far = rig.l2_bytes / 2, 6 * rig.l2_bytes
    for path, what in (("TMA", TMA), ("threads", THREADS)):
        _check(rig, CROSSING, what)
        for where, ctas, size in (
            ("one SM, L2", 1, near),
            ("all SMs, L2", rig.sms, near),
            ("all SMs, DRAM", rig.sms, far),
        ):  # fmt: skip
            whole = _cycles(rig, ALIGNED, what, ctas, size)
            crossing = _cycles(rig, CROSSING, what, ctas, size)
            yield f"{path}, {where}", [b / a for a, b in zip(whole, crossing, strict=True)]


MEASUREMENTS = (
    Measurement("store-chunk", "cycles", "8 KB that a warpgroup stores", (ALIGNED, SMALL), chunk),
    Measurement("store-bandwidth", "bytes/cycle", "stores by TMA", (ALIGNED,), bandwidth),
    Measurement(
        "partial-lines", "ratio", "stores of rows across lines, to rows of whole lines",
        (ALIGNED, CROSSING), partial,
    ),
)  # fmt: skip

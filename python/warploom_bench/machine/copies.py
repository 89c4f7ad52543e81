"""Loads by TMA: the probe, and which boxes CTAs load; ``loads.py`` measures with them.

One thread of each CTA requests boxes of 128-byte rows, as many at a time as its ring has places.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np

from warploom_bench.machine.probe import ROW_BYTES, Probe
from warploom_bench.machine.rig import FILL, Out, Rig, sum_of_words

_WORDS = ROW_BYTES // 4
#: Bytes of a ring: most of the shared memory of an SM.
RING = 192 * 1024
#: Bytes of a usual box.
BOX_BYTES = 64 * ROW_BYTES
#: Place of ``out`` with the time of the first arrival.
FIRST = 6

SOURCE = r"""
MB_PROBE {
  const int steps = mb_uniform(p[0]), check = p[1], places = mb_uniform(p[2]);
  const int boxes = p[4], box_bytes = mb_uniform(p[9]), together = mb_uniform(p[11]);
  unsigned char* ring = mb_aligned(raw);
  __shared__ unsigned long long full[32];
  if (threadIdx.x == 0) {
    for (int i = 0; i < places; ++i) mb_barrier_init(mb_address(full + i), 1);
    mb_barriers_ready();
  }
  // All divisions come before the loop, in which a row is the one before and a summand.
  const int rows = mb_uniform(box_bytes / 128), span = boxes * rows;
  const int group = (blockIdx.x + p[10]) % gridDim.x / p[6];
  const int low = p[8] * rows + p[7], high = low + span;
  const int more = p[3] * together * rows, stage = mb_uniform(together * box_bytes);
  const int inner = mb_uniform(p[3] ? rows : 0);
  int row = low + (int)((long long)group * p[5] % boxes) * rows;
  const unsigned base = mb_address(ring), barriers = mb_address(full);
  const unsigned end_barrier = mb_uniform(barriers + 8 * places);
  auto request = [&](unsigned to, unsigned barrier) {
    mb_expect(barrier, stage);
    int at = __shfl_sync(1u, row, 0);  // lane 0 is alone here
    #pragma unroll 4
    for (int i = 0; i < together; ++i) {
      mb_load_box(to, map, 0, at, barrier);
      to += box_bytes;
      at += inner;
    }
    row += more;
    if (row >= high) row -= span;
  };
  __syncthreads();
  unsigned sum = 0;
  long long ns = mb_ns(), begin = mb_clock(), first = 0;
  if (check) {
    for (int s = 0; s < steps; ++s) {
      const int at = s % places;
      if (threadIdx.x == 0) request(base + at * stage, barriers + 8 * at);
      mb_wait(barriers + 8 * at, s / places % 2);
      const unsigned* words = (const unsigned*)(ring + at * stage);
      for (int i = threadIdx.x; i < stage / 4; i += blockDim.x) sum += words[i];
      __syncthreads();
    }
    mb_sum(out, sum);
  } else if (threadIdx.x == 0) {
    const int ahead = min(places, steps);
    for (int s = 0; s < ahead; ++s) request(base + s * stage, barriers + 8 * s);
    mb_wait(barriers, 0);
    first = mb_clock();
    unsigned to = base, barrier = barriers;
    int parity = 0;
    #pragma unroll 1
    for (int left = steps - ahead; left > 0; --left) {
      mb_wait(barrier, parity);
      request(to, barrier);
      to += stage;
      barrier += 8;
      if (barrier == end_barrier) { to = base; barrier = barriers; parity ^= 1; }
    }
    for (int s = 0; s < ahead; ++s) {
      mb_wait(barrier, parity);
      barrier += 8;
      if (barrier == end_barrier) { barrier = barriers; parity ^= 1; }
    }
  }
  if (threadIdx.x == 0) {
    mb_times(out, begin, mb_clock(), ns, mb_ns());
    out[blockIdx.x * MB_SLOTS + 6] = first;
  }
}
"""

#: By the rows of a box.
COPIES = {
    rows: Probe(f"copy-{rows}", SOURCE, threads=128, shared=RING, box=rows) for rows in (8, 64, 256)
}
#: Boxes of rows that lie across lines: seven of eight rows take two.
CROSSING = Probe("copy-crossing", SOURCE, threads=128, shared=RING, box=256, pitch=ROW_BYTES + 16)
#: Fills the memory of these rows.
FILL_CROSSING = Probe("fill-crossing", FILL.source, threads=FILL.threads, pitch=CROSSING.pitch)


@dataclass(frozen=True)
class Plan:
    """Which boxes the CTAs load.

    Attributes
    ----------
    steps : int
        Stages of a CTA.
    boxes : int
        Of the set; steps that begin beyond its end begin again.
    places : int
        Stages that are requested at a time.
    rows : int
        Of a box.
    stride : int
        Stages from one step to the next; with 0, all boxes of a CTA are the same.
    spread : int
        Boxes from one group of CTAs to the next.
    readers : int
        CTAs of a group: all load the same boxes at the same time.
    shift : int
        Rows by which boxes are moved; beyond the end of memory rows are zeros.
    begin : int
        First box of the set.
    later : int
        CTA ``i`` loads what CTA ``i + later`` would.
    together : int
        Boxes of a stage, which have one barrier: a wait costs as much for many as for one.
    """

    steps: int
    boxes: int
    places: int = 1
    rows: int = 64
    stride: int = 1
    spread: int = 0
    readers: int = 1
    shift: int = 0
    begin: int = 0
    later: int = 0
    together: int = 1

    def __post_init__(self) -> None:
        assert min(self.steps, self.boxes, self.places, self.readers, self.together) >= 1
        assert self.places * self.stage_bytes <= RING and self.places <= 32
        # Rows are ints in the probe, and a step goes over the end of the set at most once.
        assert (self.begin + self.touched) * self.rows < 2**31
        assert 0 <= self.stride * self.together <= self.boxes

    @property
    def box_bytes(self) -> int:
        """Bytes of a box."""
        return self.rows * ROW_BYTES

    @property
    def touched(self) -> int:
        """Boxes of the set, and those behind it which belong to a stage that begins in it."""
        return self.boxes + (self.together - 1 if self.stride else 0)

    @property
    def stage_bytes(self) -> int:
        """Bytes of a stage."""
        return self.together * self.box_bytes

    def parameters(self, check: bool) -> list[int]:
        """Of the probe."""
        return [self.steps, check, self.places, self.stride, self.boxes, self.spread,
                self.readers, self.shift, self.begin, self.box_bytes, self.later,
                self.together]  # fmt: skip

    def order(self, ctas: int, steps: int) -> list[list[int]]:
        """The boxes that each CTA loads in its first steps."""
        found = []
        for cta in range(ctas):
            start = (cta + self.later) % ctas // self.readers * self.spread
            found.append([
                self.begin + inner * bool(self.stride)
                + (start + step * self.stride * self.together) % self.boxes
                for step, inner in itertools.product(range(steps), range(self.together))
            ])  # fmt: skip
        return found

    def sums(self, ctas: int, rows: int) -> np.ndarray:
        """What each CTA should have loaded, added up; memory has so many rows."""
        found = []
        for boxes in self.order(ctas, self.steps):
            total = 0
            for box in boxes:
                first = box * self.rows + self.shift
                count = max(0, min(rows - first, self.rows))
                total += sum_of_words(first * _WORDS, count * _WORDS)
            found.append(total % 2**32)
        return np.array(found)


def run(rig: Rig, plan: Plan, ctas: int, check: bool = False) -> Out:
    """Execute a plan once; with ``check`` its sums are compared, and its times mean nothing."""
    rows = (plan.begin + plan.touched) * plan.rows
    data = rig.filled(rows)
    out = rig.launch(COPIES[plan.rows], plan.parameters(check), ctas, data)
    if check:
        rig.check(f"copies {plan}", out.sums, plan.sums(ctas, rig.filled_rows))
    return out


def cycles_across_lines(rig: Rig, plan: Plan, ctas: int) -> list[float]:
    """Samples of the cycles of a box in the median CTA, of rows that lie across lines."""
    assert plan.rows == CROSSING.box and plan.together == 1 and not plan.shift
    rows, words = plan.touched * plan.rows, CROSSING.pitch // 4
    data = rig.scratch(rows, CROSSING.pitch // 2)
    rig.launch(FILL_CROSSING, [rows * CROSSING.pitch // ROW_BYTES], 4 * rig.sms, data)

    def run_once(steps: int, check: bool) -> Out:
        short = replace(plan, steps=steps)
        return rig.launch(CROSSING, short.parameters(check), ctas, data)

    places = plan.order(ctas, 2)
    sums = [
        sum(sum_of_words((box * plan.rows + row) * words, _WORDS)
            for box in boxes for row in range(plan.rows)) % 2**32
        for boxes in places
    ]  # fmt: skip
    rig.check(f"copies across lines {plan}", run_once(2, True).sums, np.array(sums))
    return rig.sample(lambda: float(np.median(run_once(plan.steps, False).cycles)) / plan.steps)


def checked(rig: Rig, plan: Plan, ctas: int) -> Plan:
    """The plan, after a short one of its kind has been checked."""
    short = Plan(**{**vars(plan), "steps": min(plan.steps, 12)})
    run(rig, short, min(ctas, 4 * plan.readers), check=True)
    return plan


#: A ring that is full of large boxes: a request takes about 100 cycles of a thread, and a box of
#: 32 KB four times as many of an SM.
LARGE = 256
STREAM = {"places": 6, "rows": LARGE}
#: A ring of boxes of 8 KB, for sets that are divided among all SMs: each of them receives 8 KB in
#: more than 200 cycles then.
FINE = {"places": 20, "rows": 64}


def boxes_of(rig: Rig, bytes_: float, rows: int = 64) -> int:
    """Boxes of a set of so many bytes; few if steps are."""
    return max(2, rig.steps(int(bytes_) // (rows * ROW_BYTES)))


def beyond_l2(rig: Rig) -> int:
    """Bytes that the L2 cache cannot keep any of."""
    return 6 * rig.l2_bytes


def cycles_of_a_box(rig: Rig, plan: Plan, ctas: int) -> list[float]:
    """Samples of the cycles of a box in the median CTA, by a plan that is checked first."""
    checked(rig, plan, ctas)
    boxes = plan.steps * plan.together
    return rig.sample(lambda: float(np.median(run(rig, plan, ctas).cycles)) / boxes)


def sweep(rig: Rig, boxes: int, ring: dict[str, int] = STREAM, passes: int = 1,
           later: int = 0, begin: int = 0) -> Plan:  # fmt: skip
    """A plan of which all CTAs go over a set, each over boxes of its own, ``passes`` times."""
    each = max(1, boxes // rig.sms)
    return Plan(rig.steps(passes * each), boxes, spread=each, later=later, begin=begin, **ring)


def flush(rig: Rig, boxes: int) -> None:
    """Fill the L2 cache with the second half of twice ``boxes`` boxes."""
    large = max(1, boxes * 64 // LARGE)
    rig.filled(2 * boxes * 64)
    run(rig, sweep(rig, large, begin=large), rig.sms)

"""Loads by TMA: latency, bandwidth of one SM and of all, what L2 keeps, CTAs that share lines.

One thread of each CTA requests boxes of 128-byte rows, as many at a time as its ring has places.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warploom_bench.machine.measurement import Measurement, Samples
from warploom_bench.machine.probe import ROW_BYTES, Probe
from warploom_bench.machine.rig import Out, Rig, sum_of_words

_WORDS = ROW_BYTES // 4
#: Bytes of a ring: most of the shared memory of an SM.
_RING = 192 * 1024
#: Place of ``out`` with the time of the first arrival.
_FIRST = 6

SOURCE = r"""
MB_PROBE {
  const int steps = p[0], check = p[1], places = p[2], stride = p[3], boxes = p[4], spread = p[5];
  const int readers = p[6], shift = p[7], begin_box = p[8], box_bytes = p[9], later = p[10];
  unsigned char* ring = mb_aligned(raw);
  __shared__ unsigned long long full[32];
  const int group = (blockIdx.x + later) % gridDim.x / readers;
  const long long start = begin_box + (long long)group * spread;
  if (threadIdx.x == 0) {
    for (int i = 0; i < places; ++i) mb_barrier_init(mb_address(full + i), 1);
    mb_barriers_ready();
  }
  __syncthreads();
  const unsigned base = mb_address(ring), barriers = mb_address(full);
  auto row = [&](int s) {
    return (int)((begin_box + (start - begin_box + (long long)s * stride) % boxes) *
                 (box_bytes / 128)) + shift;
  };
  auto request = [&](int s, int at) {
    mb_expect(barriers + 8 * at, box_bytes);
    mb_load_box(base + at * box_bytes, map, 0, row(s), barriers + 8 * at);
  };
  unsigned sum = 0;
  long long ns = mb_ns(), begin = mb_clock(), first = 0;
  if (check) {
    for (int s = 0; s < steps; ++s) {
      if (threadIdx.x == 0) request(s, s % places);
      mb_wait(barriers + 8 * (s % places), s / places % 2);
      const unsigned* words = (const unsigned*)(ring + s % places * box_bytes);
      for (int i = threadIdx.x; i < box_bytes / 4; i += blockDim.x) sum += words[i];
      __syncthreads();
    }
    mb_sum(out, sum);
  } else if (threadIdx.x == 0) {
    for (int s = 0; s < places && s < steps; ++s) request(s, s);
    int at = 0, parity = 0;
    for (int s = 0; s < steps; ++s) {
      mb_wait(barriers + 8 * at, parity);
      if (s == 0) first = mb_clock();
      if (s + places < steps) request(s + places, at);
      if (++at == places) { at = 0; parity ^= 1; }
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
    rows: Probe(f"copy-{rows}", SOURCE, threads=128, shared=_RING, box=rows)
    for rows in (8, 64, 256)
}


@dataclass(frozen=True)
class Plan:
    """Which boxes the CTAs load.

    Attributes
    ----------
    steps : int
        Boxes of a CTA.
    boxes : int
        Of the set; steps beyond its end begin again.
    places : int
        Boxes that are requested at a time.
    rows : int
        Of a box.
    stride : int
        Boxes from one step to the next.
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

    def __post_init__(self) -> None:
        assert min(self.steps, self.boxes, self.places, self.readers) >= 1
        assert self.places * self.box_bytes <= _RING and self.places <= 32

    @property
    def box_bytes(self) -> int:
        """Bytes of a box."""
        return self.rows * ROW_BYTES

    def parameters(self, check: bool) -> list[int]:
        """Of the probe."""
        return [self.steps, check, self.places, self.stride, self.boxes, self.spread,
                self.readers, self.shift, self.begin, self.box_bytes, self.later]  # fmt: skip

    def sums(self, ctas: int, rows: int) -> np.ndarray:
        """What each CTA should have loaded, added up; memory has so many rows."""
        found = []
        for cta in range(ctas):
            start = (cta + self.later) % ctas // self.readers * self.spread
            total = 0
            for step in range(self.steps):
                box = self.begin + (start + step * self.stride) % self.boxes
                first = box * self.rows + self.shift
                count = max(0, min(rows - first, self.rows))
                total += sum_of_words(first * _WORDS, count * _WORDS)
            found.append(total % 2**32)
        return np.array(found)


def run(rig: Rig, plan: Plan, ctas: int, check: bool = False) -> Out:
    """Execute a plan once; with ``check`` its sums are compared, and its times mean nothing."""
    rows = (plan.begin + plan.boxes) * plan.rows
    data = rig.filled(rows)
    out = rig.launch(COPIES[plan.rows], plan.parameters(check), ctas, data)
    if check:
        rig.check(f"copies {plan}", out.sums, plan.sums(ctas, rig.filled_rows))
    return out


def checked(rig: Rig, plan: Plan, ctas: int) -> Plan:
    """The plan, after a short one of its kind has been checked."""
    short = Plan(**{**vars(plan), "steps": min(plan.steps, 12)})
    run(rig, short, min(ctas, 4 * plan.readers), check=True)
    return plan


def _boxes(rig: Rig, bytes_: float, rows: int = 64) -> int:
    """Boxes of a set of so many bytes; few if steps are."""
    return max(2, rig.steps(int(bytes_) // (rows * ROW_BYTES)))


def _beyond_l2(rig: Rig) -> int:
    """Bytes that the L2 cache cannot keep any of."""
    return 6 * rig.l2_bytes


def _cycles_of_a_step(rig: Rig, plan: Plan, ctas: int) -> list[float]:
    checked(rig, plan, ctas)
    return rig.sample(lambda: float(np.median(run(rig, plan, ctas).cycles)) / plan.steps)


def latency(rig: Rig) -> Samples:
    """One box after the other: from the request to its arrival."""
    for rows in COPIES:
        hit = Plan(rig.steps(256), boxes=_boxes(rig, 1 << 18, rows), rows=rows)
        yield f"L2 hit, {rows} rows", _cycles_of_a_step(rig, hit, 1)
    cold = _boxes(rig, _beyond_l2(rig))
    # Boxes far from each other, each of them once until memory has been read: none is in L2.
    missing = Plan(rig.steps(256), boxes=cold, stride=min(37, cold - 1))
    yield "DRAM, 64 rows", [_after_flush(rig, missing, cold) for _ in range(rig.effort.repeats)]


def _after_flush(rig: Rig, plan: Plan, boxes: int) -> float:
    """Cycles of a step when the L2 cache holds other memory."""
    flush(rig, boxes)
    return float(run(rig, plan, 1).cycles[0]) / plan.steps


def flush(rig: Rig, boxes: int) -> None:
    """Fill the L2 cache with the second half of twice ``boxes`` boxes."""
    each = -(-boxes // rig.sms)
    rig.filled(2 * boxes * 64)
    run(rig, Plan(rig.steps(each), boxes, places=16, spread=each, begin=boxes), rig.sms)


def loaded_latency(rig: Rig) -> Samples:
    """All SMs at once, a stage of 32 KB at a time: the latency while the L2 cache works."""
    plan = Plan(rig.steps(200), _boxes(rig, rig.l2_bytes / 4, 256), rows=256, spread=3)
    yield "32 KB stages, L2", _cycles_of_a_step(rig, plan, rig.sms)


def first(rig: Rig) -> Samples:
    """From the beginning of a kernel to its first box, whose line is in the L2 cache."""
    plan = Plan(rig.steps(4), boxes=4, places=2, spread=1)
    checked(rig, plan, 1)

    def take(ctas: int) -> float:
        out = run(rig, plan, ctas).values
        return float(np.median(out[:, _FIRST] - out[:, 0]))

    yield "one SM", rig.sample(lambda: take(1))
    yield "all SMs", rig.sample(lambda: take(rig.sms))


def fill(rig: Rig) -> Samples:
    """The first stage of all SMs from a cold L2 cache, in that of a warm one."""
    boxes = _boxes(rig, _beyond_l2(rig))
    plan = Plan(4, boxes, places=4, spread=4)
    checked(rig, plan, rig.sms)
    ratios = []
    for _ in range(rig.effort.repeats):
        flush(rig, boxes)
        cold = np.median(run(rig, plan, rig.sms).cycles)
        warm = np.median(run(rig, plan, rig.sms).cycles)
        ratios.append(float(cold / warm))
    yield "cold to warm", ratios


def bandwidth(rig: Rig) -> Samples:
    """Bytes that arrive in a cycle of an SM, of one SM and of all."""
    hit = Plan(rig.steps(4000), _boxes(rig, rig.l2_bytes / 4), places=20, spread=29)
    for where, ctas in (("one SM, L2", 1), ("all SMs, L2", rig.sms)):
        cycles = _cycles_of_a_step(rig, hit, ctas)
        yield where, [ctas * hit.box_bytes / one for one in cycles]
    far = _boxes(rig, 12 * rig.l2_bytes)
    each = max(1, far // rig.sms)
    one = Plan(rig.steps(1000), far, places=20)
    checked(rig, one, 1)
    samples = []
    for _ in range(rig.effort.repeats):
        flush(rig, min(far, _boxes(rig, _beyond_l2(rig))))
        samples.append(one.box_bytes * one.steps / float(run(rig, one, 1).cycles[0]))
    yield "one SM, DRAM", samples
    sweep = Plan(rig.steps(each), far, places=20, spread=each)
    cycles = _cycles_of_a_step(rig, sweep, rig.sms)
    yield "all SMs, DRAM", [rig.sms * sweep.box_bytes / one for one in cycles]


def dram_rate(rig: Rig) -> Samples:
    """Bytes that memory delivers in a microsecond, by the timer: its clock is not the SMs'."""
    far = _boxes(rig, 12 * rig.l2_bytes)
    each = max(1, far // rig.sms)
    plan = Plan(rig.steps(each), far, places=20, spread=each)
    checked(rig, plan, rig.sms)

    def take() -> float:
        out = run(rig, plan, rig.sms)
        ns = max(1, int(out.end_ns.max() - out.begin_ns.min()))
        return rig.sms * plan.steps * plan.box_bytes / ns * 1e3

    yield "reads", rig.sample(take)


#: Sizes of sets in parts of what the driver calls the capacity of the L2 cache.
_PARTS = (0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0)


def capacity(rig: Rig) -> Samples:
    """Bytes a cycle when all SMs read a set again and again, by the size of the set."""
    for part in _PARTS:
        boxes = _boxes(rig, part * rig.l2_bytes)
        each = max(1, boxes // rig.sms)
        plan = Plan(rig.steps(4 * each), boxes, places=20, spread=each)
        cycles = _cycles_of_a_step(rig, plan, rig.sms)
        yield f"{part:.2f} of L2", [rig.sms * plan.box_bytes / one for one in cycles]


def halves(rig: Rig) -> Samples:
    """How slow the second readers of lines are, between L2 hits (0) and memory (1).

    An H100's L2 cache has two halves, each with a copy of what its SMs read: the first reader of
    the other half waits for memory, or for the first half.
    """
    boxes = _boxes(rig, rig.l2_bytes / 6)
    far = _boxes(rig, _beyond_l2(rig))
    each = max(1, boxes // rig.sms)

    def take(later: int) -> float:
        flush(rig, far)
        times = []
        for turn in (0, later, later):
            plan = Plan(rig.steps(each), boxes, places=20, spread=each, later=turn)
            out = run(rig, plan, rig.sms)
            times.append(float(out.end_ns.max() - out.begin_ns.min()))
        cold, second, warm = times
        return min(1.0, max(0.0, second - warm) / (cold - warm)) if cold > warm else 0.0

    checked(rig, Plan(rig.steps(each), boxes, places=20, spread=each, later=1), rig.sms)
    turns = [1 + turn * rig.sms // (rig.effort.repeats + 1) for turn in range(rig.effort.repeats)]
    yield "second readers", [take(turn) for turn in turns]


#: CTAs that load the same boxes at the same time.
_READERS = (1, 2, 4, 8, 16, 32, 64)


def same_line(rig: Rig) -> Samples:
    """Cycles of a box of 8 KB by the SMs that read it at a time: of all SMs, and of fewer."""
    readers = [one for one in _READERS if one < rig.sms]
    boxes = _boxes(rig, rig.l2_bytes / 4)
    for count in [*readers, rig.sms]:
        plan = Plan(rig.steps(1000), boxes, places=8, spread=41, readers=count)
        name = "all" if count == rig.sms else str(count)
        yield f"{name} readers", _cycles_of_a_step(rig, plan, rig.sms)
    for count in readers[::2]:
        for groups in (1, 4, 16):
            if count * groups < rig.sms:
                plan = Plan(rig.steps(1000), boxes, places=8, spread=41, readers=count)
                cycles = _cycles_of_a_step(rig, plan, count * groups)
                yield f"{count} readers of each of {groups} boxes", cycles


def outside(rig: Rig) -> Samples:
    """Cycles of a box of which rows lie beyond the end of the tensor, which are zeros.

    The set is the last box of memory. By the rows that exist, and by the SMs that load.
    """
    rows = rig.filled_rows or 128
    rig.filled(rows)
    last = rig.filled_rows // 64 - 1
    for exist in (64, 32, 8, 0):
        for where, ctas in (("one SM", 1), ("all SMs", rig.sms)):
            plan = Plan(rig.steps(500), 1, places=8, stride=0, shift=64 - exist, begin=last)
            yield f"{exist} of 64 rows, {where}", _cycles_of_a_step(rig, plan, ctas)


def per_box(rig: Rig) -> Samples:
    """Cycles of a box of one SM, by its rows: the part without rows is the TMA unit's."""
    for rows in COPIES:
        plan = Plan(rig.steps(2000), _boxes(rig, 1 << 21, rows), rows=rows,
                    places=min(20, _RING // (rows * ROW_BYTES)))  # fmt: skip
        yield f"{rows} rows", _cycles_of_a_step(rig, plan, 1)


_ALL = tuple(COPIES.values())
_USUAL = (COPIES[64],)

MEASUREMENTS = (
    Measurement("tma-latency", "cycles", "from a request to its arrival", _ALL, latency),
    Measurement(
        "tma-loaded-latency", "cycles", "the same while all SMs load", (COPIES[256],),
        loaded_latency,
    ),
    Measurement("tma-first", "cycles", "a kernel's first box", _USUAL, first),
    Measurement("tma-fill", "ratio", "the first stage, from a cold L2 cache", _USUAL, fill),
    Measurement("tma-per-box", "cycles", "a box of one SM, many at a time", _ALL, per_box),
    Measurement("tma-bandwidth", "bytes/cycle", "what arrives by TMA", _USUAL, bandwidth),
    Measurement("dram-read", "bytes/us", "what memory delivers to all SMs", _USUAL, dram_rate),
    Measurement("l2-capacity", "bytes/cycle", "reading a set again and again", _USUAL, capacity),
    Measurement("l2-halves", "ratio", "second readers of lines, to first ones", _USUAL, halves),
    Measurement("same-line", "cycles", "a box that several CTAs load at a time", _USUAL, same_line),
    Measurement("outside-rows", "cycles", "a box with rows beyond the tensor", _USUAL, outside),
)  # fmt: skip

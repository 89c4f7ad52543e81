"""Loads by TMA: latency, bandwidth of one SM and of all, what L2 keeps, CTAs that share lines.

One thread of each CTA requests boxes of 128-byte rows, as many at a time as its ring has places.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from warploom_bench.machine.measurement import Measurement, Samples
from warploom_bench.machine.probe import ROW_BYTES, Probe
from warploom_bench.machine.rig import Out, Rig, sum_of_words

_WORDS = ROW_BYTES // 4
#: Bytes of a ring: most of the shared memory of an SM.
_RING = 192 * 1024
#: Bytes of a usual box.
BOX_BYTES = 64 * ROW_BYTES
#: Place of ``out`` with the time of the first arrival.
_FIRST = 6

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
    rows: Probe(f"copy-{rows}", SOURCE, threads=128, shared=_RING, box=rows)
    for rows in (8, 64, 256)
}


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
        assert self.places * self.stage_bytes <= _RING and self.places <= 32
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

    def sums(self, ctas: int, rows: int) -> np.ndarray:
        """What each CTA should have loaded, added up; memory has so many rows."""
        found = []
        for cta in range(ctas):
            start = (cta + self.later) % ctas // self.readers * self.spread
            total = 0
            for step, inner in itertools.product(range(self.steps), range(self.together)):
                place = (start + step * self.stride * self.together) % self.boxes
                box = self.begin + place + inner * bool(self.stride)
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


def checked(rig: Rig, plan: Plan, ctas: int) -> Plan:
    """The plan, after a short one of its kind has been checked."""
    short = Plan(**{**vars(plan), "steps": min(plan.steps, 12)})
    run(rig, short, min(ctas, 4 * plan.readers), check=True)
    return plan


#: A ring that is full of large boxes: a request takes about 100 cycles of a thread, and a box of
#: 32 KB four times as many of an SM.
_LARGE = 256
_STREAM = {"places": 6, "rows": _LARGE}


def _boxes(rig: Rig, bytes_: float, rows: int = 64) -> int:
    """Boxes of a set of so many bytes; few if steps are."""
    return max(2, rig.steps(int(bytes_) // (rows * ROW_BYTES)))


def _beyond_l2(rig: Rig) -> int:
    """Bytes that the L2 cache cannot keep any of."""
    return 6 * rig.l2_bytes


def _cycles_of_a_box(rig: Rig, plan: Plan, ctas: int) -> list[float]:
    checked(rig, plan, ctas)
    boxes = plan.steps * plan.together
    return rig.sample(lambda: float(np.median(run(rig, plan, ctas).cycles)) / boxes)


def latency(rig: Rig) -> Samples:
    """One box after the other: from the request to its arrival."""
    for rows in COPIES:
        hit = Plan(rig.steps(256), boxes=_boxes(rig, 1 << 18, rows), rows=rows)
        yield f"L2 hit, {rows} rows", _cycles_of_a_box(rig, hit, 1)
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
    large = max(1, boxes * 64 // _LARGE)
    rig.filled(2 * boxes * 64)
    run(rig, _sweep(rig, large, begin=large), rig.sms)


def loaded_latency(rig: Rig) -> Samples:
    """All SMs at once, a stage of 32 KB at a time: the latency while the L2 cache works."""
    plan = Plan(rig.steps(200), _boxes(rig, rig.l2_bytes / 4, 256), rows=256, spread=3)
    yield "32 KB stages, L2", _cycles_of_a_box(rig, plan, rig.sms)


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
    plan = Plan(4, boxes, places=4, spread=4)  # of one box each
    checked(rig, plan, rig.sms)
    ratios = []
    for _ in range(rig.effort.repeats):
        flush(rig, boxes)
        cold = np.median(run(rig, plan, rig.sms).cycles)
        warm = np.median(run(rig, plan, rig.sms).cycles)
        ratios.append(float(cold / warm))
    yield "cold to warm", ratios


#: CTAs that read a box at about the same time in a GEMM: those of a row or a column of tiles.
_SHARERS = 8


def bandwidth(rig: Rig) -> Samples:
    """Bytes that arrive in a cycle of an SM, of one SM and of all.

    SMs that read the same lines at a time get more than SMs that read different ones: requests for
    a line join on their way to the L2 cache.
    """
    near = _boxes(rig, rig.l2_bytes / 4, _LARGE)
    for where, ctas, readers in (
        ("one SM, L2", 1, 1), ("all SMs, L2", rig.sms, 1),
        (f"all SMs, L2, {_SHARERS} readers", rig.sms, _SHARERS),
    ):  # fmt: skip
        hit = Plan(rig.steps(1000), near, spread=7, readers=readers, **_STREAM)
        cycles = _cycles_of_a_box(rig, hit, ctas)
        yield where, [ctas * hit.box_bytes / one for one in cycles]
    far = _boxes(rig, 12 * rig.l2_bytes, _LARGE)
    one = Plan(rig.steps(250), far, **_STREAM)
    checked(rig, one, 1)
    samples = []
    for _ in range(rig.effort.repeats):
        flush(rig, _boxes(rig, _beyond_l2(rig)))
        samples.append(one.stage_bytes * one.steps / float(run(rig, one, 1).cycles[0]))
    yield "one SM, DRAM", samples
    cycles = _cycles_of_a_box(rig, _sweep(rig, far), rig.sms)
    yield "all SMs, DRAM", [rig.sms * one.box_bytes / each for each in cycles]


def _sweep(rig: Rig, boxes: int, passes: int = 1, later: int = 0, begin: int = 0) -> Plan:
    """All CTAs go over a set of large boxes, each over boxes of its own."""
    each = max(1, boxes // rig.sms)
    return Plan(
        rig.steps(passes * each), boxes, spread=each, later=later, begin=begin, **_STREAM
    )  # fmt: skip


def dram_rate(rig: Rig) -> Samples:
    """Bytes that memory delivers in a microsecond, by the timer: its clock is not the SMs'."""
    plan = _sweep(rig, _boxes(rig, 12 * rig.l2_bytes, _LARGE))
    checked(rig, plan, rig.sms)

    def take() -> float:
        out = run(rig, plan, rig.sms)
        ns = max(1, int(out.end_ns.max() - out.begin_ns.min()))
        return rig.sms * plan.steps * plan.stage_bytes / ns * 1e3

    yield "reads", rig.sample(take)


#: Sizes of sets in parts of what the driver calls the capacity of the L2 cache.
_PARTS = (0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0)


def capacity(rig: Rig) -> Samples:
    """Bytes a cycle when all SMs read a set again and again, by the size of the set."""
    for part in _PARTS:
        plan = _sweep(rig, _boxes(rig, part * rig.l2_bytes, _LARGE), passes=4)
        cycles = _cycles_of_a_box(rig, plan, rig.sms)
        yield f"{part:.2f} of L2", [rig.sms * plan.box_bytes / one for one in cycles]


def halves(rig: Rig) -> Samples:
    """How slow the second readers of lines are, between L2 hits (0) and memory (1).

    An H100's L2 cache has two halves, each with a copy of what its SMs read: the first reader of
    the other half waits for memory, or for the first half.
    """
    boxes = _boxes(rig, rig.l2_bytes / 4, _LARGE)
    far = _boxes(rig, _beyond_l2(rig))

    def take(later: int) -> float:
        flush(rig, far)
        times = []
        for turn in (0, later, later):
            out = run(rig, _sweep(rig, boxes, later=turn), rig.sms)
            times.append(float(out.end_ns.max() - out.begin_ns.min()))
        cold, second, warm = times
        return min(1.0, max(0.0, second - warm) / (cold - warm)) if cold > warm else 0.0

    checked(rig, _sweep(rig, boxes, later=1), rig.sms)
    turns = [1 + turn * rig.sms // (rig.effort.repeats + 1) for turn in range(rig.effort.repeats)]
    yield "second readers", [take(turn) for turn in turns]


#: CTAs that load the same boxes at the same time.
_READERS = (1, 2, 4, 8, 16, 32, 64)


def same_line(rig: Rig) -> Samples:
    """Cycles of a box of 32 KB by the SMs that read it at a time: of all SMs, and of fewer."""
    readers = [one for one in _READERS if one < rig.sms]
    boxes = _boxes(rig, rig.l2_bytes / 4, _LARGE)
    for count in [*readers, rig.sms]:
        plan = Plan(rig.steps(250), boxes, spread=11, readers=count, **_STREAM)
        name = "all" if count == rig.sms else str(count)
        yield f"{name} readers", _cycles_of_a_box(rig, plan, rig.sms)
    for count in readers[::2]:
        for groups in (1, 4, 16):
            if count * groups < rig.sms:
                plan = Plan(rig.steps(250), boxes, spread=11, readers=count, **_STREAM)
                cycles = _cycles_of_a_box(rig, plan, count * groups)
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
            plan = Plan(
                rig.steps(125), 1, places=6, stride=0, shift=64 - exist, begin=last, together=4
            )  # fmt: skip
            yield f"{exist} of 64 rows, {where}", _cycles_of_a_box(rig, plan, ctas)


def per_box(rig: Rig) -> Samples:
    """Cycles of a box of one SM, by its rows: the part without rows is the TMA unit's."""
    for rows in COPIES:
        together = {8: 16, 64: 4, 256: 1}[rows]
        places = min(16, _RING // (rows * ROW_BYTES * together))
        boxes = max(together, _boxes(rig, 1 << 21, rows))
        plan = Plan(rig.steps(500), boxes, places, rows, together=together)
        yield f"{rows} rows", _cycles_of_a_box(rig, plan, 1)


_ALL = tuple(COPIES.values())
_USUAL = (COPIES[64],)
_STREAMED = (COPIES[_LARGE],)

MEASUREMENTS = (
    Measurement("tma-latency", "cycles", "from a request to its arrival", _ALL, latency),
    Measurement(
        "tma-loaded-latency", "cycles", "the same while all SMs load", (COPIES[256],),
        loaded_latency,
    ),
    Measurement("tma-first", "cycles", "a kernel's first box", _USUAL, first),
    Measurement(
        "tma-fill", "ratio", "the first stage, from a cold L2 cache", (*_USUAL, *_STREAMED), fill
    ),
    Measurement("tma-per-box", "cycles", "a box of one SM, many at a time", _ALL, per_box),
    Measurement("tma-bandwidth", "bytes/cycle", "what arrives by TMA", _STREAMED, bandwidth),
    Measurement("dram-read", "bytes/us", "what memory delivers to all SMs", _STREAMED, dram_rate),
    Measurement("l2-capacity", "bytes/cycle", "reading a set again and again", _STREAMED, capacity),
    Measurement("l2-halves", "ratio", "second readers of lines, to first ones", _STREAMED, halves),
    Measurement(
        "same-line", "cycles", "a box that several CTAs load at a time", _STREAMED, same_line
    ),
    Measurement("outside-rows", "cycles", "a box with rows beyond the tensor", _USUAL, outside),
)  # fmt: skip

"""Loads by TMA: latency, bandwidth of one SM and of all, what L2 keeps, CTAs that share lines."""

from __future__ import annotations

import numpy as np

from warploom_bench.machine.copies import (
    COPIES,
    CROSSING,
    FILL_CROSSING,
    FINE,
    FIRST,
    LARGE,
    RING,
    STREAM,
    Plan,
    beyond_l2,
    boxes_of,
    checked,
    cycles_across_lines,
    cycles_of_a_box,
    flush,
    run,
    sweep,
)
from warploom_bench.machine.measurement import Measurement, Samples
from warploom_bench.machine.probe import ROW_BYTES
from warploom_bench.machine.rig import Rig


def latency(rig: Rig) -> Samples:
    """One box after the other: from the request to its arrival."""
    for rows in COPIES:
        hit = Plan(rig.steps(256), boxes=boxes_of(rig, 1 << 18, rows), rows=rows)
        yield f"L2 hit, {rows} rows", cycles_of_a_box(rig, hit, 1)
    cold = boxes_of(rig, beyond_l2(rig))
    # Boxes far from each other, each of them once until memory has been read: none is in L2.
    missing = Plan(rig.steps(256), boxes=cold, stride=min(37, cold - 1))
    yield "DRAM, 64 rows", [_after_flush(rig, missing, cold) for _ in range(rig.effort.repeats)]


def _after_flush(rig: Rig, plan: Plan, boxes: int) -> float:
    """Cycles of a step when the L2 cache holds other memory."""
    flush(rig, boxes)
    return float(run(rig, plan, 1).cycles[0]) / plan.steps


def loaded_latency(rig: Rig) -> Samples:
    """All SMs at once, a stage of 32 KB at a time: the latency while the L2 cache works."""
    plan = Plan(rig.steps(200), boxes_of(rig, rig.l2_bytes / 4, 256), rows=256, spread=3)
    yield "32 KB stages, L2", cycles_of_a_box(rig, plan, rig.sms)


def first(rig: Rig) -> Samples:
    """From the beginning of a kernel to its first box, whose line is in the L2 cache."""
    plan = Plan(rig.steps(4), boxes=4, places=2, spread=1)
    checked(rig, plan, 1)

    def take(ctas: int) -> float:
        out = run(rig, plan, ctas).values
        return float(np.median(out[:, FIRST] - out[:, 0]))

    yield "one SM", rig.sample(lambda: take(1))
    yield "all SMs", rig.sample(lambda: take(rig.sms))


def fill(rig: Rig) -> Samples:
    """The first stage of all SMs from a cold L2 cache, in that of a warm one."""
    boxes = boxes_of(rig, beyond_l2(rig))
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
    near = boxes_of(rig, rig.l2_bytes / 4, LARGE)
    for where, ctas, readers in (
        ("one SM, L2", 1, 1), ("all SMs, L2", rig.sms, 1),
        (f"all SMs, L2, {_SHARERS} readers", rig.sms, _SHARERS),
    ):  # fmt: skip
        hit = Plan(rig.steps(1000), near, spread=7, readers=readers, **STREAM)
        cycles = cycles_of_a_box(rig, hit, ctas)
        yield where, [ctas * hit.box_bytes / one for one in cycles]
    for where, readers in (("", 1), (f", {_SHARERS} readers", _SHARERS)):
        hit = Plan(rig.steps(1000), near, spread=7, readers=readers, **STREAM)
        cycles = cycles_across_lines(rig, hit, rig.sms)
        yield f"all SMs, L2, across lines{where}", [rig.sms * hit.box_bytes / c for c in cycles]
    far = boxes_of(rig, 12 * rig.l2_bytes, LARGE)
    one = Plan(rig.steps(250), far, **STREAM)
    checked(rig, one, 1)
    samples = []
    for _ in range(rig.effort.repeats):
        flush(rig, boxes_of(rig, beyond_l2(rig)))
        samples.append(one.stage_bytes * one.steps / float(run(rig, one, 1).cycles[0]))
    yield "one SM, DRAM", samples
    cycles = cycles_of_a_box(rig, sweep(rig, far), rig.sms)
    yield "all SMs, DRAM", [rig.sms * one.box_bytes / each for each in cycles]


def dram_rate(rig: Rig) -> Samples:
    """Bytes that memory delivers in a microsecond, by the timer: its clock is not the SMs'."""
    plan = sweep(rig, boxes_of(rig, 12 * rig.l2_bytes, LARGE))
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
        plan = sweep(rig, boxes_of(rig, part * rig.l2_bytes), FINE, passes=4)
        cycles = cycles_of_a_box(rig, plan, rig.sms)
        yield f"{part:.2f} of L2", [rig.sms * plan.box_bytes / one for one in cycles]


def halves(rig: Rig) -> Samples:
    """How slow the second readers of lines are, between L2 hits (0) and memory (1).

    An H100's L2 cache has two halves, each with a copy of what its SMs read: the first reader of
    the other half waits for memory, or for the first half.
    """
    boxes = boxes_of(rig, rig.l2_bytes / 4)
    far = boxes_of(rig, beyond_l2(rig))

    def take(later: int) -> float:
        flush(rig, far)
        times = []
        for turn in (0, later, later):
            out = run(rig, sweep(rig, boxes, FINE, later=turn), rig.sms)
            times.append(float(out.end_ns.max() - out.begin_ns.min()))
        cold, second, warm = times
        return min(1.0, max(0.0, second - warm) / (cold - warm)) if cold > warm else 0.0

    checked(rig, sweep(rig, boxes, FINE, later=1), rig.sms)
    turns = [1 + turn * rig.sms // (rig.effort.repeats + 1) for turn in range(rig.effort.repeats)]
    yield "second readers", [take(turn) for turn in turns]


#: CTAs that load the same boxes at the same time.
_READERS = (1, 2, 4, 8, 16, 32, 64)


def same_line(rig: Rig) -> Samples:
    """Cycles of a box of 32 KB by the SMs that read it at a time: of all SMs, and of fewer."""
    readers = [one for one in _READERS if one < rig.sms]
    boxes = boxes_of(rig, rig.l2_bytes / 4, LARGE)
    for count in [*readers, rig.sms]:
        plan = Plan(rig.steps(250), boxes, spread=11, readers=count, **STREAM)
        name = "all" if count == rig.sms else str(count)
        yield f"{name} readers", cycles_of_a_box(rig, plan, rig.sms)
    for count in readers[::2]:
        for groups in (1, 4, 16):
            if count * groups < rig.sms:
                plan = Plan(rig.steps(250), boxes, spread=11, readers=count, **STREAM)
                cycles = cycles_of_a_box(rig, plan, count * groups)
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
            yield f"{exist} of 64 rows, {where}", cycles_of_a_box(rig, plan, ctas)


def per_box(rig: Rig) -> Samples:
    """Cycles of a box of one SM, by its rows: the part without rows is the TMA unit's."""
    for rows in COPIES:
        together = {8: 16, 64: 4, 256: 1}[rows]
        places = min(16, RING // (rows * ROW_BYTES * together))
        boxes = max(together, boxes_of(rig, 1 << 21, rows))
        plan = Plan(rig.steps(500), boxes, places, rows, together=together)
        yield f"{rows} rows", cycles_of_a_box(rig, plan, 1)


_ALL = tuple(COPIES.values())
_USUAL = (COPIES[64],)
_STREAMED = (COPIES[LARGE],)

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
    Measurement(
        "tma-bandwidth", "bytes/cycle", "what arrives by TMA",
        (*_STREAMED, CROSSING, FILL_CROSSING), bandwidth,
    ),
    Measurement("dram-read", "bytes/us", "what memory delivers to all SMs", _STREAMED, dram_rate),
    Measurement("l2-capacity", "bytes/cycle", "reading a set again and again", _USUAL, capacity),
    Measurement(
        "l2-halves", "ratio", "second readers of lines, to first", (*_USUAL, *_STREAMED), halves
    ),
    Measurement(
        "same-line", "cycles", "a box that several CTAs load at a time", _STREAMED, same_line
    ),
    Measurement("outside-rows", "cycles", "a box with rows beyond the tensor", _USUAL, outside),
)  # fmt: skip

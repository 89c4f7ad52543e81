"""``wgmma`` by shape, type and place of A; and the SM's clock while tensor cores work."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from warploom_bench.machine.launches import EMPTY
from warploom_bench.machine.measurement import Measurement, Samples
from warploom_bench.machine.mma_text import KINDS, WIDTHS, Kind, source
from warploom_bench.machine.probe import ROW_BYTES, Probe
from warploom_bench.machine.rig import Out, Rig

_M, _WIDEST = 64, 256
#: Instructions of a step: a K of 128 bytes.
_OF_A_STEP = 4
#: Rows of memory: A of two warpgroups, B, and D behind them.
_OPERAND_ROWS = 2 * _M + _WIDEST


def _probe(name: str, registers: bool, warpgroups: int) -> Probe:
    place = "rs" if registers else "ss"
    return Probe(
        f"mma-{name}-{place}-{warpgroups}", source(KINDS[name], registers),
        threads=128 * warpgroups, shared=_OPERAND_ROWS * ROW_BYTES,
    )  # fmt: skip


#: (type, A in registers, warpgroups) -> probe.
PROBES = {
    (name, registers, warpgroups): _probe(name, registers, warpgroups)
    for name in KINDS
    for registers in (False, True)
    for warpgroups in (1, 2)
}


def operands(kind: Kind, seed: int = 1) -> np.ndarray:
    """Small integers, whose products every type sums exactly: rows of 128 bytes, as float16."""
    values = np.random.default_rng(seed).integers(-2, 3, (_OPERAND_ROWS, ROW_BYTES // kind.bytes))
    dtype = (
        kind.name if kind.name in ("float16", "float32", "int8") else getattr(ml_dtypes, kind.name)
    )
    return values.astype(dtype).view(np.uint8).reshape(_OPERAND_ROWS, -1).view(np.float16)


def result(kind: Kind, rows: np.ndarray, width: int, warpgroup: int, steps: int) -> np.ndarray:
    """D of a warpgroup, as its threads hold it: [128, width / 2]."""
    dtype = (
        kind.name if kind.name in ("float16", "float32", "int8") else getattr(ml_dtypes, kind.name)
    )
    values = np.ascontiguousarray(rows).view(np.uint8).view(dtype).astype(np.float64)
    a, b = values[warpgroup * _M : (warpgroup + 1) * _M], values[2 * _M : 2 * _M + width]
    product = steps * (a @ b.T)
    thread, i = np.meshgrid(np.arange(128), np.arange(width // 2), indexing="ij")
    row = thread // 32 * 16 + thread % 32 // 4 + 8 * (i // 2 % 2)
    return product[row, i // 4 * 8 + thread % 4 * 2 + i % 2]


def check(rig: Rig, kind: Kind, probe: Probe, width: int, steps: int = 3) -> None:
    """D after a few steps, of all threads, in memory of NaNs."""
    rows, warpgroups = operands(kind), probe.threads // 128
    behind = np.full(
        (probe.threads * width * 2 // ROW_BYTES + 1, ROW_BYTES // 2), np.nan, np.float16
    )
    data = rig.put(np.concatenate([rows, behind]))
    rig.launch(probe, [steps, width, 1], 1, data)
    found = rig.get(data)[_OPERAND_ROWS:].reshape(-1).view(np.uint16)
    dtype = np.int32 if kind.integer else np.float32
    found = found.view(dtype)[: probe.threads * width // 2].reshape(probe.threads, -1)
    expected = np.concatenate([result(kind, rows, width, wg, steps) for wg in range(warpgroups)])
    rig.check(f"{probe.name} of width {width}", found.astype(np.float64), expected)


def _cycles(rig: Rig, kind: Kind, probe: Probe, width: int, ctas: int) -> list[float]:
    """Cycles of an instruction of each warpgroup."""
    steps, data = rig.steps(512), rig.put(operands(kind))

    def take() -> float:
        out = rig.launch(probe, [steps, width, 0], ctas, data)
        return float(np.median(out.cycles)) / (steps * _OF_A_STEP)

    return rig.sample(take)


def rates(name: str) -> Measurement:
    """The measurement of a type."""
    probes = {key[1:]: one for key, one in PROBES.items() if key[0] == name}

    def run(rig: Rig) -> Samples:
        for (registers, warpgroups), probe in probes.items():
            for width in WIDTHS:
                check(rig, KINDS[name], probe, width)
                place = "rs" if registers else "ss"
                case = f"{place} n={width}, {warpgroups} warpgroup" + "s" * (warpgroups > 1)
                yield case, _cycles(rig, KINDS[name], probe, width, 1)

    what = f"m64nNk{32 // KINDS[name].bytes} of {name} operands, each warpgroup's"
    return Measurement(f"wgmma-{name}", "cycles", what, tuple(probes.values()), run)


#: Steps of a window of about 33 us, and of one of about a millisecond. A step takes about 1024
#: cycles: four instructions of 128 cycles and two warpgroups.
_SHORT, _LONG, _STEP_CYCLES = 64, 2048, 1024
#: Short windows, which come first: power may throttle a GPU within a millisecond.
_SHORTS = 48


def _windows(rig: Rig) -> tuple[list[float], list[float]]:
    """Cycles in a microsecond of SMs whose tensor cores are busy, and when, in microseconds.

    One launch after another, so that the GPU's power rises as it does in a long kernel.
    """
    probe, kind = PROBES["f16", False, 2], KINDS["f16"]
    random = np.random.default_rng(2).standard_normal((_OPERAND_ROWS, ROW_BYTES // 2))
    data = rig.put(random.astype(np.float16))
    check(rig, kind, probe, _WIDEST)
    count = max(4, int(rig.effort.long_ms * 1e3 / (_LONG * _STEP_CYCLES / 1980)))
    steps = [*[_SHORT] * min(_SHORTS, rig.effort.steps), *[_LONG] * count]
    outs = rig.launch_row(probe, [[rig.steps(one), _WIDEST, 0] for one in steps], rig.sms, data)
    begin = outs[0].begin_ns.min()
    return [_rate(out) for out in outs], [float(out.end_ns.max() - begin) / 1e3 for out in outs]


def _rate(out: Out) -> float:
    """Cycles in a microsecond of the median SM."""
    return float(np.median(1e3 * out.cycles / np.maximum(1, out.end_ns - out.begin_ns)))


#: Nanoseconds that threads spin, until the clock is that of a GPU that works.
_LIGHT_NS = 2_000_000


def _light(rig: Rig) -> float:
    """The clock while a warpgroup of each SM reads a timer: power is far below its limit."""
    out = rig.launch(EMPTY, [min(_LIGHT_NS, rig.effort.steps), 1 << 30], rig.sms)
    rig.check("a light kernel", out.sums, np.full(rig.sms, EMPTY.threads))
    return _rate(out)


def clock(rig: Rig) -> Samples:
    """The clock of a light kernel, and of tensor cores that begin to work and that have worked."""
    yield "light kernel", rig.sample(lambda: _light(rig))
    rates, _ = _windows(rig)
    # The first window may see an idle GPU's clock rise.
    yield "first windows", rates[1:6]
    yield "last windows", rates[-max(1, len(rates) // 16) :]


def fall(rig: Rig) -> Samples:
    """How soon the clock falls from that of a light kernel."""
    light = rig.sample(lambda: _light(rig))
    rates, times = _windows(rig)
    yield "half of the way", [half_time(times, rates, max(light))]


def half_time(times: list[float], rates: list[float], light: float = 0.0) -> float:
    """When rates have come half of the way from the first to the last; 0 if they do not fall.

    Parameters
    ----------
    times, rates : list of float
        Ends of windows, and the clock in them.
    light : float
        The clock before them, if it was measured: the fall may be over within one window.
    """
    first, last = max(rates[:6]), float(np.median(rates[-max(1, len(rates) // 16) :]))
    begin, since = (0, 0.0) if light > first else (rates.index(first), times[rates.index(first)])
    first = max(first, light)
    if last >= 0.99 * first:
        return 0.0
    return next(
        time - since
        for time, rate in zip(times[begin:], rates[begin:], strict=True)
        if rate <= (first + last) / 2
    )


MEASUREMENTS = (
    *map(rates, KINDS),
    Measurement(
        "clock", "cycles/us", "the SMs' clock, also while tensor cores are busy",
        (PROBES["f16", False, 2], EMPTY), clock,
    ),
    Measurement(
        "clock-fall", "us", "until the clock falls because of the power; 0 if it does not",
        (PROBES["f16", False, 2], EMPTY), fall,
    ),
)  # fmt: skip

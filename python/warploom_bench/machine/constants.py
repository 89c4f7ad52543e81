"""Which constants of the cost model follow from which readings, and how.

Each constant of :class:`warploom.decide.machine.Machine` has a row: a function of the readings, or
the reason why no measurement gives it. ``tests/bench/test_machine_constants.py`` holds the table
against the fields of that class.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from warploom_bench.machine.bounds import implausible
from warploom_bench.machine.measurement import Reading
from warploom_bench.machine.mma_text import WIDTHS
from warploom_bench.machine.stores import CROSSING_LINES

#: Multiply-adds of an instruction of float16 for each of its columns, and bytes of its K.
_PER_COLUMN, _K_BYTES = 64 * 16, 32
#: "never", in microseconds, as JSON can say it.
_NEVER = 1e12


class Implausible(Exception):
    """A constant would follow from a reading that cannot be true."""


class Values(Mapping[str, float]):
    """Values of readings by their keys, and the facts of the GPU by their names.

    A reading outside of its bounds raises :class:`Implausible` when it is asked for.
    """

    def __init__(self, readings: Sequence[Reading], facts: Mapping[str, float]) -> None:
        self._values = {**{one.key: one.value for one in readings}, **facts}
        sms = int(facts["sms"])
        self._implausible = {one.key for one in readings if implausible(one, sms)}

    def __getitem__(self, key: str) -> float:
        if key in self._implausible:
            raise Implausible(key)
        return self._values[key]

    def __iter__(self):
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def cases(self, name: str) -> dict[str, float]:
        """Values of a measurement by their cases."""
        return {
            key.removeprefix(f"{name} "): self[key]
            for key in self._values
            if key.startswith(f"{name} ")
        }

    def microseconds(self, key: str) -> float:
        """A reading in cycles, in microseconds of a GPU that power does not throttle."""
        return max(0.0, self[key]) / self["clock light kernel"]


@dataclass(frozen=True)
class Constant:
    """A constant of the cost model.

    Attributes
    ----------
    field : str
        Of ``Machine``.
    measurements : tuple of str
        That it follows from; empty if there is none.
    value : callable or None
        Values of the readings -> the constant.
    why : str
        How it follows; or why it does not.
    """

    field: str
    measurements: tuple[str, ...]
    value: Callable[[Values], float] | None
    why: str

    def __post_init__(self) -> None:
        assert self.field and self.why
        assert bool(self.measurements) == (self.value is not None)


def _is(field: str, measurement: str, case: str, why: str) -> Constant:
    return Constant(field, (measurement,), lambda v: max(0.0, v[f"{measurement} {case}"]), why)


def _time(field: str, measurement: str, case: str, why: str) -> Constant:
    names = (measurement, "clock")
    return Constant(field, names, lambda v: v.microseconds(f"{measurement} {case}"), why)


def _none(field: str, why: str) -> Constant:
    return Constant(field, (), None, why)


def _rows_across_lines(v: Values) -> float:
    whole, crossing = (v[f"tma-bandwidth all SMs, L2{where}"] for where in ("", ", across lines"))
    return whole / crossing


def _tensor_bytes(v: Values) -> float:
    cycles = v["wgmma-f16 ss n=256, 2 warpgroups"]
    return round(2 * 256 * _PER_COLUMN * 2 / cycles)


def _shared_bytes(v: Values) -> float:
    return round(2 * (64 + 8) * _K_BYTES / v["wgmma-f16 ss n=8, 2 warpgroups"])


def _l2_capacity(v: Values) -> float:
    """The size of the set at which the rate has fallen half of the way from L2's to memory's."""
    rates = sorted((float(case.split()[0]), rate) for case, rate in v.cases("l2-capacity").items())
    half = (rates[0][1] + rates[-1][1]) / 2
    for (size, rate), (larger, lower) in itertools.pairwise(rates):
        if rate >= half > lower:
            return (size + (larger - size) * (rate - half) / (rate - lower)) * v["l2_bytes"]
    return rates[-1][0] * v["l2_bytes"]


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the line nearest to points, but not below 0."""
    xs, ys = zip(*points, strict=True)
    return max(0.0, statistics.linear_regression(xs, ys).slope) if len({*xs}) > 1 else 0.0


#: SMs that share a box from which on their requests join.
_MANY_READERS = 8


def _same_line(v: Values) -> float:
    """Of boxes that many SMs share: those of few take as long as distinct lines."""
    points = []
    for case, cycles in v.cases("same-line").items():
        if not case.endswith(" readers"):
            continue  # of fewer SMs than all
        count = case.split()[0]
        readers = v["sms"] if count == "all" else float(count)
        if readers < _MANY_READERS:
            continue
        points.append((readers, cycles))
    return _slope(points)


def _narrow(v: Values) -> float:
    """Of widths of 64 and more: below, shared memory is the limit."""
    widest = v["wgmma-f16 rs n=256, 2 warpgroups"]
    points = [
        (1 - width / 256, v[f"wgmma-f16 rs n={width}, 2 warpgroups"] * 256 / (width * widest) - 1)
        for width in WIDTHS
        if width >= 64
    ]
    return _slope(points)


def _issue(v: Values) -> float:
    """What an instruction takes beside its columns: where the line through wide ones begins."""
    widths = [width for width in WIDTHS if width >= 64]
    cycles = [v[f"wgmma-f16 rs n={width}, 1 warpgroup"] for width in widths]
    return max(0.0, statistics.linear_regression(widths, cycles).intercept)


def _wait(v: Values) -> float:
    return max(0.0, v["mainloop MMAs and waits"] - v["mainloop MMAs alone"])


def _part(v: Values) -> float:
    """Without the bytes: 8 KB, less a seventh of what the other 56 KB of 64 KB take."""
    small, large = v["workspace 8 KB, all SMs"], v["workspace 64 KB, all SMs"]
    return max(0.0, small - (large - small) / 7)


def _sum_bytes(v: Values) -> float:
    """What 56 KB take more, from CTA to CTA, less what reading them takes."""
    time, bytes_ = v["workspace 64 KB, all SMs"] - v["workspace 8 KB, all SMs"], 56 * 1024
    cycles = time * v["clock light kernel"]
    return bytes_ / max(1.0, cycles - bytes_ / v["tma-bandwidth one SM, L2"])


def _throttle(v: Values) -> float:
    return max(0.0, v["clock light kernel"] / v["clock last windows"] - 1)


def _throttle_us(v: Values) -> float:
    return v["clock-fall half of the way"] / math.log(2) or _NEVER


def _roles(v: Values) -> float:
    return v.microseconds("roles mbarriers") + v.microseconds("roles registers")


def _self_load(v: Values) -> float:
    return max(0.0, v["mainloop a consumer loads"] - v["mainloop a warp loads"])


def _crossing(case: str) -> Callable[[Values], float]:
    return lambda v: max(0.0, (v[f"partial-lines {case}"] - 1) / (CROSSING_LINES - 1))


def _dsmem(v: Values) -> float:
    barrier = v.microseconds("dsmem-latency barrier of the cluster, 2")
    return 2 * barrier + v.microseconds("dsmem-latency load, cluster of 2")


def _order(where: str) -> Callable[[Values], float]:
    return lambda v: statistics.median(
        value for case, value in v.cases("overlap").items() if case.startswith(where)
    )


CONSTANTS = (
    Constant("gpu", ("tma-bandwidth",), lambda v: v["sms"], "its driver's SMs and L2"),
    _is("clock", "clock", "light kernel", "which power does not throttle"),
    Constant("tensor_bytes", ("wgmma-f16",), _tensor_bytes, "m64n256k16 of two warpgroups"),
    Constant("shared_bytes", ("wgmma-f16",), _shared_bytes, "m64n8k16, which reads most"),
    _is("receive_bytes", "tma-bandwidth", "one SM, L2", "6 boxes of 32 KB at a time"),
    _is("l2_bytes", "tma-bandwidth", "all SMs, L2, 8 readers", "SMs share boxes, as in a GEMM"),
    _is("distinct_bytes", "tma-bandwidth", "all SMs, L2", "each SM has boxes of its own"),
    _none("joining", "how far the CTAs of a kernel drift apart: found on whole kernels"),
    _none("joining_pairs", "the same of clusters of two: found on whole kernels"),
    Constant(
        "crossing", ("tma-bandwidth",), _rows_across_lines, "whole lines to rows that cross lines"
    ),
    Constant("l2_capacity", ("l2-capacity",), _l2_capacity, "where half of the rate is lost"),
    _is("dram_bytes", "dram-read", "reads", "a sweep over twelve times the L2 cache"),
    _is("halves", "l2-halves", "second readers", "their place between a hit and memory"),
    _is("launch", "dependent-launch", "PDL", "kernels of the package are launched so"),
    _is("serial_launch", "dependent-launch", "usual", "the same without PDL"),
    _is("ctas", "cta-skew", "all SMs", "from the first CTA to the last"),
    Constant("roles", ("roles", "clock"), _roles, "mbarriers and setmaxnreg"),
    _none("persistent", "the index arithmetic of the loop: a program's instructions"),
    _time("first_load", "tma-first", "one SM", "with the fetch of the tensor map"),
    _is("fill", "tma-fill", "cold to warm", "four boxes of each SM"),
    _time("latency", "tma-loaded-latency", "32 KB stages, L2", "while all SMs load"),
    _is("copy_cycles", "tma-per-box", "8 rows", "boxes so small that their bytes do not count"),
    Constant("same_line", ("same-line",), _same_line, "the slope over the readers, of 256 rows"),
    _none("outside_rows", "rows beyond the end of a matrix: found on whole kernels"),
    _none("partial_loads", "a sector of a line of four"),
    _none("cut_cycles", "rows that end within a sector: found on whole kernels"),
    Constant("wait_cycles", ("mainloop",), _wait, "of complete phases, less a step without waits"),
    Constant("issue_cycles", ("wgmma-f16",), _issue, "the line over the columns at 0 columns"),
    _is("order_cycles", "named-barrier", "256 threads", "bar.sync of two warpgroups"),
    Constant("narrow", ("wgmma-f16",), _narrow, "the slope over the columns that widths lack"),
    _is("load_cycles", "load-latency", "DRAM", "each load's address is the value of the last"),
    Constant("self_load_cycles", ("mainloop",), _self_load, "less a step with a producer warp"),
    Constant(
        "dequantise_cycles", ("int4-to-f16",), lambda v: 128 / v["int4-to-f16 128 threads"],
        "without the scales, which are multiplications of float16",
    ),
    Constant(
        "dequantise_issue", ("int4-to-f16",),
        lambda v: min(1.0, v["int4-to-f16 128 threads"] / v["int4-to-f16 512 threads"]),
        "the rate of one warpgroup in that of four",
    ),
    _none("dequantise_latency", "a program's loop: found on kernels of one to six warpgroups"),
    _none("skip_instructions", "a program's instructions: counted in machine code"),
    _none("skip_cycles", "a program's loop: found on kernels that share steps"),
    _none("dequantise_first", "not hidden: picked by hand on 14 quantised cases of an H100"),
    _is("element_cycles", "epilogue", "float16", "conversion and stmatrix"),
    Constant(
        "transpose", ("epilogue",),
        lambda v: max(0.0, v["epilogue float16, transposed"] / v["epilogue float16"] - 1),
        "stmatrix with transposition",
    ),
    _is(
        "chunk_cycles", "store-chunk", "fences, barriers, TMA of 8 rows",
        "without the elements, and with few bytes",
    ),
    _is("store_bytes", "store-bandwidth", "one SM, L2", "boxes of 8 KB"),
    _is("l2_store_bytes", "store-bandwidth", "all SMs, L2", "the same"),
    Constant(
        "sum_bytes", ("workspace", "clock", "tma-bandwidth"), _sum_bytes,
        "a tile of 64 KB less one of 8 KB",
    ),
    Constant("partial_lines", ("partial-lines",), _crossing("TMA, one SM, L2"), "for a line more"),
    Constant("partial_lines_dram", ("partial-lines",), _crossing("TMA, all SMs, DRAM"), "the same"),
    _none("kept_inputs", "inputs of earlier launches: found on whole kernels"),
    _none("dram_rows", "rows of a step that lie apart in memory: found on GEMMs of few rows"),
    _none("pair_bytes", "CTAs that are spread unevenly over the SMs: found on GEMMs of few rows"),
    _time("next_cta", "next-cta", "one CTA an SM", "by the SM's own clock"),
    Constant("part", ("workspace",), _part, "a tile without bytes, with its flag"),
    _none("part_each", "waits for the sums of several CTAs: found on kernels of 2 to 16 parts"),
    Constant("dsmem", ("dsmem-latency", "clock"), _dsmem, "two barriers of the cluster and a load"),
    _none("dsmem_each", "waits for several CTAs: found on kernels of 2 to 8 parts"),
    _is("dsmem_bytes", "dsmem-bandwidth", "loads, cluster of 2, all SMs", "loads of 16 bytes"),
    Constant("stream_k", ("workspace",), _part, "sums of stream-K take the same way"),
    _none("stream_k_steps", "the index arithmetic of the loop: a program's instructions"),
    _none("stream_k_bytes", "loads of sums by one warpgroup: found on kernels of stream-K"),
    _none("step_instructions", "a program's instructions: counted in machine code"),
    _none("mma_instructions", "the same"),
    _is("fma_lanes", "fma", "512 threads", "multiply-adds of float32"),
    _is("alu_lanes", "max", "512 threads", "comparisons of float32"),
    _is("mufu_lanes", "ex2", "512 threads", "powers of 2 of float32"),
    Constant(
        "convert_lanes", ("f32-to-f16",), lambda v: v["f32-to-f16 512 threads"] / 2,
        "an instruction makes two float16",
    ),
    _none("reduction_cycles", "with the vectors around a reduction: fitted to attention"),
    Constant("throttle", ("clock",), _throttle, "the light kernel's clock in the last windows'"),
    Constant("throttle_us", ("clock-fall",), _throttle_us, "half of the fall, over ln 2"),
    Constant("overlap", ("overlap",), _order("L2"), "the median over MMAs of a stage"),
    Constant("overlap_dram", ("overlap",), _order("DRAM"), "the same with stages from memory"),
)  # fmt: skip


def constants(readings: Sequence[Reading], facts: Mapping[str, float]) -> dict[str, float]:
    """The constants whose measurements have been made; ``gpu`` is not a number, and not in it.

    A constant of which a reading is implausible is left out: whoever reads them has defaults.

    Parameters
    ----------
    readings : sequence of Reading
    facts : mapping
        ``sms`` and ``l2_bytes``.
    """
    made = {one.name for one in readings}
    values = Values(readings, facts)
    found = {}
    for one in CONSTANTS:
        if one.value is None or one.field == "gpu" or not made.issuperset(one.measurements):
            continue
        with contextlib.suppress(Implausible):
            found[one.field] = one.value(values)
    return found

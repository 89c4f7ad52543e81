"""Timelines: what is recorded, what the records say, and that nothing changes without them."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

from tests.shared import tile_programs
from tests.shared.lowered_programs import exact, hinted, run, worst_error
from warploom import language as wl
from warploom import profile
from warploom.compiler import ptxas_log, sass
from warploom.compiler.hazards import early_accesses
from warploom.compiler.invoke import compile_request, current_request
from warploom.decide import Config
from warploom.errors import IllegalCombination, WarploomError
from warploom.kernels.matmul import matmul_warp_specialised
from warploom.lower.lowerings import lower
from warploom.profile.groups import MAX_CLOCKS, Group, GroupedSpan
from warploom.profile.recording import HEADER_ROWS
from warploom.profile.span_kinds import CATEGORIES
from warploom.profile.streams import outermost
from warploom.profile.timeline import decode
from warploom.profile.trace import trace_events
from warploom.programs import attention, gemm
from warploom.target import cuda_target

STEPS, TILES, CTAS = 5, 6, 4


def case(**hints):
    """A GEMM of six tiles of five steps, computed by four CTAs."""
    one = tile_programs.gemm(192, 128, 32 * STEPS, (64, 64, 32), stages=3)
    return one, hinted(one.func, ctas=CTAS, **hints)


def record(rng, arch="sm_90a", recording=None, **hints):
    """The timeline of :func:`case`, whose result is checked."""
    one, func = case(**hints)
    kernel = profile.instrument(func, recording or profile.Recording(ctas=8), arch)
    arguments = exact(one.arguments(rng))
    *after, records = run(kernel.func, [*map(np.copy, arguments), kernel.records()], arch)
    assert worst_error(one, arguments, after) <= 1
    return kernel.timeline(records, emulated=True)


def counts(timeline, stream, category):
    """Spans of a category in the streams of that name, by CTA."""
    return [
        sum(span.category == category for span in one.spans)
        for one in timeline.streams
        if one.name == stream
    ]


def assert_orderly(timeline):
    """Spans lie in their streams, and one within or after another."""
    for stream in timeline.streams:
        assert stream.begin <= min((s.begin for s in stream.spans), default=stream.begin)
        assert max((s.end for s in stream.spans), default=stream.end) <= stream.end
        ends = [span.end for span in stream.spans]
        assert ends == sorted(ends)
        for span in stream.spans:
            assert span.begin <= span.end and span.category in CATEGORIES
            for other in stream.spans:
                apart = other.end <= span.begin or span.end <= other.begin
                inside = other.begin <= span.begin and span.end <= other.end
                around = span.begin <= other.begin and other.end <= span.end
                assert apart or inside or around


@pytest.mark.gpu
@pytest.mark.parametrize(
    "arch, hints, load, multiply",
    [
        ("sm_90a", {}, "load", "compute"),
        ("sm_90a", {"specialise": False}, "compute", "compute"),
        ("sm_100a", {}, "load", "multiply"),
    ],
)
def test_a_span_for_each_trip(rng, arch, hints, load, multiply):
    timeline = record(rng, arch, **hints)
    tiles = [-(-(TILES - cta) // CTAS) for cta in range(CTAS)]
    assert [one.cta for one in timeline.streams if one.name == load] == list(range(CTAS))
    assert_orderly(timeline)
    trips = [STEPS * count for count in tiles]
    if load != "compute":
        assert counts(timeline, load, "load") == trips
        assert all(a >= b for a, b in zip(counts(timeline, load, "wait"), trips, strict=True))
    assert counts(timeline, "compute", "epilogue") == tiles
    # On Hopper, threads also wait for the last MMA of a tile; on Blackwell, a commit follows.
    assert counts(timeline, multiply, "mma") == [a + b for a, b in zip(trips, tiles, strict=True)]
    if multiply != load:
        waits = counts(timeline, multiply, "wait")
        assert all(a >= b for a, b in zip(waits, trips, strict=True))
    shares = timeline.shares()
    assert all(0 < sum(parts.values()) <= 1 + 1e-9 for parts in shares.values())
    assert f"{sum(len(one.spans) for one in timeline.streams)} spans" in timeline.summary()


@pytest.mark.gpu
def test_what_does_not_fit_is_left_out(rng):
    seed = rng.integers(1 << 30)
    whole, part = (
        record(np.random.default_rng(seed), recording=profile.Recording(8, capacity))
        for capacity in (64, 7)
    )
    for all_spans, first in zip(whole.streams, part.streams, strict=True):
        assert first.full and not all_spans.full
        names = [span.name for span in all_spans.spans]
        assert [span.name for span in first.spans] == names[:7]
        assert first.recorded_until == first.spans[-1].end < first.end
        assert all_spans.recorded_until == all_spans.end
    assert "beginning only" in part.summary()


@pytest.mark.gpu
def test_recorded_ctas_are_spread(rng):
    timeline = record(rng, recording=profile.Recording(ctas=2))
    assert {one.cta for one in timeline.streams} == {0, 2}
    timeline = record(rng, recording=profile.Recording(ctas=3))
    assert {one.cta for one in timeline.streams} == {0, 1, 2}


def by_hand(spans: bool):
    """Two warps; a span within another in the first of them."""
    nothing = T.attr

    def span(name):
        return wl.span(name) if spans else nothing({"pragma_none": 1})

    @T.prim_func
    def kernel(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        T.device_entry()
        T.cta_id([1])
        warp = T.warp_id([2])
        lane = T.lane_id([32])
        value = T.alloc_buffer((64,), "float32", scope="shared")
        for i in T.serial(3):
            with span("outer"):
                with span("wait for the other warp"):
                    T.cuda.cta_sync()
                value[warp * 32 + lane] = A[warp * 32 + lane] + T.Cast("float32", i)
            if warp == 0:
                with span("epilogue"):
                    B[lane] = value[lane]
        B[warp * 32 + lane] = value[warp * 32 + lane]

    return kernel


@pytest.mark.gpu
def test_spans_that_the_author_names(rng):
    kernel = profile.instrument(by_hand(True))
    assert kernel.streams == ("warp 0", "warp 1")
    a = rng.standard_normal(64).astype(np.float32)
    _, b, records = run(kernel.func, [a, np.full_like(a, np.nan), kernel.records()])
    np.testing.assert_array_equal(b, a + 2)
    timeline = kernel.timeline(records, emulated=True)
    assert_orderly(timeline)
    first, second = timeline.streams
    inner, outer = ("wait for the other warp", "wait"), ("outer", "compute")
    pattern = [inner, outer, ("epilogue", "epilogue")]
    assert [(s.name, s.category) for s in first.spans] == 3 * pattern
    assert [(s.name, s.category) for s in second.spans] == 3 * pattern[:2]
    assert [s.name for s in outermost(second.spans)] == 3 * ["outer"]
    for stream in timeline.streams:
        for within, around in zip(stream.spans, stream.spans[1:], strict=False):
            if around.name == "outer":
                assert around.begin <= within.begin and within.end <= around.end


@pytest.mark.gpu
def test_spans_before_a_jump_are_recorded(rng):
    """A trip has more clocks than a record holds; the last one ends after two spans."""
    trips = 3

    @T.prim_func
    def kernel(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
        T.device_entry()
        T.cta_id([1])
        T.warp_id([1])
        lane = T.lane_id([32])
        total = T.alloc_buffer((1,), "float32", scope="local")
        total[0] = 0.0
        for i in T.serial(trips):
            with wl.span("first"):
                total[0] = total[0] + A[lane]
            with wl.span("outer"):
                with wl.span("second"):
                    T.cuda.warp_sync()
                if i == trips - 1:
                    break
                with wl.span("third"):
                    total[0] = total[0] * 2.0
                T.cuda.warp_sync()
                with wl.span("fourth"):
                    total[0] = total[0] * 2.0
                T.cuda.warp_sync()
                with wl.span("fifth"):
                    total[0] = total[0] * 2.0
                T.cuda.warp_sync()
                with wl.span("sixth"):
                    total[0] = total[0] * 2.0
        B[lane] = total[0]

    kernel = profile.instrument(kernel)
    a = rng.standard_normal(32).astype(np.float32)
    _, b, records = run(kernel.func, [a, np.full_like(a, np.nan), kernel.records()])
    factor = 1.0
    for _ in range(trips - 1):
        factor = factor * 16 + 1
    np.testing.assert_allclose(b, a * factor, rtol=1e-6)
    timeline = kernel.timeline(records, emulated=True)
    assert_orderly(timeline)
    names = [span.name for span in timeline.streams[0].spans]
    inner = ["third", "fourth", "fifth", "sixth"]
    assert names == 2 * ["first", "second", *inner, "outer"] + ["first", "second"]
    assert [len(group.spans) for group in kernel.groups] == [2, 3, 2]
    assert all(group.clocks <= MAX_CLOCKS for group in kernel.groups)


@pytest.mark.gpu
def test_a_kernel_by_hand_without_names(rng):
    """Its waits, loads, MMAs and epilogue are found as those of a lowered program."""
    size, steps = 128, 256 // 64
    kernel = profile.instrument(matmul_warp_specialised(size, size, 64 * steps))
    a, b = (rng.standard_normal((size, 64 * steps)).astype(np.float16) for _ in range(2))
    timeline = kernel.emulate([a, b, np.full((size, size), np.nan, np.float32)])
    assert_orderly(timeline)
    found = {one.name: [span.category for span in one.spans] for one in timeline.streams}
    assert found["warp 0"].count("load") == steps
    for warp in range(4, 8):
        assert found[f"warp {warp}"].count("mma") == steps + 1, "and a wait for the last product"
        assert found[f"warp {warp}"][-1] == "epilogue" and "compute" not in found[f"warp {warp}"]
    assert not any(found[f"warp {warp}"] for warp in range(1, 4))


@pytest.mark.parametrize("causal", [False, True])
def test_a_trip_is_two_records(causal):
    """With one clock for two spans that touch; a record has no room for the clocks of all."""
    groups = profile.instrument(attention(1024, causal=causal)).groups
    # The first step, before the loop, waits for Q too.
    (first,) = (
        place for place, group in enumerate(groups) if group.spans[0].name == "wait K_s_full"
    )
    issued, finished = groups[first : first + 2]
    assert issued.clocks == MAX_CLOCKS
    assert [(span.category, span.begin, span.end) for span in issued.spans] == [
        ("wait", 0, 1), ("mma", 1, 2), ("wait", 3, 4), ("mma", 5, 6),
    ]  # fmt: skip
    # Only before the wait for results is a barrier.
    assert [(span.category, span.begin, span.end) for span in finished.spans] == [
        ("compute", 0, 1), ("mma", 2, 3), ("compute", 3, 4),
    ]  # fmt: skip


def source(func, pipeline="warploom") -> str:
    with cuda_target("h200") as target:
        module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
        compiled = tvm.compile(module, target, tir_pipeline=pipeline)
    return compiled.mod.imports[0].inspect_source()


def test_without_a_recording_nothing_is_left():
    """Of spans: the kernel is the one that never had any."""
    plain = source(by_hand(False))
    assert "clock" not in plain
    for pipeline in ("warploom", "tirx"):
        assert source(by_hand(True), pipeline) == plain
    for arch in ("sm_90a", "sm_100a"):
        _, func = case()
        text = lower(func, arch).script()
        assert "warploom.role" not in text and "timeline" not in text


@pytest.mark.parametrize(
    "program",
    [
        gemm(Config(cluster_m=2), 4096, 4096, 4096),
        pytest.param(attention(16384, tile=(128, 160)), marks=pytest.mark.long),
        pytest.param(attention(16384, tile=(128, 96), causal=True), marks=pytest.mark.long),
    ],
)
def test_kernels_that_record_have_room_for_it(machine_code, program):
    """Nothing is spilled, and ptxas serialises no MMAs."""
    with cuda_target("h200"):
        request = current_request(source(profile.instrument(program).func), "cubin")
        output = compile_request(request)
    (kernel,) = ptxas_log.parse(output.log).kernels
    assert kernel.spill_store_bytes == kernel.spill_load_bytes == kernel.frame_bytes == 0
    assert "C75" not in output.log
    text = sass.listing(output.binary)
    assert not early_accesses(text)
    # The clock that ends an MMA is read when the one before is complete.
    order = re.findall(r"(HGMMA)[^;]*gsb0|WARPGROUP\.(DEPBAR)|(SR_CLOCKLO)", text)
    order = ["".join(one) for one in order]
    following = [
        order[i + 1 : i + 3] for i, one in enumerate(order)
        if one == "HGMMA" and order[i + 1] != "HGMMA"
    ]  # fmt: skip
    assert following and all(one == ["DEPBAR", "SR_CLOCKLO"] for one in following)


@pytest.mark.gpu
def test_traces_have_what_perfetto_reads(rng, tmp_path):
    timeline = record(rng)
    path = tmp_path / "trace.json"
    timeline.write(path)
    trace = json.loads(path.read_text())
    assert trace == json.loads(json.dumps(trace_events(timeline)))
    threads = {}
    for event in trace["traceEvents"]:
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        if event["ph"] == "M" and event["name"] == "thread_name":
            threads[event["pid"], event["tid"]] = event["args"]["name"]
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(spans) == sum(len(one.spans) for one in timeline.streams) > 0
    assert len(threads) == len(timeline.streams)
    for event in spans:
        assert (event["pid"], event["tid"]) in threads
        assert event["ts"] >= 0 and event["dur"] >= 0 and event["cat"] in CATEGORIES
    processes = [e for e in trace["traceEvents"] if e["name"] == "process_name"]
    assert len(processes) == CTAS and "SM" in processes[0]["args"]["name"]


def test_records_are_decoded():
    """Clocks that wrap, a rate of 1.5 GHz, a CTA that was not recorded."""
    group = Group(3, (GroupedSpan("wait", "wait", 0, 1), GroupedSpan("load A", "load", 1, 2)))
    single = Group(2, (GroupedSpan("wait", "wait", 0, 1),))
    records = np.zeros((HEADER_ROWS + 4, 2), np.uint64)
    begin, late, junk = (1 << 32) - 600, 300, 77
    words = [
        1000, begin | 8 << 32, 1800, (begin + 1200) % (1 << 32) | 4 << 32 | 5 << 52,
        1 | (begin + 300) << 32, late | late + 1 << 32,
        0 | late + 3 << 32, late + 6 | junk << 32,
    ]  # fmt: skip
    records[:, 1] = np.array(words, np.uint64)
    kinds = [single, group]
    timeline = decode(records, ["load", "compute"], kinds, 4, emulated=False)
    (stream,) = timeline.streams
    assert timeline.gigahertz == 1.5
    assert (stream.name, stream.cta, stream.sm, stream.full) == ("compute", 7, 5, False)
    assert (stream.begin, stream.end) == (0, 800)
    spans = [(s.name, s.category, s.begin, s.end) for s in stream.spans]
    assert spans == [
        ("wait", "wait", 200.0, 600.0), ("load A", "load", 600.0, 600 + 1 / 1.5),
        ("wait", "wait", 602.0, 604.0),
    ]  # fmt: skip
    (stream,) = decode(records, ["load", "compute"], kinds, 2, emulated=False).streams
    assert stream.full and [s.name for s in stream.spans] == ["wait", "load A"]
    assert stream.recorded_until == 600 + 1 / 1.5
    with pytest.raises(WarploomError, match="no record"):
        decode(np.zeros_like(records), ["load", "compute"], kinds, 4, emulated=False)


def test_recordings_that_cannot_be():
    with pytest.raises(IllegalCombination, match="ctas of a recording is 0"):
        profile.Recording(ctas=0)
    with pytest.raises(IllegalCombination, match="of a recording is 65536"):
        profile.Recording(capacity=65536)
    with pytest.raises(IllegalCombination, match="so record less"):
        profile.instrument(case()[1], profile.Recording(1024, 65535))
    with pytest.raises(IllegalCombination, match="''"):
        wl.span("")

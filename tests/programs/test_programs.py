"""The package's tile programs: interpreted, and lowered and executed, against numpy."""

from __future__ import annotations

import itertools
import math
import re

import ml_dtypes
import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax
from tvm.script import tirx as T

from tests.shared import tile_programs
from tests.shared.lowered_programs import exact as few_bits
from warploom import compile_report, emulator
from warploom import language as wl
from warploom.errors import IllegalCombination
from warploom.lower.lowerings import lower
from warploom.lower.trace import lower_trace
from warploom.programs import (
    GemmConfig,
    attention,
    gemm,
    gemm_block_scaled,
    gemm_grouped,
    gemm_grouped_block_scaled,
    gemm_quantised,
)
from warploom.programs.block_scaled_tiles import block_scaled_tiles
from warploom.programs.group_slots import Slot, slots
from warploom.programs.grouped_tiles import grouped_tiles, row_tiles
from warploom.programs.quantised_tiles import quantised_tiles
from warploom.target import cuda_target, default_target

pytestmark = pytest.mark.gpu

NUMPY = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
}


def run(func, arguments):
    """The arrays after the kernel has run."""
    kernel = tvm.compile(tvm.IRModule({"main": func}), default_target()[0], tir_pipeline="warploom")
    device = tvm.cuda(0)
    tensors = [tvm.runtime.tensor(array, device) for array in arguments]
    kernel["main"](*tensors)
    return [tensor.numpy() for tensor in tensors]


CONFIGS = {
    "float16": (GemmConfig(tile_n=128), (300, 200, 328)),
    "bfloat16 NN": (
        GemmConfig(dtype="bfloat16", out_dtype="bfloat16", layout="NN", tile_n=128, cluster=1),
        (129, 136, 64),
    ),
    "float8": (
        GemmConfig(
            dtype="float8_e4m3fn", out_dtype="bfloat16", tile_m=64, tile_n=64, tile_k=128,
            consumers=1, stages=2,
        ),
        (70, 144, 272),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_gemm(name, rng):
    config, (m, n, k) = CONFIGS[name]
    dtype, out = NUMPY[config.dtype], NUMPY[config.out_dtype]
    a = rng.standard_normal((m, k), np.float32).astype(dtype)
    b = rng.standard_normal((n, k) if config.layout == "NT" else (k, n), np.float32).astype(dtype)
    scales = [np.array([0.75], np.float32), np.array([1.25], np.float32)] if config.scaled else []
    c = np.full((m, n), np.nan, np.float32).astype(out)
    func = gemm(config, n, k)
    exact = a.astype(float) @ (b.T if config.layout == "NT" else b).astype(float)
    exact *= math.prod(float(s[0]) for s in scales)
    arguments = [a, b, *scales, c]
    by_kernel = run(func, arguments)[-1].astype(float)
    wl.interpret(func, arguments)
    bound = np.abs(exact).max() * float(ml_dtypes.finfo(out).eps)
    assert np.abs(arguments[-1].astype(float) - exact).max() <= bound
    assert np.abs(by_kernel - exact).max() <= 2 * bound


@pytest.mark.parametrize(
    ("tokens", "head_dim", "heads", "kv_heads", "causal", "tile", "dtype"),
    [
        (100, 64, 2, 1, False, (64, 64), "float16"),
        (257, 128, 1, 1, True, (128, 96), "float16"),
        (64, 64, 4, 2, True, (64, 128), "bfloat16"),
    ],
)
@pytest.mark.some(1)
def test_attention(rng, tokens, head_dim, heads, kv_heads, causal, tile, dtype):
    kind = NUMPY[dtype]
    shapes = [(1, count, tokens, head_dim) for count in (heads, kv_heads, kv_heads)]
    q, k, v = (rng.standard_normal(shape, np.float32).astype(kind) for shape in shapes)
    o = np.full(shapes[0], np.nan, np.float32).astype(kind)
    func = attention(tokens, head_dim, heads, kv_heads, causal=causal, tile=tile, dtype=dtype)
    keys, values = (np.repeat(x.astype(float), heads // kv_heads, axis=1) for x in (k, v))
    logits = q.astype(float) @ keys.swapaxes(2, 3) / math.sqrt(head_dim)
    if causal:
        logits = np.where(np.tri(tokens, dtype=bool), logits, -np.inf)
    weights = np.exp(logits - logits.max(axis=3, keepdims=True))
    exact = weights / weights.sum(axis=3, keepdims=True) @ values
    arguments = [q, k, v, o]
    by_kernel = run(func, arguments)[-1].astype(float)
    wl.interpret(func, arguments)
    bound = np.abs(exact).max() * float(ml_dtypes.finfo(kind).eps)
    assert np.abs(arguments[-1].astype(float) - exact).max() <= bound
    assert np.abs(by_kernel - exact).max() <= 2 * bound


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.some(1)
def test_attention_over_tokens_that_the_launch_counts(rng, causal):
    func = attention(
        None, 64, 4, 2, causal=causal, tile=(64, 128), scale=0.2, tokens_first=True
    )
    for tokens in (1, 20, 130):
        q, k, v = (rng.standard_normal((1, tokens, heads, 64)).astype(np.float16)
                   for heads in (4, 2, 2))  # fmt: skip
        keys, values = (np.repeat(x.astype(float), 2, axis=2) for x in (k, v))
        logits = 0.2 * np.einsum("bihd,bjhd->bhij", q.astype(float), keys)
        if causal:
            logits = np.where(np.tri(tokens, dtype=bool), logits, -np.inf)
        weights = np.exp(logits - logits.max(axis=3, keepdims=True))
        weights /= weights.sum(axis=3, keepdims=True)
        exact = np.einsum("bhij,bjhd->bihd", weights, values)
        o = run(func, [q, k, v, np.full(q.shape, np.nan, np.float16)])[-1].astype(float)
        assert np.abs(o - exact).max() <= np.abs(exact).max() * 2**-9


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        (13, {}),
        (1, {"symbolic": True, "group": 32}),
        (40, {"bits": 8, "tile": (24, 128, 64), "group": 64, "dtype": "bfloat16"}),
        (64, {"order": "natural", "tile": (64, 64, 128), "stages": 2}),
        (8, {"tile": (8, 128, 128), "k": 128, "group": 128, "cluster": (2, 1)}),
        (5, {"tile": None, "stages": None, "k": 768}),
        (70, {"tile": None, "stages": None, "bits": 8}),
        (9, {"tile": None, "stages": None, "n": 200, "k": 3072, "symbolic": True}),
    ],
)
@pytest.mark.some(3)
def test_gemm_quantised(rng, rows, options):
    case = tile_programs.packed(rows, **options)
    arguments = case.arguments(rng)
    (exact,) = case.expected(arguments).values()
    by_kernel = run(case.func, arguments)[-1].astype(float)
    wl.interpret(case.func, arguments)
    bound = np.abs(exact).max() * case.tolerance
    assert np.abs(arguments[-1].astype(float) - exact).max() <= bound
    assert np.abs(by_kernel - exact).max() <= bound


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("m", [None, 1, 17, 500])
@pytest.mark.parametrize(("n", "k"), [(136, 384), (4096, 4096), (8192, 8192), (28672, 4096)])
@pytest.mark.some(8)
def test_tiles_for_small_weights_are_those_of_the_first_lowering(m, n, k, bits):
    tile, stages, hints = quantised_tiles(n, k, m, bits)
    assert k % tile[2] == 0 and stages % hints.get("turns", 1) == 0
    assert tile[0] >= min(m or 1, 64)
    decided = [d for step in lower_trace(gemm_quantised(n, k, m, bits)) for d in step.decisions]
    assert not any("declines" in sentence for sentence in decided)
    assert any(f"{stages} stages" in sentence for sentence in decided)
    turns = [sentence for sentence in decided if sentence.startswith("turns: each of 3")]
    assert bool(turns) == ("turns" in hints)


@pytest.mark.parametrize(
    ("n", "k", "m", "parts"),
    [(4096, 14336, 1, 2), (4096, 14336, 64, 2), (4096, 14336, 65, 1), (6144, 14336, 1, 1),
     (1024, 28672, 1, 8), (1024, 256, 1, 1)],
)  # fmt: skip
def test_few_tiles_of_small_weights_are_cut_so_that_every_part_has_an_sm(n, k, m, parts):
    tile, _, hints = quantised_tiles(n, k, m)
    assert hints.get("split_k", 1) == parts
    assert parts == 1 or parts * -(-n // tile[1]) * -(-m // tile[0]) <= 132


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        (70, {"tile": None}),
        (130, {"n": 200, "k": 336, "tile": (128, 192, 128), "cluster": (2, 1), "stages": 2,
               "order_mmas": True}),
        (300, {"k": 336, "tile": (256, 64, 128), "cluster": (1, 2), "stages": 2,
               "scales_ahead": True, "order_mmas": True, "store_buffers": 2, "ctas": 2}),
        (66, {"k": 336, "tile": (64, 64, 256), "stages": 2, "symbolic": True, "scales_ahead": True,
              "scale_layout": "KM", "out_dtype": "float16", "dtype": "float8_e5m2"}),
    ],
)  # fmt: skip
@pytest.mark.some(1)
def test_gemm_block_scaled(rng, rows, options):
    case = tile_programs.block_scaled(rows, **options)
    arguments = few_bits(case.arguments(rng))
    (exact,) = case.expected(arguments).values()
    by_kernel = run(case.func, arguments)[-1].astype(float)
    wl.interpret(case.func, arguments)
    bound = np.abs(exact).max() * case.tolerance
    assert np.abs(arguments[-1].astype(float) - exact).max() <= bound
    assert np.abs(by_kernel - exact).max() <= bound


@pytest.mark.parametrize("m", [None, 1, 128, 4096])
@pytest.mark.parametrize(("n", "k"), [(136, 400), (2112, 7168), (7168, 16384)])
@pytest.mark.some(3)
def test_tiles_for_block_scales_are_those_of_the_first_lowering(m, n, k):
    tile, stages, hints = block_scaled_tiles(n, k, m)
    decided = [d for step in lower_trace(gemm_block_scaled(n, k, m)) for d in step.decisions]
    assert not any("declines" in sentence for sentence in decided)
    assert any(f": {stages} stages" in sentence for sentence in decided)
    consumers = min(2, tile[0] // 64)
    assert any(f"consumers: {consumers} " in sentence for sentence in decided)
    assert any("no clusters" in sentence for sentence in decided) == (hints["cluster"] == (1, 1))


@pytest.mark.parametrize(
    ("m", "policy", "expected"),
    [(128, None, "evict_first"), (4096, None, ""), (4096, "evict_last", "evict_last")],
)
def test_weights_that_are_read_once_leave_the_cache_first(m, policy, expected):
    script = lower(gemm_block_scaled(2112, 7168, m, weights_policy=policy)).script()
    loads = [line for line in script.splitlines() if "copy_async(" in line and "mbar=" in line]
    of_b = {re.sub(r'.*cache_hint="(\w*)".*|.*', r"\1", one) for one in loads if "(B_s[" in one}
    assert of_b == {expected}
    assert not any("cache_hint" in one for one in loads if "(A_s[" in one)


@pytest.mark.parametrize(
    ("tile", "ahead"),
    [((128, 192, 128), False), *(
        pytest.param(tile, True, marks=pytest.mark.slow)
        for tile in [(128, 192, 128), (128, 128, 256), (256, 128, 128)]
    )],
)  # fmt: skip
def test_largest_tiles_with_block_scales_do_not_spill(machine_code, tile, ahead):
    func = gemm_block_scaled(4096, 7168, tile=tile, stages=2, scales_ahead=ahead)
    report = compile_report(func, cuda_target("sm_90a"))
    (kernel,) = report.kernels
    assert not report.problems
    assert (kernel.spill_store_bytes, kernel.spill_load_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "float16"}, "dtype is 'float16'; block scales are for 8-bit floats"),
        ({"out_dtype": "float32"}, "it must be float16 or bfloat16"),
        ({"n": 100}, "n 100 must be a multiple of 8"),
        ({"k": 136}, "k 136 of 16"),
        ({"scale_layout": "NK"}, "must be one of 'MK', 'KM'"),
        ({"tile": (128, 128, 64)}, "steps of 64 along K; they are one or two blocks"),
        ({"tile": (256, 128, 256)}, "more than 192 rows .* a multiple of 128, in steps of 128"),
    ],
)
def test_impossible_block_scales_are_refused(changes, message):
    with pytest.raises(IllegalCombination, match=message):
        gemm_block_scaled(**{"n": 256, "k": 256, **changes})


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ((0, 0, 5, 0, 127, 1, 128, 64, 0), {
            "n": 200, "tile": (64, 128, 64), "dtype": "bfloat16", "indptr_dtype": "int64",
            "cluster": (1, 2),
        }),
        ((33,), {"dtype": "float8_e4m3fn", "out_dtype": "bfloat16", "tile": None}),
        ((330, 0, 65, 200, 0), {"n": 136, "tile": (64, 64, 32), "group": 2, "ctas": 5}),
        ((3, 260, 1), {"n": 256, "tile": (64, 64, 32), "cluster": (2, 2), "symbolic": True}),
    ],
)  # fmt: skip
@pytest.mark.some(1)
def test_gemm_grouped(rng, sizes, options):
    case = tile_programs.grouped(sizes, **options)
    arguments = few_bits(case.arguments(rng))
    (exact,) = case.expected(arguments).values()
    by_kernel = run(case.func, arguments)[-1].astype(float)
    wl.interpret(case.func, arguments)
    bound = np.abs(exact).max() * case.tolerance
    assert np.abs(arguments[-1].astype(float) - exact).max() <= bound
    assert np.abs(by_kernel - exact).max() <= bound


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("m", [None, 1, 1000, 100000])
@pytest.mark.parametrize(("groups", "n", "k"), [(1, 8, 16), (8, 28672, 4096), (64, 2000, 7168)])
@pytest.mark.some(6)
def test_tiles_for_groups_are_those_of_the_first_lowering(groups, n, k, m, dtype):
    tile, stages = grouped_tiles(groups, n, k, m, dtype, "bfloat16")
    func = gemm_grouped(groups, n, k, m, dtype, "bfloat16")
    decided = [d for step in lower_trace(func) for d in step.decisions]
    assert not any("declines" in sentence for sentence in decided)
    assert any(f": {stages} stages" in sentence for sentence in decided)
    assert any(f"{min(2, tile[0] // 64)} computing" in sentence for sentence in decided)


@pytest.mark.parametrize("mean", [3, 64, 128, 1000])
@pytest.mark.parametrize("rows", [64, 128, 256])
def test_groups_have_about_as_many_tiles_as_expected(rng, mean, rows):
    groups = 1000
    sizes = rng.multinomial(groups * mean, rng.dirichlet(np.ones(groups)))
    needed = int((-(-sizes // rows)).sum())
    # Groups without a row have no tile; the estimate gives every group one.
    empty = int((sizes == 0).sum())
    assert row_tiles(groups, groups * mean, rows) == pytest.approx(needed + empty, rel=0.05)


@pytest.mark.parametrize(("scale_layout", "tile"), [("MK", None), ("KM", (128, 192))])
def test_gemm_grouped_block_scaled(rng, scale_layout, tile):
    sizes, n, k = (40, 0, 1, 130), 200, 272
    m, blocks = sum(sizes), 3
    func = gemm_grouped_block_scaled(
        len(sizes), n, k, m, scale_layout=scale_layout, tile=tile, stages=2
    )
    x, w = (rng.integers(-4, 5, shape) / 2 for shape in ((m, k), (len(sizes), n, k)))
    sx, sw = (rng.uniform(0.5, 2, shape) for shape in ((m, blocks), (len(sizes), 2, blocks)))
    indptr = np.cumsum((0, *sizes))
    exact = np.concatenate([
        (x[first:end] * np.repeat(sx[first:end], 128, 1)[:, :k])
        @ (w[g] * np.repeat(np.repeat(sw[g], 128, 0), 128, 1)[:n, :k]).T
        for g, (first, end) in enumerate(itertools.pairwise(indptr))
    ])  # fmt: skip
    scales = sx if scale_layout == "MK" else sx.T
    arguments = [
        *(one.astype(ml_dtypes.float8_e4m3fn) for one in (x, w)),
        *(np.ascontiguousarray(one, np.float32) for one in (scales, sw)),
        indptr.astype(np.int32), np.full((m, n), np.nan, np.float32).astype(ml_dtypes.bfloat16),
    ]  # fmt: skip
    got = run(func, arguments)[-1].astype(float)
    assert np.abs(got - exact).max() <= np.abs(exact).max() * 2**-8


def test_sizes_of_groups_are_known_on_the_device_alone(rng):
    """One kernel, called from Relax, for any sizes; rows of no group keep what they had."""
    groups, n, k = 5, 72, 64
    rows = tvm.tirx.Var("rows", "int64")
    args = [
        relax.Var(name, relax.TensorType(shape, dtype))
        for name, shape, dtype in (
            ("x", (rows, k), "float16"), ("w", (groups, n, k), "float16"),
            ("indptr", (groups + 1,), "int32"), ("c", (rows, n), "float16"),
        )
    ]  # fmt: skip
    builder = relax.BlockBuilder()
    with builder.function("main", args):
        func = gemm_grouped(groups, n, k, tile=(128, 64, 64), stages=2)
        experts = builder.add_func(func, "experts")
        shape = relax.TensorType((rows, n), "float16")
        call = relax.op.call_tir_inplace(experts, args, 3, shape)
        with builder.dataflow():
            out = builder.emit_output(builder.emit(call))
        builder.emit_func_output(out)
    machine = relax.VirtualMachine(
        relax.build(builder.finalize(), default_target()[0]), tvm.cuda(0)
    )
    for sizes, behind in (((70, 0, 64, 129, 0), 3), ((0,) * groups, 1), ((1, 1, 1, 1, 128), 0)):
        case = tile_programs.grouped(sizes, n, k, behind=behind, symbolic=True)
        arguments = case.arguments(rng)
        (exact,) = case.expected(arguments).values()
        got = machine["main"](*[tvm.runtime.tensor(one, tvm.cuda(0)) for one in arguments])
        bound = np.abs(exact).max() * case.tolerance
        assert np.abs(got.numpy().astype(float) - exact).max() <= bound


@given(st.lists(st.integers(0, 400), min_size=1, max_size=20), st.sampled_from([64, 128]))
def test_groups_have_slots_for_all_of_their_tiles(sizes, rows):
    needed = sum(-(-size // rows) for size in sizes)
    assert needed <= int(slots(sum(sizes), len(sizes), rows))


def found_tiles(groups: int, rows: int, columns: int, band: int, numbers: int) -> tvm.tirx.PrimFunc:
    """Writes the tile of each number: group, first row, rows and column."""

    @T.prim_func
    def kernel(
        indptr: T.Buffer((groups + 1,), "int32"), out: T.Buffer((numbers, 4), "int32")
    ):
        T.device_entry()
        number = T.cta_id([numbers])
        thread = T.thread_id([32])
        tile = Slot(indptr, groups, rows, columns, band)
        tile.find(number)
        if thread == 0:
            out[number, 0] = tile.group
            out[number, 1] = tile.row
            out[number, 2] = tile.count
            out[number, 3] = tile.column

    return kernel


@pytest.mark.parametrize(("rows", "columns", "band"), [(16, 3, 2), (24, 1, 4), (16, 2, 100)])
def test_tiles_of_groups_are_in_order_and_without_gaps(rng, rows, columns, band):
    groups, total = 6, 200
    numbers = int(slots(total, groups, rows)) * columns + 3
    kernel = found_tiles(groups, rows, columns, band, numbers)
    random = [rng.integers(0, total + 1, groups - 1) for _ in range(3)]
    for cuts in ([0, 0, 33, 33, 34], [total] * (groups - 1), *random):
        indptr = np.array([0, *np.sort(cuts), total], np.int32)
        print("indptr", indptr)
        expected = []
        for group, (first, end) in enumerate(itertools.pairwise(indptr.tolist())):
            starts = range(first, end, rows)
            for top in range(0, len(starts), band):
                expected += [
                    [group, start, min(end - start, rows), column]
                    for column in range(columns) for start in starts[top : top + band]
                ]  # fmt: skip
        poisoned = np.full((numbers, 4), -7, np.int32)
        found = emulator.run(kernel, [indptr, poisoned], arch="sm_90a").outputs[1]
        assert found[: len(expected)].tolist() == expected
        assert (found[len(expected) :, 2] == 0).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"groups": 0}, "groups is 0; there must be at least one"),
        ({"k": 100}, "k 100 of float16 are rows of 200 bytes; TMA wants multiples of 16"),
        ({"n": 4}, "n 4 of float16"),
        ({"indptr_dtype": "uint8"}, "must be one of 'int32', 'int64'"),
    ],
)
def test_impossible_groups_are_refused(changes, message):
    with pytest.raises(IllegalCombination, match=message):
        gemm_grouped(**{"groups": 2, "n": 64, "k": 64, **changes})

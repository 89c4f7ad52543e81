"""The package's tile programs: interpreted, and lowered and executed, against numpy."""

from __future__ import annotations

import math
import re

import ml_dtypes
import numpy as np
import pytest
import tvm

from tests.shared import tile_programs
from tests.shared.lowered_programs import exact as few_bits
from warploom import compile_report
from warploom import language as wl
from warploom.decide import Config, choose, plain_gemm
from warploom.decide.families.block_scaled import BlockScaledProblem
from warploom.decide.families.quantised import QuantisedProblem
from warploom.errors import IllegalCombination
from warploom.lower.lowerings import lower
from warploom.lower.trace import lower_trace
from warploom.programs import (
    attention,
    gemm,
    gemm_block_scaled,
    gemm_quantised,
)
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
    "float16": (Config(tile_n=128, cluster_m=2), plain_gemm(300, 200, 328)),
    "bfloat16 NN": (Config(tile_n=128), plain_gemm(129, 136, 64, "bfloat16", layout="NN")),
    "float8": (
        Config(64, 64, 128, stages=2, consumers=1, cluster_m=2),
        plain_gemm(70, 144, 272, "float8_e4m3fn"),
    ),
    "policies": (Config(tile_n=128, l2_policy=2, slice_k=1), plain_gemm(130, 136, 200)),
    "slice-K": (Config(64, 64, 64, stages=4, consumers=1, slice_k=2), plain_gemm(70, 136, 520)),
    "split-K in clusters": (
        Config(64, 64, 64, stages=2, consumers=1, split_k=2, reduce_through="cluster"),
        plain_gemm(70, 136, 520),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_gemm(name, rng):
    config, problem = CONFIGS[name]
    m, n, k, layout = problem.m, problem.n, problem.k, problem.layout
    dtype, out = NUMPY[problem.a_dtype], NUMPY[problem.outputs[0]]
    a = rng.standard_normal((m, k), np.float32).astype(dtype)
    b = rng.standard_normal((n, k) if layout == "NT" else (k, n), np.float32).astype(dtype)
    scales = [np.array([scale], np.float32) for scale in (0.75, 1.25)[: len(problem.inputs)]]
    c = np.full((m, n), np.nan, np.float32).astype(out)
    func = gemm(config, n, k, None, problem.a_dtype, problem.outputs[0], layout)
    exact = a.astype(float) @ (b.T if layout == "NT" else b).astype(float)
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
        (257, 128, 1, 1, False, (192, 80), "float16"),
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
        (5, {"k": 768, "weights_policy": "evict_first"}),
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
    config = choose(QuantisedProblem(m, n, k, bits))
    assert k % config.tile_k == 0 and config.stages % config.slice_k == 0
    decided = [d for step in lower_trace(gemm_quantised(n, k, m, bits)) for d in step.decisions]
    assert not any("declines" in sentence for sentence in decided)
    assert any(f"{config.stages} stages" in sentence for sentence in decided)
    sliced = [sentence for sentence in decided if sentence.startswith("slice_k: each of ")]
    assert bool(sliced) == (config.slice_k > 1)
    assert all(one.startswith(f"slice_k: each of {config.slice_k} ") for one in sliced)


@pytest.mark.parametrize(
    ("n", "k", "m", "cut"),
    [(4096, 14336, 1, True), (4096, 14336, 64, True), (1024, 28672, 1, True),
     (1024, 256, 1, False)],
)  # fmt: skip
def test_few_tiles_of_small_weights_are_cut_so_that_every_part_has_an_sm(n, k, m, cut):
    config = choose(QuantisedProblem(m, n, k))
    assert (config.split_k > 1 or config.stream_k) == cut
    assert not cut or config.split_k * -(-n // config.tile_n) * -(-m // config.tile_m) <= 132


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
    config = choose(BlockScaledProblem(m, n, k))
    decided = [d for step in lower_trace(gemm_block_scaled(n, k, m)) for d in step.decisions]
    assert not any("declines" in sentence for sentence in decided)
    assert any(f": {config.stages} stages" in sentence for sentence in decided)
    consumers = min(2, config.tile_m // 64)
    assert any(f"consumers: {consumers} " in sentence for sentence in decided)
    assert any("no clusters" in sentence for sentence in decided) == (
        config.cluster_m == config.cluster_n == 1
    )


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

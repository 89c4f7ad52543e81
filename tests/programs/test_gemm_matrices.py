"""Which matrices the tile program of a GEMM takes, and with which configs it compiles."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.shared.sampling import either
from warploom import IllegalCombination
from warploom.compiler.report import compile_report
from warploom.decide import Config, choose, plain_gemm
from warploom.programs import compile_gemm, gemm
from warploom.programs.gemm_matrices import DTYPES, OUT_DTYPES, problem_of_matrices
from warploom.schedulers.raster import grouped_tile
from warploom.target import cuda_target

H200 = cuda_target("h200")
BYTES = {"float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}

#: Legal starting points; most of the space around them is illegal. And what is not float16, NT.
BASES = (
    (Config(cluster_m=2), {}),
    (Config(tile_n=128, stages=3, cluster_m=2), {"layout": "NN"}),
    (Config(tile_k=128), {"dtype": "float8_e4m3fn"}),
    (Config(256, 128, 64, 3, cluster_m=2), {}),
    (Config(64, 96, consumers=1, cluster_m=2), {"dtype": "bfloat16"}),
    (Config(16, 128, 256, 2, swap_ab=True), {"layout": "NN"}),
)

CHANGES = {
    "tile_m": st.sampled_from([8, 24, 64, 100, 128, 192, 256, 320]),
    "tile_n": st.sampled_from([32, 64, 96, 100, 128, 160, 192, 224, 256, 320]),
    "tile_k": st.sampled_from([16, 32, 48, 64, 128, 256]),
    "stages": st.integers(1, 8),
    "cluster_m": st.sampled_from([1, 2, 3, 4]),
    "consumers": st.integers(1, 3),
    "group": st.sampled_from([1, 8]),
    "swap_ab": st.booleans(),
    "sms": st.sampled_from([0, 1, 2, 128]),
    "slice_k": st.integers(1, 3),
    "ctas_per_sm": st.integers(1, 2),
    "ping_pong": st.booleans(),
}


@st.composite
def cases(draw) -> tuple[Config, dict]:
    """A legal config with up to four choices replaced, and the kind of its matrices."""
    config, kind = draw(st.sampled_from(BASES))
    for name in draw(st.lists(st.sampled_from(sorted(CHANGES)), max_size=4, unique=True)):
        config = replace(config, **{name: draw(CHANGES[name])})
    return config, kind


@settings(max_examples=200)
@given(cases())
def test_legal_configs_respect_the_hardware(case):
    """The limits are written here again, from the manuals, on purpose."""
    config, kind = case
    problem = plain_gemm(None, 520, 528, **kind)
    assume(config.why_not(problem) is None)
    size = BYTES[problem.a_dtype]
    tiles = config.stages * config.tile_k * (config.tile_m + config.tile_n) * size
    assert (tiles + 16 * config.stages) * config.ctas_per_sm <= 227 * 1024
    rows, columns = config.accumulator
    assert rows % (64 * config.consumers) == 0 and columns % 8 == 0
    assert config.tile_k * size % 32 == 0
    assert config.cluster_m in (1, 2, 4)
    assert config.tile_m <= 256 and config.tile_n <= 256
    accumulators = rows // config.consumers * columns // 128
    groups = config.consumers * config.slice_k * (2 if config.ping_pong else 1)
    assert (accumulators + 40) * 128 * groups * config.ctas_per_sm <= 65536
    assert accumulators + 40 <= 255


@settings(max_examples=200)
@given(cases())
def test_refusals_name_a_choice_and_its_value(case):
    config, kind = case
    reason = config.why_not(plain_gemm(None, 520, 528, **kind))
    if reason is not None:
        assert reason.endswith(".")
        values = config.changed().items() | {("tile_k", config.tile_k), ("stages", config.stages)}
        assert any(name in reason or str(value) in reason for name, value in values)


@settings(max_examples=200)
@given(
    st.sampled_from(DTYPES), st.sampled_from(["NT", "NN"]), st.integers(2, 300),
    st.integers(1, 300), st.booleans(),
)  # fmt: skip
def test_pitches_are_multiples_of_16_bytes(dtype, layout, n, k, swap_ab):
    assume(layout == "NT" or BYTES[dtype] == 2)
    config = Config(16, 128, 64, 4, swap_ab=True) if swap_ab else Config(64, 64, 64, 4, consumers=1)
    pitches = [k * BYTES[dtype], (k if layout == "NT" else n) * BYTES[dtype]]
    pitches += [] if swap_ab else [2 * n]
    if all(pitch % 16 == 0 for pitch in pitches):
        gemm(config, n, k, dtype=dtype, layout=layout)
    else:
        with pytest.raises(IllegalCombination, match=r"multiple of 16, so pad [NK]"):
            gemm(config, n, k, dtype=dtype, layout=layout)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((None, 1, 8), "matrix-vector product"),
        ((8, 0, 8), "N = 0 is not a positive extent"),
        ((8, 8, 0), "K = 0 is not a positive extent"),
        ((8, 8, -8), "K = -8 is not a positive extent"),
        ((0, 8, 8), "M = 0 is not a positive extent"),
    ],
)
def test_extents_that_are_refused(sizes, words):
    with pytest.raises(IllegalCombination, match=words):
        compile_gemm(*sizes)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dtype": "int8"}, "dtype 'int8'"),
        ({"out_dtype": "float32"}, "out_dtype 'float32'"),
        ({"layout": "TN"}, "layout 'TN'"),
        ({"dtype": "float8_e4m3fn", "layout": "NN"}, "K-major only"),
        ({"config": Config(tile_k=24)}, "tile_k = 24"),
        ({"config": Config(stages=5)}, "279552 bytes of shared memory"),
    ],
)
def test_gemm_refuses_what_it_has_no_kernel_for(arguments, words):
    with pytest.raises(IllegalCombination, match=words):
        compile_gemm(None, 256, 256, **arguments)


@settings(max_examples=30, deadline=None)
@given(
    st.one_of(st.none(), st.integers(1, 5000)), st.integers(1, 1000), st.integers(1, 1000),
    st.sampled_from(DTYPES), st.sampled_from(OUT_DTYPES),
)  # fmt: skip
def test_the_model_has_a_config_for_every_gemm(m, n, k, dtype, out_dtype):
    problem = problem_of_matrices(m, 8 * n, 16 * k, dtype, out_dtype, "NT")
    config = choose(problem)
    assert config.why_not(problem) is None
    gemm(config, 8 * n, 16 * k, m, dtype, out_dtype)


@settings(max_examples=200)
@given(st.integers(1, 12), st.integers(1, 9), st.integers(1, 10))
def test_raster_visits_every_tile_once(rows, columns, group):
    places = [
        tuple(int(value) for value in grouped_tile(index, rows, columns, group))
        for index in range(rows * columns)
    ]
    assert sorted(places) == list(itertools.product(range(rows), range(columns)))
    # A group is finished before the next one is begun.
    assert [row // group for row, _ in places] == sorted(row // group for row, _ in places)


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("examples", either([2], [12]))
def test_legal_configs_compile_without_problems(examples):
    settings(max_examples=examples, derandomize=True)(given(cases())(_compiles))()


def _compiles(case):
    config, kind = case
    problem = plain_gemm(None, 520, 528, **kind)
    assume(config.why_not(problem) is None)
    report = compile_report(gemm(config, 520, 528, **kind), H200)
    assert report.problems == ()
    assert report.kernels[0].dynamic_shared_bytes <= config.shared_bytes(problem)


def test_large_kernel_keeps_its_accumulators_in_registers():
    """168 registers at launch are what 384 threads can have; one k tile is 4 x m64n256k16."""
    report = compile_report(gemm(Config(cluster_m=2), 4096, 4096), H200)
    (kernel,) = report.kernels
    assert report.problems == ()
    assert kernel.info.registers == 168 and kernel.info.stack_bytes == 0
    assert kernel.spill_store_bytes == 0 and kernel.spill_load_bytes == 0
    if kernel.sass is not None:
        assert sum(n for op, n in kernel.sass.items() if op.startswith("HGMMA")) % 4 == 0
        assert not any(op.startswith(("LDL", "STL")) for op in kernel.sass)

"""A configuration that exists is legal, and one that is not says why in one sentence."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.shared.sampling import either
from warploom import IllegalCombination
from warploom.compiler.report import compile_report
from warploom.programs import GemmConfig, choose_config, compile_gemm, gemm
from warploom.programs.gemm_config import DTYPES, OUT_DTYPES
from warploom.schedulers.raster import grouped_tile
from warploom.target import cuda_target

H200 = cuda_target("h200")
BYTES = {"float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}

#: Legal starting points; most of the space around them is illegal.
BASES = (
    {},
    {"layout": "NN", "tile_n": 128, "stages": 3},
    {"dtype": "float8_e4m3fn", "out_dtype": "bfloat16", "tile_k": 128, "cluster": 1},
    {"tile_m": 256, "tile_n": 128, "stages": 3},
    {"tile_m": 64, "tile_n": 96, "consumers": 1},
    {"swap_ab": True, "cluster": 1, "tile_m": 16, "tile_n": 128, "tile_k": 256, "stages": 2},
)

CHANGES = {
    "dtype": st.sampled_from(DTYPES),
    "out_dtype": st.sampled_from(OUT_DTYPES),
    "layout": st.sampled_from(["NT", "NN"]),
    "tile_m": st.sampled_from([8, 24, 64, 100, 128, 192, 256, 320]),
    "tile_n": st.sampled_from([32, 64, 96, 100, 128, 160, 192, 224, 256, 320]),
    "tile_k": st.sampled_from([16, 32, 48, 64, 128, 256]),
    "stages": st.integers(1, 8),
    "cluster": st.sampled_from([1, 2, 3, 4]),
    "consumers": st.integers(1, 3),
    "group": st.sampled_from([1, 8]),
    "swap_ab": st.booleans(),
    "ctas": st.sampled_from([None, 1, 2, 132]),
}


@st.composite
def fields(draw) -> dict:
    """Arguments of GemmConfig: a legal set with up to four of them replaced."""
    values = dict(draw(st.sampled_from(BASES)))
    for name in draw(st.lists(st.sampled_from(sorted(CHANGES)), max_size=4, unique=True)):
        values[name] = draw(CHANGES[name])
    return values


def config_or_none(values: dict) -> GemmConfig | None:
    try:
        return GemmConfig(**values)
    except IllegalCombination:
        return None


@settings(max_examples=200)
@given(fields())
def test_accepted_configs_respect_the_hardware(values):
    """The limits are written here again, from the manuals, on purpose."""
    config = config_or_none(values)
    assume(config is not None)
    size = BYTES[config.dtype]
    tiles = config.stages * config.tile_k * (config.tile_m + config.tile_n) * size
    staging = config.consumers * 2 * 64 * min(config.tile_n, 64) * 2
    staging = config.tile_m * config.tile_n * 2 if config.swap_ab else staging
    assert tiles + staging + 16 * config.stages <= 227 * 1024
    rows, columns = config.wgmma_tile
    assert rows % (64 * config.consumers) == 0 and columns % 8 == 0
    assert config.tile_k * size % 32 == 0
    assert config.layout == "NT" or size == 2
    assert config.stages >= 2 and (config.ctas or 132) % config.cluster == 0
    assert config.cluster in (1, 2, 4)
    assert config.tile_m <= 256 and config.tile_n // config.cluster <= 256
    accumulators = rows // config.consumers * columns // 128
    producer, consumer = config.register_split or (config.launch_registers,) * 2
    assert accumulators + 40 <= consumer <= 255
    assert 128 * (producer + config.consumers * consumer) <= 65536
    if config.register_split:
        assert producer % 8 == consumer % 8 == 0 and 24 <= producer < consumer <= 256


@settings(max_examples=200)
@given(fields())
def test_refusals_name_a_value_of_the_config(values):
    try:
        GemmConfig(**values)
    except IllegalCombination as error:
        text = str(error)
        assert text.split("\n")[0].endswith((".", ":"))
        assert any(name in text or str(value) in text for name, value in values.items())


def test_exceeded_shared_memory_is_itemised():
    with pytest.raises(IllegalCombination) as raised:
        GemmConfig(stages=5)
    first, *lines = str(raised.value).split("\n")
    assert "278608" in first and "232448" in first
    assert sum(int(line.split()[0]) for line in lines) == 278608


@settings(max_examples=200)
@given(
    st.sampled_from(DTYPES),
    st.sampled_from(["NT", "NN"]),
    st.integers(2, 300),
    st.integers(1, 300),
    st.booleans(),
)
def test_check_shape_accepts_exactly_pitches_of_16_bytes(dtype, layout, n, k, swap_ab):
    assume(layout == "NT" or BYTES[dtype] == 2)
    config = GemmConfig(dtype=dtype, layout=layout, tile_k=64)
    if swap_ab:
        config = replace(config, swap_ab=True, cluster=1, tile_n=128, tile_m=16)
    pitches = [k * BYTES[dtype], (k if layout == "NT" else n) * BYTES[dtype]]
    pitches += [] if swap_ab else [2 * n]
    if all(pitch % 16 == 0 for pitch in pitches):
        config.check_shape(n, k)
    else:
        with pytest.raises(IllegalCombination, match=r"multiple of 16, so pad [NK]"):
            config.check_shape(n, k)


def test_a_single_column_is_refused():
    with pytest.raises(IllegalCombination, match="matrix-vector product"):
        GemmConfig().check_shape(1, 8)


@pytest.mark.parametrize("bad", [{"n": 0}, {"k": 0}, {"k": -8}, {"m": 0}])
def test_empty_extents_are_refused(bad):
    with pytest.raises(IllegalCombination, match="not a positive extent"):
        GemmConfig().check_shape(**({"n": 8, "k": 8, "m": 8} | bad))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dtype": "int8"}, "dtype 'int8'"),
        ({"out_dtype": "float32"}, "out_dtype 'float32'"),
        ({"layout": "TN"}, "layout 'TN'"),
        ({"dtype": "float8_e4m3fn", "layout": "NN"}, "K-major only"),
        ({"config": GemmConfig(dtype="bfloat16", out_dtype="bfloat16")}, "has dtype 'bfloat16'"),
        ({"config": GemmConfig(layout="NN")}, "has layout 'NN'"),
    ],
)
def test_gemm_refuses_what_it_has_no_kernel_for(arguments, words):
    with pytest.raises(IllegalCombination, match=words):
        compile_gemm(None, 256, 256, **arguments)


@settings(max_examples=300)
@given(
    st.one_of(st.none(), st.integers(1, 5000)),
    st.integers(1, 1000),
    st.integers(1, 1000),
    st.sampled_from(DTYPES),
    st.sampled_from([114, 132, 78]),
)
def test_a_default_config_exists_for_every_gemm(m, n, k, dtype, ctas):
    config = choose_config(m, 8 * n, 16 * k, dtype, "bfloat16", "NT", ctas)
    config.check_shape(8 * n, 16 * k, m)
    assert (config.dtype, config.ctas) == (dtype, None)
    assert config.swap_ab == (m is not None and m <= 64)


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
def test_accepted_configs_compile_without_problems(examples):
    settings(max_examples=examples, derandomize=True)(given(fields())(_compiles))()


def _compiles(values):
    config = config_or_none(values)
    assume(config is not None)
    report = compile_report(gemm(config, 520, 528), H200)
    assert report.problems == ()
    assert report.kernels[0].dynamic_shared_bytes <= config.shared_bytes


def test_large_kernel_keeps_its_accumulators_in_registers():
    """168 registers at launch are what 384 threads can have; one k tile is 4 x m64n256k16."""
    report = compile_report(gemm(GemmConfig(), 4096, 4096), H200)
    (kernel,) = report.kernels
    assert report.problems == ()
    assert kernel.info.registers == 168 and kernel.info.stack_bytes == 0
    assert kernel.spill_store_bytes == 0 and kernel.spill_load_bytes == 0
    if kernel.sass is not None:
        assert sum(n for op, n in kernel.sass.items() if op.startswith("HGMMA")) % 4 == 0
        assert not any(op.startswith(("LDL", "STL")) for op in kernel.sass)

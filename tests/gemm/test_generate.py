"""Tile programs of recognised functions: right on the emulator, for many configs."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.shared import gemm_functions
from tests.shared.gemm_functions import FUNCTIONS, Function
from tests.shared.sampling import sampled
from warploom import emulator
from warploom.decide import Config
from warploom.decide.candidates import candidates
from warploom.gemm import recognise
from warploom.gemm.generate import tile_program
from warploom.lower.lowerings import lower
from warploom.tile.choices import BY_NAME


def check(function: Function, config: Config, rng: np.random.Generator, **sizes: int) -> None:
    gemm = recognise(function.func)
    kernel = lower(tile_program(gemm, config)).with_attr("global_symbol", "main")
    arguments = function.arguments(rng, **sizes)
    found = emulator.run(kernel, arguments).outputs
    print(gemm.problem, config)
    function.assert_right(found[len(found) - function.outputs :], arguments)


@pytest.mark.parametrize("name", sampled(FUNCTIONS, 2))
@pytest.mark.some(3)
def test_functions_are_computed(name: str, rng: np.random.Generator) -> None:
    function = FUNCTIONS[name]()
    problem = recognise(function.func).problem
    found = [one for one in candidates(problem) if one.ctas_per_sm == 1]
    for number in rng.choice(len(found), 2, replace=False):
        check(function, found[number], rng)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("epilogue", Config(64, 32, 32, 3, consumers=1, split_k=2, reduce_through="cluster")),
        ("swiglu", Config(64, 32, 32, 2, consumers=1, stream_k=True, cluster_m=2)),
        ("4-bit words", Config(16, 64, 64, 2, consumers=1, swap_ab=True, specialise=False)),
        ("layout NT", Config(64, 32, 32, 2, consumers=1, specialise=False, persistent=False)),
        ("epilogue", Config(128, 64, 32, 2, persistent=False, store_columns=16)),
        ("epilogue", Config(64, 32, 32, 2, consumers=1, l2_policy=2, cluster_m=2)),
        ("epilogue", Config(64, 32, 32, 3, consumers=1, prefetch_l2=True, cluster_m=2)),
        ("swiglu", Config(64, 32, 32, 2, consumers=1, prefetch_l2=True, specialise=False)),
    ],
)
@pytest.mark.some(3)
def test_ways_to_share_tiles(name: str, config: Config, rng: np.random.Generator) -> None:
    check(FUNCTIONS[name](), config, rng)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("layout NT", Config(64, 32, 32, 2, consumers=1)),
        ("swiglu", Config(64, 32, 32, 2, consumers=1, specialise=False)),
        ("4-bit words", Config(16, 64, 64, 2, consumers=1, swap_ab=True)),
    ],
)
def test_the_cache_is_told_to_keep_a(name: str, config: Config) -> None:
    gemm = recognise(FUNCTIONS[name]().func)
    for policy in BY_NAME["l2_policy"].draws:
        text = str(lower(tile_program(gemm, replace(config, l2_policy=policy))))
        loads = [line for line in text.splitlines() if "copy_async(" in line and "mbar=" in line]
        assert len(loads) > 1
        for line in loads:
            of_a = re.search(r"copy_async\((A|X)_s\[", line) is not None
            wanted = [[], [], ["evict_last"]][policy] if of_a else ["evict_first"] * (policy > 0)
            assert re.findall(r'cache_hint="(\w+)"', line) == wanted


@pytest.mark.parametrize(
    ("group", "bits", "config"),
    [
        (32, 4, Config(24, 64, 64, 4, consumers=1, swap_ab=True, slice_k=2)),
        (32, 4, Config(24, 128, 128, 2, swap_ab=True)),
        (64, 8, Config(16, 64, 64, 2, consumers=1, swap_ab=True, split_k=2,
                       reduce_through="cluster")),
        (128, 4, Config(16, 64, 64, 3, consumers=1, swap_ab=True, stream_k=True)),
        (128, 4, Config(8, 64, 256, 2, consumers=1, swap_ab=True, cluster_n=2)),
        (32, 4, Config(16, 64, 64, 2, consumers=1, swap_ab=True, specialise=False)),
        (16, 8, Config(16, 64, 32, 2, consumers=1, swap_ab=True, split_k=3)),
    ],
)
@pytest.mark.some(3)
def test_scales_of_a_step_are_loaded_with_those_around_them(
    group: int, bits: int, config: Config, rng: np.random.Generator
) -> None:
    function = gemm_functions.dequantised(k=1024, bits=bits, group=group)
    program = str(tile_program(recognise(function.func), config))
    assert "S_s" in program, "they come by TMA, although 16 bytes of a row are for several steps"
    check(function, config, rng)


def test_scales_whose_rows_no_tma_can_load_are_read_one_by_one(rng: np.random.Generator) -> None:
    function = gemm_functions.dequantised(k=320)  # rows of 20 bytes
    config = Config(24, 64, 64, 2, consumers=1, swap_ab=True)
    assert "S_s" not in str(tile_program(recognise(function.func), config))
    check(function, config, rng)


@pytest.mark.parametrize(
    ("sizes", "layout"),
    [(("b", 40, 72), "NN"), (("b", "m", 72), "NT"), ((3, "m", 72), "NN"), (("b", "m", "n"), "NT")],
)
@pytest.mark.some(1)
def test_sizes_of_the_launch_of_several_products(
    sizes: tuple[int | str, ...], layout: str, rng: np.random.Generator
) -> None:
    function = gemm_functions.batched(*sizes, layout=layout)
    problem = recognise(function.func).problem
    found = tuple(None if isinstance(one, str) else one for one in sizes)
    assert (problem.batch, problem.m, problem.n) == found
    for config in (
        Config(64, 64, 32, 3, consumers=1),
        Config(128, 48, 32, 4, cluster_m=2, cluster_n=2),
        Config(16, 64, 64, 2, consumers=1, swap_ab=True),
    ):
        b, m, n = (int(rng.integers(1, high)) for high in (5, 150, 100))
        check(function, config, rng, b=b, m=m, n=n)


@pytest.mark.parametrize("rows", [1, 7, 64, 150])
@pytest.mark.some(1)
def test_numbers_of_rows_of_the_launch(rows: int, rng: np.random.Generator) -> None:
    function = gemm_functions.matmul(None)
    for config in (
        Config(64, 64, 32, 3, consumers=1),
        Config(16, 64, 64, 2, consumers=1, swap_ab=True),
        Config(128, 48, 32, 4, cluster_m=2, split_k=2),
    ):
        check(function, config, rng, m=rows)

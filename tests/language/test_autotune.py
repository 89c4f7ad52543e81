"""``warploom.autotune``: spaces of configs, and what the decorator refuses; without a search."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warploom
from tests.language.test_jit import copy_program, factory
from tests.meta_schedule.tuned_factories import copy_rows, matmul
from warploom import hooks
from warploom import language as wl
from warploom.errors import ArgumentError, IllegalCombination
from warploom.language.tuning.space import HINT_VALUES, Space, decode, encode, text_of
from warploom.language.tuning.task import Best
from warploom.tile.hints import Hints

_VALUES = st.lists(
    st.one_of(st.integers(-4, 300), st.sampled_from(["rows", "grouped"]), st.none(),
              st.tuples(st.integers(1, 4), st.integers(1, 4))),
    min_size=1, max_size=4, unique=True,
)  # fmt: skip
_SPACES = st.dictionaries(st.sampled_from(["tile_m", "stages", "raster"]), _VALUES, min_size=1)


@given(_SPACES)
def test_a_space_is_the_product_of_its_values(values):
    space = wl.space(**values)
    products = itertools.product(*values.values())
    every = [dict(zip(values, chosen, strict=True)) for chosen in products]
    assert list(space) == every and len(space) == len(every)
    assert [space.at(number) for number in range(len(space))] == every
    assert all(config in space for config in every)
    assert {**every[0], "other": 1} not in space


@given(_SPACES)
def test_a_config_is_read_back_from_its_text(values):
    for config in wl.space(**values):
        assert decode(encode(config)) == config
        turned = dict(reversed(config.items()))
        assert encode(turned) == encode(config)


@given(_SPACES)
def test_neighbours_differ_in_one_parameter(values):
    space = wl.space(**values)
    for config in space:
        near = list(space.neighbours(config))
        assert all(sum(one[n] != config[n] for n in one) == 1 and one in space for one in near)
        assert len(near) == sum(len(each) - 1 for each in values.values())


def test_a_list_of_configs():
    space = Space.of([{"tile": 64, "stages": 2}, {"tile": 128}, {"tile": 128, "stages": 2}])
    assert space.names == ("tile", "stages") and len(space) == 3
    assert space.values == {"tile": (64, 128), "stages": (2,)}
    assert {"tile": 64} not in space and {"tile": 128} in space
    assert list(space.neighbours({"tile": 64, "stages": 2})) == [{"tile": 128, "stages": 2}]
    assert Space.of({"tile": [64, 128]}) == wl.space(tile=(64, 128))


def test_hints_have_values_of_their_own():
    space = wl.space("split_k", "cluster", "raster", tile=(64,), stages=[2])
    assert space.values["split_k"] == HINT_VALUES["split_k"] and space.values["stages"] == (2,)
    assert len(space) == len(HINT_VALUES["split_k"]) * len(HINT_VALUES["cluster"]) * 3


@pytest.mark.parametrize("name", sorted(HINT_VALUES))
def test_values_of_hints_are_legal(name):
    needed = {"group": {"raster": "grouped"}, "scheduler": {}, "reduce_through": {"split_k": 2}}
    for value in HINT_VALUES[name]:
        assert getattr(Hints(**{**needed.get(name, {}), name: value}), name) == value


def test_what_a_predicate_leaves_out():
    def why_not(M, tile_m, consumers):
        if tile_m < 64 * consumers:
            return f"{consumers} warpgroups need {64 * consumers} rows"
        return tile_m > M

    space = wl.space(tile_m=(64, 128), consumers=(1, 2), why_not=why_not)
    reasons = [space.reason_against(config, {"M": 64, "N": 8}) for config in space]
    assert reasons == [None, "2 warpgroups need 128 rows", *["why_not leaves it out"] * 2]
    every = wl.space(tile_m=(64,), why_not=lambda **named: sorted(named) == ["M", "tile_m"])
    assert every.reason_against({"tile_m": 64}, {"M": 1}) is not None


def test_what_is_no_space():
    with pytest.raises(ArgumentError, match="space\\(\\) got no parameter"):
        wl.space()
    with pytest.raises(ArgumentError, match="'tile_m' is no hint with values of its own"):
        wl.space("tile_m")
    with pytest.raises(ArgumentError, match=r"tile_m=\(\) is no list of values"):
        wl.space(tile_m=())
    with pytest.raises(ArgumentError, match="raster='rows' is no list of values"):
        wl.space(raster="rows")
    with pytest.raises(ArgumentError, match="is a object, which no record can hold"):
        wl.space(tile_m=(object(),))
    with pytest.raises(ArgumentError, match="is a set, which no record can hold"):
        Space.of([{"tile_m": {1}}])
    for empty in ([], [{}]):
        with pytest.raises(ArgumentError, match="configs= is empty"):
            Space.of(empty)


def test_what_cannot_be_tuned():
    configs = {"tile_m": (64,), "tile_n": (64,)}
    with pytest.raises(ArgumentError, match="configs has 'tile_q', which is none of its param"):
        wl.autotune(matmul, configs={"tile_q": (64,)})
    with pytest.raises(ArgumentError, match=r"key has 'tile_m', which is none .* M, N, K, stages"):
        wl.autotune(matmul, configs=configs, key=("tile_m",))
    with pytest.raises(ArgumentError, match="key is 'M'; give a list of names"):
        wl.autotune(matmul, configs=configs, key="M")
    with pytest.raises(ArgumentError, match="trials is 0; it must be an integer"):
        wl.autotune(matmul, configs=configs, trials=0)
    with pytest.raises(ArgumentError, match="takes a factory of tile programs"):
        wl.autotune(copy_program(16), configs=configs)
    with pytest.raises(ArgumentError, match="a finished program, which has no parameter to tune"):
        wl.autotune(warploom.jit(copy_program(16)), configs=configs)
    with pytest.raises(ArgumentError, match="configs has 'BQ', which is none of its parameters BM"):
        wl.autotune(factory(out_idx=-1), configs={"BQ": (64,)})
    with pytest.raises(ArgumentError, match=r"key has 'm', which is none .* A, B, alpha, BM"):
        wl.autotune(factory(out_idx=-1), configs={"BM": (64,)}, key=("m",))
    with pytest.raises(ArgumentError, match="out_idx belongs to warploom"):
        wl.autotune(factory(out_idx=-1), configs={"BM": (64,)}, out_idx=-1)


@pytest.fixture
def asked(monkeypatch):
    """Tasks that a tuner is asked for; its best config is always the first."""
    tasks = []

    def find(task, options, go_on):
        tasks.append((task, options, go_on))
        return Best(task.space.at(0), 1e-6, searched=go_on)

    monkeypatch.setattr(hooks.tuner, "_function", lambda: find)
    return tasks


def test_a_factory_has_a_search_for_each_key(asked):
    tuned = wl.autotune(matmul, configs=wl.space(tile_m=(64, 128), tile_n=(32,)), key=("M", "K"))
    kernels = [tuned(64, n, 32) for n in (64, 128, 64)]
    assert kernels[0] is kernels[2] and kernels[0] is not kernels[1]
    assert len(asked) == 1 and str(asked[0][0]) == "matmul(M=64, K=32)"
    tuned(M=128, N=64, K=32)
    assert len(asked) == 2 and tuned.best_config == {"tile_m": 64, "tile_n": 32}
    assert tuned.cache_info() == (2, 2, 2, 0)
    assert set(tuned.best_configs) == {"matmul(M=64, K=32)", "matmul(M=128, K=32)"}
    assert tuned.program(64, 64, 32).body is not None
    tuned.tune(64, 64, 32, trials=3, seed=7)
    _, options, go_on = asked[-1]
    assert go_on and (options.trials, options.seed) == (3, 7) and tuned.cache_info().searches == 1
    tuned.cache_clear()
    with pytest.raises(ArgumentError, match="matmul has no config yet; call it"):
        _ = tuned.best_config
    with pytest.raises(ArgumentError, match=r"tile_m is tuned; leave it out, or call \.factory"):
        tuned(64, 64, 32, tile_m=64)
    with pytest.raises(ArgumentError, match="matmul takes M, N, K, stages, dtype: miss"):
        tuned(64, 64)
    with pytest.raises(ArgumentError, match="all arguments must be hashable"):
        tuned([64], 64, 64)


def test_a_kernel_has_a_search_for_each_shape_and_static_value(asked):
    tuned = wl.autotune(
        factory(out_idx=-1, dynamic={"A": {0: "m"}}), configs={"BM": (64, 128)}, key=("m",)
    )
    specs = [(((m, 64), "float16"), ((64, 64), "float16"), 1.0) for m in (48, 96)]
    target = warploom.cuda_target("h200")
    for each in (*specs, specs[0]):
        tuned.tune(*each, target=target)
    tuned.tune(*specs[0], target=target, BN=32)
    assert [str(task) for task, _, _ in asked][::3] == [
        "linear(A=float16[m, 64], B=float16[64, 64], alpha=float32, m=48, "
        f"BK=32, BN={bn}, out_dtype='float32')" for bn in (64, 32)
    ]  # fmt: skip
    assert tuned.cache_info().currsize == 3
    task = asked[1][0]
    shapes = task.shapes(task.make({"BM": 64}))
    assert [shape for _, shape in shapes] == [(96, 64), (64, 64), None, (96, 64)]
    assert task.numbers == {2: 1.0} and task.results == (3,) and not task.given
    with pytest.raises(ArgumentError, match=r"BM is tuned; leave it out, or call \.kernel"):
        tuned.tune(*specs[0], BM=64)
    with pytest.raises(ArgumentError, match="linear has no static 'BQ'"):
        tuned.tune(*specs[0], BQ=64)


def test_the_last_call_says_which_config_is_best(asked, monkeypatch):
    """Also a call that asks nobody, since it is like an earlier one."""
    kernel = factory(out_idx=-1)
    monkeypatch.setattr(kernel, "run", lambda given, static: static)
    tuned = wl.autotune(kernel, configs=[{"BM": 64, "BN": 64}, {"BM": 128, "BN": 64}])
    find = hooks.tuner()

    def by_rows(task, options, go_on):
        best = find(task, options, go_on)
        (_, (rows, _)), *_ = task.shapes(task.make(best.config))
        return replace(best, config=task.space.at(rows > 48))

    monkeypatch.setattr(hooks.tuner, "_function", lambda: by_rows)
    few, many, b = (np.zeros((rows, 64), "float16") for rows in (48, 96, 64))
    for a, rows in ((few, 64), (many, 128), (few, 64), (many, 128), (many, 128), (few, 64)):
        assert tuned(a, b, 1.0)["BM"] == rows == tuned.best_config["BM"]
    assert tuned.cache_info()[:3] == (4, 2, 2)
    with pytest.raises(ArgumentError, match=r"BK=\[32\] is static and must be hashable"):
        tuned(few, b, 1.0, BK=[32])


def test_illegal_combinations_of_a_factory_are_those_of_hints():
    with pytest.raises(IllegalCombination):
        matmul(64, 64, 32, 64, 12)
    assert text_of({"tile": 64, "cluster": (2, 1)}) == "tile=64 cluster=(2, 1)"
    assert str(Best({"tile": 8}, 2e-6)) == "2.00 us measured: tile=8"
    assert "says nothing" in str(Best({"tile": 8}, 2e-6, emulated=True))
    assert "factory copy_rows>" in repr(wl.autotune(copy_rows, configs={"tile": (8,)}))
    assert "kernel linear>" in repr(wl.autotune(factory(), configs={"BM": (8,)}))
    assert wl.autotune is warploom.autotune

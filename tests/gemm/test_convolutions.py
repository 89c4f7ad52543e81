"""Convolutions as products: recognised, and computed on the emulator, for many configs."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from tvm import te, tirx
from tvm.script import tirx as T

from tests.gemm.convolutions import CONVOLUTIONS, Convolution
from tests.gemm.test_generate import check
from warploom.decide import Config
from warploom.decide.candidates import candidates
from warploom.decide.price.read import read
from warploom.decide.work import tiles_along
from warploom.errors import Decline
from warploom.gemm import recognise
from warploom.gemm.equations import simplify
from warploom.gemm.generate import tile_program
from warploom.gemm.pixels import padded_load
from warploom.lower.trace import lower_trace
from warploom.tile import ir

_SMALL = Config(64, 64, 32, 3, consumers=1)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_problems(name: str) -> None:
    one = CONVOLUTIONS[name]
    gemm = recognise(one.function().func)
    pixels = None if one.n is None else one.n * math.prod(one.size)
    problem = gemm.problem
    assert (problem.m, problem.n, problem.k) == (pixels, one.k, math.prod(one.taps) * one.c)
    assert problem.computed == (False, False) and problem.batch == 1
    assert problem.layout == ("NT" if one.weights == "OHWI" else "NN")
    assert problem.taps == math.prod(one.taps)
    if not problem.pixels:  # pixels that lie one after the other are rows of a matrix
        assert problem.taps == 1 and one.stride == (1, 1)
        return
    wanted = [
        (size, step, image, dilation * (taps - 1))
        for size, image, taps, step, dilation in zip(
            one.size, (one.h, one.w), one.taps, one.stride, one.dilation, strict=True
        )
        if size > 1
    ]
    assert list(problem.pixels[-len(wanted) :]) == wanted


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_program_has_as_many_tiles_as_its_problem_says(
    name: str, rng: np.random.Generator
) -> None:
    gemm = recognise(replace(CONVOLUTIONS[name], n=CONVOLUTIONS[name].n or 3).function().func)
    found = list(candidates(gemm.problem))
    for number in rng.choice(len(found), 3):
        config = found[number]
        assert read(tile_program(gemm, config)).tiles == tiles_along(gemm.problem, config)


def test_transposed_tiles_leave_in_chunks_if_these_are_boxes(rng: np.random.Generator) -> None:
    gemm = recognise(Convolution(n=3, h=11, w=21, c=32, k=64).function().func)
    seen = set()
    for rows in (8, 16, 24, 40, 48, 64, 80, 96, 112, 160):
        config = replace(_SMALL, tile_m=rows, swap_ab=True)
        program = tile_program(gemm, config)
        chunks = config.stores_in_chunks(gemm.problem, "float16")
        seen.add(chunks)
        decided = [one for step in lower_trace(program) for one in step.decisions]
        stored = any("store into" in one and "by TMA, in chunks" in one for one in decided)
        assert stored == chunks, (rows, config.box(gemm.problem))
    assert seen == {True, False}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.some(3)
def test_convolutions_are_computed(name: str, rng: np.random.Generator) -> None:
    one = CONVOLUTIONS[name]
    function = one.function()
    found = [
        config
        for config in candidates(recognise(replace(one, n=one.n or 3).function().func).problem)
        if config.ctas_per_sm == 1
    ]  # fmt: skip
    sizes = {} if one.n else {"n": int(rng.integers(1, 5))}
    check(function, found[rng.integers(len(found))], rng, **sizes)


@pytest.mark.long
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_under_many_config(name: str, rng: np.random.Generator) -> None:
    one = CONVOLUTIONS[name]
    function = one.function()
    found = list(candidates(recognise(function.func).problem))
    for number in rng.choice(len(found), 12, replace=False):
        check(function, found[number], rng, **({} if one.n else {"n": 3}))


@pytest.mark.parametrize(
    "config",
    [
        replace(_SMALL, tile_m=128, consumers=2, cluster_n=2, tile_n=32),
        replace(_SMALL, tile_m=192, consumers=3, cluster_m=2),
        replace(_SMALL, tile_m=40, swap_ab=True, split_k=2),
        replace(_SMALL, tile_m=128, cluster_n=2, split_k=3),
        replace(_SMALL, tile_m=64, swap_ab=True),
        replace(_SMALL, tile_m=64, tile_n=128, swap_ab=True, consumers=2, split_k=2),
    ],
)
def test_shares_of_a_tile(config: Config, rng: np.random.Generator) -> None:
    check(Convolution(h=16, w=17, stride=(2, 2), epilogue=True).function(), config, rng)


def _grouped(groups: int) -> tirx.PrimFunc:
    x = te.placeholder((1, 8, 8, 64), "float16", "X")
    f = te.placeholder((64, 3, 3, 64 // groups), "float16", "F")
    each = 64 // groups
    u, v, q = (te.reduce_axis((0, e), name) for e, name in ((3, "u"), (3, "v"), (each, "q")))
    y = te.compute(
        (1, 6, 6, 64),
        lambda i, y, z, o: te.sum(
            x[i, y + u, z + v, o // each * each + q] * f[o, u, v, q], [u, v, q]
        ),
        "Y",
    )
    return te.create_prim_func([x, f, y])


@pytest.mark.parametrize(
    ("func", "reason"),
    [
        (lambda: _grouped(4), "tells products apart, as groups of a convolution do"),
        (lambda: _grouped(64), "tells products apart, as groups of a convolution do"),
        (lambda: Convolution(c=12).function().func, "rows of X have 12 elements"),
        (lambda: Convolution(stride=(9, 9), h=40, w=40).function().func, "X is read at"),
        (lambda: Convolution(w=1).function().func, "X has an extent of 1 where .* several taps"),
        (lambda: Convolution(w=1, padding=(0, 1, 0, 1), taps=(1, 1)).function().func,
         "X has an extent of 1 where the result has more"),
    ],
    ids=["groups", "depthwise", "channels", "large stride", "taps of a pixel", "padded pixel"],
)
def test_what_is_left_alone(func: object, reason: str) -> None:
    with pytest.raises(Decline, match=reason):
        tile_program(recognise(func()), _SMALL)


#: Conditions on ``i``, of which a load at ``i`` of 10 elements may need some.
_CONDITIONS = (
    lambda i: i >= 0, lambda i: i < 10, lambda i: i > -1, lambda i: i <= 9,
    lambda i: i > 0, lambda i: i < 9, lambda i: i >= 1, lambda i: i < 11, lambda i: i >= -2,
    lambda i: i.equal(3), lambda i: tirx.NE(i, 3), lambda i: T.floormod(i, 2).equal(0),
    lambda i: T.Or(i > 4, i < 2),
)  # fmt: skip


@pytest.mark.parametrize("select", [False, True])
def test_a_condition_is_dropped_only_if_it_fails_outside(select: bool) -> None:
    """TMA reads 0 outside of a tensor, and what is there inside: conditions must say the same."""
    x, i = tirx.decl_buffer((10,), "float16", "X"), tirx.Var("i", "int32")
    zero = tirx.const(0, "float16")
    dropped = 0
    for parts in [(one,) for one in _CONDITIONS] + list(itertools.combinations(_CONDITIONS, 2)):
        condition = functools.reduce(T.And, [one(i) for one in parts])
        make = tirx.Select if select else T.if_then_else
        if padded_load(make(condition, x[i], zero)) is None:
            continue
        dropped += 1
        for place in range(10):
            holds = simplify(ir.substitute(condition, {i: tirx.IntImm("int32", place)}))
            assert int(holds) == 1, (condition, place)
        assert padded_load(make(condition, x[i], tirx.const(1, "float16"))) is None
    assert dropped >= 4 + 6  # the first four conditions say no more, nor do pairs of them


@pytest.mark.parametrize("number", range(80))
def test_conditions_of_strided_indices(number: int, rng: np.random.Generator) -> None:
    """The same for indices and conditions that have factors in common, or almost."""
    x, i, j = tirx.decl_buffer((10,), "float16", "X"), *(tirx.Var(n, "int32") for n in "ij")
    zero = tirx.const(0, "float16")
    a, b = (int(one) for one in rng.integers(1, 7, 2))
    shift, bound = int(rng.integers(-6, 7)), int(rng.integers(-4, 8))
    parts = int(rng.choice([1, 2, 3, 4]))
    index = i * a + j * b + shift
    # A comparison of the index, or of a part of it, as simplification leaves it.
    own = (i * a + j * b) if rng.random() < 0.5 else (i * -(-a // parts) + j * -(-b // parts))
    condition = own >= bound if rng.random() < 0.5 else own < bound + 8
    if padded_load(T.if_then_else(condition, x[index], zero)) is None:
        return
    for values in itertools.product(range(-12, 13), repeat=2):
        places = dict(zip((i, j), (tirx.IntImm("int32", one) for one in values), strict=True))
        at, holds = (int(simplify(ir.substitute(one, places))) for one in (index, condition))
        assert holds or not 0 <= at < 10, (index, condition, values)

"""``wl.WgmmaEmitter`` for several warpgroups, and for operands that are parts of larger buffers."""

from __future__ import annotations

import functools
import random

import pytest

from tests.intrin.wgmma_block_kernels import WARPS, Case, check, draw, lower
from tests.shared.sampling import covering
from warploom import language as wl
from warploom.errors import IllegalCombination
from warploom.target import WGMMA_KINDS

_RANDOM = random.Random(5)
DRAWN = list(dict.fromkeys(draw(_RANDOM) for _ in range(160)))


def traits(case: Case):
    """What the cases of every run cover together; the others are ``slow``."""
    yield case.kind
    yield case.warps
    for name, major, swizzle, at in zip("AB", case.majors, case.swizzles, (case.a_at, case.b_at),
                                        strict=True):  # fmt: skip
        yield name, case.kind.bits, major, swizzle
        yield name, at != (0, 0), case.described, case.rs


QUICK, MORE = covering(DRAWN, traits)
GROUP = 8


@functools.cache
def compiled(group: tuple[Case, ...]):
    return lower(list(group))


def groups() -> list:
    """Each case with those that are compiled with it."""
    found = []
    for cases, marks in ((QUICK, []), (MORE, [pytest.mark.slow])):
        size = GROUP if cases is QUICK else 1
        for first in range(0, len(cases), size):
            group = tuple(cases[first : first + size])
            found += [pytest.param(group, one, id=str(one), marks=marks) for one in group]
    return found


@pytest.mark.gpu
@pytest.mark.parametrize(("group", "case"), groups())
def test_warpgroups_and_parts_of_buffers(group, case, rng):
    """Every type, layout and swizzle, everywhere in a buffer, by one warpgroup and by several."""
    check(case, compiled(group)[f"f{group.index(case)}"], rng)


def test_the_sample_has_everything():
    assert {one.kind for one in QUICK} == set(WGMMA_KINDS)
    assert {one.warps for one in QUICK} == set(WARPS)
    assert any(one.rs and one.warps != (4, 1, 1) for one in QUICK)


@pytest.mark.parametrize("warps", [(4, 1, 1), (8, 1, 1), (4, 2, 1), (4, 1, 2), (8, 2, 2)])
def test_the_parts_of_the_warpgroups_are_the_matmul(warps):
    """Every element of D is that of one warpgroup, for each part of K; counts follow."""
    rows, columns, depth = warps[0] // 4, *warps[1:]
    e = wl.WgmmaEmitter.of(
        128, 64, 64, "float16", block_row_warps=warps[0], block_col_warps=columns, reduce_k=depth
    )
    assert e.block == (128, 64, 64) and e.warpgroups == (rows, columns, depth)
    seen = []
    for warpgroup in range(rows * columns * depth):
        row, column = e.at(warpgroup).origin
        seen += [(y, x) for y in range(row, row + e.m) for x in range(column, column + e.n)]
    assert sorted(seen) == sorted([(y, x) for y in range(128) for x in range(64)] * depth)
    assert e.instructions == (128 // rows // 64) * (64 // depth // 16)
    assert e == e.at(0) and e.d_registers * 128 == e.m * e.n


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"block_row_warps": 2}, "block_row_warps is 2; it must be a multiple of 4"),
        ({"block_row_warps": 0}, "block_row_warps is 0"),
        ({"block_row_warps": 12}, "M = 128 is no multiple of 3, the warpgroups that share it"),
        ({"block_row_warps": 16}, "M = 32 is not a positive multiple of 64"),
        ({"block_col_warps": 0}, "block_col_warps is 0; it must be at least 1"),
        ({"block_col_warps": 3}, "N = 64 is no multiple of 3"),
        ({"block_col_warps": 4, "b_major": "MN"}, "16 columns of each warpgroup .* narrower"),
        ({"reduce_k": 8}, "K = 8 is not a positive multiple of 16"),
        ({"b_shape": (32, 64)}, "B is 64 x 64, more than its buffer's 32 x 64"),
        ({"a_shape": (128, 32)}, "A is 128 x 64, more than its buffer's 128 x 32"),
    ],
)  # fmt: skip
def test_what_warpgroups_cannot_share_is_refused(options, sentence):
    with pytest.raises(IllegalCombination, match=sentence):
        wl.WgmmaEmitter.of(128, 64, 64, "float16", **options)


def test_the_warpgroup_has_to_be_named():
    e = wl.WgmmaEmitter.of(128, 64, 64, "float16", block_row_warps=8)
    with pytest.raises(IllegalCombination, match=r"2 warpgroups share .* at\(warpgroup\)"):
        _ = e.origin
    with pytest.raises(IllegalCombination, match="warpgroup 2 is not within 0 to 1"):
        e.at(2)

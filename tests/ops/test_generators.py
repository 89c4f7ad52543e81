"""The case generator covers what it claims to cover."""

import collections
import itertools
import random

import pytest

from tests.shared.generators import (
    ALL_WIDTHS,
    _draw,
    find_case,
    forms,
    full_cases,
    pairs,
    quick_cases,
)
from warploom.target.swizzle import Swizzle
from warploom.target.wgmma import WGMMA_KINDS


@pytest.fixture(scope="module")
def quick():
    return quick_cases()


@pytest.fixture(scope="module")
def full():
    return full_cases()


def test_samples_are_deterministic_and_legal(quick, full):
    assert quick == quick_cases.__wrapped__() and set(quick) <= set(full)
    for cases in (quick, full):
        names = collections.Counter(map(str, cases))
        assert max(names.values()) == 1, "identifiers are unique"
        assert all(case.is_legal for case in cases)
    assert find_case(str(full[-1])) == full[-1]


def test_quick_sample_covers_every_pair_of_choices(quick):
    covered = set().union(*map(pairs, quick))
    rng = random.Random(99)  # other draws than those the sample was made from
    missing = collections.Counter()
    for _ in range(3000):
        missing.update(pairs(_draw(rng)) - covered)
    assert not missing


def test_full_enumeration_has_every_form_and_every_width(full):
    stored = {(case.kind, case.a_form, case.b_form) for case in full}
    for kind in WGMMA_KINDS:
        expected = itertools.product([kind], [None, *forms(kind)], forms(kind))
        assert set(expected) <= stored
        widths = {
            case.n for case in full if case.kind == kind and case.b_form.swizzle is Swizzle.B128
        }
        assert widths >= {n for n in ALL_WIDTHS if n <= 256} and max(widths) > 256


def test_inner_operands_lie_within_larger_tiles(quick):
    for case in quick:
        for tile in (case.a_tile, case.b_tile, case.d_tile):
            assert any(tile.start) == case.inner
            assert tile.slices[0].stop <= tile.shape[0] and tile.slices[1].stop <= tile.shape[1]

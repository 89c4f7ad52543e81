"""Random cases of tile programs and of convolutions, drawn as :mod:`warploom_bench.unseen` has it.

A case is a dictionary of the sizes of a kernel, with the ``group`` of its summary. Operations and
bytes are bounded, so that a reference without tensor cores takes no longer than a second.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

from warploom_bench.unseen import Extent, seed_and_count

#: Most operations and bytes of a case; a reference of grouped GEMMs and of convolutions computes
#: about one operation in the time in which others compute four.
_OPERATIONS, _SLOW_OPERATIONS, _BYTES = 4e12, 1e12, 2e9
_WIDE, _LAYER = Extent(512, 32768, 128), Extent(512, 16384, 128)
#: Rows of X and of A, by group.
_FEW = {"1-16 rows": Extent(1, 16), "17-64 rows": Extent(17, 64), "65-512 rows": Extent(65, 512)}
_ROWS = {
    "1-128 rows": Extent(1, 128), "129-1024 rows": Extent(129, 1024),
    "1025-8192 rows": Extent(1025, 8192),
}  # fmt: skip
_ALL_ROWS, _GROUPS, _OF_GROUP = Extent(16, 16384), Extent(4, 128), Extent(512, 16384, 64)
_IMAGES, _SIDE, _CHANNELS = Extent(1, 64), Extent(7, 112), Extent(32, 1024, 8)
_FILTERS = (1, 3, 5, 7)

Case = dict[str, Any]


def draw_quantised(suite: str) -> list[Case]:
    """Sizes of GEMMs with weights of 4 or 8 bits.

    Examples
    --------
    >>> len(draw_quantised("unseen:7:12"))
    12
    """

    def draw(rng: random.Random, group: str) -> Case:
        m, n, k = (extent.draw(rng) for extent in (_FEW[group], _WIDE, _WIDE))
        return {"group": group, "m": m, "n": n, "k": k, "bits": rng.choice([4, 8])}

    return _drawn(suite, tuple(_FEW), draw, lambda case: _is_small(case, 2))


def draw_block_scaled(suite: str) -> list[Case]:
    """Sizes of GEMMs of 8-bit floats whose blocks have scales; rows are ragged."""

    def draw(rng: random.Random, group: str) -> Case:
        m, n, k = (extent.draw(rng) for extent in (_ROWS[group], _LAYER, _LAYER))
        return {"group": group, "m": m, "n": n, "k": k}

    return _drawn(suite, tuple(_ROWS), draw, lambda case: _is_small(case, 1))


def draw_grouped(suite: str) -> list[Case]:
    """Sizes of GEMMs of groups; ``seed`` and ``even`` say how rows are distributed."""

    def draw(rng: random.Random, group: str) -> Case:
        extents = (_GROUPS, _ALL_ROWS, _OF_GROUP, _OF_GROUP)
        groups, m, n, k = (extent.draw(rng) for extent in extents)
        return {
            "group": group, "groups": groups, "m": m, "n": n, "k": k, "even": group == "even",
            "seed": rng.randrange(1000),
        }  # fmt: skip

    def fits(case: Case) -> bool:
        weights = 2 * case["groups"] * case["n"] * case["k"]
        return _is_small(case, 2, _SLOW_OPERATIONS) and weights <= _BYTES

    return _drawn(suite, ("even", "exponential"), draw, fits)


def draw_convolutions(suite: str) -> list[Case]:
    """Sizes of convolutions: images, rows and columns, channels, filters, taps, stride, padding."""

    def draw(rng: random.Random, group: str) -> Case:
        taps = int(group[0])
        extents = (_IMAGES, _SIDE, _SIDE, _CHANNELS, _CHANNELS)
        n, h, w, c, k = (extent.draw(rng) for extent in extents)
        return {
            "group": group, "n": n, "h": h, "w": w, "c": c, "k": k, "taps": taps,
            "stride": rng.choice([1, 1, 2]), "padding": rng.randint(0, taps // 2),
        }  # fmt: skip

    def fits(case: Case) -> bool:
        if min(case["h"], case["w"]) < case["taps"]:
            return False
        pixels = case["n"] * case["h"] * case["w"]
        rows = pixels // case["stride"] ** 2
        work = 2 * rows * case["k"] * case["c"] * case["taps"] ** 2
        size = 2 * (pixels * case["c"] + rows * case["k"])
        return work <= _SLOW_OPERATIONS and size <= _BYTES

    return _drawn(suite, tuple(f"{taps} x {taps}" for taps in _FILTERS), draw, fits)


def _drawn(
    suite: str, groups: tuple[str, ...], draw: Callable[[random.Random, str], Case],
    fits: Callable[[Case], bool],
) -> list[Case]:  # fmt: skip
    """The cases that ``unseen:SEED[:COUNT]`` names, group by group in turn."""
    seed, count = seed_and_count(suite)
    rng = random.Random(seed)
    cases = []
    for group in itertools.islice(itertools.cycle(groups), count):
        case = draw(rng, group)
        while not fits(case):
            case = draw(rng, group)
        cases.append(case)
    return cases


def _is_small(case: Case, width: int, operations: float = _OPERATIONS) -> bool:
    """Whether a GEMM of elements of so many bytes is within the bounds."""
    m, n, k = case["m"], case["n"], case["k"]
    return 2 * m * n * k <= operations and width * (m * k + n * k) + 2 * m * n <= _BYTES

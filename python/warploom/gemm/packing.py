"""Knobs as the few integers that a search samples, so that most combinations are legal.

Which tiles are legal depends on the warpgroups that compute them and on the CTAs that share an SM,
so all of that is one integer; and stages are counted from the most that fit. :func:`pack` and
:func:`unpack` are each other's inverse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from warploom.errors import IllegalCombination
from warploom.gemm.choose import most_stages
from warploom.gemm.knobs import GemmKnobs
from warploom.gemm.problem import GemmProblem

#: What :func:`pack` makes of several knobs; everything else goes by the knob's own name.
TILE, CLUSTER, FEWER_STAGES = "tile", "cluster", "fewer_stages"
#: Rows and columns of tiles are multiples of the first, their depth of the second.
_SIDE, _DEPTH = 8, 16
_MOST_CONSUMERS = 3
_PLAIN = ("group", "split_k")


def pack_tile(knobs: GemmKnobs) -> int:
    """The tile as decimal digits: warpgroups, CTAs of an SM, swap_ab, M / 8, N / 8, K / 16.

    The first is the number of consumers, and 3 more for each turn after the first.

    Examples
    --------
    >>> pack_tile(GemmKnobs(128, 256, 64, consumers=2))
    210163204
    """
    if knobs.consumers > _MOST_CONSUMERS:
        raise IllegalCombination(f"{knobs} has no short form: it has too many consumers.")
    fields = (
        (knobs.consumers + _MOST_CONSUMERS * (knobs.turns - 1), 10),
        (knobs.ctas_per_sm, 10), (int(knobs.swap_ab), 10),
        (_exact(knobs.tile_m, _SIDE), 100), (_exact(knobs.tile_n, _SIDE), 100),
        (_exact(knobs.tile_k, _DEPTH), 100),
    )  # fmt: skip
    packed = 0
    for value, base in fields:
        if value >= base:
            raise IllegalCombination(f"{knobs} has no short form: {value} must be below {base}.")
        packed = packed * base + value
    return packed


def _exact(value: int, unit: int) -> int:
    if value % unit:
        raise IllegalCombination(f"An extent of {value} has no short form: {unit} divides all.")
    return value // unit


def _unpack_tile(packed: int) -> dict[str, int]:
    found = {}
    for name, base, unit in (
        ("tile_k", 100, _DEPTH), ("tile_n", 100, _SIDE), ("tile_m", 100, _SIDE),
        ("swap_ab", 10, 1), ("ctas_per_sm", 10, 1),
    ):  # fmt: skip
        packed, digit = divmod(packed, base)
        found[name] = digit * unit
    turns, consumers = divmod(packed - 1, _MOST_CONSUMERS)
    return {**found, "turns": turns + 1, "consumers": consumers + 1}


def pack_cluster(knobs: GemmKnobs) -> int:
    """The cluster as two decimal digits."""
    return knobs.cluster_m * 10 + knobs.cluster_n


def pack(knobs: GemmKnobs, problem: GemmProblem) -> dict[str, int]:
    """The integers that a search knows knobs by.

    Raises
    ------
    IllegalCombination
        If an extent of the tile has no short form.
    """
    return {
        TILE: pack_tile(knobs),
        CLUSTER: pack_cluster(knobs),
        FEWER_STAGES: most_stages(knobs, problem) - knobs.stages,
        **{name: getattr(knobs, name) for name in _PLAIN},
    }


def unpack(values: Mapping[str, int], problem: Callable[[], GemmProblem]) -> GemmKnobs:
    """The knobs that annotations stand for, packed or by their own names.

    Parameters
    ----------
    values : mapping
        By name.
    problem : callable
        The problem; called only if ``values`` has stages counted from the most that fit.

    Raises
    ------
    IllegalCombination
        If there is no knob of a name, or a value is out of range.
    """
    plain = dict(values)
    if (tile := plain.pop(TILE, None)) is not None:
        plain |= _unpack_tile(tile)
    if (cluster := plain.pop(CLUSTER, None)) is not None:
        plain["cluster_m"], plain["cluster_n"] = divmod(cluster, 10)
    fewer = plain.pop(FEWER_STAGES, None)
    knobs = GemmKnobs.of(plain)
    if fewer is None:
        return knobs
    return replace(knobs, stages=most_stages(knobs, problem()) - fewer)

"""Knobs as the few integers that a search samples, so that most combinations are legal.

Which tiles are legal depends on the warpgroups that compute them and on the CTAs that share an SM,
so all of that is one integer; and stages are counted from the most that fit. :func:`pack` and
:func:`unpack` are each other's inverse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from warploom.errors import IllegalCombination
from warploom.gemm.candidates import most_stages
from warploom.gemm.choices import L2_POLICIES, SMS, STORE_BUFFERS, STORE_COLUMNS
from warploom.gemm.knobs import GemmKnobs, with_new_names
from warploom.gemm.problem import GemmProblem

#: What :func:`pack` makes of several knobs; everything else goes by the knob's own name.
TILE, CLUSTER, FEWER_STAGES = "tile", "cluster", "fewer_stages"
SHARING, GRID = "sharing", "grid"
#: Values of :data:`SHARING`: the parts of a sum, and more for those that a cluster exchanges.
STREAM_K, IN_CLUSTER = 20, 10
#: Values of :data:`GRID`, added: not persistent, without warps that only load, ten times the place
#: of the columns of stores in :data:`STORE_COLUMNS`, a hundred times that of their buffers in
#: :data:`STORE_BUFFERS`, a thousand times that of the SMs in :data:`SMS`, ten thousand times what
#: the L2 cache is told, and a hundred thousand if it is warmed.
PLAIN_GRID, LOAD_ONESELF, NARROW_STORES, OTHER_BUFFERS, FEWER_SMS = 1, 2, 10, 100, 1000
L2_POLICY, PREFETCHES_L2 = 10000, 100000
#: Rows and columns of tiles are multiples of the first, their depth of the second.
_SIDE, _DEPTH = 8, 16
_MOST_CONSUMERS = 3
_PING_PONG = 2
_PLAIN = ("group",)


def pack_tile(knobs: GemmKnobs) -> int:
    """The tile as decimal digits: warpgroups, CTAs of an SM, who is who, M / 8, N / 8, K / 16.

    The first is the number of consumers, and 3 more for each turn after the first; the third 1 for
    swap_ab, 2 for ping_pong.

    Examples
    --------
    >>> pack_tile(GemmKnobs(128, 256, 64, consumers=2))
    210163204
    """
    if knobs.consumers > _MOST_CONSUMERS:
        raise IllegalCombination(f"{knobs} has no short form: it has too many consumers.")
    fields = (
        (knobs.consumers + _MOST_CONSUMERS * (knobs.turns - 1), 10),
        (knobs.ctas_per_sm, 10), (knobs.swap_ab + _PING_PONG * knobs.ping_pong, 10),
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
    parts = {}
    for name, base, unit in (
        ("tile_k", 100, _DEPTH), ("tile_n", 100, _SIDE), ("tile_m", 100, _SIDE),
        ("kind", 10, 1), ("ctas_per_sm", 10, 1),
    ):  # fmt: skip
        packed, digit = divmod(packed, base)
        parts[name] = digit * unit
    parts["ping_pong"], parts["swap_ab"] = divmod(parts.pop("kind"), _PING_PONG)
    turns, consumers = divmod(packed - 1, _MOST_CONSUMERS)
    return {**parts, "turns": turns + 1, "consumers": consumers + 1}


def pack_cluster(knobs: GemmKnobs) -> int:
    """The cluster as two decimal digits."""
    return knobs.cluster_m * 10 + knobs.cluster_n


def pack_sharing(knobs: GemmKnobs) -> int:
    """The CTAs that share a tile, and 10 more if they are a cluster; 20 for stream-K."""
    return STREAM_K if knobs.stream_k else knobs.split_k + IN_CLUSTER * knobs.in_cluster


def pack_grid(knobs: GemmKnobs) -> int:
    """1 if the grid is not persistent, 2 more if no warps only load; more for what else it says."""
    stores = STORE_COLUMNS.index(knobs.store_columns) * NARROW_STORES
    stores += STORE_BUFFERS.index(knobs.store_buffers) * OTHER_BUFFERS
    stores += SMS.index(knobs.sms) * FEWER_SMS + knobs.l2_policy * L2_POLICY
    stores += knobs.prefetch_l2 * PREFETCHES_L2
    return stores + PLAIN_GRID * (not knobs.persistent) + LOAD_ONESELF * (not knobs.specialise)


def _unpack_grid(plain: dict[str, int], grid: int, sharing: int) -> None:
    """Set the knobs of both, and leave out what they exclude.

    What excludes each other is decided in this order: the tile, the grid, who shares tiles, the
    cluster. So every combination of values that a search draws is one of knobs.
    """
    warm, rest = divmod(grid, PREFETCHES_L2)
    keep, rest = divmod(rest, L2_POLICY)
    sms, rest = divmod(rest, FEWER_SMS)
    buffers, rest = divmod(rest, OTHER_BUFFERS)
    stores, kind = divmod(rest, NARROW_STORES)
    lists = (L2_POLICIES, SMS, STORE_BUFFERS, STORE_COLUMNS)
    counts = (2, *map(len, lists), 2 * LOAD_ONESELF)
    digits = (warm, keep, sms, buffers, stores, kind)
    if any(digit >= most for digit, most in zip(digits, counts, strict=True)):
        raise IllegalCombination(f"{GRID} = {grid} stands for no knobs.")
    if plain.get("ping_pong"):
        kind, sharing = 0, 1
    grid = kind
    plain["prefetch_l2"], plain["l2_policy"] = bool(warm), keep
    plain["sms"] = SMS[0 if grid & PLAIN_GRID else sms]
    plain["store_columns"] = STORE_COLUMNS[0 if plain.get("swap_ab") else stores]
    plain["store_buffers"] = STORE_BUFFERS[0 if plain.get("swap_ab") else buffers]
    plain["persistent"], plain["specialise"] = not grid & PLAIN_GRID, not grid & LOAD_ONESELF
    if grid & PLAIN_GRID or (grid & LOAD_ONESELF and IN_CLUSTER < sharing < STREAM_K):
        sharing = 1
    in_cluster = IN_CLUSTER < sharing < STREAM_K
    plain["stream_k"], plain["in_cluster"] = sharing == STREAM_K, in_cluster
    plain["split_k"] = 1 if sharing == STREAM_K else sharing % IN_CLUSTER
    if in_cluster or grid:
        plain["cluster_m"] = plain["cluster_n"] = 1


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
        SHARING: pack_sharing(knobs),
        GRID: pack_grid(knobs),
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
    plain = with_new_names(values)
    if (tile := plain.pop(TILE, None)) is not None:
        plain |= _unpack_tile(tile)
    if (cluster := plain.pop(CLUSTER, None)) is not None:
        plain["cluster_m"], plain["cluster_n"] = divmod(cluster, 10)
    grid, sharing = plain.pop(GRID, None), plain.pop(SHARING, None)
    if grid is not None or sharing is not None:
        _unpack_grid(plain, grid or 0, sharing or 1)
    fewer = plain.pop(FEWER_STAGES, None)
    knobs = GemmKnobs.of(plain)
    if fewer is None:
        return knobs
    return replace(knobs, stages=most_stages(knobs, problem()) - fewer)

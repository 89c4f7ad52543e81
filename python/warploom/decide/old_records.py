"""Configs as databases of earlier versions hold them, read by the names of this version.

Nothing is written in these forms. A choice may have had another name; several choices were the
decimal digits of one integer; and stages were counted from the most that fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from warploom.decide.candidates import most_stages
from warploom.decide.config import Config
from warploom.decide.problem import GemmProblem
from warploom.errors import IllegalCombination

#: Names that choices had, with those that they have.
_NAMES = {
    "keep_a": "l2_policy", "warm_l2": "prefetch_l2", "turns": "slice_k",
    "in_cluster": "reduce_through",
}  # fmt: skip
#: What lines of records called their config.
_KEY = "knobs"
#: All SMs, as a number of them.
_ALL_SMS = 132
#: Integers with several choices each.
_TILE, _CLUSTER, _FEWER_STAGES, _SHARING, _GRID = (
    "tile", "cluster", "fewer_stages", "sharing", "grid"
)  # fmt: skip
#: The digits of ``grid`` from the lowest on: how many values each has.
_GRID_DIGITS = (4, 3, 3, 2, 3, 2)
_STORE_COLUMNS, _STORE_BUFFERS, _SMS = (64, 32, 16), (2, 1, 4), (0, 128)
_STREAM_K, _IN_CLUSTER = 20, 10


def with_new_key(line: Any) -> Any:
    """A line of JSON, or a row of a table, whose config is at the key of this version."""
    if not isinstance(line, dict) or _KEY not in line:
        return line
    return {"config" if key == _KEY else key: value for key, value in line.items()}


def read_config(
    values: Mapping[str, int], problem: Callable[[], GemmProblem] | None = None
) -> Config:
    """The config that integers of any version stand for.

    Parameters
    ----------
    values : mapping
        By name, as :meth:`Config.values` gives them or as an earlier version did.
    problem : callable, optional
        The problem; called only if stages are counted from the most that fit.

    Raises
    ------
    IllegalCombination
        If there is no choice of a name, or a value is out of range.
    """
    plain = {_NAMES.get(name, name): int(value) for name, value in values.items()}
    if plain.get("sms") == _ALL_SMS:
        plain["sms"] = 0
    if (tile := plain.pop(_TILE, None)) is not None:
        plain |= _tile(tile)
    if (cluster := plain.pop(_CLUSTER, None)) is not None:
        plain["cluster_m"], plain["cluster_n"] = divmod(cluster, 10)
    grid, sharing = plain.pop(_GRID, None), plain.pop(_SHARING, None)
    if grid is not None or sharing is not None:
        plain |= _grid_and_sharing(plain, grid or 0, sharing or 1)
    fewer = plain.pop(_FEWER_STAGES, None)
    config = Config.of(plain)
    if fewer is None or problem is None:
        return config
    return replace(config, stages=most_stages(config, problem()) - fewer)


def _tile(packed: int) -> dict[str, int]:
    """Decimal digits: warpgroups, CTAs of an SM, swap_ab or ping_pong, M / 8, N / 8, K / 16."""
    parts = {}
    for name, base, unit in (
        ("tile_k", 100, 16), ("tile_n", 100, 8), ("tile_m", 100, 8), ("kind", 10, 1),
        ("ctas_per_sm", 10, 1),
    ):  # fmt: skip
        packed, digit = divmod(packed, base)
        parts[name] = digit * unit
    parts["ping_pong"], parts["swap_ab"] = divmod(parts.pop("kind"), 2)
    slices, consumers = divmod(packed - 1, 3)
    return {**parts, "slice_k": slices + 1, "consumers": consumers + 1}


def _grid_and_sharing(tile: Mapping[str, int], grid: int, sharing: int) -> dict[str, int]:
    """What both say, without what the tile, or the grid, excludes."""
    rest, digits = grid, []
    for count in _GRID_DIGITS:
        rest, digit = divmod(rest, 10)
        digits.append(digit)
        if digit >= count:
            raise IllegalCombination(f"{_GRID} = {grid} stands for no config.")
    if rest:
        raise IllegalCombination(f"{_GRID} = {grid} stands for no config.")
    kind, columns, buffers, sms, policy, prefetch = digits
    if tile.get("ping_pong"):
        kind, sharing = 0, 1
    plain_grid, load_oneself = kind & 1, kind & 2
    usual_stores = tile.get("swap_ab")
    in_cluster = _IN_CLUSTER < sharing < _STREAM_K
    if plain_grid or (load_oneself and in_cluster):
        sharing, in_cluster = 1, False
    chosen = {
        "l2_policy": policy, "prefetch_l2": prefetch, "sms": _SMS[0 if plain_grid else sms],
        "store_columns": _STORE_COLUMNS[0 if usual_stores else columns],
        "store_buffers": _STORE_BUFFERS[0 if usual_stores else buffers],
        "persistent": int(not plain_grid), "specialise": int(not load_oneself),
        "stream_k": int(sharing == _STREAM_K), "reduce_through": int(in_cluster),
        "split_k": 1 if sharing == _STREAM_K else sharing % _IN_CLUSTER,
    }  # fmt: skip
    if in_cluster or kind:
        chosen |= {"cluster_m": 1, "cluster_n": 1}
    return chosen

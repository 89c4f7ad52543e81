"""Configs for :mod:`warploom.programs.attention`, by the model of costs.

How long a tile takes, and into how many waves tiles divide: both decide. Tiles of 192 queries have
three warpgroups, of which one multiplies while the others compute, and take 0.92 of the time of
tiles of 128 x 128 with 12288 tokens and 32 heads; with 4096 tokens they make 6 waves, where 5.3
would be enough, and take 1.09 (H200, 2026-11-24).
"""

from __future__ import annotations

from dataclasses import dataclass

from warploom.decide.config import Config
from warploom.decide.machine import Machine
from warploom.decide.price.attention import attention_work
from warploom.decide.price.model import price
from warploom.target import SM90A, WGMMA_M

#: Queries and keys of a step, the usual ones first: wider blocks hide more of the softmax, the
#: diagonal wastes more.
_TILES, _CAUSAL_TILE = ((128, 160), (128, 128)), (128, 96)
#: The tile of three warpgroups: whose sums fit into their registers up to the usual head, and which
#: was measured for that alone.
_THREE_WARPGROUPS, _NARROW_HEAD = (192, 80), 64
#: Elements of a head up to which these fit into registers; and what fits above.
_USUAL_HEAD, _WIDE_TILE = 128, (128, 64)
#: Tiles that only a measurement may choose: narrow blocks, and one warpgroup.
_MEASURED, _WIDE_MEASURED = ((128, 96), (128, 64), (64, 128)), ((64, 64),)
#: What the model must promise of another tile than the usual one.
_WORTH = 1.01
#: Keys of a step are a multiple of what one MMA contracts.
_MMA_K = 16
#: Steps that are loaded ahead: as many as fit.
_STAGES = 2


@dataclass(frozen=True)
class AttentionProblem:
    """softmax(Q K^T) V.

    Attributes
    ----------
    tokens : int or None
        Queries; None if a call decides.
    head_dim, heads, kv_heads, batch : int
    causal : bool
    arch : str
    keys : int or None
        None if there are as many as queries, or a call decides.
    """

    tokens: int | None
    head_dim: int
    heads: int
    kv_heads: int
    batch: int = 1
    causal: bool = False
    arch: str = SM90A.name
    keys: int | None = None


def choose_attention(problem: AttentionProblem, machine: Machine) -> Config:
    """The config for a problem: queries are ``tile_m``, keys ``tile_n``."""
    return _fitted(problem, *_tile(problem, machine))


def attention_configs(problem: AttentionProblem, machine: Machine) -> list[Config]:
    """The configs that are worth a measurement: that of :func:`choose_attention` first.

    The others go by the model of costs.
    """
    tiles = (_WIDE_TILE, *_WIDE_MEASURED)
    if problem.head_dim <= _USUAL_HEAD:
        tiles = (*_TILES, _THREE_WARPGROUPS, *_MEASURED)
    ranked = sorted(tiles, key=lambda tile: (_time(problem, tile, machine), tile))
    found = (choose_attention(problem, machine), *(_fitted(problem, *tile) for tile in ranked))
    return list(dict.fromkeys(found))


def _fitted(problem: AttentionProblem, queries: int, keys: int) -> Config:
    """A config with a tile that is no larger than the problem."""
    if problem.tokens is not None:
        queries = min(queries, -(-problem.tokens // WGMMA_M) * WGMMA_M)
    if (count := problem.keys or problem.tokens) is not None:
        # As many steps, the last of them no shorter than the others by more than it must be.
        blocks = -(-count // keys)
        keys = min(keys, -(-count // (blocks * _MMA_K)) * _MMA_K)
    return Config(queries, keys, problem.head_dim, stages=_STAGES)


def _tile(problem: AttentionProblem, machine: Machine) -> tuple[int, int]:
    if problem.head_dim > _USUAL_HEAD:
        return _WIDE_TILE
    if problem.causal:
        return _CAUSAL_TILE
    if problem.tokens is None or problem.arch != SM90A.name:
        return _TILES[0]
    tiles = _TILES if problem.head_dim <= _NARROW_HEAD else (*_TILES, _THREE_WARPGROUPS)
    times: dict[tuple[int, int], float] = {}
    for tile in tiles:
        times[tile] = _time(problem, tile, machine) * (_WORTH if times else 1.0)
    return min(times, key=times.__getitem__)


def _time(problem: AttentionProblem, tile: tuple[int, int], machine: Machine) -> float:
    work = attention_work(
        problem.tokens, problem.head_dim, problem.heads, problem.kv_heads, problem.batch,
        problem.causal, tile, _STAGES, problem.keys,
    )  # fmt: skip
    return price(work, machine).total

"""Configs for :mod:`warploom.programs.attention`, by the model of costs.

How long a tile takes, and into how many waves tiles divide: both decide. Tiles of 192 queries have
three warpgroups, of which one multiplies while the others compute, and take 0.92 of the time of
tiles of 128 x 128 with 12288 tokens and 32 heads; with 4096 tokens they make 6 waves, where 5.3
would be enough, and take 1.09 (H200, 2026-11-24). Few short sequences make fewer tiles than the GPU
has SMs: there a tile of 64 queries is the fastest.
"""

from __future__ import annotations

from dataclasses import dataclass

from warploom.decide.config import Config
from warploom.decide.machine import Machine
from warploom.decide.price.attention import attention_work
from warploom.decide.price.model import price
from warploom.decide.price.work import UNKNOWN_EXTENT
from warploom.target import SM90A, WGMMA_M

#: Queries and keys of a step, by the widest head for which no register is spilled, without a mask
#: and causal: logits, weights and sums lie in registers. 192 queries are three warpgroups.
_TILES: dict[int, tuple[tuple[tuple[int, int], ...], ...]] = {
    64: (
        ((128, 160), (128, 128), (192, 80), (192, 112), (128, 192), (128, 96), (128, 64),
         (64, 128)),
        ((128, 96), (128, 128), (128, 160), (192, 80), (128, 64), (64, 128)),
    ),
    128: (
        ((128, 160), (128, 128), (192, 80), (128, 96), (128, 64), (64, 128)),
        ((128, 96), (128, 112), (128, 64), (64, 128)),
    ),
    256: (((128, 64), (64, 80), (64, 64)), ((128, 64), (64, 80), (64, 64))),
}  # fmt: skip
#: The part of the L2 cache that keys and values of the heads of a time may fill.
_OF_L2 = 0.5
#: Keys of a step are a multiple of what one MMA contracts.
_MMA_K = 16
#: Steps that are loaded ahead: as many as fit.
_STAGES = 2
#: Bytes of an element.
_BYTES = 2
#: Queries of all heads beyond which the order of heads matters little: each CTA has hundreds of
#: tiles.
_MOST_QUERIES = 1 << 23


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
    return attention_configs(problem, machine)[0]


def attention_configs(problem: AttentionProblem, machine: Machine) -> list[Config]:
    """The configs that are worth a measurement, the fastest by the model of costs first."""
    tiles = next(of[problem.causal] for most, of in _TILES.items() if problem.head_dim <= most)
    configs = list(dict.fromkeys(_fitted(problem, *tile) for tile in tiles))
    if problem.arch != SM90A.name:
        return configs
    # Configs that are as fast as each other stay in the order of the table.
    return sorted(configs, key=lambda config: predicted(problem, config, machine))


def heads_at_a_time(
    problem: AttentionProblem, machine: Machine, tile: tuple[int, int]
) -> int:
    """Heads of Q whose tiles follow each other, the longest first, before those of others.

    With a mask, tiles of a head have from one step to all steps, and a CTA takes every so-many-th
    tile: the number of heads decides whether some CTAs have most of the long ones. Keys and values
    of the heads of a time are read at the same time, which the L2 cache holds or not. The model
    prices both. Where a call decides how many tokens there are, the cache alone does.

    Parameters
    ----------
    problem : AttentionProblem
    machine : Machine
    tile : (int, int)
        Queries and keys of a step.

    Returns
    -------
    int
        A divisor of all heads of all batches.

    Examples
    --------
    >>> from warploom.decide.machine import H200
    >>> heads_at_a_time(AttentionProblem(4096, 128, 32, 8, causal=True), H200, (128, 112))
    32
    """
    every = problem.heads * problem.batch
    numbers = [n for n in range(every, 0, -1) if every % n == 0]
    if problem.tokens is not None and problem.tokens * every <= _MOST_QUERIES:
        # Of equal ones the most.
        return min(numbers, key=lambda heads: _time(problem, tile, machine, _STAGES, heads))
    share = problem.heads // problem.kv_heads
    tokens = problem.keys or problem.tokens or UNKNOWN_EXTENT
    bytes_of_head = tokens * 2 * problem.head_dim * _BYTES
    room = machine.gpu.l2_bytes * _OF_L2
    return next(n for n in numbers if n == 1 or -(-n // share) * bytes_of_head <= room)


def _fitted(problem: AttentionProblem, queries: int, keys: int) -> Config:
    """A config with a tile that is no larger than the problem."""
    if problem.tokens is not None:
        queries = min(queries, -(-problem.tokens // WGMMA_M) * WGMMA_M)
    if (count := problem.keys or problem.tokens) is not None:
        # As many steps, the last of them no shorter than the others by more than it must be.
        blocks = -(-count // keys)
        keys = min(keys, -(-count // (blocks * _MMA_K)) * _MMA_K)
    return Config(queries, keys, problem.head_dim, stages=_STAGES)


def predicted(problem: AttentionProblem, config: Config, machine: Machine) -> float:
    """The predicted microseconds of a kernel with a config."""
    tile = config.tile_m, config.tile_n
    together = heads_at_a_time(problem, machine, tile) if problem.causal else None
    return _time(problem, tile, machine, config.stages, together)


def _time(
    problem: AttentionProblem, tile: tuple[int, int], machine: Machine, stages: int,
    together: int | None,
) -> float:  # fmt: skip
    work = attention_work(
        problem.tokens, problem.head_dim, problem.heads, problem.kv_heads, problem.batch,
        problem.causal, tile, stages, problem.keys, together,
    )  # fmt: skip
    return price(work, machine).total

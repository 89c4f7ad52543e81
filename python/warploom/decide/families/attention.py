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
    if problem.arch == SM90A.name:
        # Tiles that are as fast as each other stay in the order of the table.
        tiles = sorted(tiles, key=lambda tile: _time(problem, tile, machine))
    return list(dict.fromkeys(_fitted(problem, *tile) for tile in tiles))


def heads_at_a_time(problem: AttentionProblem, machine: Machine) -> int:
    """Heads of Q whose tiles follow each other, the longest first, before those of others.

    With a mask, tiles of a head have from one step to all steps. Where all heads begin with their
    longest tiles, SMs end together; but keys and values of these heads are read at the same time.
    So there are as many heads as the L2 cache holds.
    """
    share = problem.heads // problem.kv_heads
    tokens = problem.keys or problem.tokens or UNKNOWN_EXTENT
    bytes_of_head = tokens * 2 * problem.head_dim * _BYTES
    room = machine.gpu.l2_bytes * _OF_L2
    together = (n for n in range(problem.kv_heads, 0, -1) if problem.kv_heads % n == 0)
    return share * next((n for n in together if n * bytes_of_head <= room), 1)


def _fitted(problem: AttentionProblem, queries: int, keys: int) -> Config:
    """A config with a tile that is no larger than the problem."""
    if problem.tokens is not None:
        queries = min(queries, -(-problem.tokens // WGMMA_M) * WGMMA_M)
    if (count := problem.keys or problem.tokens) is not None:
        # As many steps, the last of them no shorter than the others by more than it must be.
        blocks = -(-count // keys)
        keys = min(keys, -(-count // (blocks * _MMA_K)) * _MMA_K)
    return Config(queries, keys, problem.head_dim, stages=_STAGES)


def _time(problem: AttentionProblem, tile: tuple[int, int], machine: Machine) -> float:
    work = attention_work(
        problem.tokens, problem.head_dim, problem.heads, problem.kv_heads, problem.batch,
        problem.causal, tile, _STAGES, problem.keys,
    )  # fmt: skip
    return price(work, machine).total

"""Configs for :mod:`warploom.programs.attention`, by the model of costs.

How long a tile takes, and into how many waves tiles divide: both decide. Tiles of 192 queries have
three warpgroups and read keys and values less often. With 16 heads and 4096 tokens they make 3
waves, where 2.7 would be enough, and take 1.12 of the time of tiles of 128 queries; with 12288
tokens 1.01 (H200, 2026-11-26). Few short sequences make fewer tiles than the GPU has SMs: there a
tile of 64 queries is the fastest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from warploom.decide.config import Config
from warploom.decide.families.ranked import LEAST_STAGES
from warploom.decide.machine import Machine
from warploom.decide.price.attention import attention_work
from warploom.decide.price.model import price
from warploom.decide.price.work import UNKNOWN_EXTENT
from warploom.target import ARCHS, SM90A, WGMMA_M, wgmma_kind

#: Queries and keys of a step, by the widest head for which no register is spilled, without a mask
#: and causal: logits, weights and sums lie in registers. 192 queries are three warpgroups.
_TILES: dict[int, tuple[tuple[tuple[int, int], ...], ...]] = {
    64: (
        ((128, 160), (128, 128), (192, 80), (192, 112), (128, 192), (128, 96), (128, 64),
         (64, 128)),
        ((128, 96), (128, 128), (128, 160), (192, 80), (128, 64), (64, 128)),
    ),
    128: (
        ((128, 176), (128, 160), (128, 128), (192, 80), (128, 96), (128, 64), (64, 128)),
        ((128, 96), (128, 112), (128, 64), (64, 128)),
    ),
    256: (((128, 64), (64, 80), (64, 64)), ((128, 64), (64, 80), (64, 64))),
}  # fmt: skip
#: The time of tiles of three warpgroups in what the model says of them, tiles of two at 1, by the
#: widest head (H200, 2026-11-26: 8 cases).
_OF_THREE = {64: 0.91, 128: 1.04, 256: 1.0}
#: Predicted times that differ by less are equal: of two such tiles the first of the table was not
#: slower.
_EQUAL = 0.005
#: The widest head, without a mask and causal, for which warpgroups issue MMAs in order. With it
#: heads of 128 elements took 0.94 to 1.01 of the time, causal 0.98 to 1.01; of 64 elements 0.84 to
#: 0.99, causal 0.85; of 256 elements 1.01 (H200, 2026-11-26: 18 pairs).
_ORDERED = (128, 64)
#: The part of the L2 cache that keys and values of the heads of a time may fill.
_OF_L2 = 0.5
#: Keys of a step are a multiple of what one MMA contracts.
_MMA_K = 16
#: Steps that are loaded ahead: as many as fit.
_STAGES = 2
#: Bytes of an element.
_BYTES = 2
#: Warpgroups that compute, and keys of a step, at most; the instruction of the MMAs.
_MOST_WARPGROUPS, _MOST_KEYS = 3, 256
_KIND = wgmma_kind("float16", "float16", "float32")
#: Queries of all heads beyond which the order of heads matters little: each CTA has hundreds of
#: tiles.
_MOST_QUERIES = 1 << 23
#: Elements of a row of a chunk that is stored, and bytes of shared memory for mbarriers.
_CHUNK, _MBARRIERS = 64, 1024


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
    capped : bool
        Whether logits have a soft cap.
    """

    tokens: int | None
    head_dim: int
    heads: int
    kv_heads: int
    batch: int = 1
    causal: bool = False
    arch: str = SM90A.name
    keys: int | None = None
    capped: bool = False


def choose_attention(problem: AttentionProblem, machine: Machine) -> Config:
    """The config for a problem: queries are ``tile_m``, keys ``tile_n``."""
    return attention_configs(problem, machine)[0]


def attention_configs(problem: AttentionProblem, machine: Machine) -> list[Config]:
    """The configs that are worth a measurement, the fastest by the model of costs first."""
    most = next(most for most in _TILES if problem.head_dim <= most)
    tiles = _TILES[most][problem.causal]
    if problem.arch == SM90A.name:
        # Tiles that are as fast as the fastest stay in the order of the table.
        times = {tile: predicted(problem, config_of(problem, *tile), machine) for tile in tiles}
        least = min(times.values()) * (1 + _EQUAL)
        tiles = sorted(tiles, key=lambda tile: max(times[tile], least))
    return list(dict.fromkeys(_fitted(problem, *tile) for tile in tiles))


def config_of(problem: AttentionProblem, queries: int, keys: int, stages: int = _STAGES) -> Config:
    """The config with a tile, and what goes with it.

    Parameters
    ----------
    problem : AttentionProblem
    queries, keys : int
        Of a step.
    stages : int
        Steps that are loaded ahead.

    Examples
    --------
    >>> config = config_of(AttentionProblem(4096, 128, 16, 16), 128, 176)
    >>> config.order_mmas, config.store_buffers
    (True, 1)
    """
    warpgroups = next((n for n in (3, 2, 1) if queries % (n * WGMMA_M) == 0), 1)
    ordered = problem.head_dim <= _ORDERED[problem.causal] and warpgroups > 1
    config = Config(
        queries, keys, problem.head_dim, stages=stages,
        order_mmas=ordered and problem.arch == SM90A.name,
    )  # fmt: skip
    fits = _shared_bytes(problem, config) <= ARCHS[problem.arch].shared_bytes_of_each(1)
    return config if fits else config.replace(store_buffers=1)


def why_not_attention(problem: AttentionProblem, config: Config) -> str | None:
    """Why no kernel for a problem can have these choices; None if a kernel can."""
    queries, keys, arch = config.tile_m, config.tile_n, ARCHS[problem.arch]
    most = _MOST_WARPGROUPS * WGMMA_M
    if queries % WGMMA_M or queries > most or keys % _MMA_K or keys > _MOST_KEYS:
        return (
            f"A step of {queries} queries and {keys} keys: queries are a multiple of {WGMMA_M} up "
            f"to {most}, keys of {_MMA_K} up to {_MOST_KEYS}."
        )
    columns, warpgroups = max(keys, problem.head_dim), queries // WGMMA_M
    needed = _KIND.launch_registers(columns)
    given = replace(config, consumers=warpgroups, ctas_per_sm=1).launch_registers(arch)
    if arch is SM90A and needed > given:
        return (
            f"An MMA of {columns} columns needs {needed} registers at the launch, and a thread of "
            f"{warpgroups} warpgroups that compute has {given}: use fewer keys or queries."
        )
    needed, limit = _shared_bytes(problem, config), arch.shared_bytes_of_each(1)
    if needed > limit:
        return (
            f"{config.stages} stages of {keys} keys and values beside {queries} queries need "
            f"{needed} bytes of shared memory, a CTA has {limit}; use fewer stages, keys or "
            "queries."
        )
    return None


def deepest_attention(problem: AttentionProblem, config: Config) -> Config | None:
    """The config of a tile with as many of its stages as fit; None if no kernel has the tile."""
    for stages in range(config.stages, LEAST_STAGES - 1, -1):
        found = config_of(problem, config.tile_m, config.tile_n, stages)
        if why_not_attention(problem, found) is None:
            return found
    return None


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
        config = config_of(problem, *tile)
        return min(numbers, key=lambda heads: _time(problem, config, machine, heads))
    share = problem.heads // problem.kv_heads
    tokens = problem.keys or problem.tokens or UNKNOWN_EXTENT
    bytes_of_head = tokens * 2 * problem.head_dim * _BYTES
    room = machine.gpu.l2_bytes * _OF_L2
    return next(n for n in numbers if n == 1 or -(-n // share) * bytes_of_head <= room)


def _shared_bytes(problem: AttentionProblem, config: Config) -> int:
    """Shared memory of a CTA: operands, chunks of the result, mbarriers."""
    rows = config.tile_m + config.stages * 2 * config.tile_n
    chunks = config.store_buffers * config.tile_m * _CHUNK
    return (rows * problem.head_dim + chunks) * _BYTES + _MBARRIERS


def _fitted(problem: AttentionProblem, queries: int, keys: int) -> Config:
    """A config with a tile that is no larger than the problem."""
    if problem.tokens is not None:
        queries = min(queries, -(-problem.tokens // WGMMA_M) * WGMMA_M)
    if (count := problem.keys or problem.tokens) is not None:
        # As many steps, the last of them no shorter than the others by more than it must be.
        blocks = -(-count // keys)
        keys = min(keys, -(-count // (blocks * _MMA_K)) * _MMA_K)
    return config_of(problem, queries, keys)


def predicted(problem: AttentionProblem, config: Config, machine: Machine) -> float:
    """The predicted microseconds of a kernel with a config."""
    together = None
    if problem.causal:
        together = heads_at_a_time(problem, machine, (config.tile_m, config.tile_n))
    return _time(problem, config, machine, together)


def _time(
    problem: AttentionProblem, config: Config, machine: Machine, together: int | None
) -> float:
    work = attention_work(
        problem.tokens, problem.head_dim, problem.heads, problem.kv_heads, problem.batch,
        problem.causal, (config.tile_m, config.tile_n), config.stages, problem.keys, together,
        config.order_mmas, problem.capped,
    )  # fmt: skip
    three = config.tile_m % (3 * WGMMA_M) == 0
    most = next(most for most in _OF_THREE if problem.head_dim <= most)
    return price(work, machine).total * (_OF_THREE[most] if three else 1.0)

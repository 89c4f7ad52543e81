"""Configs for :mod:`warploom.programs.gemm_block_scaled`, by the model of costs.

A thread holds its sums and, beside them, the MMA of one block: 64 x 192 elements of each fill the
registers of a warpgroup, or three times 64 x 128 where two MMAs are under way. The scales of a step
arrive while an MMA runs; if that ends earlier, loads that are a step ahead take less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from warploom.decide.config import Config
from warploom.decide.families.ranked import (
    ranked,
    why_no_room,
    why_not_usual,
    with_stages,
)
from warploom.decide.machine import Machine
from warploom.decide.price.block_scaled import BLOCK, block_scaled_work
from warploom.decide.price.model import price
from warploom.decide.problem import GemmProblem, plain_gemm
from warploom.target import ARCHS, SM90A
from warploom.target.swizzle import ATOM_ROWS

#: Rows of A, rows of B and K of a step of which ptxas 13.0 spills no register, with scales ahead or
#: not; first the two of which one or the other is the fastest of 19 configs of six GEMMs of 4096
#: rows (H200, 2026-11-22).
_TILES = (
    (128, 192, BLOCK), (256, 128, BLOCK),
    *((64, columns, 2 * BLOCK) for columns in (128, 64)),
    *((128, columns, 2 * BLOCK) for columns in (128, 64)),
    *((192, columns, BLOCK) for columns in (128, 96, 64)),
    *((64, columns, BLOCK) for columns in (192, 128, 96, 64)),
    *((128, columns, BLOCK) for columns in (160, 128, 96, 64)),
    *((256, columns, BLOCK) for columns in (96, 64)),
)  # fmt: skip
#: Warpgroups that compute: two for 256 rows, each of which multiplies one half after the other.
CONSUMERS = {64: 1, 128: 2, 192: 3, 256: 2}
#: Choices by which CTAs or warpgroups share the steps of a tile, or compute its transpose: those of
#: sums that MMAs alone add to.
UNSHARED = ("swap_ab", "ping_pong", "slice_k", "stream_k", "split_k", "reduce_through")
#: Warpgroups that compute on other architectures than Hopper.
MOST_CONSUMERS_ELSEWHERE = 2
#: Elements of a tile from which on registers do not hold its sums there.
_MOST_ELSEWHERE = 256 * 128
#: CTAs of a cluster that share rows of B, none, and rows of A. Clusters of 2 x 2 took twice as long
#: as others (six GEMMs, H200, 2026-11-22).
_CLUSTERS = ((2, 1), (1, 1), (1, 2))
#: Rows of A that are made for if a call decides.
_UNKNOWN_ROWS = 4096
#: Columns from which each chunk of a tile's results has a buffer, if stages leave room.
_WIDE, _WIDE_BUFFERS = 192, 3


@dataclass(frozen=True)
class BlockScaledProblem:
    """C = A B^T with a scale for each block of 128 elements along K.

    Attributes
    ----------
    m : int or None
        Rows of A; None if a call decides.
    n, k : int
        Rows of B, and the extent of K.
    arch : str
    dtype, out_dtype : str
        Of A and B, and of C.
    """

    m: int | None
    n: int
    k: int
    arch: str = SM90A.name
    dtype: str = "float8_e4m3fn"
    out_dtype: str = "bfloat16"


def choose_block_scaled(problem: BlockScaledProblem, machine: Machine) -> Config:
    """The config for a problem; :class:`Config` says what of it a program follows."""
    return block_scaled_configs(problem, machine)[0]


def block_scaled_configs(problem: BlockScaledProblem, machine: Machine) -> list[Config]:
    """The legal configs that are worth a measurement, the fastest by the model first."""
    return list(_configs(problem, machine))


def why_not_block_scaled(problem: BlockScaledProblem, config: Config) -> str | None:
    """Why no kernel for a problem can have these choices; None if a kernel can."""
    tile, arch = (config.tile_m, config.tile_n, config.tile_k), ARCHS[problem.arch]
    if reason := why_not_tile(tile, config.consumers, tiles_of(_TILES, problem.arch)):
        return reason
    if reason := why_not_scaled(config) or config.why_not_shared(arch):
        return reason
    if arch is not SM90A and config.consumers > MOST_CONSUMERS_ELSEWHERE:
        return (
            f"{config.consumers} consumers: tensor memory holds the rows of at most "
            f"{MOST_CONSUMERS_ELSEWHERE}."
        )
    if config.order_mmas and arch is not SM90A:
        return "order_mmas: only several warpgroups of wgmma issue MMAs in order."
    for rows, ctas, name in (
        (config.tile_n, config.cluster_m, "cluster_m"),
        (config.tile_m, config.cluster_n, "cluster_n"),
    ):
        if ctas > 1 and rows % (ctas * ATOM_ROWS):
            return (
                f"{name} = {ctas}: each CTA loads whole swizzle atoms of {ATOM_ROWS} rows, and the "
                f"tile that they share has {rows}."
            )
    return why_no_room(config, _gemm(problem), stage_of(problem.dtype, config), arch)


def deepest_block_scaled(problem: BlockScaledProblem, config: Config) -> Config | None:
    """A config with as many stages as fit and help; None if no kernel has its other choices."""
    tiles = stage_of(problem.dtype, config)
    found = with_stages(config.replace(stages=1), _gemm(problem), tiles, ARCHS[problem.arch])
    return found if found is not None and why_not_block_scaled(problem, found) is None else None


@lru_cache(maxsize=512)
def _configs(problem: BlockScaledProblem, machine: Machine) -> tuple[Config, ...]:
    problem = replace(problem, m=_UNKNOWN_ROWS if problem.m is None else problem.m)
    return tuple(
        ranked(_candidates(problem), lambda config: predicted(problem, config, machine))
    )


def predicted(problem: BlockScaledProblem, config: Config, machine: Machine) -> float:
    """The predicted microseconds of a kernel with a legal config."""
    m = _UNKNOWN_ROWS if problem.m is None else problem.m
    work = block_scaled_work(m, problem.n, problem.k, problem.dtype, problem.out_dtype, config)
    return price(work, machine).total


def _candidates(problem: BlockScaledProblem) -> Iterator[Config]:
    """Legal configs whose tiles and clusters the problem has a use for."""
    arch = ARCHS[problem.arch]
    for rows, columns, depth in _TILES:
        # First to share the larger tile.
        for cluster_m, cluster_n in _CLUSTERS if columns >= rows else _CLUSTERS[::-1]:
            if not has_tiles(problem.m, rows, cluster_m) or not has_tiles(
                problem.n, columns, cluster_n
            ):
                continue
            for ahead, order in ((True, False), (False, False), (True, True), (False, True)):
                config = Config(
                    rows, columns, depth, 1, consumers=CONSUMERS[rows], cluster_m=cluster_m,
                    cluster_n=cluster_n, scales_ahead=ahead, order_mmas=order,
                    # Weights that each CTA reads once leave the L2 cache first; scales and A stay.
                    # Six GEMMs of 128 rows gained 0 to 23 % (H200, 2026-11-23).
                    l2_policy=int(-(-problem.m // rows) <= cluster_m),
                )  # fmt: skip
                tiles = stage_of(problem.dtype, config)
                found = with_stages(config, _gemm(problem), tiles, arch)
                if found is not None and columns >= _WIDE:
                    found = with_buffers(found, _gemm(problem), tiles, problem.arch)
                if found is not None and why_not_block_scaled(problem, found) is None:
                    yield found


def why_not_scaled(config: Config) -> str | None:
    """Why no kernel with block scales can have these choices; None if it can."""
    return why_not_usual(
        config, UNSHARED, "scales are multiplied into the sum of each block"
    ) or why_not_usual(
        config, ("ctas_per_sm",), "sums and MMAs of a tile fill the registers of an SM"
    )


def tiles_of(tiles: tuple[tuple[int, ...], ...], arch: str) -> tuple[tuple[int, ...], ...]:
    """Those of some tiles whose sums fit the registers of an architecture.

    On Blackwell the MMAs' results come to registers from tensor memory beside the sums: of tiles of
    256 x 128, ptxas 13.5 spills 260 bytes a thread (2026-11-26).
    """
    if arch == SM90A.name:
        return tiles
    return tuple(tile for tile in tiles if tile[0] * tile[1] < _MOST_ELSEWHERE)


def why_not_tile(
    tile: tuple[int, ...], consumers: int, tiles: tuple[tuple[int, ...], ...]
) -> str | None:
    """Why registers do not hold the sums of a tile; None if they do.

    Parameters
    ----------
    tile : tuple of int
    consumers : int
    tiles : tuple of tuple of int
        Those whose registers suffice, with the usual number of consumers.
    """
    if tile in tiles and consumers == CONSUMERS[tile[0]]:
        return None
    return (
        f"A tile of {' x '.join(map(str, tile))} with {consumers} consumers: registers hold the "
        f"sums of {', '.join('x'.join(map(str, one)) for one in tiles)}."
    )


def has_tiles(extent: int, tile: int, ctas: int) -> bool:
    """Whether more than half of a cluster has tiles along a dimension."""
    return ctas == 1 or extent > tile * (ctas // 2)


def with_buffers(
    config: Config, problem: GemmProblem, tiles: tuple[int, ...], arch: str
) -> Config:
    """A config whose chunks of results all have buffers, if stages leave room for them."""
    more = with_stages(
        config.replace(store_buffers=_WIDE_BUFFERS), problem, tiles, ARCHS[arch]
    )
    return more if more is not None and more.stages == config.stages else config


def _gemm(problem: BlockScaledProblem) -> GemmProblem:
    """A GEMM whose results go through shared memory as those of the program do."""
    return plain_gemm(problem.m, problem.n, problem.k, problem.dtype, problem.out_dtype)


def stage_of(dtype: str, config: Config) -> tuple[int, int]:
    """Bytes that a stage has of A and of B: elements have one."""
    return config.tile_m * config.tile_k, config.tile_n * config.tile_k

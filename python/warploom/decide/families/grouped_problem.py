"""Grouped GEMMs: the problem, and which configs kernels for it can have."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from warploom.decide.config import Config
from warploom.decide.families.block_scaled import (
    CONSUMERS,
    UNSHARED,
    stage_of,
    why_not_scaled,
    why_not_tile,
)
from warploom.decide.families.ranked import why_no_room, why_not_usual, with_stages
from warploom.decide.price.block_scaled import BLOCK
from warploom.decide.problem import GemmProblem, plain_gemm
from warploom.target import ARCHS, SM90A, WGMMA_M
from warploom.target.dtypes import bits_of
from warploom.target.swizzle import ATOM_ROWS

#: Rows of X and of W of a tile of which ptxas 13.0 spills no register: what finds the rows of a
#: group needs some.
_TILES = (
    *((128, columns) for columns in (256, 192, 160, 128, 96, 64)),
    *((64, columns) for columns in (256, 192, 160, 128, 96, 64)),
    *((192, columns) for columns in (160, 128, 96, 64)),
    *((256, columns) for columns in (128, 96, 64)),
)
#: The same for few rows of a group, computed as the transpose: 64 rows of W and more, and not of X,
#: are the side of the instructions, and the sums that CTAs of a split exchange are few.
_FEW_ROWS, _FEW_COLUMNS = (8, 16, 32), (64, 128)
#: The same on other architectures than Hopper, without block scales and with them.
_TILES_ELSEWHERE = {
    False: ((128, 256), (64, 256), (128, 128), (64, 128)), True: ((64, 128),)
}  # fmt: skip
#: With block scales: tiles of which ptxas 13.0 spills no register.
_SCALED_TILES = (
    (128, 128), (64, 128), (128, 192), (128, 160), (192, 128), (64, 192), (64, 160), (192, 96),
    (128, 96), (128, 64), (64, 96), (64, 64),
)  # fmt: skip
#: Choices that kernels for groups do not follow.
_NOT_FOLLOWED = ("ping_pong", "slice_k", "stream_k")
#: Rows of a group, on average, if a call decides.
UNKNOWN_ROWS = 512


@dataclass(frozen=True)
class GroupedProblem:
    """A GEMM with other weights for each group of rows.

    Attributes
    ----------
    groups : int
    m : int or None
        Rows of all groups together; None if a call decides.
    n, k : int
        Of the weights of a group.
    dtype, out_dtype : str
        Of operands and of the result.
    arch : str
    """

    groups: int
    m: int | None
    n: int
    k: int
    dtype: str = "float16"
    out_dtype: str = "float16"
    arch: str = SM90A.name

    @property
    def rows(self) -> int:
        """Rows of all groups together, as many as are made for if a call decides."""
        return self.m or self.groups * UNKNOWN_ROWS


@dataclass(frozen=True)
class GroupedBlockScaledProblem(GroupedProblem):
    """A grouped GEMM with a scale for each block of 128 elements along K.

    Attributes are those of :class:`GroupedProblem`.
    """

    dtype: str = "float8_e4m3fn"
    out_dtype: str = "bfloat16"


def why_not_grouped(problem: GroupedProblem, config: Config) -> str | None:
    """Why no kernel for a problem can have these choices; None if a kernel can."""
    arch, gemm = ARCHS[problem.arch], as_gemm(problem)
    if config.cluster_n > 1 and config.tile_m % (config.cluster_n * ATOM_ROWS):
        return (
            f"cluster_n = {config.cluster_n}: CTAs load whole swizzle atoms, and share a tile of "
            f"{config.tile_m} rows."
        )
    scaled = isinstance(problem, GroupedBlockScaledProblem)
    fixed = UNSHARED if scaled else _NOT_FOLLOWED
    if reason := why_not_usual(config, fixed, "memory decides which tiles a CTA has"):
        return reason
    if reason := _why_not_tile(problem, config):
        return reason
    if config.through_cluster and arch is not SM90A:
        return "reduce_through = 'cluster': only on Hopper do sums go through shared memory."
    if config.l2_policy > (not scaled):
        followed = "none" if scaled else "that of W alone"
        return f"l2_policy = {config.l2_policy}: of eviction policies kernels follow {followed}."
    if scaled:
        if config.tile_k != BLOCK:
            return f"tile_k = {config.tile_k}: a step has the {BLOCK} elements of one scale."
        return why_not_scaled(config) or config.why_not_shared(arch) or why_no_room(
            config, gemm, stage_of(problem.dtype, config), arch
        )
    return config.why_not(gemm, arch)


def _why_not_tile(problem: GroupedProblem, config: Config) -> str | None:
    """Why no kernel has a tile; None if kernels do."""
    rows, columns = config.tile_m, config.tile_n
    few = rows % WGMMA_M != 0
    if few != config.swap_ab:
        return (
            f"swap_ab = {config.swap_ab}: tiles of {rows} rows are "
            f"{'' if few else 'not '}computed as the transpose."
        )
    if not few:
        return why_not_tile((rows, columns), config.consumers, tiles_of(problem))
    if (rows, columns) not in few_tiles(problem) or config.consumers != consumers_of(rows, columns):
        return (
            f"A tile of {rows} x {columns} with {config.consumers} consumers: those of few rows "
            f"are {', '.join(f'{y}x{x}' for y, x in few_tiles(problem)) or 'none'}, with a "
            f"consumer for 64 columns and 2 for more."
        )
    return None


def deepest_grouped(problem: GroupedProblem, config: Config) -> Config | None:
    """A config with as many stages as fit and help; None if no kernel has its other choices."""
    tiles = stage_tiles(problem, config)
    found = with_stages(config.replace(stages=1), as_gemm(problem), tiles, ARCHS[problem.arch])
    return found if found is not None and why_not_grouped(problem, found) is None else None


def consumers_of(rows: int, columns: int) -> int:
    """Warpgroups that compute a tile."""
    return min(2, columns // WGMMA_M) if rows % WGMMA_M else CONSUMERS[rows]


def few_tiles(problem: GroupedProblem) -> tuple[tuple[int, int], ...]:
    """Rows of X and rows of W of the tiles that are computed as the transpose."""
    if isinstance(problem, GroupedBlockScaledProblem) or problem.arch != SM90A.name:
        return ()
    return tuple(product(_FEW_ROWS, _FEW_COLUMNS))


def tiles_of(problem: GroupedProblem) -> tuple[tuple[int, int], ...]:
    """Rows of X and rows of W of the tiles whose registers suffice."""
    scaled = isinstance(problem, GroupedBlockScaledProblem)
    if problem.arch != SM90A.name:
        return _TILES_ELSEWHERE[scaled]
    return _SCALED_TILES if scaled else _TILES


def stage_tiles(problem: GroupedProblem, config: Config) -> tuple[int, ...]:
    """Bytes that a stage has of X and of W."""
    size = bits_of(problem.dtype) // 8
    return tuple(size * tile for tile in stage_of(problem.dtype, config))


def as_gemm(problem: GroupedProblem) -> GemmProblem:
    """A GEMM whose tiles, and results on their way to memory, are those of the program."""
    return plain_gemm(problem.rows, problem.n, problem.k, problem.dtype, problem.out_dtype)

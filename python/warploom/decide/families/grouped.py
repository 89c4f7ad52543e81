"""Configs for :mod:`warploom.programs.gemm_grouped` and its form with block scales, by the model.

A tile has rows of one group, so that the last one of a group is filled in part. How many tiles
there are, and how many groups are empty, follows from the sizes of groups, which only the device
knows. A config is priced for two cases, :func:`fills`: a count of tiles that just fills a wave in
one of them begins another wave in the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from warploom.decide.config import Config
from warploom.decide.families.block_scaled import (
    CONSUMERS,
    UNSHARED,
    stage_of,
    why_not_scaled,
    why_not_tile,
    with_buffers,
)
from warploom.decide.families.ranked import (
    ranked,
    why_no_room,
    why_not_usual,
    with_stages,
)
from warploom.decide.machine import Machine
from warploom.decide.price.block_scaled import BLOCK, grouped_block_scaled_work
from warploom.decide.price.grouped import grouped_work, side_by_side
from warploom.decide.price.model import price
from warploom.decide.price.step import alone_of
from warploom.decide.problem import GemmProblem, plain_gemm
from warploom.decide.ranking import SHARED_LOSS
from warploom.errors import IllegalCombination
from warploom.target import ARCHS, SM90A, WGMMA_M
from warploom.target.dtypes import bits_of
from warploom.target.swizzle import ATOM_ROWS
from warploom.tile.choices import BY_NAME, REDUCING_CLUSTERS, REDUCTIONS

#: Rows of X and of W of a tile of which ptxas 13.0 spills no register: what finds the rows of a
#: group needs some. Bytes along K of a step: rows of the widest swizzle.
_TILES = (
    *((128, columns) for columns in (256, 192, 160, 128, 96, 64)),
    *((64, columns) for columns in (256, 192, 160, 128, 96, 64)),
    *((192, columns) for columns in (160, 128, 96, 64)),
    *((256, columns) for columns in (128, 96, 64)),
)
_STEP_BYTES = (128, 256)
#: The same for few rows of a group, computed as the transpose: 64 rows of W and more, and not of X,
#: are the side of the instructions, and the sums that CTAs of a split exchange are few.
_FEW_ROWS, _FEW_COLUMNS = (8, 16, 32), (64, 128, 256)
_FEW_STEP_BYTES = (128, 256, 512)
#: The same on other architectures than Hopper, without block scales and with them.
_TILES_ELSEWHERE = {
    False: ((128, 256), (64, 256), (128, 128), (64, 128)), True: ((64, 128),)
}  # fmt: skip
#: With block scales: tiles of which ptxas 13.0 spills no register.
_SCALED_TILES = (
    (128, 128), (64, 128), (128, 192), (128, 160), (192, 128), (64, 192), (64, 160), (192, 96),
    (128, 96), (128, 64), (64, 96), (64, 64),
)  # fmt: skip
#: CTAs side by side that share rows of X, with block scales and without: then pairs took 1 to 7 %
#: longer where groups have many rows, and up to 30 % where they have few (H200, 2026-11-22).
_WIDTHS = {True: (1, 2), False: (1,)}
#: Choices that kernels for groups do not follow.
_NOT_FOLLOWED = ("ping_pong", "slice_k", "stream_k")
#: Parts of tiles for each SM beyond which a finer split is no candidate.
_MOST_PARTS = 4
#: Rows of a group, on average, if a call decides.
_UNKNOWN_ROWS = 512
#: Rows of a group, on average, that a config for few rows is chosen for.
_FEW_OF_GROUPS = (1 / 16, 1 / 2, 2, 8)
#: Probabilities below this one count as none.
_RARE = 1e-3
#: Columns from which each chunk of a tile's results has a buffer, if stages leave room.
_WIDE = 192


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
        return self.m or self.groups * _UNKNOWN_ROWS


@dataclass(frozen=True)
class GroupedBlockScaledProblem(GroupedProblem):
    """A grouped GEMM with a scale for each block of 128 elements along K.

    Attributes are those of :class:`GroupedProblem`.
    """

    dtype: str = "float8_e4m3fn"
    out_dtype: str = "bfloat16"


def choose_grouped(problem: GroupedProblem, machine: Machine) -> Config:
    """The config for a problem: rows of X are ``tile_m``, rows of W ``tile_n``.

    Raises
    ------
    IllegalCombination
        If none is legal.
    """
    return grouped_configs(problem, machine)[0]


def choose_grouped_by_rows(
    problem: GroupedProblem, machine: Machine
) -> list[tuple[int | None, Config]]:
    """Configs for several numbers of rows, each with the largest number it is for.

    One pair, of None, where the number of rows is known. Otherwise there may be another config for
    few rows, as where a model decodes: up to as many as it is predicted to be faster for, if it
    gains more than :data:`SHARED_LOSS`. It is the one that loses least where it loses most, from
    few groups with a row to groups of :data:`_FEW_OF_GROUPS` rows.

    Raises
    ------
    IllegalCombination
        If none is legal.
    """
    config = choose_grouped(problem, machine)
    if problem.m is not None:
        return [(None, config)]
    known = [replace(problem, m=max(1, int(problem.groups * each))) for each in _FEW_OF_GROUPS]
    bests = {one: choose_grouped(one, machine) for one in dict.fromkeys(known)}

    def loss(config: Config) -> float:
        """The largest part by which it takes longer than the best."""
        return max(
            predicted(one, config, machine) / predicted(one, best, machine)
            for one, best in bests.items()
        )

    few = min(dict.fromkeys(bests.values()), key=loss)
    limit = None
    for rows in (problem.groups << doubled for doubled in range(_UNKNOWN_ROWS.bit_length())):
        one = replace(problem, m=rows)
        gain = predicted(one, config, machine) / predicted(one, few, machine)
        if gain < (SHARED_LOSS if limit is None else 1):
            break
        limit = rows
    return [(None, config)] if limit is None else [(limit, few), (None, config)]


def grouped_configs(problem: GroupedProblem, machine: Machine) -> list[Config]:
    """The legal configs that are worth a measurement, the fastest by the model first.

    Raises
    ------
    IllegalCombination
        If none is legal.
    """
    found = _configs(problem, machine)
    if not found:
        raise IllegalCombination(f"No tile of {problem} fits into the shared memory of a CTA.")
    return list(found)


def why_not_grouped(problem: GroupedProblem, config: Config) -> str | None:
    """Why no kernel for a problem can have these choices; None if a kernel can."""
    arch, gemm = ARCHS[problem.arch], _gemm(problem)
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
        return why_not_tile((rows, columns), config.consumers, _tiles_of(problem))
    if (rows, columns) not in _few_tiles(problem) or config.consumers != _consumers(rows, columns):
        return (
            f"A tile of {rows} x {columns} with {config.consumers} consumers: those of few rows "
            f"are {', '.join(f'{y}x{x}' for y, x in _few_tiles(problem)) or 'none'}, with a "
            f"consumer for 64 columns and 2 for more."
        )
    return None


def deepest_grouped(problem: GroupedProblem, config: Config) -> Config | None:
    """A config with as many stages as fit and help; None if no kernel has its other choices."""
    tiles = _stage(problem, config)
    found = with_stages(config.replace(stages=1), _gemm(problem), tiles, ARCHS[problem.arch])
    return found if found is not None and why_not_grouped(problem, found) is None else None


@dataclass(frozen=True)
class Fill:
    """What groups need of a kernel, as far as their number and that of all rows tell.

    Attributes
    ----------
    groups : int
        That have rows, whose weights are read.
    row_tiles : int
        Tiles of rows of all groups.
    """

    groups: int
    row_tiles: int


@lru_cache(maxsize=1024)
def fills(groups: int, m: int, rows: int) -> tuple[Fill, Fill]:
    """The two cases that a config is priced for: groups that have about as many rows, and not.

    Sizes are known on the device alone. Where every row belongs to any group with the same
    probability they are those of a binomial distribution; the least certain ones of a mean are
    those of a geometric distribution: more than n rows with the probability of
    ``more ** (n + 1)``.

    Parameters
    ----------
    groups, m : int
        And the rows of all together.
    rows : int
        Of a tile.

    Examples
    --------
    >>> fills(8, 1024, 128)
    (Fill(groups=8, row_tiles=12), Fill(groups=8, row_tiles=13))
    """
    mean = m / groups
    more = mean / (1 + mean)
    filled = groups * (1 - (1 - 1 / groups) ** m)
    deviation = math.sqrt(mean * (1 - 1 / groups)) or 1e-9
    tiles, above = filled, rows
    while above < m and (part := _above(above, mean, deviation)) > _RARE:
        tiles, above = tiles + groups * part, above + rows
    return (
        Fill(max(1, round(filled)), max(1, round(tiles))),
        Fill(max(1, round(groups * more)), max(1, round(groups * more / (1 - more**rows)))),
    )


def _above(count: int, mean: float, deviation: float) -> float:
    """The probability of more than so many rows, by a normal distribution."""
    return math.erfc((count + 0.5 - mean) / deviation / math.sqrt(2)) / 2


@lru_cache(maxsize=512)
def _configs(problem: GroupedProblem, machine: Machine) -> tuple[Config, ...]:
    return tuple(
        ranked(_candidates(problem, machine), lambda config: predicted(problem, config, machine))
    )


def predicted(problem: GroupedProblem, config: Config, machine: Machine) -> float:
    """The predicted microseconds of a kernel with a legal config: the mean of :func:`fills`."""
    scaled = isinstance(problem, GroupedBlockScaledProblem)
    formulas = grouped_block_scaled_work if scaled else grouped_work
    cases = dict.fromkeys(fills(problem.groups, problem.rows, config.tile_m))
    works = [
        formulas(
            case.groups, problem.rows, problem.n, problem.k, problem.dtype, problem.out_dtype,
            config, case.row_tiles,
        )
        for case in cases
    ]  # fmt: skip
    alone = alone_of(works[0], machine)  # a step is the same, however many tiles there are
    return sum(price(work, machine, alone=alone).total for work in works) / len(works)


def _candidates(problem: GroupedProblem, machine: Machine) -> Iterator[Config]:
    """Legal configs whose clusters have tiles, and whose parts of tiles have SMs."""
    arch, gemm = ARCHS[problem.arch], _gemm(problem)
    widths = _WIDTHS[isinstance(problem, GroupedBlockScaledProblem)]
    for (rows, columns, depth), width in product(_tiles(problem), widths):
        if side_by_side(problem.n, columns, width)[1] != width:
            continue
        whole = Config(
            rows, columns, depth, 1, consumers=_consumers(rows, columns), cluster_n=width,
            swap_ab=rows % WGMMA_M != 0, pdl=False,
            # Tiles of few rows are for weights that are read once.
            l2_policy=int(rows % WGMMA_M != 0),
        )  # fmt: skip
        for config in (whole, *_splits(problem, whole, machine)):
            tiles = _stage(problem, config)
            found = with_stages(config, gemm, tiles, arch)
            if found is not None and columns >= _WIDE and not config.swap_ab:
                found = with_buffers(found, gemm, tiles, problem.arch)
            if found is not None and why_not_grouped(problem, found) is None:
                yield found


def _splits(problem: GroupedProblem, whole: Config, machine: Machine) -> Iterator[Config]:
    """A config with its tiles split along K, where there are too few for the SMs.

    Not where a call decides how many there are: a workspace has room for the parts of all.
    """
    scaled = isinstance(problem, GroupedBlockScaledProblem)
    if scaled or problem.m is None or whole.cluster_size > 1:
        return
    tiles = fills(problem.groups, problem.rows, whole.tile_m)[0].row_tiles
    tiles *= -(-problem.n // whole.tile_n)
    for split in BY_NAME["split_k"].draws:
        enough = tiles * split <= _MOST_PARTS * machine.sms
        if split == 1 or not enough or problem.k < 2 * split * whole.tile_k:
            continue
        for through in REDUCTIONS if split in REDUCING_CLUSTERS else REDUCTIONS[:1]:
            yield whole.replace(split_k=split, reduce_through=through)


def _consumers(rows: int, columns: int) -> int:
    """Warpgroups that compute a tile."""
    return min(2, columns // WGMMA_M) if rows % WGMMA_M else CONSUMERS[rows]


def _few_tiles(problem: GroupedProblem) -> tuple[tuple[int, int], ...]:
    """Rows of X and rows of W of the tiles that are computed as the transpose."""
    if isinstance(problem, GroupedBlockScaledProblem) or problem.arch != SM90A.name:
        return ()
    return tuple(product(_FEW_ROWS, _FEW_COLUMNS))


def _tiles_of(problem: GroupedProblem) -> tuple[tuple[int, int], ...]:
    """Rows of X and rows of W of the tiles whose registers suffice."""
    scaled = isinstance(problem, GroupedBlockScaledProblem)
    if problem.arch != SM90A.name:
        return _TILES_ELSEWHERE[scaled]
    return _SCALED_TILES if scaled else _TILES


def _tiles(problem: GroupedProblem) -> Iterator[tuple[int, int, int]]:
    """Rows of X, rows of W and K of a step."""
    if isinstance(problem, GroupedBlockScaledProblem):
        yield from ((*tile, BLOCK) for tile in _tiles_of(problem))
        return
    size = bits_of(problem.dtype) // 8
    # What a call decides may be any number of rows, for which tiles of few are slow.
    few = _few_tiles(problem) if problem.m is not None else ()
    for tiles, depths in ((few, _FEW_STEP_BYTES), (_tiles_of(problem), _STEP_BYTES)):
        yield from ((*tile, depth // size) for tile, depth in product(tiles, depths))


def _stage(problem: GroupedProblem, config: Config) -> tuple[int, ...]:
    """Bytes that a stage has of X and of W."""
    size = bits_of(problem.dtype) // 8
    return tuple(size * tile for tile in stage_of(problem.dtype, config))


def _gemm(problem: GroupedProblem) -> GemmProblem:
    """A GEMM whose tiles, and results on their way to memory, are those of the program."""
    return plain_gemm(problem.rows, problem.n, problem.k, problem.dtype, problem.out_dtype)

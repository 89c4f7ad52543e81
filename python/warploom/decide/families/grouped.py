"""Configs for :mod:`warploom.programs.gemm_grouped` and its form with block scales, by the model.

A tile has rows of one group, so that the last one of a group is filled in part. How many tiles
there are, and how many groups are empty, follows from the sizes of groups, which only the device
knows. A config is priced for two cases, :func:`fills`: a count of tiles that just fills a wave in
one of them begins another wave in the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product

from warploom.decide.config import Config
from warploom.decide.families.block_scaled import with_buffers
from warploom.decide.families.grouped_problem import (
    UNKNOWN_ROWS,
    GroupedBlockScaledProblem,
    GroupedProblem,
    as_gemm,
    consumers_of,
    few_tiles,
    stage_tiles,
    tiles_of,
    why_not_grouped,
)
from warploom.decide.families.ranked import ranked, with_stages
from warploom.decide.machine import Machine
from warploom.decide.price.block_scaled import BLOCK, grouped_block_scaled_work
from warploom.decide.price.group_fill import fills
from warploom.decide.price.grouped import grouped_work, side_by_side
from warploom.decide.price.model import price
from warploom.decide.price.step import alone_of
from warploom.decide.ranking import SHARED_LOSS
from warploom.errors import IllegalCombination
from warploom.target import ARCHS, WGMMA_M
from warploom.target.dtypes import bits_of
from warploom.tile.choices import BY_NAME, REDUCING_CLUSTERS, REDUCTIONS

#: Bytes along K of a step, rows of the widest swizzle: of tiles, and of those of few rows.
_STEP_BYTES, _FEW_STEP_BYTES = (128, 256), (128, 256, 512)
#: CTAs side by side that share rows of X, with block scales and without: then pairs took 1 to 7 %
#: longer where groups have many rows, and up to 30 % where they have few (H200, 2026-11-22).
_WIDTHS = {True: (1, 2), False: (1,)}
#: Parts of tiles for each SM beyond which a finer split is no candidate, and steps of a part.
_MOST_PARTS, _LEAST_STEPS = 2, 4
#: Rows of a group, on average, that a config for few rows is chosen for.
_FEW_OF_GROUPS = (1 / 16, 1 / 2, 2, 8)
#: Columns from which each chunk of a tile's results has a buffer, if stages leave room.
_WIDE = 192


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
    for rows in (problem.groups << doubled for doubled in range(UNKNOWN_ROWS.bit_length())):
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
    arch, gemm = ARCHS[problem.arch], as_gemm(problem)
    widths = _WIDTHS[isinstance(problem, GroupedBlockScaledProblem)]
    for (rows, columns, depth), width in product(_tiles(problem), widths):
        if side_by_side(problem.n, columns, width)[1] != width:
            continue
        whole = Config(
            rows, columns, depth, 1, consumers=consumers_of(rows, columns), cluster_n=width,
            swap_ab=rows % WGMMA_M != 0, pdl=False,
            # Tiles of few rows are for weights that are read once.
            l2_policy=int(rows % WGMMA_M != 0),
        )  # fmt: skip
        for config in (whole, *_splits(problem, whole, machine)):
            tiles = stage_tiles(problem, config)
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
        if split == 1 or not enough or problem.k < _LEAST_STEPS * split * whole.tile_k:
            continue
        for through in REDUCTIONS if split in REDUCING_CLUSTERS else REDUCTIONS[:1]:
            yield whole.replace(split_k=split, reduce_through=through)


def _tiles(problem: GroupedProblem) -> Iterator[tuple[int, int, int]]:
    """Rows of X, rows of W and K of a step."""
    if isinstance(problem, GroupedBlockScaledProblem):
        yield from ((*tile, BLOCK) for tile in tiles_of(problem))
        return
    size = bits_of(problem.dtype) // 8
    # What a call decides may be any number of rows, for which tiles of few are slow.
    few = few_tiles(problem) if problem.m is not None else ()
    for tiles, depths in ((few, _FEW_STEP_BYTES), (tiles_of(problem), _STEP_BYTES)):
        yield from ((*tile, depth // size) for tile, depth in product(tiles, depths))

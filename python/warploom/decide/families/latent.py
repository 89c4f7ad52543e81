"""Configs for :mod:`warploom.programs.paged_latent`, and into how many parts a launch cuts keys.

All query heads of a token share its latent vector (MLA), which is key and value: so a tile has the
heads of one token or of several, and reads each latent once. The sums of 64 rows and 512 values are
more than the registers of a warpgroup. So a CTA computes a slice of the values, and all logits; the
CTAs of the other slices read the same latents at the same time, from the L2 cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from warploom.decide.config import Config
from warploom.decide.families.paged_decode import (
    ChunkCosts,
    chunked_time,
    steps_of_chunk,
)
from warploom.decide.machine import Machine
from warploom.errors import IllegalCombination
from warploom.target import ARCHS, SM90A, WGMMA_M

#: Bytes of an element of the cache.
_BYTES = 2
#: Elements of a row of the widest swizzle: columns of tiles are multiples of it.
ROW_ELEMENTS = 64
#: Values of a slice: a thread then holds 128 of the sums of 64 rows.
_SLICE = 256
#: Values of all slices; a thread of the kernel that adds parts has 4 of them.
_MOST_VALUES = 512
#: Keys of a step, the best first: as many as fit into shared memory.
_KEYS = (64, 48, 32, 16)
#: Bytes of shared memory for mbarriers, alignment and sums of a row.
_ASIDE = 2048
#: Instructions of a thread for a logit, and cycles of a step in which it waits for others.
_PER_LOGIT, _WAITING = 8, 500
#: CTAs of a grid, in rounds of those that run at a time, up to which keys are cut into parts.
_ROUNDS = 4


@dataclass(frozen=True)
class LatentProblem:
    """softmax(Q L^T) L[:, :latent_dim] for the queries of each of many sequences.

    Attributes
    ----------
    heads : int
        Query heads; all share the latents.
    latent_dim, rope_dim : int
        Elements of a latent that are a value, and that are rotated beside them.
    page_size : int
        Tokens of a page.
    arch : str

    Raises
    ------
    IllegalCombination
        If there is no kernel for the sizes.
    """

    heads: int
    latent_dim: int
    rope_dim: int
    page_size: int = 16
    arch: str = SM90A.name

    def __post_init__(self) -> None:
        if self.heads < 1:
            raise IllegalCombination(f"heads is {self.heads}; it must be 1 or more.")
        if self.latent_dim % 8 or not 0 < self.latent_dim <= _MOST_VALUES:
            raise IllegalCombination(
                f"latent_dim is {self.latent_dim}; TMA and the registers of tiles take multiples "
                f"of 8 up to {_MOST_VALUES}."
            )
        if self.rope_dim % 8 or self.rope_dim < 0:
            raise IllegalCombination(
                f"rope_dim is {self.rope_dim}; TMA takes multiples of 8, 0 too."
            )
        if not _fitting(self):
            raise IllegalCombination(
                f"latent_dim + rope_dim is {self.width}; {_KEYS[-1]} keys of a step and 64 queries "
                "of so many elements do not fit into shared memory."
            )

    @property
    def width(self) -> int:
        """Elements of a query and of a latent."""
        return self.latent_dim + self.rope_dim

    @property
    def slices(self) -> int:
        """CTAs that share the values."""
        return -(-self.latent_dim // _SLICE)

    @property
    def columns(self) -> int:
        """Values of a slice, in whole rows of the swizzle."""
        return -(-self.latent_dim // (self.slices * ROW_ELEMENTS)) * ROW_ELEMENTS

    @property
    def rest(self) -> int:
        """Columns beside those of the slices, in whole rows of the swizzle."""
        return max(0, -(-(self.width - self.slices * self.columns) // ROW_ELEMENTS)) * ROW_ELEMENTS

    @property
    def padded(self) -> int:
        """Columns of a latent in shared memory."""
        return self.slices * self.columns + self.rest

    @property
    def in_place(self) -> bool:
        """Whether threads change latents that were loaded: the last ones, of a page that is not
        full. Blackwell's tensor core does not wait for that, so there is a tile for the result.
        """
        return self.arch == SM90A.name


def _fitting(problem: LatentProblem) -> list[tuple[int, int]]:
    """Keys of a step and stages that fit into shared memory, the best first."""
    row = problem.padded * _BYTES
    found = []
    for keys in _KEYS:
        left = ARCHS[problem.arch].shared_bytes_of_each(1) - WGMMA_M * row - _ASIDE
        if not problem.in_place:
            # What threads have cleared, and the weights.
            left -= keys * problem.columns * _BYTES + WGMMA_M * keys * _BYTES
        if (stages := left // (keys * row)) > 0:
            found.append((keys, int(min(stages, 4))))
    # A step is computed while the next one arrives, if there are two stages.
    return sorted(found, key=lambda one: one[1] < 2)


def choose_latent(problem: LatentProblem, machine: Machine) -> Config:
    """The config for a problem: rows of queries and heads are ``tile_m``, keys ``tile_n``."""
    size = problem.page_size
    of_pages = [one for one in _fitting(problem) if one[0] % size == 0 or size % one[0] == 0]
    keys, stages = (of_pages or _fitting(problem))[0]
    return Config(WGMMA_M, keys, problem.columns, stages=stages, consumers=1)


def latent_costs(problem: LatentProblem, config: Config, machine: Machine) -> ChunkCosts:
    """The constants of a kernel on a GPU."""
    resident = machine.sms
    # CTAs of other slices read the same from the L2 cache.
    arriving = config.tile_n * problem.width * _BYTES
    logits = config.tile_m * config.tile_n
    elements = problem.padded + problem.columns
    mmas = logits * elements / (machine.tensor_bytes / _BYTES)
    softmax = logits * _PER_LOGIT / machine.fma_lanes
    memory = arriving * resident / problem.slices / machine.dram_bytes
    cache = arriving * resident / (machine.l2_bytes * machine.clock)
    return ChunkCosts(
        resident,
        step=round(1e3 * max(memory, cache)),
        alone=round(1e3 * (mmas + softmax + _WAITING) / machine.clock),
    )


def latent_time(
    problem: LatentProblem, config: Config, machine: Machine, sequences: int, context: int
) -> float:
    """Microseconds of a launch for one query of each sequence, to ``context`` latents each.

    Examples
    --------
    >>> from warploom.decide.machine import H200
    >>> problem = LatentProblem(16, 512, 64)
    >>> config = choose_latent(problem, H200)
    >>> short, long = (latent_time(problem, config, H200, 16, keys) for keys in (1024, 8192))
    >>> short < long
    True
    """
    costs = latent_costs(problem, config, machine)
    average = max(1, -(-context // config.tile_n))
    tiles = max(1, sequences) * problem.slices * -(-problem.heads // config.tile_m)
    chunk = min(average, steps_of_chunk(costs, average, tiles))
    return machine.launch + chunked_time(costs, chunk, average, tiles) / 1e3


def most_parts(
    costs: ChunkCosts, tiles: Any, steps: Any, chunk: Any,
    larger: Callable[[Any, Any], Any] = max, smaller: Callable[[Any, Any], Any] = min,
) -> Any:  # fmt: skip
    """Parts into which the keys of a tile are cut, at most: CTAs of the grid for each tile.

    A part has ``chunk`` steps, more where ``steps`` of a long sequence need more parts than these.
    Sequences are of different lengths, so there are CTAs for more parts than the average needs.

    Parameters
    ----------
    costs : ChunkCosts
    tiles : int or Expr
        CTAs of a part.
    steps : int or Expr
        Steps of all sequences together.
    chunk : int or Expr

    Examples
    --------
    One sequence of 500 steps in chunks of 8, and 64 sequences, of 128 CTAs, of 32 steps each:

    >>> costs = ChunkCosts(132, 1900, 1600)
    >>> most_parts(costs, 2, 500, 8), most_parts(costs, 128, 2048, 40)
    (63, 4)
    """
    of_grid = larger(costs.resident * _ROUNDS // tiles, 1)
    return smaller(of_grid, larger((steps + (chunk - 1)) // chunk, 1))

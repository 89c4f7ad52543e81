"""Configs for :mod:`warploom.programs.paged_decode`, and how a launch cuts sequences into chunks.

Decoding reads each key and value once, so its time is that of memory, if all SMs ask for enough at
a time. Tiles, stages and CTAs of an SM are chosen when the kernel is compiled. Into how many chunks
the keys of a sequence are cut depends on the batch and on the pages in use, which a launch knows:
the host computes it by :func:`steps_of_chunk`, from constants that the model of costs gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T

from warploom.decide.config import Config
from warploom.decide.machine import Machine
from warploom.target import ARCHS, SM90A, WGMMA_M

#: Bytes of an element of the cache.
_BYTES = 2
#: Elements of a row of the widest swizzle: heads are padded to multiples of it in shared memory,
#: where they then arrive in boxes of whole rows.
ROW_ELEMENTS = 64
#: Keys of a step; of heads of few elements, whose steps would have too few bytes, twice as many.
_KEYS, _NARROW_HEAD = 64, 64
#: Elements of a head up to which two CTAs of an SM have registers for their sums, and on Blackwell,
#: where sums pass through registers on their way to tensor memory and back.
_HEAD_OF_TWO, _HEAD_OF_TWO_BLACKWELL = 192, 128
#: Steps that each of two CTAs of an SM loads ahead: 128 KiB an SM. With a third step, 64 sequences
#: of 2048 tokens took 3 % longer.
_STAGES_OF_TWO = 2
#: Bytes of shared memory for mbarriers, alignment and sums of a row.
_ASIDE = 1024
#: Instructions of a thread for a logit, and cycles of a step in which it waits for others.
_PER_LOGIT, _WAITING = 8, 500
#: Nanoseconds of a tile beside its steps, of the second kernel, and of each part that it adds.
_TILE, _MERGE, _PART = 800, 1500, 80
#: A finer cut gains more than one part in so many, or is not made: the second kernel reads more.
_GAIN = 64
#: Rounds of tiles among which a launch chooses.
_WAVES = (1, 2, 3, 4, 6, 8)


@dataclass(frozen=True)
class PagedDecodeProblem:
    """softmax(Q K^T) V for one query of each sequence, whose keys and values lie in pages.

    Attributes
    ----------
    heads, kv_heads, head_dim : int
    page_size : int
        Tokens of a page.
    arch : str
    """

    heads: int
    kv_heads: int
    head_dim: int
    page_size: int = 16
    arch: str = SM90A.name

    @property
    def padded_dim(self) -> int:
        """Elements of a head in shared memory."""
        return -(-self.head_dim // ROW_ELEMENTS) * ROW_ELEMENTS

    @property
    def in_place(self) -> bool:
        """Whether threads change values that were loaded: the last ones, of a page that is not
        full. Blackwell's tensor core does not wait for that, so there is a tile for the result.
        """
        return self.arch == SM90A.name

    @property
    def row_blocks(self) -> int:
        """Tiles for the query heads that share a head of K and V."""
        return -(-(self.heads // self.kv_heads) // WGMMA_M)


@dataclass(frozen=True)
class ChunkCosts:
    """What :func:`steps_of_chunk` weighs; times are nanoseconds.

    Attributes
    ----------
    resident : int
        CTAs that run at a time.
    step : int
        A step of a CTA, while all of them wait for memory.
    alone : int
        A step of a CTA whose data has arrived.
    tile, merge, part : int
        A tile beside its steps; the second kernel; and each part that it adds.
    """

    resident: int
    step: int
    alone: int
    tile: int = _TILE
    merge: int = _MERGE
    part: int = _PART


def choose_paged_decode(problem: PagedDecodeProblem, machine: Machine) -> Config:
    """The config for a problem: query heads are ``tile_m``, keys of a step ``tile_n``."""
    keys = 2 * _KEYS if problem.head_dim <= _NARROW_HEAD else _KEYS
    widest = _HEAD_OF_TWO if problem.arch == SM90A.name else _HEAD_OF_TWO_BLACKWELL
    ctas = 2 if problem.head_dim <= widest else 1
    row = problem.padded_dim * _BYTES
    left = ARCHS[problem.arch].shared_bytes_of_each(ctas) - WGMMA_M * row - _ASIDE
    if not problem.in_place:
        left -= (keys + WGMMA_M) * row
    stages = max(1, left // (2 * keys * row))
    return Config(
        WGMMA_M, keys, problem.padded_dim,
        stages=min(stages, _STAGES_OF_TWO) if ctas > 1 else stages, consumers=1, ctas_per_sm=ctas,
    )  # fmt: skip


def chunk_costs(problem: PagedDecodeProblem, config: Config, machine: Machine) -> ChunkCosts:
    """The constants of a kernel on a GPU."""
    resident = machine.sms * config.ctas_per_sm
    # Zeros of the padding do not come from memory.
    arriving = 2 * config.tile_n * problem.head_dim * _BYTES
    logits = config.tile_m * config.tile_n
    mmas = 2 * logits * problem.padded_dim / (machine.tensor_bytes / _BYTES)
    softmax = logits * _PER_LOGIT / machine.fma_lanes
    return ChunkCosts(
        resident,
        step=round(1e3 * arriving * resident / machine.dram_bytes),
        alone=round(1e3 * (mmas + softmax + _WAITING) / machine.clock),
    )


def steps_of_chunk(
    costs: ChunkCosts,
    average: Any,
    tiles: Any,
    bind: Callable[[Any], Any] = lambda value: value,
    several: Any = True,
) -> Any:
    """Steps after which the keys of a sequence are cut: no chunk has more.

    Tiles are computed in rounds of ``costs.resident``, and a round takes as long as its longest
    tile. So few long sequences are cut until all SMs work, and others so that the last round is
    full; many short ones are not cut at all.

    Parameters
    ----------
    costs : ChunkCosts
    average : int or Expr
        Steps of a sequence of the average length, at least 1.
    tiles : int or Expr
        Tiles of a step of all sequences: sequences times heads of K and V, at least 1.
    bind : callable
        Names a value that is used several times; for expressions.
    several : bool or Expr
        Whether there are several sequences, which may be longer than the average one.

    Returns
    -------
    int or Expr

    Examples
    --------
    One sequence of 32 steps and 8 heads on 264 CTAs, and 256 sequences of 8 steps:

    >>> costs = ChunkCosts(264, 1900, 700)
    >>> steps_of_chunk(costs, 32, 8), steps_of_chunk(costs, 8, 2048)
    (1, 31)
    """
    # Uncut: the longest tile may be several times the average one, if each CTA has many.
    best = bind(_larger(2 * average, average * tiles // (2 * costs.resident)))
    least = bind(chunked_time(costs, average, average, tiles))
    for waves in _WAVES:
        count = _larger(1, _over(average * tiles, waves * costs.resident))
        # Equal parts, and a little more: other sequences are somewhat longer than the average.
        even = _over(average, _over(average, count))
        chunk = bind(even + _select(several, even // 8, 0))
        time = bind(chunked_time(costs, chunk, average, tiles))
        better = time + time // _GAIN < least
        best = bind(_select(better, chunk, best))
        least = bind(_select(better, time, least))
    return best


def decode_time(
    problem: PagedDecodeProblem, config: Config, machine: Machine, sequences: int, context: int
) -> float:
    """Microseconds of a launch for so many sequences of ``context`` keys each.

    Examples
    --------
    >>> from warploom.decide.machine import H200
    >>> problem = PagedDecodeProblem(32, 8, 128)
    >>> config = choose_paged_decode(problem, H200)
    >>> short, long = (decode_time(problem, config, H200, 16, keys) for keys in (1024, 8192))
    >>> short < long
    True
    """
    costs = chunk_costs(problem, config, machine)
    average = max(1, -(-context // config.tile_n))
    tiles = max(1, sequences) * problem.kv_heads * problem.row_blocks
    chunk = min(average, steps_of_chunk(costs, average, tiles, several=sequences > 1))
    return machine.launch + chunked_time(costs, chunk, average, tiles) / 1e3


def chunked_time(costs: ChunkCosts, chunk: Any, average: Any, tiles: Any) -> Any:
    """Nanoseconds, if all sequences have the average length."""
    parts = _over(average, chunk)
    every = parts * tiles
    working = _select(every < costs.resident, every, costs.resident)
    step = _joined(costs.alone, costs.step * working // costs.resident)
    merge = _select(parts > 1, costs.merge + parts * costs.part, 0)
    return _over(every, costs.resident) * (chunk * step + costs.tile) + merge


def _joined(a: Any, b: Any) -> Any:
    """The time of two things that run at once and disturb each other, where they take as long.

    128 CTAs, on each SM but four, took 145 us for 16 sequences of 8192 tokens on an H200: 115 if
    neither their steps nor memory waited for the other, 126 so (2026-11-26).
    """
    longer = _larger(a, b)
    return longer + _larger(0, 2 * (a + b - longer) - longer) * 2 // 9


def _over(a: Any, b: Any) -> Any:
    return (a + (b - 1)) // b


def _larger(a: Any, b: Any) -> Any:
    return _select(b < a, a, b)


def _select(condition: Any, yes: Any, no: Any) -> Any:
    if isinstance(condition, bool):
        return yes if condition else no
    return T.Select(condition, *(tirx.const(v, "int32") if isinstance(v, int) else v
                                 for v in (yes, no)))  # fmt: skip

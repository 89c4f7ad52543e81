"""Configs for the prefill programs: attention of many sequences of queries to their own keys.

How many queries each sequence has is known at the launch alone. The tile is that of causal
attention of any number of tokens; query heads that share a head of K and V share its rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from warploom.decide.config import Config
from warploom.decide.families.attention import AttentionProblem, attention_configs
from warploom.decide.machine import Machine
from warploom.errors import IllegalCombination
from warploom.target import ARCHS, SM90A, WGMMA_M

#: Elements of a head: a thread then holds 128 of the sums of 64 rows.
_MOST_ELEMENTS = 256
#: Keys of a step at most, with heads of 72 to 128 elements: steps of more were not measured.
_MOST_KEYS = 96
#: Keys of a step at most with masks of trees, by the widest head, where a tile has several
#: warpgroups: the ranges of the keys are in registers beside the logits. With the 128, 96 and 64
#: that tiles have otherwise, ptxas 13.5 spills 4 to 32 bytes a thread; with 48, places of threads
#: in tiles of values are no powers of two, and some widths spill as much.
_KEYS_OF_TREES = {128: 64, 256: 32}
#: Bytes of an element of Q, K, V and the output.
_BYTES = 2
#: Elements of a row of the widest swizzle: what arrives in shared memory has whole rows of it.
_ROW_ELEMENTS = 64
#: Keys of a step are a multiple of what one MMA contracts.
_MMA_K = 16
#: Bytes of shared memory for mbarriers and alignment, and of output on its way to global memory.
_ASIDE, _STORED = 1024, 32768


@dataclass(frozen=True)
class PrefillProblem:
    """softmax(Q K^T) V for the queries of each of many sequences.

    Attributes
    ----------
    heads, kv_heads : int
    head_dim, value_dim : int
        Elements of a head of Q and K, and of V and the output.
    arch : str
    page_size : int, optional
        Tokens of a page, if keys and values lie in pages.
    tree : bool
        Whether the queries are trees of tokens, whose masks are ranges.

    Raises
    ------
    IllegalCombination
        If there is no kernel for the elements, or the heads cannot share those of K and V.
    """

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    arch: str = SM90A.name
    page_size: int | None = None
    tree: bool = False

    def __post_init__(self) -> None:
        for name in ("head_dim", "value_dim"):
            elements = getattr(self, name)
            if elements % 8 or not 0 < elements <= _MOST_ELEMENTS:
                raise IllegalCombination(
                    f"{name} is {elements}; TMA and the registers of a tile take multiples of 8 up "
                    f"to {_MOST_ELEMENTS}, so pad the heads."
                )
        if min(self.heads, self.kv_heads) < 1 or self.heads % self.kv_heads:
            raise IllegalCombination(
                f"{self.heads} heads cannot share {self.kv_heads} of K and V evenly; kv_heads must "
                "divide heads."
            )

    @property
    def in_place(self) -> bool:
        """Whether threads change values that were loaded: the last ones, of a block that is not
        full. Blackwell's tensor core does not wait for that, so there is a tile for the result.
        """
        return self.arch == SM90A.name


def choose_prefill(problem: PrefillProblem, machine: Machine) -> Config:
    """The config for a problem: queries of all heads of a tile are ``tile_m``, keys ``tile_n``."""
    widest = max(problem.head_dim, problem.value_dim)
    attention = AttentionProblem(
        None, widest, problem.heads, problem.kv_heads, causal=True, arch=problem.arch
    )
    fitted = (_fitted(problem, config) for config in attention_configs(attention, machine))
    return next(
        config for config in fitted
        if _shared_evenly(problem, config) and not (widest > 64 and config.tile_n > _MOST_KEYS)
    )  # fmt: skip


def _fitted(problem: PrefillProblem, config: Config) -> Config:
    """A config of attention, with keys for the memory and the pages of a problem."""
    keys = min(config.tile_n, _most_keys(problem, config))
    return replace(
        config, tile_n=_of_pages(keys, problem.page_size), ctas_per_sm=1,
        order_mmas=Config.order_mmas, store_buffers=Config.store_buffers,
    )  # fmt: skip


def _shared_evenly(problem: PrefillProblem, config: Config) -> bool:
    """Whether the warpgroups of a tile can change its values: each has as many of the keys."""
    return not problem.in_place or config.tile_n % (config.tile_m // WGMMA_M) == 0


def _of_pages(most: int, page_size: int | None) -> int:
    """Keys of a step: whole pages, or an even part of one, if there is such a number."""
    counts = range(most, 0, -_MMA_K)
    whole = (n for n in counts if not page_size or n % page_size == 0 or page_size % n == 0)
    return next(whole, most)


def _most_keys(problem: PrefillProblem, config: Config) -> int:
    """Keys of a step that fit into shared memory, and beside a mask into registers."""
    wide, columns = (
        -(-elements // _ROW_ELEMENTS) * _ROW_ELEMENTS * _BYTES
        for elements in (problem.head_dim, problem.value_dim)
    )
    left = ARCHS[problem.arch].shared_bytes_of_each(1) - _ASIDE - _STORED - config.tile_m * wide
    of_a_key = config.stages * (wide + columns) + (0 if problem.in_place else columns)
    most = left // of_a_key // _MMA_K * _MMA_K
    if not problem.tree or config.tile_m == WGMMA_M:
        return most
    widest = max(problem.head_dim, problem.value_dim)
    return min(most, next(keys for head, keys in _KEYS_OF_TREES.items() if widest <= head))


def heads_of_tile(problem: PrefillProblem, rows: int) -> int:
    """Query heads that share the rows of a tile.

    A tile of more heads has fewer queries, so that few queries fill it, and so that less of it lies
    beyond the diagonal. Its heads divide its rows, as copies by TMA are rectangles.

    Examples
    --------
    >>> heads_of_tile(PrefillProblem(32, 8, 128, 128), 128)
    4
    >>> heads_of_tile(PrefillProblem(28, 4, 128, 128), 128)
    1
    """
    return math.gcd(problem.heads // problem.kv_heads, rows)

"""Blocks of keys and values that lie in the pages of a KV cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom.ops.copy_strided import CACHE_HINT
from warploom.programs.kv_pages import SequencePages, named_scalar, rows_of_block
from warploom.programs.prefill_steps import PrefillTiles


@T.meta_class
class PagedBlocks:
    """Blocks of the keys and values of one head of a sequence.

    Parameters
    ----------
    cache : Buffer
        ``(pages * 2 * kv_heads * page_size, head_dim)``: of each page first the keys, head after
        head, then the values.
    pages : SequencePages
    head : int32 expression
    kv_heads, page_size, count : int
        ``count`` tokens are a block.
    keys : Buffer, optional
        ``(used pages * kv_heads * page_size, head_dim)``: other keys than those in the cache, in
        the order of ``page_values``.
    zeros : bool
        Whether pages behind the end are zeros, which cost no traffic, or else the last page again.
    read_once : bool
        Whether no other CTA reads the blocks, so that they need not stay in the L2 cache.
    """

    def __init__(
        self, cache: Any, pages: SequencePages, head: Any, kv_heads: int, page_size: int,
        count: int, keys: Any = None, zeros: bool = False, read_once: bool = False,
    ) -> None:  # fmt: skip
        self._cache, self._pages, self._keys = cache, pages, keys
        self._head = named_scalar(head)
        self._kv_heads, self._page_size, self._count = kv_heads, page_size, count
        self._part = min(count, page_size)
        self._zeros = zeros
        self._hints = {CACHE_HINT: "evict_first"} if read_once else {}

    def rows(self, block: Any) -> list[Any]:
        """Rows of the cache where parts of a block of keys begin, which are in different pages."""
        kv_heads = 2 * self._kv_heads
        return self._rows(block, lambda n: self._pages.page_of(n) * kv_heads)

    def load_keys(self, tile: Any, block: Any, rows: list[Any], width: int) -> None:
        """Load a block, ``rows`` of the cache, or of the other keys."""
        if self._keys is not None:
            rows = self._rows(block, lambda n: self._pages.place_of(n) * self._kv_heads)
        self._load(tile, self._cache if self._keys is None else self._keys, rows, width)

    def load_values(self, tile: Any, rows: list[Any], width: int, shown: Any = None) -> None:
        """Load the values beside rows of keys; 0 unless they are ``shown``."""
        values = [row + self._kv_heads * self._page_size for row in rows]
        if shown is not None:  # all rows above the cache are 0
            values = [named_scalar(T.Select(shown, row, -self._part)) for row in values]
        self._load(tile, self._cache, values, width)

    def _rows(self, block: Any, heads_before: Callable[[Any], Any]) -> list[Any]:
        def row_of(number: Any) -> Any:
            row = (heads_before(number) + self._head) * self._page_size
            # All rows above the cache are 0, those of the values below these too.
            above = -self._kv_heads * self._page_size - self._part
            return T.Select(number < self._pages.count, row, above) if self._zeros else row

        return rows_of_block(block, self._count, self._page_size, row_of)

    def _load(self, tile: Any, source: Any, rows: list[Any], width: int) -> None:
        for number, row in enumerate(rows):
            Tx.cta.copy_async(
                tile[number * self._part : number * self._part + self._part, 0:width],
                source[row : row + self._part, 0:width],
                **self._hints,
            )


@T.meta_class
class PagedKeys:
    """The keys and values of a sequence, of one head, for the prefill programs.

    Parameters
    ----------
    cache, pages, head, keys
        As those of :class:`PagedBlocks`.
    tiles : PrefillTiles

    Attributes
    ----------
    length : int32 scalar
        How many tokens there are, with those that a window hides.
    """

    def __init__(
        self, cache: Any, pages: SequencePages, head: Any, tiles: PrefillTiles, keys: Any = None
    ) -> None:
        problem = tiles.problem
        self._tiles, self.length = tiles, pages.length
        self._blocks = PagedBlocks(
            cache, pages, head, problem.kv_heads, problem.page_size, tiles.keys, keys
        )

    def load(self, k_tile: Any, v_tile: Any, block: Any, step: Any) -> None:
        """A block of keys, and the block before it of values: 0 in step 0."""
        blocks, tiles = self._blocks, self._tiles
        blocks.load_keys(k_tile, block, blocks.rows(block), tiles.wide)
        blocks.load_values(v_tile, blocks.rows(block - 1), tiles.columns, step > 0)

"""Blocks of keys and values that lie in the pages of a KV cache, for the prefill programs."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom.programs.kv_pages import SequencePages, named_scalar
from warploom.programs.prefill_steps import PrefillTiles


@T.meta_class
class PagedKeys:
    """The keys and values of a sequence, of one head.

    Parameters
    ----------
    cache : Buffer
        ``(pages * 2 * kv_heads * page_size, head_dim)``: of each page first the keys, head after
        head, then the values.
    pages : SequencePages
    head : int32 expression
    tiles : PrefillTiles
    keys : Buffer, optional
        ``(used pages * kv_heads * page_size, head_dim)``: other keys than those in the cache, in
        the order of ``page_values``.

    Attributes
    ----------
    length : int32 scalar
        How many tokens there are, with those that a window hides.
    """

    def __init__(
        self, cache: Any, pages: SequencePages, head: Any, tiles: PrefillTiles, keys: Any = None
    ) -> None:
        self._cache, self._pages, self._tiles, self._keys = cache, pages, tiles, keys
        self._head = named_scalar(head)
        self.length = pages.length

    def load(self, k_tile: Any, v_tile: Any, block: Any, step: Any) -> None:
        """A block of keys, and the block before it of values: 0 in step 0."""
        page_size = self._tiles.problem.page_size
        kv_heads, count = self._tiles.problem.kv_heads, self._tiles.keys
        part = min(count, page_size)
        values = kv_heads * page_size
        keys = self._cache if self._keys is None else self._keys
        for number, row in enumerate(self._rows(block, of_keys=True)):
            Tx.cta.copy_async(
                k_tile[number * part : number * part + part, 0 : self._tiles.wide],
                keys[row : row + part, 0 : self._tiles.wide],
            )
        for number, row in enumerate(self._rows(block - 1)):
            # All rows above the cache are 0.
            place = named_scalar(T.Select(step > 0, row + values, -part))
            Tx.cta.copy_async(
                v_tile[number * part : number * part + part, 0 : self._tiles.columns],
                self._cache[place : place + part, 0 : self._tiles.columns],
            )

    def _rows(self, block: Any, of_keys: bool = False) -> list[Any]:
        """Rows of the cache where the parts of a block begin, which are in different pages; rows
        of the other keys if there are such.
        """
        page_size, kv_heads = self._tiles.problem.page_size, self._tiles.problem.kv_heads
        count = self._tiles.keys
        pages_a_block, blocks_a_page = max(1, count // page_size), max(1, page_size // count)
        rows = []
        for number in range(pages_a_block):
            place = block * pages_a_block + number
            if blocks_a_page > 1:
                place = T.truncdiv(T.max(block, 0), blocks_a_page)
            if of_keys and self._keys is not None:
                row = (self._pages.place_of(place) * kv_heads + self._head) * page_size
            else:
                row = (self._pages.page_of(place) * (2 * kv_heads) + self._head) * page_size
            if blocks_a_page > 1:
                row += T.truncmod(T.max(block, 0), blocks_a_page) * count
            rows.append(named_scalar(row))
        return rows

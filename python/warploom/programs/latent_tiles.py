"""Queries and latents of :mod:`warploom.programs.paged_latent` in shared memory, in columns.

Tile 0 has the values of the CTA's slice, the next tiles those of the other slices, the last one the
elements behind them. Queries and latents have them in the same order.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom.decide.families.latent import LatentProblem
from warploom.programs.kv_pages import SequencePages, named_scalar, rows_of_block


@T.meta_class
class LatentTiles:
    """The tiles of a CTA.

    Parameters
    ----------
    problem : LatentProblem
    rows, keys : int
        Rows of queries, and latents of a step.
    dtype : str
    number : int32 expression
        The slice of values.

    Attributes
    ----------
    values : Buffer
        The slice, ``(keys, columns)``.
    """

    def __init__(
        self, problem: LatentProblem, rows: int, keys: int, dtype: str, number: Any
    ) -> None:
        self._problem, self._rows, self._keys = problem, rows, keys
        widths = [problem.columns] * problem.slices + ([problem.rest] if problem.rest else [])
        starts = [self._start(place, number) for place in range(problem.slices)]
        starts += [problem.slices * problem.columns] if problem.rest else []
        self._columns = list(zip(starts, widths, strict=True))
        self._queries = [T.alloc_buffer((rows, n), dtype, scope="shared") for n in widths]
        self._latents = [T.alloc_buffer((keys, n), dtype, scope="shared") for n in widths]
        self.values = self._latents[0]

    def _start(self, place: int, number: Any) -> Any:
        """The first column of a place: that of the own slice, or of the one in its place."""
        width = self._problem.columns
        if self._problem.slices == 1:
            return 0
        if place == 0:
            return named_scalar(number * width)
        return named_scalar(T.Select(number == place, 0, place * width))

    def load_queries(self, queries: Any, first: Any) -> None:
        """Rows of ``queries`` from the first on."""
        for tile, (start, width) in zip(self._queries, self._columns, strict=True):
            Tx.cta.copy_async(tile, queries[first : first + self._rows, start : start + width])

    def load_latents(self, cache: Any, pages: SequencePages, block: Any) -> None:
        """A block of latents: its pages, the last one again where there are no more."""
        page_size, count = self._problem.page_size, self._keys
        part = min(count, page_size)
        rows = rows_of_block(
            block, count, page_size, lambda number: pages.page_of(number) * page_size
        )
        for tile, (start, width) in zip(self._latents, self._columns, strict=True):
            for number, row in enumerate(rows):
                Tx.cta.copy_async(
                    tile[number * part : number * part + part, 0:width],
                    cache[row : row + part, start : start + width],
                )

    def multiply(self, logits: Any) -> None:
        """The logits, without their factor."""
        both = zip(self._queries, self._latents, strict=True)
        for number, (queries, latents) in enumerate(both):
            Tx.cta.gemm_async(logits, queries, latents, accum=number > 0)

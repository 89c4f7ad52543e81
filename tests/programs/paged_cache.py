"""Sequences in pages of a cache, in random order, for the tests of prefill programs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

#: Pages that no sequence has.
_UNUSED = 3


@dataclass(frozen=True)
class Pages:
    """The arguments of a kernel that describe the cache.

    Attributes
    ----------
    pages, indptr, values : ndarray
    last : list of int
        Tokens of the last page of each sequence.
    """

    pages: np.ndarray
    indptr: np.ndarray
    values: np.ndarray
    last: list[int]


def put_into_pages(
    rng: np.random.Generator, sequences: list[np.ndarray], page_size: int
) -> Pages:
    """Tokens of sequences, ``(parts, length, heads, elements)``, as ``(page, parts, heads, ...)``.

    What no sequence has is NaN.
    """
    parts, _, heads, elements = sequences[0].shape
    lengths = [one.shape[1] for one in sequences]
    counts = [-(-length // page_size) for length in lengths]
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype("int32")
    order = rng.permutation(indptr[-1] + _UNUSED)[: indptr[-1]].astype("int32")
    shape = (indptr[-1] + _UNUSED, parts, heads, page_size, elements)
    pages = np.full(shape, np.nan, np.float32).astype(sequences[0].dtype)
    for b, tokens in enumerate(sequences):
        for token in range(lengths[b]):
            page = order[indptr[b] + token // page_size]
            pages[page, :, :, token % page_size] = tokens[:, token]
    last = [n - (count - 1) * page_size if n else 0
            for n, count in zip(lengths, counts, strict=True)]  # fmt: skip
    return Pages(pages, indptr, order, last)

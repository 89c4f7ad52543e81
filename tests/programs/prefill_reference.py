"""Attention of many sequences in float64, for the tests of prefill programs."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tests.shared.tile_programs.case import precision

#: The lse of a query that sees no key.
NOTHING = -5e4

#: Which keys the queries of a sequence see: from its number and the numbers of queries and keys, to
#: ``(queries, keys)`` of bool.
Sees = Callable[[int, int, int], np.ndarray]


def every(b: int, queries: int, keys: int) -> np.ndarray:
    return np.ones((queries, keys), bool)


def causal(b: int, queries: int, keys: int) -> np.ndarray:
    return np.tri(queries, keys, keys - queries, dtype=bool)


def attend(
    q: np.ndarray, keys: list[np.ndarray], values: list[np.ndarray], begins: np.ndarray,
    scale: float, sees: Sees,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """The output and the lse; q ``(queries, heads, elements)``, keys ``(keys, kv_heads, ...)``."""
    heads = q.shape[1]
    out, lse = np.zeros((*q.shape[:2], values[0].shape[2])), np.full(q.shape[:2], NOTHING)
    for b, (k, v) in enumerate(zip(keys, values, strict=True)):
        rows = slice(begins[b], begins[b + 1])
        k, v = (np.repeat(x.astype(float), heads // x.shape[1], axis=1) for x in (k, v))
        logits = np.einsum("qhd,khd->qhk", q[rows].astype(float), k) * scale * math.log2(math.e)
        seen = sees(b, *logits.shape[::2])[:, None]
        logits = np.where(seen, logits, -np.inf)
        largest = np.maximum(logits.max(axis=2, initial=-np.inf), NOTHING)
        weights = np.exp2(logits - largest[..., None])
        total = weights.sum(axis=2) + np.exp2(NOTHING - largest)
        out[rows] = np.einsum("qhk,khd->qhd", weights / total[..., None], v)
        lse[rows] = largest + np.log2(total)
    return out, lse


def check(out: np.ndarray, lse: np.ndarray, exact: tuple[np.ndarray, np.ndarray],
          dtype: str) -> None:  # fmt: skip
    """The weights are rounded to 16 bits, and the result."""
    bound = 2 * precision(dtype) * max(np.abs(exact[0]).max(initial=0), 1)
    assert np.abs(np.asarray(out).astype(float) - exact[0]).max(initial=0) <= bound
    rounded = np.finfo(np.float32).eps * np.abs(exact[1])
    assert (np.abs(np.asarray(lse).astype(float) - exact[1]) <= 1e-4 + rounded).all()


def begins_of(lengths: tuple[int, ...]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype("int32")


def poisoned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An output that nothing has written."""
    return np.full(shape, np.nan, np.float32).astype(dtype)

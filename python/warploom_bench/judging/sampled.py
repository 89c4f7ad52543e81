"""The right results of attention, by numpy: those of some queries of each head."""

from __future__ import annotations

import numpy as np

from warploom.meta_schedule.measure import poison
from warploom_bench.attention import AttentionShape

#: Queries of a head whose results are computed.
_QUERIES = 16
#: The part of the queries, the first ones, of which none is checked with a mask: their results are
#: so much larger than those of the others that the error they allow would hide wrong ones.
_UNCHECKED = 8


def attention_result(shape: AttentionShape, inputs: list[np.ndarray]) -> np.ndarray:
    """O of some queries of each head, drawn evenly; NaN elsewhere.

    Parameters
    ----------
    shape : AttentionShape
    inputs : list of ndarray
        Q, K, V and O, as :func:`warploom.programs.attention` takes them.
    """
    q, k, v, o = inputs
    rows = sampled_queries(shape.tokens, shape.causal)
    seen = np.arange(shape.tokens)[None] <= rows[:, None] if shape.causal else None
    result = poison(o)
    share = shape.heads // shape.shared_heads
    for b in range(shape.batch):
        for shared in range(shape.shared_heads):
            keys, values = k[b, shared].astype("float32"), v[b, shared].astype("float32")
            for head in range(shared * share, (shared + 1) * share):
                logits = q[b, head, rows].astype("float32") @ keys.T / shape.head_dim**0.5
                if seen is not None:
                    logits = np.where(seen, logits, -np.inf)
                weights = np.exp(logits - logits.max(axis=1, keepdims=True))
                weights /= weights.sum(axis=1, keepdims=True)
                result[b, head, rows] = weights @ values
    return result


def sampled_queries(tokens: int, causal: bool) -> np.ndarray:
    """One query of each of as many equal parts, the last one among them."""
    first = tokens // _UNCHECKED if causal else 0
    count = min(_QUERIES, tokens - first)
    ends = first + (np.arange(1, count + 1) * (tokens - first)) // count
    starts = np.concatenate([[first], ends[:-1]])
    drawn = np.random.default_rng(tokens).integers(starts, ends)
    drawn[-1] = tokens - 1
    return drawn

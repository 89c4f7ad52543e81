"""Configs for :mod:`warploom.programs.attention`, as measured on an H200."""

from __future__ import annotations

from dataclasses import dataclass

from warploom.decide.config import Config

#: Queries and keys of a step: wider blocks hide more of the softmax, the diagonal wastes more.
_TILE, _CAUSAL_TILE = (128, 160), (128, 96)
#: Elements of a head up to which these fit into registers; and what fits above.
_USUAL_HEAD, _WIDE_TILE = 128, (128, 64)


@dataclass(frozen=True)
class AttentionProblem:
    """softmax(Q K^T) V.

    Attributes
    ----------
    tokens : int or None
        None if a call decides.
    head_dim, heads, kv_heads, batch : int
    causal : bool
    """

    tokens: int | None
    head_dim: int
    heads: int
    kv_heads: int
    batch: int = 1
    causal: bool = False


def choose_attention(problem: AttentionProblem) -> Config:
    """The config for a problem: queries are ``tile_m``, keys ``tile_n``."""
    tile = _CAUSAL_TILE if problem.causal else _TILE
    queries, keys = tile if problem.head_dim <= _USUAL_HEAD else _WIDE_TILE
    return Config(queries, keys, problem.head_dim, stages=2)

"""Attention as a family of a search; numpy computes the right results of some queries."""

from __future__ import annotations

from tvm.tirx import PrimFunc

from warploom.decide.config import Config
from warploom.decide.families import attention as family
from warploom.decide.families.attention import AttentionProblem
from warploom.meta_schedule.measure import Argument
from warploom.programs import attention
from warploom_bench.attention import AttentionShape, random_shapes
from warploom_bench.judging.changes import each
from warploom_bench.judging.family import Family
from warploom_bench.judging.sampled import attention_result


def _attention(shape: AttentionShape, config: Config) -> PrimFunc:
    return attention(
        shape.tokens, shape.head_dim, shape.heads, shape.shared_heads, shape.batch, shape.causal,
        shape.dtype, (config.tile_m, config.tile_n), config.stages,
    )  # fmt: skip


def _attention_arguments(shape: AttentionShape) -> tuple[Argument, ...]:
    def tensor(heads: int) -> Argument:
        return (shape.batch, heads, shape.tokens, shape.head_dim), shape.dtype

    return tensor(shape.heads), *2 * (tensor(shape.shared_heads),), tensor(shape.heads)


_ATTENTION_CHANGES = (
    *each("tile_m", 64, 128, 192),
    *each("tile_n", 48, 64, 80, 96, 112, 128, 144, 160, 176, 192), *each("stages", 2, 3),
)

ATTENTION = Family(
    "attention", random_shapes,
    lambda s: AttentionProblem(
        s.tokens, s.head_dim, s.heads, s.shared_heads, s.batch, s.causal
    ),
    family, _attention, _attention_arguments, _ATTENTION_CHANGES,
    result=attention_result,
)  # fmt: skip

"""GEMMs as tile programs, the families of a search: small weights, scales of blocks, and groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm.tirx import PrimFunc

from warploom.decide.config import Config
from warploom.decide.families import block_scaled as block_scaled_family
from warploom.decide.families import grouped as grouped_family
from warploom.decide.families import quantised as quantised_family
from warploom.decide.families.block_scaled import BlockScaledProblem
from warploom.decide.families.grouped_problem import GroupedProblem
from warploom.decide.families.quantised import QuantisedProblem
from warploom.meta_schedule.measure import Argument
from warploom.programs import gemm_block_scaled, gemm_grouped, gemm_quantised
from warploom.programs.gemm_block_scaled import options_of
from warploom.programs.gemm_grouped import options_of as grouped_options
from warploom.programs.gemm_quantised import options_of as quantised_options
from warploom_bench.block_scaled import BlockScaledShape
from warploom_bench.dequant import DequantShape
from warploom_bench.grouped import GroupedShape
from warploom_bench.judging import references
from warploom_bench.judging.changes import each, tiles
from warploom_bench.judging.family import Family
from warploom_bench.unseen_programs import draw_block_scaled, draw_grouped, draw_quantised


@dataclass(frozen=True)
class UnevenGroups(GroupedShape):
    """A GEMM of groups whose sizes are drawn.

    Attributes
    ----------
    even : bool
        Whether each row belongs to any group with the same probability; otherwise the probabilities
        of groups are themselves random, so that sizes are about those of an exponential
        distribution.
    seed : int
        Of the sizes.
    """

    even: bool = False
    seed: int = 0

    @property
    def starts(self) -> np.ndarray:
        """The first row of each group, and the number of rows."""
        rng = np.random.default_rng(self.seed)
        even = np.full(self.groups, 1 / self.groups)
        sizes = rng.multinomial(
            self.m, even if self.even else rng.dirichlet(np.ones(self.groups))
        )
        return np.cumsum([0, *sizes]).astype(np.int32)


def _quantised(shape: DequantShape, config: Config) -> PrimFunc:
    return gemm_quantised(
        shape.n, shape.k, shape.m, shape.bits, shape.scale_group, shape.dtype,
        **quantised_options(config),
    )  # fmt: skip


def _quantised_arguments(shape: DequantShape) -> tuple[Argument, ...]:
    m, n, k, dtype = shape.m, shape.n, shape.k, shape.dtype
    return (
        ((m, k), dtype), ((n, k * shape.bits // 32), "uint32"),
        ((k // shape.scale_group, n), dtype), ((m, n), dtype),
    )  # fmt: skip


def _block_scaled(shape: BlockScaledShape, config: Config) -> PrimFunc:
    return gemm_block_scaled(
        shape.n, shape.k, shape.m, out_dtype=shape.out_dtype, **options_of(config)
    )


def _block_scaled_arguments(shape: BlockScaledShape) -> tuple[Argument, ...]:
    m, n, k = shape.m, shape.n, shape.k
    (blocks, _), of_b = shape.scale_shapes
    return (
        ((m, k), "float8_e4m3fn"), ((n, k), "float8_e4m3fn"), ((m, blocks), "float32"),
        (of_b, "float32"), ((m, n), shape.out_dtype),
    )  # fmt: skip


def _grouped(shape: GroupedShape, config: Config) -> PrimFunc:
    return gemm_grouped(
        shape.groups, shape.n, shape.k, shape.m, shape.dtype, **grouped_options(config)
    )


def _grouped_arguments(shape: GroupedShape) -> tuple[Argument, ...]:
    groups, m, n, k, dtype = shape.groups, shape.m, shape.n, shape.k, shape.dtype
    return (
        ((m, k), dtype), ((groups, n, k), dtype), ((groups + 1,), "int32"), ((m, n), dtype)
    )  # fmt: skip


_CLUSTERS = ({"cluster_m": 1, "cluster_n": 1}, {"cluster_m": 2, "cluster_n": 1},
             {"cluster_m": 1, "cluster_n": 2})  # fmt: skip
_WHOLE = {"split_k": 1, "reduce_through": "workspace"}
_QUANTISED_CHANGES = (
    *each("tile_m", 8, 16, 24, 32, 48, 64, 96, 128),
    *each("tile_k", 64, 128, 256),
    *({"tile_n": 64, "consumers": 1, "slice_k": slices} for slices in (1, 2, 3)),
    {"tile_n": 128, "consumers": 2, "slice_k": 1}, {"tile_n": 192, "consumers": 3, "slice_k": 1},
    *({"split_k": parts, "reduce_through": "cluster", "stream_k": False, "cluster_m": 1}
      for parts in (2, 4, 8)),
    {**_WHOLE, "stream_k": True}, {**_WHOLE, "stream_k": False},
    {**_WHOLE, "cluster_m": 2}, {"cluster_m": 1},
    *each("ctas_per_sm", 1, 2), *each("prefetch_l2", False, True), *each("l2_policy", 0, 1),
)  # fmt: skip
_BLOCK_SCALED_CHANGES = (
    *tiles((64, 64, 256, 1), (64, 128, 256, 1), (64, 128, 128, 1), (64, 192, 128, 1),
           (128, 64, 256, 2), (128, 128, 128, 2), (128, 128, 256, 2), (128, 192, 128, 2),
           (256, 128, 128, 2)),
    *_CLUSTERS, *each("scales_ahead", False, True), *each("order_mmas", False, True),
    *each("store_buffers", 1, 2, 3, 4), *each("group", 4, 8, 16), *each("l2_policy", 0, 1),
)  # fmt: skip
_GROUPED_CHANGES = (
    *({**one, "swap_ab": False} for one in tiles(
        (64, 64, 64, 1), (64, 128, 64, 1), (64, 192, 64, 1), (64, 256, 64, 1), (128, 128, 64, 2),
        (128, 192, 64, 2), (128, 256, 64, 2), (192, 128, 64, 3), (256, 128, 64, 2))),
    *({"tile_m": rows, "tile_n": columns, "swap_ab": rows < 64, "consumers": consumers,
       "store_columns": 64, "store_buffers": 2}
      for rows, columns, consumers in ((8, 64, 1), (16, 64, 1), (32, 64, 1), (16, 128, 2))),
    *({"split_k": parts, "reduce_through": "cluster", "cluster_n": 1} for parts in (2, 4)),
    *({"split_k": parts, "reduce_through": "workspace"} for parts in (1, 2, 3, 4)),
    *each("l2_policy", 0, 1),
    *_CLUSTERS[::2], *each("group", 4, 8, 16, 32), *each("store_buffers", 1, 2, 4),
    *each("store_columns", 32, 64),
    {"ctas_per_sm": 2, "tile_m": 64, "tile_n": 128, "consumers": 1}, {"ctas_per_sm": 1},
)  # fmt: skip

GEMMS = (
    Family(
        "quantised", lambda suite: [DequantShape(**one) for one in draw_quantised(suite)],
        lambda s: QuantisedProblem(s.m, s.n, s.k, s.bits), quantised_family, _quantised,
        _quantised_arguments, _QUANTISED_CHANGES, references.quantised,
    ),
    Family(
        "block-scaled",
        lambda suite: [BlockScaledShape(**one) for one in draw_block_scaled(suite)],
        lambda s: BlockScaledProblem(s.m, s.n, s.k), block_scaled_family, _block_scaled,
        _block_scaled_arguments, _BLOCK_SCALED_CHANGES,
        references.block_scaled,
    ),
    Family(
        "grouped", lambda suite: [UnevenGroups(**one) for one in draw_grouped(suite)],
        lambda s: GroupedProblem(s.groups, s.m, s.n, s.k, s.dtype, s.dtype), grouped_family,
        _grouped, _grouped_arguments, _GROUPED_CHANGES,
        references.grouped, apart=True, given=lambda s: {2: s.starts},
    ),
)  # fmt: skip

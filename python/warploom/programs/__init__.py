"""Tile programs of the package: plain loops over tiles, which passes turn into kernels.

Each module has a function that takes sizes, dtypes and tiles and returns a PrimFunc in the
language of :mod:`warploom.language`. They are examples to start from as much as a library.
:func:`compile_gemm` makes something to call of a GEMM, :func:`tuned` searches tiles for the others.
"""

from __future__ import annotations

from warploom.layout.weight_order import pack_weights
from warploom.programs.attention import attention
from warploom.programs.compiled_gemm import compile_gemm
from warploom.programs.conv2d import conv2d
from warploom.programs.gemm import gemm
from warploom.programs.gemm_block_scaled import gemm_block_scaled
from warploom.programs.gemm_grouped import gemm_grouped
from warploom.programs.gemm_grouped_block_scaled import gemm_grouped_block_scaled
from warploom.programs.gemm_quantised import gemm_quantised
from warploom.programs.paged_decode import paged_decode
from warploom.programs.paged_latent import paged_latent
from warploom.programs.paged_prefill import paged_prefill
from warploom.programs.ragged_prefill import ragged_prefill
from warploom.programs.top_k import top_k
from warploom.programs.tree_attention import paged_tree_attention, ragged_tree_attention
from warploom.programs.tuned import tuned

__all__ = [
    "attention", "compile_gemm", "conv2d", "gemm", "gemm_block_scaled", "gemm_grouped",
    "gemm_grouped_block_scaled", "gemm_quantised", "pack_weights", "paged_decode",
    "paged_latent", "paged_prefill", "paged_tree_attention", "ragged_prefill",
    "ragged_tree_attention", "top_k", "tuned",
]  # fmt: skip

"""The kernels of TVM's paged KV cache, one a row: which they are, and what replaces each.

``vm.builtin.paged_attention_kv_cache_create`` takes its kernels as arguments, in a fixed order
(``tvm.relax.frontend.nn.llm.kv_cache.TIRPagedKVCache``). A row says what the argument of one place
computes: its signature, TVM's own function for the same sizes, and the kernel of this package.
"""

from __future__ import annotations

from warploom.relax.kv_cache_attention import ATTENTION_KERNELS
from warploom.relax.kv_cache_copies import COPY_KERNELS
from warploom.relax.kv_cache_kernel import CacheKernel

CACHE_KERNELS: tuple[CacheKernel, ...] = (*ATTENTION_KERNELS, *COPY_KERNELS)


def kernels_at(slot: int, place: int | None) -> tuple[CacheKernel, ...]:
    """The rows of a place in the call; which one it is, the signature says."""
    return tuple(row for row in CACHE_KERNELS if (row.slot, row.place) == (slot, place))

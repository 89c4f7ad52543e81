"""The kernels of TVM's paged KV cache that move data, and the kernels that replace them."""

from __future__ import annotations

from tvm.relax.frontend.nn.llm import kv_cache as tvm_kernels

from warploom.programs.append_to_pages import append_latent_to_pages, append_to_pages
from warploom.programs.merge_states import merge_states
from warploom.programs.move_in_pages import copy_latent_page, copy_page, move_tokens
from warploom.relax.kv_cache_kernel import RAGGED_VALUES, CacheKernel
from warploom.relax.signatures import Signature

#: The place of kernels that merge two attentions.
MERGE_SLOT = 23

APPEND = CacheKernel(
    13, None, "new keys and values go to their pages, 16 bytes a thread",
    signature=Signature.of("""
        pages: dtype pages 2 kv_heads page dim
        k: dtype tokens kv_heads dim
        v: dtype tokens kv_heads dim
        position_map: int32 tokens
    """),
    stock=lambda facts, _: tvm_kernels._kv_cache_transpose_append(
        facts.number("kv_heads"), facts.number("dim"), facts["dtype"], facts.number("page")
    ),
    ours=lambda facts: append_to_pages(
        facts["kv_heads"], facts["dim"], facts["dtype"], facts["page"]
    ),
)  # fmt: skip

APPEND_LATENT = CacheKernel(
    14, None, "new latent vectors go to their pages, 16 bytes a thread",
    signature=Signature.of("""
        pages: dtype pages page dim
        data: dtype tokens dim
        position_map: int32 tokens
    """),
    stock=lambda facts, _: tvm_kernels._kv_cache_transpose_append_mla(
        facts.number("dim"), facts["dtype"], facts.number("page")
    ),
    ours=lambda facts: append_latent_to_pages(facts["dim"], facts["dtype"], facts["page"]),
)  # fmt: skip


def _merge_row(place: int, dim: str) -> CacheKernel:
    return CacheKernel(
        MERGE_SLOT, place,
        f"two attentions become one, heads of {{{dim}}}, {{dtype}}, 16 bytes a thread",
        signature=Signature.of("""
            v: dtype tokens heads dim
            s: float32 tokens heads
            v_other: dtype tokens heads dim
            s_other: float32 tokens heads
        """),
        stock=lambda facts, target: tvm_kernels._merge_state_inplace(
            facts.number("query_heads"), facts.number(dim), facts["dtype"], target
        ),
        ours=lambda facts: merge_states(facts[dim], facts["dtype"]),
    )  # fmt: skip


_COPY_PAGE = CacheKernel(
    25, None, "the tokens of a page are copied, 16 bytes a thread",
    signature=Signature.of("""
        pages: dtype pages 2 kv_heads page dim
        source: int64
        target: int64
        count: int64
    """),
    stock=lambda facts, target: tvm_kernels._copy_single_page(
        facts.number("kv_heads"), facts["page"], facts.number("dim"), facts["dtype"], target
    ),
    ours=lambda facts: copy_page(facts["kv_heads"], facts["dim"], facts["dtype"]),
)  # fmt: skip

_COPY_LATENT_PAGE = CacheKernel(
    25, None, "the tokens of a page are copied, 16 bytes a thread",
    signature=Signature.of("""
        pages: dtype pages page dim
        source: int64
        target: int64
        count: int64
    """),
    stock=lambda facts, target: tvm_kernels._copy_single_page_mla(
        facts["page"], facts.number("dim"), facts["dtype"], target
    ),
    ours=lambda facts: copy_latent_page(facts["dim"], facts["dtype"]),
)  # fmt: skip

_MOVE_TOKENS = CacheKernel(
    27, None, "accepted tokens move together, 8 at a time, 16 bytes a thread",
    signature=Signature.of("""
        pages: dtype pages 2 kv_heads page dim
        indptr: int32 batch+1
        moves: int32 2 moves
        batch: int32
    """),
    stock=lambda facts, target: tvm_kernels._compact_kv_copy(
        facts.number("kv_heads"), facts.number("dim"), facts["dtype"], target, facts.number("page")
    ),
    ours=lambda facts: move_tokens(
        facts["kv_heads"], facts["dim"], facts["dtype"], facts["page"]
    ),
)  # fmt: skip

COPY_KERNELS = (
    APPEND,
    APPEND_LATENT,
    _merge_row(0, "value_dim"),
    _merge_row(1, RAGGED_VALUES),
    _COPY_PAGE,
    _COPY_LATENT_PAGE,
    CacheKernel(26, None, "the cache is read back", "it is for debugging."),
    _MOVE_TOKENS,
)

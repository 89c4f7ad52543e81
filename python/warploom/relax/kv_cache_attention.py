"""The attention kernels of TVM's paged KV cache, and the programs that replace them."""

from __future__ import annotations

from functools import partial

from tvm.relax.frontend.nn.llm import kv_cache as tvm_kernels
from tvm.target import Target
from tvm.tirx import PrimFunc

from warploom.programs.paged_decode import paged_decode
from warploom.programs.paged_latent import paged_latent
from warploom.programs.paged_prefill import paged_prefill
from warploom.programs.ragged_prefill import ragged_prefill
from warploom.programs.tree_attention import paged_tree_attention, ragged_tree_attention
from warploom.relax.kv_cache_kernel import ROTARY, WINDOW, CacheKernel
from warploom.relax.signatures import Facts, Signature

_ROTARY = """
    rotary_mode: int32
    rope_scale: float32
    rope_theta: float32
    sm_scale: float32
"""


def _prefill_signature(length_info: str) -> Signature:
    return Signature.of(f"""
        q: dtype queries heads dim
        q_indptr: int32 batch+1
        pages: dtype pages 2 kv_heads page dim
        page_indptr: int32 batch+1
        page_values: int32 used
        length_info: int32 {length_info}
        k_rope_pos_offset: int32 batch
        q_rope_position: int32 queries
        output: dtype queries heads dim
        lse: float32 queries heads
        causal: int32
        {_ROTARY}
    """)


def _stock_prefill(window: bool, facts: Facts, target: Target) -> PrimFunc:
    heads, kv_heads, dim, page = map(facts.number, ("heads", "kv_heads", "dim", "page"))
    size = {"sliding_window_size": facts.number(WINDOW)} if window else {}
    return tvm_kernels._attention_prefill(
        kv_heads, heads, dim, facts["dtype"], window, {}, target, page, **size
    )


def _prefill(window: bool, facts: Facts) -> PrimFunc:
    heads, kv_heads, dim, page = map(facts.number, ("heads", "kv_heads", "dim", "page"))
    size = {"sliding_window": True, "sliding_window_size": facts[WINDOW]} if window else {}
    return paged_prefill(
        heads, kv_heads, dim, facts["dtype"], page, rotary=facts[ROTARY], **size
    )


def _prefill_row(slot: int, window: bool) -> CacheKernel:
    seen = " in a sliding window" if window else ""
    return CacheKernel(
        slot, 1,
        f"attention of new tokens to those before{seen}, {{heads}} heads of {{dim}} ({{kv_heads}} "
        "of keys), pages of {page} tokens, {dtype}",
        signature=_prefill_signature("3 batch" if window else "batch"),
        stock=partial(_stock_prefill, window), ours=partial(_prefill, window),
    )  # fmt: skip


def _decode_signature(length_info: str) -> Signature:
    return Signature.of(f"""
        q: dtype batch heads dim
        pages: dtype pages 2 kv_heads page dim
        page_indptr: int32 batch+1
        page_values: int32 used
        length_info: int32 {length_info}
        k_rope_pos_offset: int32 batch
        q_rope_position: int32 batch
        output: dtype batch heads dim
        lse: float32 batch heads
        {_ROTARY}
    """)


def _stock_decode(window: bool, facts: Facts, target: Target) -> PrimFunc:
    heads, kv_heads, dim, page = map(facts.number, ("heads", "kv_heads", "dim", "page"))
    return tvm_kernels._attention_decode(
        kv_heads, heads, dim, facts["dtype"], window, {}, target, page
    )


def _decode(window: bool, facts: Facts) -> PrimFunc:
    heads, kv_heads, dim, page = map(facts.number, ("heads", "kv_heads", "dim", "page"))
    return paged_decode(
        heads, kv_heads, dim, facts["dtype"], page, window, rotary=facts[ROTARY]
    )


def _decode_row(slot: int, window: bool) -> CacheKernel:
    seen = " in a sliding window" if window else ""
    return CacheKernel(
        slot, 1,
        f"decode attention{seen}, {{heads}} heads of {{dim}} ({{kv_heads}} of keys), pages of "
        "{page} tokens, {dtype}",
        signature=_decode_signature("3 batch" if window else "batch"),
        stock=partial(_stock_decode, window), ours=partial(_decode, window),
    )  # fmt: skip


RAGGED = CacheKernel(
    15, 1,
    "attention of new tokens to each other, {heads} heads of {dim} and {value_dim} ({kv_heads} of "
    "keys), {dtype}",
    signature=Signature.of(f"""
        q: dtype queries heads dim
        q_indptr: int32 batch+1
        k: dtype keys kv_heads dim
        v: dtype keys kv_heads value_dim
        kv_indptr: int32 batch+1
        q_rope_position: int32 queries
        k_rope_pos_offset: int32 batch
        output: dtype queries heads value_dim
        lse: float32 queries heads
        causal: int32
        {_ROTARY}
    """),
    stock=lambda facts, target: tvm_kernels._attention_prefill_ragged(
        *map(facts.number, ("kv_heads", "heads", "dim", "value_dim")), facts["dtype"], {}, target
    ),
    ours=lambda facts: ragged_prefill(
        *map(facts.number, ("heads", "kv_heads", "dim", "value_dim")), facts["dtype"],
        rotary=facts[ROTARY],
    ),

)  # fmt: skip

_TREE = CacheKernel(
    21, 1,
    "attention of a tree of new tokens, {heads} heads of {dim} ({kv_heads} of keys), {dtype}",
    signature=Signature.of(f"""
        q: dtype queries heads dim
        q_indptr: int32 batch+1
        k: dtype keys kv_heads dim
        v: dtype keys kv_heads dim
        kv_indptr: int32 batch+1
        q_rope_position: int32 queries
        order_indptr: int32 batch+1
        order: int32 tree 2
        output: dtype queries heads dim
        lse: float32 queries heads
        {_ROTARY}
    """),
    stock=lambda facts, target: tvm_kernels.tree_attn(
        *map(facts.number, ("kv_heads", "heads", "dim")), facts["dtype"], {}, target
    ),
    ours=lambda facts: ragged_tree_attention(
        *map(facts.number, ("heads", "kv_heads", "dim")), facts["dtype"]
    ),
)  # fmt: skip

_PAGED_TREE = CacheKernel(
    20, 1,
    "attention of a tree of tokens to those before, {heads} heads of {dim} ({kv_heads} of keys), "
    "pages of {page} tokens, {dtype}",
    signature=Signature.of(f"""
        q: dtype queries heads dim
        q_indptr: int32 batch+1
        pages: dtype pages 2 kv_heads page dim
        page_indptr: int32 batch+1
        page_values: int32 used
        length_info: int32 batch
        k_rope_pos_offset: int32 batch
        q_rope_position: int32 queries
        output: dtype queries heads dim
        lse: float32 queries heads
        {_ROTARY}
        order_indptr: int32 batch+1
        order: int32 tree 2
    """),
    stock=lambda facts, target: tvm_kernels.tree_attn_with_paged_kv_cache(
        *map(facts.number, ("kv_heads", "heads", "dim")), facts["dtype"], {}, target
    ),
    ours=lambda facts: paged_tree_attention(
        *map(facts.number, ("heads", "kv_heads", "dim")), facts["dtype"], facts.number("page")
    ),
)  # fmt: skip

LATENT = CacheKernel(
    22, 1,
    "attention to latent vectors (MLA), {heads} heads of {dim}, of which {latent_dim} are values, "
    "pages of {page} tokens, {dtype}",
    signature=Signature.of("""
        q: dtype queries heads dim
        q_indptr: int32 batch+1
        pages: dtype pages page dim
        page_indptr: int32 batch+1
        page_values: int32 used
        length_info: int32 batch
        output: dtype queries heads latent_dim
        lse: float32 queries heads
        causal: int32
        sm_scale: float32
    """),
    stock=lambda facts, target: tvm_kernels._attention_prefill_mla(
        facts.number("heads"), facts.number("latent_dim"),
        facts.number("dim") - facts.number("latent_dim"), facts["dtype"], False, target,
        facts.number("page"),
    ),
    ours=lambda facts: paged_latent(
        facts.number("heads"), facts.number("latent_dim"),
        facts.number("dim") - facts.number("latent_dim"), facts["dtype"], facts.number("page"),
    ),
)  # fmt: skip

ATTENTION_KERNELS = (
    RAGGED,
    _prefill_row(16, False),
    _decode_row(17, False),
    _prefill_row(18, True),
    _decode_row(19, True),
    _PAGED_TREE,
    _TREE,
    LATENT,
)

"""The kernels of TVM's paged KV cache, one a row: which they are, and what replaces each.

``vm.builtin.paged_attention_kv_cache_create`` takes its kernels as arguments, in a fixed order
(``tvm.relax.frontend.nn.llm.kv_cache.TIRPagedKVCache``). A row says what the argument of one place
computes: its signature, TVM's own function for the same sizes, and the kernel of this package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tvm.relax.frontend.nn.llm import kv_cache as tvm_kernels
from tvm.target import Target
from tvm.tirx import PrimFunc

from warploom.programs.append_to_pages import append_latent_to_pages, append_to_pages
from warploom.programs.merge_states import merge_states
from warploom.programs.move_in_pages import copy_latent_page, copy_page, move_tokens
from warploom.programs.paged_decode import paged_decode
from warploom.programs.ragged_prefill import ragged_prefill
from warploom.relax.signatures import Facts, Signature

_NO_PARAMETERS = Signature(())


@dataclass(frozen=True)
class CacheKernel:
    """A kernel of the cache.

    Attributes
    ----------
    slot : int
        Which argument of the call it is, behind the name of the function that is called.
    place : int or None
        Where it stands in that argument, if that is a tuple.
    words : str
        What it computes, for people; names in braces are sizes of the signature or of the call.
    stays : str
        Why TVM's stays; empty where it is replaced.
    signature : Signature
        Not of those that stay.
    stock : callable
        TVM's function, from the sizes and the target.
    ours : callable
        The kernel that replaces it, from the sizes.
    """

    slot: int
    place: int | None
    words: str
    stays: str = ""
    signature: Signature = _NO_PARAMETERS
    stock: Callable[[Facts, Target], PrimFunc] | None = None
    ours: Callable[[Facts], PrimFunc] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.slot < SLOTS:
            raise ValueError(f"the call has {SLOTS} arguments, and no number {self.slot}")
        if any((part is None) != bool(self.stays) for part in (self.stock, self.ours)):
            raise ValueError(f"{self.words}: either a kernel replaces it, or a reason is given")
        known = (*self.signature.sizes, *CALL_SIZES, "dtype")
        self.words.format_map(dict.fromkeys(known, 0))

    @property
    def rotates(self) -> bool:
        """Whether it can apply the rotary embedding itself (``RopeMode.INLINE``)."""
        return self._takes(ROTARY_MODE)

    @property
    def attends(self) -> bool:
        """Whether it is an attention."""
        return self._takes("sm_scale")

    def _takes(self, name: str) -> bool:
        return any(parameter.name == name for parameter in self.signature.parameters)


#: Arguments of the call; some versions of TVM have one more.
SLOTS = 28
#: Sizes that the call gives, and where; the last is of the values in ragged attention.
CALL_SIZES = {"query_heads": 2, "value_dim": 5, "ragged_value_dim": None}
#: The parameter of attention kernels that says whether they apply the rotary embedding.
ROTARY_MODE = "rotary_mode"

_ROTARY = """
    rotary_mode: int32
    rope_scale: float32
    rope_theta: float32
    sm_scale: float32
"""


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
    return paged_decode(heads, kv_heads, dim, facts["dtype"], page, window)


def _decode_row(slot: int, window: bool) -> CacheKernel:
    seen = " in a sliding window" if window else ""
    return CacheKernel(
        slot, 1,
        f"decode attention{seen}, {{heads}} heads of {{dim}} ({{kv_heads}} of keys), pages of "
        "{page} tokens, {dtype}",
        signature=_decode_signature("3 batch" if window else "batch"),
        stock=partial(_stock_decode, window), ours=partial(_decode, window),
    )  # fmt: skip


_APPEND = CacheKernel(
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

_APPEND_LATENT = CacheKernel(
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
        23, place, f"two attentions become one, heads of {{{dim}}}, {{dtype}}, 16 bytes a thread",
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
        *map(facts.number, ("heads", "kv_heads", "dim", "value_dim")), facts["dtype"]
    ),
)  # fmt: skip

#: The kernels, in the order of the arguments.
CACHE_KERNELS: tuple[CacheKernel, ...] = (
    _APPEND,
    _APPEND_LATENT,
    RAGGED,
    _decode_row(17, False),
    _decode_row(19, True),
    _merge_row(0, "value_dim"),
    _merge_row(1, "ragged_value_dim"),
    _COPY_PAGE,
    _COPY_LATENT_PAGE,
    CacheKernel(26, None, "the cache is read back", "it is for debugging."),
    _MOVE_TOKENS,
)


def kernels_at(slot: int, place: int | None) -> tuple[CacheKernel, ...]:
    """The rows of a place in the call; which one it is, the signature says."""
    return tuple(row for row in CACHE_KERNELS if (row.slot, row.place) == (slot, place))

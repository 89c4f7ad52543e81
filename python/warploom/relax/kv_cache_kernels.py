"""The kernels of TVM's paged KV cache, one a row: which they are, and what replaces each.

``vm.builtin.paged_attention_kv_cache_create`` takes its kernels as arguments, in a fixed order
(``tvm.relax.frontend.nn.llm.kv_cache.TIRPagedKVCache``). A row says what the argument of one place
computes: its signature, TVM's own function for the same sizes, and the kernel of this package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm.relax.frontend.nn.llm import kv_cache as tvm_kernels
from tvm.target import Target
from tvm.tirx import PrimFunc

from warploom.programs.paged_decode import paged_decode
from warploom.relax.signatures import Facts, Signature


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
        What it computes, for people; names in braces are sizes of the signature.
    signature : Signature
    stock : callable
        TVM's function, from the sizes and the target.
    ours : callable or None
        The kernel that replaces it, from the sizes; None where TVM's stays.
    stays : str
        Why TVM's stays; empty where it is replaced.
    """

    slot: int
    place: int | None
    words: str
    signature: Signature
    stock: Callable[[Facts, Target], PrimFunc]
    ours: Callable[[Facts], PrimFunc] | None = None
    stays: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.slot < SLOTS:
            raise ValueError(f"the call has {SLOTS} arguments, and no number {self.slot}")
        if (self.ours is None) != bool(self.stays):
            raise ValueError(f"{self.words}: either a kernel replaces it, or a reason is given")
        self.words.format_map(dict.fromkeys((*self.sizes, "dtype"), 0))

    @property
    def sizes(self) -> set[str]:
        """The names of the sizes of the signature."""
        shapes = [parameter.shape or () for parameter in self.signature.parameters]
        return {dimension.removesuffix("+1") for shape in shapes for dimension in shape}

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
        _decode_signature("3 batch" if window else "batch"),
        partial(_stock_decode, window), partial(_decode, window),
    )  # fmt: skip


#: The kernels, in the order of the arguments.
CACHE_KERNELS: tuple[CacheKernel, ...] = (
    _decode_row(17, False),
    _decode_row(19, True),
)


def kernel_at(slot: int, place: int | None) -> CacheKernel | None:
    """The row of a place in the call; None if there is none."""
    for row in CACHE_KERNELS:
        if (row.slot, row.place) == (slot, place):
            return row
    return None


def _distinct(rows: tuple[CacheKernel, ...]) -> None:
    places: list[Any] = [(row.slot, row.place) for row in rows]
    if len(set(places)) != len(places):
        raise ValueError("two rows of CACHE_KERNELS are for one place")


_distinct(CACHE_KERNELS)

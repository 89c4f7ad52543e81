"""Attention of the queries of many sequences to their own keys, which lie one after the other.

It is what TVM's KV cache computes of the tokens of a prefill, before or beside those in pages.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from warploom import language as wl
from warploom.decide.config import Config
from warploom.decide.families.prefill import PrefillProblem
from warploom.decide.selector import choose
from warploom.kernels.kernel_name import named
from warploom.programs.kv_pages import named_scalar
from warploom.programs.prefill_masks import CausalMask
from warploom.programs.prefill_steps import (
    PrefillTiles,
    nothing_of,
    powers_of,
    prefill_steps,
)
from warploom.programs.rotary import BEFORE, EITHER, INLINE, Rotation, check_rotary
from warploom.programs.sequences import QueryTile, search_rounds
from warploom.target import SM90A
from warploom.target.dtypes import with_dtype_names


@with_dtype_names
@named
def ragged_prefill(
    heads: int,
    kv_heads: int,
    head_dim: int,
    value_dim: int | None = None,
    dtype: str = "float16",
    config: Config | None = None,
    rotary: str = BEFORE,
    arch: str = SM90A.name,
) -> PrimFunc:
    """O = softmax(sm_scale Q Kᵀ) V for each sequence and head, and the log2 of the denominator.

    The signature is that of ``batch_prefill_ragged_kv``, which TVM's ``TIRPagedKVCache`` calls
    (``tvm.relax.frontend.nn.llm._prefill_kernels._attention_prefill_ragged``).

    Parameters
    ----------
    heads, kv_heads, head_dim : int
        ``heads`` of Q share ``kv_heads`` of K and V evenly. ``head_dim`` is a multiple of 8 of at
        most 256.
    value_dim : int, optional
        Elements of a head of V and the output; ``head_dim`` if left out.
    dtype : str
        ``"float16"`` or ``"bfloat16"``; sums and the softmax are in float32.
    config : Config, optional
        ``tile_m`` rows of a tile, ``tile_n`` keys of a step, ``stages``; by default that of
        :func:`warploom.decide.choose`.
    rotary : str
        ``"before"``: q and k are rotated, and ``rotary_mode`` is 0. ``"inline"``: they are not,
        ``rotary_mode`` is 1, and the function rotates them into a workspace. ``"either"``: as
        ``rotary_mode`` says.
    arch : str
        What the config is chosen for: ``"sm_90a"`` or ``"sm_100a"``.

    Returns
    -------
    PrimFunc
        ``(q, q_indptr, k, v, kv_indptr, q_rope_position, k_rope_pos_offset, output, lse, causal,
        rotary_mode, rope_scale, rope_theta, sm_scale)``: q is ``(queries, heads, head_dim)``, k
        ``(keys, kv_heads, head_dim)``, v ``(keys, kv_heads, value_dim)``, output ``(queries, heads,
        value_dim)``, lse ``(queries, heads)`` of float32, indices int32. Where ``causal`` is above
        0, query i of n sees the keys up to number ``keys - n + i`` of its sequence, otherwise all.
        A query that sees none has the output 0 and the lse -5e4. Where the function rotates,
        query i has the position ``q_rope_position[i]``, and key i of sequence b ``i +
        k_rope_pos_offset[b]``. ``sm_scale`` must be above 0.

    Raises
    ------
    IllegalCombination
        If there is no kernel for the sizes, or the heads cannot share those of K and V.

    Examples
    --------
    >>> ragged_prefill(32, 8, 128).attrs["global_symbol"]
    'ragged_prefill_heads32_kvheads8_headdim128'
    """
    check_rotary(rotary)
    value_dim = value_dim or head_dim
    problem = PrefillProblem(heads, kv_heads, head_dim, value_dim, arch)
    tiles = PrefillTiles(problem, dtype, config or choose(problem))
    steps, write_nothing = prefill_steps(tiles), nothing_of(heads, value_dim, dtype)

    @T.inline
    def attend(Q, K, V, Out, Lse, QIndptr, KIndptr, slots, batch, rounds, causal, factor):
        with wl.kernel():
            wl.hints(raster="rows")
            slot, beside = T.cta_id([slots, tiles.tiles_beside])
            tile = QueryTile(QIndptr, tiles.queries)
            tile.find(slot, batch, rounds)
            tile.place(slot)
            if tile.first >= 0:
                own = RaggedKeys(K, V, KIndptr, tile.b, T.truncdiv(beside * kv_heads,
                                 tiles.tiles_beside), tiles)  # fmt: skip
                mask = CausalMask(causal, tile.length, own.length)
                steps(Q, Out, Lse, tile, own, mask, beside, factor)

    @T.prim_func
    def batch_prefill_ragged_kv(
        q: T.handle, q_indptr: T.handle, k: T.handle, v: T.handle, kv_indptr: T.handle,
        q_rope: T.handle, k_rope: T.handle, o: T.handle, s: T.handle, causal: T.int32,
        rotary_mode: T.int32, rope_scale: T.float32, rope_theta: T.float32, sm_scale: T.float32,
    ):  # fmt: skip
        batch = T.int32()
        queries = T.int32()
        keys = T.int32()
        q_indptr_offset = T.int32()
        kv_indptr_offset = T.int32()
        q_rope_offset = T.int32()
        k_rope_offset = T.int32()
        Q = T.match_buffer(q, (queries, heads, head_dim), dtype, align=16)
        QIndptr = T.match_buffer(q_indptr, (batch + 1,), "int32", elem_offset=q_indptr_offset)
        K = T.match_buffer(k, (keys, kv_heads, head_dim), dtype, align=16)
        V = T.match_buffer(v, (keys, kv_heads, value_dim), dtype, align=16)
        KIndptr = T.match_buffer(kv_indptr, (batch + 1,), "int32", elem_offset=kv_indptr_offset)
        QRope = T.match_buffer(q_rope, (queries,), "int32", elem_offset=q_rope_offset)
        KRope = T.match_buffer(k_rope, (batch,), "int32", elem_offset=k_rope_offset)
        Out = T.match_buffer(o, (queries, heads, value_dim), dtype, align=16)
        Lse = T.match_buffer(s, (queries, heads), "float32")
        if rotary == INLINE:
            assert rotary_mode == 1, "ragged_prefill was made to rotate queries and keys"
        if rotary == BEFORE:
            assert rotary_mode == 0, "ragged_prefill takes queries and keys that are rotated"
        assert sm_scale > 0, "ragged_prefill takes scales above 0"
        factor: T.let[T.float32] = powers_of(sm_scale)
        rounds: T.let[T.int32] = search_rounds(batch)
        some: T.let[T.bool] = T.And(queries > 0, keys > 0)
        slots: T.let[T.int32] = T.if_then_else(some, queries // tiles.queries + batch, 0)
        if rotary != BEFORE:
            turned: T.let[T.int32] = T.if_then_else(T.And(rotary_mode == 1, some), 1, 0)
            Q_r = T.alloc_buffer(
                (T.max(turned * queries, 1), heads, head_dim), dtype, scope="global"
            )
            K_r = T.alloc_buffer(
                (T.max(turned * keys, 1), kv_heads, head_dim), dtype, scope="global"
            )
            rotation = Rotation(head_dim, dtype, rope_scale, rope_theta)
            with wl.kernel():
                rotation.turn_rows(Q, Q_r, turned * queries, heads, QRope)
            with wl.kernel():
                rotation.turn_keys(
                    K, K_r, turned * keys, kv_heads, KIndptr, KRope, batch, rounds
                )
            # A scalar of the host, so that the kernel of either is the same, and compiled once.
            turned_slots: T.int32 = turned * slots
            attend(Q_r, K_r, V, Out, Lse, QIndptr, KIndptr, turned_slots, batch, rounds, causal,
                   factor)  # fmt: skip
        if rotary == EITHER:
            other_slots: T.int32 = slots - turned_slots
            attend(Q, K, V, Out, Lse, QIndptr, KIndptr, other_slots, batch, rounds, causal,
                   factor)  # fmt: skip
        if rotary == BEFORE:
            attend(Q, K, V, Out, Lse, QIndptr, KIndptr, slots, batch, rounds, causal, factor)
        with wl.kernel():
            row = T.cta_id([T.if_then_else(keys > 0, 0, queries)])
            write_nothing(Out, Lse, row)

    return batch_prefill_ragged_kv


@T.meta_class
class RaggedKeys:
    """The keys and values of a sequence, which lie one after the other.

    Parameters
    ----------
    k, v : Buffer
        ``(keys, kv_heads, elements)``.
    indptr : Buffer
        ``(batch + 1,)``: where sequences begin.
    b, head : int32 expression
        The sequence, and the head.
    tiles : PrefillTiles

    Attributes
    ----------
    length : int32 scalar
        How many the sequence has.
    """

    def __init__(self, k: Any, v: Any, indptr: Any, b: Any, head: Any, tiles: PrefillTiles) -> None:
        self._k, self._v, self._tiles = k, v, tiles
        self._head = named_scalar(head)
        self._begin = named_scalar(indptr[b])
        self.length = named_scalar(indptr[b + 1] - self._begin)

    def load(self, k_tile: Any, v_tile: Any, block: Any, step: Any) -> None:
        """A block of keys, and the block before it of values: 0 in step 0."""
        count = self._tiles.keys
        row = named_scalar(self._begin + block * count)
        # All rows of a block above the tensor are 0.
        before = named_scalar(T.Select(step > 0, row - count, -count))
        Tx.cta.copy_async(k_tile, self._k[row : row + count, self._head, 0 : self._tiles.wide])
        Tx.cta.copy_async(
            v_tile, self._v[before : before + count, self._head, 0 : self._tiles.columns]
        )

"""Attention of one query a sequence to keys and values in pages: the decode step of a KV cache.

A tile is the query heads that share a head of K and V, and a chunk of the pages of one sequence. It
writes the result where the sequence has one chunk, and otherwise a part of it to a workspace; a
second kernel (:mod:`warploom.programs.merge_parts`) then adds the parts.

The host knows no lengths, so CTAs find their chunks. The first chunk of sequence b has the slot b,
chunk c of the others the slot ``batch + indptr[b] // chunk + c - 1``, in pages: no two have the
same, and there are ``batch + pages // chunk`` slots, however long the sequences are. Some of the
latter are empty; they come last, where they hold back nothing, and only they need a search.
"""

from __future__ import annotations

import math
from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from warploom import language as wl
from warploom.decide.config import Config
from warploom.decide.families.paged_decode import (
    PagedDecodeProblem,
    chunk_costs,
    steps_of_chunk,
)
from warploom.decide.machines import machine_for
from warploom.decide.selector import choose
from warploom.errors import IllegalCombination
from warploom.kernels.kernel_name import named
from warploom.programs.kv_pages import SequencePages, check_pages, named_scalar
from warploom.programs.merge_parts import THREADS, PartsOfSequences, ctas_of_sequences
from warploom.programs.paged_keys import PagedBlocks
from warploom.programs.rotary import BEFORE, EITHER, INLINE, Rotation, check_rotary
from warploom.programs.sequences import SequenceSearch, search_rounds
from warploom.target import SM90A
from warploom.target.dtypes import with_dtype_names

#: The lse of a query that sees no key, which is TVM's: it begins with a logit of a weight of 1, and
#: a value of 0.
NOTHING = -5e4
#: Elements of a head: a thread then holds 128 of the sums of 64 rows.
_MOST_ELEMENTS = 256


@with_dtype_names
@named
def paged_decode(
    heads: int,
    kv_heads: int,
    head_dim: int,
    dtype: str = "float16",
    page_size: int = 16,
    sliding_window: bool = False,
    config: Config | None = None,
    chunk: int | None = None,
    rotary: str = BEFORE,
    arch: str = SM90A.name,
) -> PrimFunc:
    """O = softmax(sm_scale Q Kᵀ) V for each sequence and head, and the log2 of the denominator.

    The signature is that of ``batch_decode_paged_kv``, which TVM's ``TIRPagedKVCache`` calls
    (``tvm.relax.frontend.nn.llm._decode_kernels._attention_decode``).

    Parameters
    ----------
    heads, kv_heads, head_dim : int
        ``heads`` of Q share ``kv_heads`` of K and V evenly. ``head_dim`` is a multiple of 8 of at
        most 256.
    dtype : str
        ``"float16"`` or ``"bfloat16"``; sums and the softmax are in float32.
    page_size : int
        Tokens of a page: a multiple of 8 that divides the keys of a step, or is a multiple of them.
    sliding_window : bool
        Whether ``length_info`` is ``(3, batch)``: tokens of the last page, offset of the window,
        and tokens at the start that every query sees. Otherwise it is ``(batch,)``.
    config : Config, optional
        ``tile_n`` keys of a step, ``stages`` and ``ctas_per_sm``; by default that of
        :func:`warploom.decide.choose`.
    chunk : int, optional
        Steps of a chunk, at most; without it the host computes it at each launch from the batch and
        the pages in use (:func:`~warploom.decide.families.paged_decode.steps_of_chunk`).
    rotary : str
        ``"before"``: queries and the keys in the cache are rotated, and ``rotary_mode`` is 0.
        ``"inline"``: they are not, ``rotary_mode`` is 1, and the function rotates them into a
        workspace. ``"either"``: as ``rotary_mode`` says.
    arch : str
        What the config is chosen for: ``"sm_90a"`` or ``"sm_100a"``.

    Returns
    -------
    PrimFunc
        ``(q, pages, page_indptr, page_values, length_info, k_rope_pos_offset, q_rope_position,
        output, lse, rotary_mode, rope_scale, rope_theta, sm_scale)``: q and output are ``(batch,
        heads, head_dim)``, pages ``(pages, 2, kv_heads, page_size, head_dim)``, lse ``(batch,
        heads)`` of float32, indices int32. Where the function rotates, query b has the position
        ``q_rope_position[b]``, and key i of those that sequence b has kept ``i +
        k_rope_pos_offset[b]``. A sequence without keys has the output 0 and the lse -5e4. Keys
        and values of the last page behind the end may be anything, NaN too.

    Raises
    ------
    IllegalCombination
        If there is no kernel for ``head_dim`` or ``page_size``, or the heads cannot share those of
        K and V.

    Examples
    --------
    >>> paged_decode(32, 8, 128).attrs["global_symbol"]
    'paged_decode_heads32_kvheads8_headdim128'
    """
    _check(heads, kv_heads, head_dim, dtype)
    check_rotary(rotary)
    problem = PagedDecodeProblem(heads, kv_heads, head_dim, page_size, arch)
    config = config or choose(problem)
    costs = chunk_costs(problem, config, machine_for())
    keys, width = config.tile_n, problem.padded_dim
    check_pages(page_size, keys)
    group, rows, blocks = heads // kv_heads, config.tile_m, problem.row_blocks
    # A step has several pages, or a page has several steps.
    pages_a_step, steps_a_page = max(1, keys // page_size), max(1, page_size // keys)
    in_place = problem.in_place

    def steps_of(batch: Any, pages: Any) -> Any:
        """Steps of a chunk, of whole pages."""
        if chunk is not None:
            return -(-chunk // steps_a_page) * steps_a_page
        whole = T.max(batch * keys, 1)
        average = named_scalar(T.max((pages * page_size + (whole - 1)) // whole, 1))
        tiles = named_scalar(T.max(batch * (kv_heads * blocks), 1))
        found = steps_of_chunk(costs, average, tiles, named_scalar, batch > 1)
        return (found + (steps_a_page - 1)) // steps_a_page * steps_a_page

    def is_partial(tokens: Any) -> Any:
        """Whether a step has a page with some of so many tokens, or with none of them."""
        return T.truncmod(tokens, page_size) != 0 if steps_a_page == 1 else True

    def load(pages: PagedBlocks, k_tile: Any, v_tile: Any, step: Any) -> None:
        """Keys and values of a step: its pages, zeros where there are no more."""
        where = pages.rows(step)
        pages.load_keys(k_tile, step, where, width)
        pages.load_values(v_tile, where, width)

    def is_stored(row: Any, column: Any, rows_left: Any) -> Any:
        """Whether an element is none of the padding."""
        inside = row < rows_left
        return inside if head_dim == width else T.And(inside, column < head_dim)

    @T.inline
    def attend(Queries, Keys, Cache, index, to, pages_of_a_chunk, slots, batch, rounds, sm_scale):
        with wl.kernel():
            wl.hints(ctas_per_sm=config.ctas_per_sm, raster="rows")
            slot, beside = T.cta_id([slots, kv_heads * blocks])
            Q_s = T.alloc_buffer((rows, width), dtype, scope="shared")
            K_s = T.alloc_buffer((keys, width), dtype, scope="shared")
            V_s = T.alloc_buffer((keys, width), dtype, scope="shared")
            V_z = V_s if in_place else T.alloc_buffer((keys, width), dtype, scope="shared")
            S = T.alloc_buffer((rows, keys), "float32", scope="accumulator")
            P = T.alloc_buffer((rows, keys), dtype, scope="fragment")
            acc = T.alloc_buffer((rows, width), "float32", scope="accumulator")
            # Two elements of 16 bits are stored as a word.
            out_tile = T.alloc_buffer((rows, width), dtype, scope="fragment")
            largest = T.alloc_buffer((rows,), "float32", scope="fragment")
            shrink = T.alloc_buffer((rows,), "float32", scope="fragment")
            total = T.alloc_buffer((rows,), "float32", scope="fragment")
            head: T.let = beside // blocks
            first_row: T.let = head * group + beside % blocks * rows
            rows_left: T.let = (head + 1) * group - first_row
            search = SequenceSearch()
            later: T.int32 = slot - batch
            search.find(
                index[0], batch, T.Select(later < 0, 0, rounds),
                (T.cast(later, "int64") + 1) * pages_of_a_chunk,
            )  # fmt: skip
            b: T.int32 = T.Select(later < 0, slot, search.b)
            seq = SequencePages(index[0], index[1], index[2], b, page_size, sliding_window)
            first: T.int32 = (
                T.Select(later < 0, 0, later + 1 - T.truncdiv(seq.begin, pages_of_a_chunk))
                * pages_of_a_chunk
            )
            if T.And(first >= 0, first < T.max(seq.count, 1)):
                pages = PagedBlocks(
                    Cache, seq, head, kv_heads, page_size, keys, Keys, zeros=True,
                    read_once=blocks == 1,
                )  # fmt: skip
                steps: T.int32 = T.truncdiv(
                    T.min(pages_of_a_chunk, seq.count - first) * steps_a_page + (pages_a_step - 1),
                    pages_a_step,
                )
                base: T.int32 = T.truncdiv(first * steps_a_page, pages_a_step)
                Tx.cta.copy_async(
                    Q_s, Queries[b * heads + first_row : b * heads + first_row + rows, 0:width]
                )
                Tx.cta.fill(largest, T.float32(NOTHING))
                Tx.cta.fill(total, T.float32(1))
                Tx.cta.zero(acc)
                for step in wl.pipelined(steps, config.stages):
                    load(pages, K_s, V_s, base + step)
                    Tx.cta.gemm_async(S, Q_s, K_s)
                    for i, j in T.grid(rows, keys):
                        S[i, j] = S[i, j] * (sm_scale * T.float32(math.log2(math.e)))
                    at: T.int32 = (base + step) * keys
                    if seq.hides(at, keys):
                        for i, j in T.grid(rows, keys):
                            S[i, j] = T.if_then_else(
                                seq.sees(at + j), S[i, j], T.float32("-inf")
                            )
                    Tx.cta.copy(shrink, largest)
                    Tx.cta.max(largest, S, axes=(1,), accum=True)
                    for i in T.serial(rows):
                        shrink[i] = T.exp2(shrink[i] - largest[i])
                        total[i] = total[i] * shrink[i]
                    for i, j in T.grid(rows, keys):
                        S[i, j] = T.exp2(S[i, j] - largest[i])
                    Tx.cta.sum(total, S, axes=(1,), accum=True)
                    Tx.cta.cast(P, S)
                    for i, j in T.grid(rows, width):
                        acc[i, j] = acc[i, j] * shrink[i]
                    # A weight of 0 does not hide what is no number. Whole pages of it are zeros.
                    if T.And(at + keys > seq.length, is_partial(seq.length)):
                        if in_place:
                            for j, d in T.grid(keys, width):
                                if at + j >= seq.length:
                                    V_s[j, d] = T.cast(0, dtype)
                        else:
                            for j, d in T.grid(keys, width):
                                V_z[j, d] = T.if_then_else(
                                    at + j < seq.length, V_s[j, d], T.cast(0, dtype)
                                )
                            Tx.cta.gemm_async(acc, P, V_z, transB=True, accum=True)
                    elif not in_place:
                        Tx.cta.gemm_async(acc, P, V_s, transB=True, accum=True)
                    if in_place:
                        Tx.cta.gemm_async(acc, P, V_s, transB=True, accum=True)
                for i in T.serial(rows):
                    largest[i] = largest[i] + T.log2(total[i])
                for i, j in T.grid(rows, width):
                    acc[i, j] = acc[i, j] / total[i]
                if seq.count > pages_of_a_chunk:
                    # Parts of a sequence lie one after the other, the first in indptr // chunk + b.
                    part: T.int32 = T.truncdiv(index[0][b] + first, pages_of_a_chunk) + b
                    for i, j in T.grid(rows, width):
                        if is_stored(i, j, rows_left):
                            to[0][part, first_row + i, j] = acc[i, j]
                    for i in T.serial(rows):
                        if i < rows_left:
                            to[1][part, first_row + i] = largest[i]
                else:
                    Tx.cta.cast(out_tile, acc)
                    for i, j in T.grid(rows, width):
                        if is_stored(i, j, rows_left):
                            to[2][b, first_row + i, j] = out_tile[i, j]
                    for i in T.serial(rows):
                        if i < rows_left:
                            to[3][b, first_row + i] = largest[i]

    @T.prim_func
    def batch_decode_paged_kv(
        q: T.handle, p: T.handle, indptr: T.handle, values: T.handle, info: T.handle,
        k_rope: T.handle, q_rope: T.handle, o: T.handle, s: T.handle,
        rotary_mode: T.int32, rope_scale: T.float32, rope_theta: T.float32, sm_scale: T.float32,
    ):  # fmt: skip
        batch = T.int32()
        used_pages = T.int32()
        max_pages = T.int32()
        pages_offset = T.int64()
        indptr_offset = T.int32()
        values_offset = T.int32()
        k_rope_offset = T.int32()
        q_rope_offset = T.int32()
        info_offset = T.int32()
        Q = T.match_buffer(q, (batch, heads, head_dim), dtype, align=16)
        Pages = T.match_buffer(
            p, (max_pages, 2, kv_heads, page_size, head_dim), dtype, elem_offset=pages_offset,
            offset_factor=8, align=16,
        )  # fmt: skip
        Indptr = T.match_buffer(indptr, (batch + 1,), "int32", elem_offset=indptr_offset)
        Values = T.match_buffer(values, (used_pages,), "int32", elem_offset=values_offset)
        Info = T.match_buffer(
            info, (3, batch) if sliding_window else (batch,), "int32", elem_offset=info_offset
        )
        KRope = T.match_buffer(k_rope, (batch,), "int32", elem_offset=k_rope_offset)
        QRope = T.match_buffer(q_rope, (batch,), "int32", elem_offset=q_rope_offset)
        Out = T.match_buffer(o, (batch, heads, head_dim), dtype, align=16)
        Lse = T.match_buffer(s, (batch, heads), "float32")
        if rotary == INLINE:
            assert rotary_mode == 1, "paged_decode was made to rotate queries and keys"
        if rotary == BEFORE:
            assert rotary_mode == 0, "paged_decode takes keys that lie in the cache rotated"
        # Rows of one head after the other. The offset is a multiple of 16 bytes, as TMA needs it.
        unit: T.let[T.int64] = pages_offset // 8
        Cache = T.decl_buffer(
            (max_pages * (2 * kv_heads * page_size), head_dim), dtype, data=Pages.data,
            elem_offset=unit * 8,
        )  # fmt: skip
        Queries = T.decl_buffer((batch * heads, head_dim), dtype, data=Q.data)
        Rows = T.decl_buffer((batch * heads, head_dim), dtype, data=Out.data)
        RowsLse = T.decl_buffer((batch * heads,), "float32", data=Lse.data)
        steps_of_a_chunk: T.let[T.int32] = steps_of(batch, used_pages)
        pages_of_a_chunk: T.let[T.int32] = steps_of_a_chunk * pages_a_step // steps_a_page
        slots: T.let[T.int32] = used_pages // pages_of_a_chunk + batch
        rounds: T.let[T.int32] = search_rounds(batch)
        parts = T.alloc_buffer((T.max(slots, 1), heads, head_dim), "float32", scope="global")
        part_lse = T.alloc_buffer((T.max(slots, 1), heads), "float32", scope="global")
        index = (Indptr, Values, Info)
        results = (parts, part_lse, Out, Lse)
        if rotary != BEFORE:
            turned: T.let[T.int32] = T.if_then_else(rotary_mode == 1, 1, 0)
            Q_r = T.alloc_buffer(
                (T.max(turned * batch, 1) * heads, head_dim), dtype, scope="global"
            )
            K_r = T.alloc_buffer(
                (T.max(turned * used_pages, 1) * (kv_heads * page_size), head_dim), dtype,
                scope="global",
            )  # fmt: skip
            rotation = Rotation(head_dim, dtype, rope_scale, rope_theta)
            with wl.kernel():
                rotation.turn_rows(Q, Q_r, turned * batch, heads, QRope)
            with wl.kernel():
                rotation.turn_pages(
                    Pages, unit, K_r, turned * used_pages, Indptr, Values, Info, KRope, batch,
                    rounds, sliding_window,
                )  # fmt: skip
            attend(Q_r, K_r, Cache, index, results, pages_of_a_chunk, turned * slots, batch, rounds,
                   sm_scale)  # fmt: skip
        if rotary == EITHER:
            attend(Queries, None, Cache, index, results, pages_of_a_chunk, (1 - turned) * slots,
                   batch, rounds, sm_scale)  # fmt: skip
        if rotary == BEFORE:
            attend(Queries, None, Cache, index, results, pages_of_a_chunk, slots, batch, rounds,
                   sm_scale)  # fmt: skip
        ctas: T.let[T.int32] = ctas_of_sequences(
            batch * heads, head_dim, used_pages > pages_of_a_chunk
        )
        with wl.kernel():
            merge = PartsOfSequences(parts, part_lse, Rows, RowsLse, pages_of_a_chunk)
            number = T.cta_id([ctas])
            thread = T.thread_id([THREADS])
            T.ptx.griddepcontrol.launch_dependents()
            T.ptx.griddepcontrol.wait()
            if merge.few:
                alone = SequencePages(
                    Indptr, Values, Info, T.truncdiv(number, heads), page_size, sliding_window
                )
                if alone.count > pages_of_a_chunk:
                    merge.merge(
                        merge.slot(alone, number), merge.count(alone), merge.column(number), number,
                        thread,
                    )  # fmt: skip
            else:
                for n in T.serial(merge.rounds(ctas)):
                    row: T.let = (n * ctas + number) * merge.groups + merge.group(thread)
                    seq = SequencePages(
                        Indptr, Values, Info, T.min(T.truncdiv(row, heads), batch - 1), page_size,
                        sliding_window,
                    )  # fmt: skip
                    if T.And(
                        T.And(row < merge.rows, merge.group(thread) < merge.groups),
                        seq.count > pages_of_a_chunk,
                    ):
                        merge.merge_alone(
                            merge.slot(seq, row), merge.count(seq), merge.column(row), row, thread
                        )

    return batch_decode_paged_kv


def _check(heads: int, kv_heads: int, head_dim: int, dtype: str) -> None:
    if dtype not in ("float16", "bfloat16"):
        raise IllegalCombination(f"dtype is {dtype}; it must be float16 or bfloat16.")
    if head_dim % 8 or not 0 < head_dim <= _MOST_ELEMENTS:
        raise IllegalCombination(
            f"head_dim is {head_dim}; TMA and the registers of a tile take multiples of 8 up to "
            f"{_MOST_ELEMENTS}, so pad the heads."
        )
    if min(heads, kv_heads) < 1 or heads % kv_heads:
        raise IllegalCombination(
            f"{heads} heads cannot share {kv_heads} of K and V evenly; kv_heads must divide heads."
        )

"""Attention to latent vectors in the pages of a KV cache (MLA), which are keys and values.

A row of a tile is a head of a query: all heads see the same latents. A latent is a value and,
with some rotated elements behind it, a key; it is loaded once, and the tensor core reads the tile
along its rows and along its columns. A CTA computes a slice of the values. It loads this slice
first, in the place of slice 0, and the others behind: the order of elements does not matter to the
logits.

The keys of a tile are cut into parts, if there are too few tiles for the GPU, as in a decode step.
Each part has a CTA, and a second kernel adds the parts (:mod:`warploom.programs.merge_parts`).
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from warploom import language as wl
from warploom.decide.config import Config
from warploom.decide.families.latent import LatentProblem, latent_costs, most_parts
from warploom.decide.families.paged_decode import steps_of_chunk
from warploom.decide.machines import machine_for
from warploom.decide.selector import choose
from warploom.errors import IllegalCombination
from warploom.kernels.kernel_name import named
from warploom.programs.kv_pages import SequencePages, check_pages, named_scalar
from warploom.programs.latent_tiles import LatentTiles
from warploom.programs.merge_parts import THREADS, Parts
from warploom.programs.prefill_masks import CausalMask
from warploom.programs.prefill_steps import LOWEST, NOTHING, powers_of
from warploom.programs.sequences import QueryTile, search_rounds
from warploom.target import SM90A
from warploom.target.dtypes import with_dtype_names

#: CTAs that add the parts of one tile.
_MERGING = 16


@with_dtype_names
@named
def paged_latent(
    heads: int,
    latent_dim: int = 512,
    rope_dim: int = 64,
    dtype: str = "float16",
    page_size: int = 16,
    config: Config | None = None,
    chunk: int | None = None,
    arch: str = SM90A.name,
) -> PrimFunc:
    """O = softmax(sm_scale Q Lᵀ) L[:, :latent_dim] for each sequence and head, and the log2 of the
    denominator.

    The signature is that of ``batch_prefill_paged_kv_mla``, which TVM's ``TIRPagedKVCache`` calls
    for the tokens of a prefill and of a decode step
    (``tvm.relax.frontend.nn.llm._prefill_kernels._attention_prefill_mla``).

    Parameters
    ----------
    heads : int
        Query heads. All share the latents.
    latent_dim, rope_dim : int
        Elements of a latent that are a value, and that follow as a part of the key: multiples of 8,
        ``latent_dim`` at most 512.
    dtype : str
        ``"float16"`` or ``"bfloat16"``; sums and the softmax are in float32.
    page_size : int
        Tokens of a page: a multiple of 8 that divides the keys of a step, or is a multiple of them.
    config : Config, optional
        ``tile_n`` keys of a step and ``stages``; by default that of :func:`warploom.decide.choose`.
    chunk : int, optional
        Steps of a part; without it the host computes it at each launch from the batch and the pages
        in use (:func:`~warploom.decide.families.paged_decode.steps_of_chunk`).
    arch : str
        What the config is chosen for: ``"sm_90a"`` or ``"sm_100a"``.

    Returns
    -------
    PrimFunc
        ``(q, q_indptr, pages, page_indptr, page_values, length_info, output, lse, causal,
        sm_scale)``: q is ``(queries, heads, latent_dim + rope_dim)``, pages ``(pages, page_size,
        latent_dim + rope_dim)``, output ``(queries, heads, latent_dim)``, lse ``(queries, heads)``
        of float32, indices int32. Where ``causal`` is above 0, query i of n sees the keys up to
        number ``keys - n + i`` of its sequence, otherwise all. A query that sees none has the
        output 0 and the lse -5e4. ``sm_scale`` must be above 0. Latents of the last page behind the
        end may be anything, NaN too.

    Raises
    ------
    IllegalCombination
        If there is no kernel for the sizes, ``dtype`` or ``page_size``.

    Examples
    --------
    >>> paged_latent(16).attrs["global_symbol"]
    'paged_latent_heads16'
    """
    if dtype not in ("float16", "bfloat16"):
        raise IllegalCombination(f"dtype is {dtype}; it must be float16 or bfloat16.")
    problem = LatentProblem(heads, latent_dim, rope_dim, page_size, arch)
    config = config or choose(problem)
    costs = latent_costs(problem, config, machine_for())
    keys, rows, width, columns = config.tile_n, config.tile_m, problem.width, problem.columns
    check_pages(page_size, keys)
    slices, in_place = problem.slices, problem.in_place

    def steps_of(batch: Any, pages: Any, tiles: Any) -> Any:
        """Steps of a part."""
        if chunk is not None:
            return chunk
        whole = T.max(batch * keys, 1)
        average = named_scalar(T.max((pages * page_size + (whole - 1)) // whole, 1))
        return steps_of_chunk(costs, average, tiles, named_scalar)

    def parts_of(pages: Any, tiles: Any, steps: Any) -> Any:
        """Parts of a tile, at most."""
        return most_parts(costs, tiles, (pages * page_size + (keys - 1)) // keys, steps, T.max,
                          T.min)  # fmt: skip

    def blocks_of(mask: CausalMask, tile: QueryTile) -> Any:
        """Blocks of keys that a tile sees."""
        seen = mask.end(T.truncdiv(tile.first + (rows - 1), heads))
        return T.truncdiv(T.max(seen, 0) + (keys - 1), keys)

    def steps_of_one(blocks: Any, steps: Any, most: Any) -> Any:
        """Steps of a part of a tile."""
        return T.max(steps, T.truncdiv(blocks + (most - 1), most))

    @T.inline
    def clear_end(to, values, at, length):
        """The values of the block from key ``at`` on, and 0 behind the last one."""
        if at + keys > length:
            for j, d in T.grid(keys, columns):
                to[j, d] = T.if_then_else(at + j < length, values[j, d], T.cast(0, dtype))

    @T.prim_func
    def batch_prefill_paged_kv_mla(
        q: T.handle, q_indptr: T.handle, p: T.handle, indptr: T.handle, values: T.handle,
        info: T.handle, o: T.handle, s: T.handle, causal: T.int32, sm_scale: T.float32,
    ):  # fmt: skip
        batch = T.int32()
        queries = T.int32()
        used_pages = T.int32()
        max_pages = T.int32()
        pages_offset = T.int64()
        q_indptr_offset = T.int32()
        indptr_offset = T.int32()
        values_offset = T.int32()
        info_offset = T.int32()
        Q = T.match_buffer(q, (queries, heads, width), dtype, align=16)
        QIndptr = T.match_buffer(q_indptr, (batch + 1,), "int32", elem_offset=q_indptr_offset)
        Pages = T.match_buffer(
            p, (max_pages, page_size, width), dtype, elem_offset=pages_offset, offset_factor=8,
            align=16,
        )  # fmt: skip
        Indptr = T.match_buffer(indptr, (batch + 1,), "int32", elem_offset=indptr_offset)
        Values = T.match_buffer(values, (used_pages,), "int32", elem_offset=values_offset)
        Info = T.match_buffer(info, (batch,), "int32", elem_offset=info_offset)
        Out = T.match_buffer(o, (queries, heads, latent_dim), dtype, align=16)
        LseOut = T.match_buffer(s, (queries, heads), "float32")
        assert sm_scale > 0, "paged_latent takes scales above 0"
        # The offset is a multiple of 16 bytes, as TMA needs it.
        unit: T.let[T.int64] = pages_offset // 8
        Cache = T.decl_buffer(
            (max_pages * page_size, width), dtype, data=Pages.data, elem_offset=unit * 8
        )
        Queries = T.decl_buffer((queries * heads, width), dtype, data=Q.data)
        Rows = T.decl_buffer((queries * heads, latent_dim), dtype, data=Out.data)
        Lse = T.decl_buffer((queries * heads,), "float32", data=LseOut.data)
        factor: T.let[T.float32] = powers_of(sm_scale)
        rounds: T.let[T.int32] = search_rounds(batch)
        slots: T.let[T.int32] = T.if_then_else(queries > 0, queries * heads // rows + batch, 0)
        tiles_of_part: T.let[T.int32] = T.max(slots * slices, 1)
        steps_of_part: T.let[T.int32] = steps_of(batch, used_pages, tiles_of_part)
        most: T.let[T.int32] = parts_of(used_pages, tiles_of_part, steps_of_part)
        parts = T.alloc_buffer(
            (T.max(slots * most, 1), rows, latent_dim), "float32", scope="global"
        )
        part_lse = T.alloc_buffer((T.max(slots * most, 1), rows), "float32", scope="global")
        with wl.kernel():
            wl.hints(raster="rows")
            beside, part = T.cta_id([slots * slices, most])
            slot: T.let = T.truncdiv(beside, slices)
            number: T.let = T.truncmod(beside, slices)
            tile = QueryTile(QIndptr, rows, heads)
            tile.find(slot, batch, rounds)
            tile.place(slot)
            if tile.first >= 0:
                seq = SequencePages(Indptr, Values, Info, tile.b, page_size, False)
                mask = CausalMask(causal, T.truncdiv(tile.length, heads), seq.length)
                blocks: T.int32 = blocks_of(mask, tile)
                steps: T.int32 = steps_of_one(blocks, steps_of_part, most)
                base: T.int32 = part * steps
                if base < T.max(blocks, 1):
                    at_tile = LatentTiles(problem, rows, keys, dtype, number)
                    V_s = at_tile.values
                    V_z = V_s if in_place else T.alloc_buffer(
                        (keys, columns), dtype, scope="shared"
                    )  # fmt: skip
                    S = T.alloc_buffer((rows, keys), "float32", scope="accumulator")
                    P = T.alloc_buffer((rows, keys), dtype, scope="fragment")
                    acc = T.alloc_buffer((rows, columns), "float32", scope="accumulator")
                    largest = T.alloc_buffer((rows,), "float32", scope="fragment")
                    shrink = T.alloc_buffer((rows,), "float32", scope="fragment")
                    total = T.alloc_buffer((rows,), "float32", scope="fragment")
                    first: T.int32 = tile.first
                    start: T.int32 = tile.begin + first
                    first_masked: T.int32 = T.truncdiv(
                        T.max(mask.whole(T.truncdiv(first, heads)), 0), keys
                    )
                    at_tile.load_queries(Queries, start)
                    Tx.cta.fill(largest, T.max(T.float32(NOTHING) / factor, T.float32(LOWEST)))
                    Tx.cta.fill(total, T.float32(1))
                    Tx.cta.zero(acc)
                    for step in wl.pipelined(T.min(steps, T.max(blocks - base, 0)), config.stages):
                        block: T.int32 = base + step
                        at_tile.load_latents(Cache, seq, block)
                        at: T.int32 = block * keys
                        if in_place:
                            clear_end(V_z, V_z, at, seq.length)
                        at_tile.multiply(S)
                        if block >= first_masked:
                            for i, j in T.grid(rows, keys):
                                S[i, j] = T.if_then_else(
                                    mask.sees(T.truncdiv(first + i, heads), at + j), S[i, j],
                                    T.float32("-inf"),
                                )  # fmt: skip
                        Tx.cta.copy(shrink, largest)
                        Tx.cta.max(largest, S, axes=(1,), accum=True)
                        for i in T.serial(rows):
                            shrink[i] = T.exp2((shrink[i] - largest[i]) * factor)
                            total[i] = total[i] * shrink[i]
                        for i, j in T.grid(rows, keys):
                            S[i, j] = T.exp2(S[i, j] * factor - largest[i] * factor)
                        Tx.cta.sum(total, S, axes=(1,), accum=True)
                        Tx.cta.cast(P, S)
                        for i, j in T.grid(rows, columns):
                            acc[i, j] = acc[i, j] * shrink[i]
                        if in_place:
                            Tx.cta.gemm_async(acc, P, V_z, transB=True, accum=True)
                        elif at + keys > seq.length:
                            clear_end(V_z, V_s, at, seq.length)
                            Tx.cta.gemm_async(acc, P, V_z, transB=True, accum=True)
                        else:
                            Tx.cta.gemm_async(acc, P, V_s, transB=True, accum=True)
                    left: T.int32 = tile.length - first
                    slice_start: T.int32 = number * columns
                    for i in T.serial(rows):
                        largest[i] = largest[i] * factor + T.log2(total[i])
                    for i, j in T.grid(rows, columns):
                        acc[i, j] = acc[i, j] / total[i]
                    if blocks > steps:
                        place: T.int32 = slot * most + part
                        for i, j in T.grid(rows, columns):
                            if T.And(i < left, slice_start + j < latent_dim):
                                parts[place, i, slice_start + j] = acc[i, j]
                        for i in T.serial(rows):
                            if T.And(i < left, number == 0):
                                part_lse[place, i] = largest[i]
                    else:
                        for i, j in T.grid(rows, columns):
                            if T.And(i < left, slice_start + j < latent_dim):
                                Rows[start + i, slice_start + j] = T.cast(acc[i, j], dtype)
                        for i in T.serial(rows):
                            if T.And(i < left, number == 0):
                                Lse[start + i] = largest[i]
        with wl.kernel():
            merge = Parts(parts, part_lse, Rows, Lse)
            slot, share = T.cta_id([T.if_then_else(most > 1, slots, 0), _MERGING])
            thread = T.thread_id([THREADS])
            T.ptx.griddepcontrol.launch_dependents()
            T.ptx.griddepcontrol.wait()
            tile = QueryTile(QIndptr, rows, heads)
            tile.find(slot, batch, rounds)
            tile.place(slot)
            if tile.first >= 0:
                seq = SequencePages(Indptr, Values, Info, tile.b, page_size, False)
                mask = CausalMask(causal, T.truncdiv(tile.length, heads), seq.length)
                blocks: T.int32 = blocks_of(mask, tile)
                steps: T.int32 = steps_of_one(blocks, steps_of_part, most)
                if blocks > steps:
                    count: T.let = T.truncdiv(blocks + (steps - 1), steps)
                    for n in T.serial(rows // _MERGING):
                        row: T.let = n * _MERGING + share
                        if row < tile.length - tile.first:
                            merge.merge(
                                slot * most, count, row, tile.begin + tile.first + row, thread
                            )

    return batch_prefill_paged_kv_mla

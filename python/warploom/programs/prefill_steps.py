"""The steps of a tile of prefill attention, whatever its keys come from and whatever it may see.

The loop is that of :mod:`warploom.programs.attention`: step s multiplies Q by block s of K, and the
weights of block s - 1 by block s - 1 of V, so the softmax of a block hides behind the second MMA.
The last step has no keys. Rows of other sequences may be next to those of this one: their logits
are masked, and values behind the end are made 0, as a weight of 0 does not hide what is no number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.decide.config import Config
from warploom.decide.families.prefill import PrefillProblem, heads_of_tile
from warploom.errors import IllegalCombination
from warploom.target import SM90A, SM100A, WGMMA_M

#: The lse of a query that sees no key, which is TVM's: it begins with a logit of a weight of 1, and
#: a value of 0.
NOTHING = -5e4
#: Below every logit, and finite.
LOWEST = -3e38
#: Elements of 16 bits that one MMA contracts, and what its columns are a multiple of (PTX ISA,
#: "Asynchronous Warpgroup Level Matrix Shape"; "Tensorcore 5th Generation", shapes of 128 rows).
_MMA_K, _MMA_N = 16, {SM90A.name: 8, SM100A.name: 16}
#: Elements of a row of the widest swizzle.
_ROW_ELEMENTS = 64
#: Elements of a head of V whose rows are padded: with 80 on sm_100a, places of the threads that
#: make the last values 0 spilled 44 to 64 bytes a thread; with 96 nothing does.
_WIDER_VALUES = {(SM100A.name, 80): 96}
#: Threads of a CTA that writes results of queries without keys.
_THREADS = 128


@dataclass(frozen=True)
class PrefillTiles:
    """Sizes of the tiles of a prefill program.

    Attributes
    ----------
    problem : PrefillProblem
    dtype : str
    config : Config
        ``tile_m`` rows, ``tile_n`` keys of a step, ``stages``.
    """

    problem: PrefillProblem
    dtype: str
    config: Config

    def __post_init__(self) -> None:
        if self.dtype not in ("float16", "bfloat16"):
            raise IllegalCombination(f"dtype is {self.dtype}; it must be float16 or bfloat16.")

    @property
    def rows(self) -> int:
        return self.config.tile_m

    @property
    def keys(self) -> int:
        return self.config.tile_n

    @property
    def heads(self) -> int:
        """Query heads of a tile, which share a head of K and V."""
        return heads_of_tile(self.problem, self.rows)

    @property
    def queries(self) -> int:
        return self.rows // self.heads

    @property
    def tiles_beside(self) -> int:
        """Tiles for the heads of the same queries."""
        return self.problem.heads // self.heads

    @property
    def wide(self) -> int:
        """Elements of a head of Q and K in shared memory."""
        return _padded(self.problem.head_dim, _MMA_K)

    @property
    def columns(self) -> int:
        """Elements of a head of V in shared memory."""
        columns = _padded(self.problem.value_dim, _MMA_N[self.problem.arch])
        return _WIDER_VALUES.get((self.problem.arch, columns), columns)


def _padded(elements: int, whole: int) -> int:
    """Elements of a head with those behind it, which are 0.

    Rows of more than three times the widest swizzle are a power of two. Places in others take
    registers, which sums of such rows leave none of: with a window, heads of 224 elements spilled.
    """
    if elements > 3 * _ROW_ELEMENTS:
        return 4 * _ROW_ELEMENTS
    return -(-elements // whole) * whole


def powers_of(sm_scale: Any) -> Any:
    """The factor of logits in powers of 2, which are cheaper than those of e."""
    return sm_scale * T.float32(math.log2(math.e))


def nothing_of(heads: int, value_dim: int, dtype: str) -> Any:
    """Results of a query where no sequence has a key, as a function for a kernel.

    Returns
    -------
    T.inline
        ``(Out, Lse, row)``.
    """

    @T.inline
    def write_nothing(Out, Lse, row):
        thread = T.thread_id([_THREADS])
        for i in T.serial(-(-heads * value_dim // _THREADS)):
            at: T.let = i * _THREADS + thread
            if at < heads * value_dim:
                head: T.let = T.truncdiv(at, value_dim)
                Out[row, head, at - head * value_dim] = T.cast(0, dtype)
        for i in T.serial(-(-heads // _THREADS)):
            if i * _THREADS + thread < heads:
                Lse[row, i * _THREADS + thread] = T.float32(NOTHING)

    return write_nothing


def prefill_steps(tiles: PrefillTiles) -> Any:
    """The statements of a tile, as a function for a kernel.

    Returns
    -------
    T.inline
        ``(Q, Out, Lse, tile, keys, mask, beside, factor)``. ``Q`` and ``Out`` are ``(queries,
        heads, elements)``, ``tile`` a :class:`~warploom.programs.sequences.QueryTile`, ``beside``
        the number of the tile among those of its queries, ``factor`` that of the logits.
        ``keys.load(K_s, V_s, block, step)`` loads a block of keys and the block before it of
        values, which is 0 in step 0; ``keys.length`` is their number. ``mask`` is of
        :mod:`warploom.programs.prefill_masks`.
    """
    rows, keys_a_step, dtype, heads = tiles.rows, tiles.keys, tiles.dtype, tiles.heads
    wide, columns, queries = tiles.wide, tiles.columns, tiles.queries
    value_dim, stages = tiles.problem.value_dim, tiles.config.stages
    in_place = tiles.problem.in_place
    part, shares = math.gcd(columns, _ROW_ELEMENTS), max(1, rows // WGMMA_M)

    @T.inline
    def clear_end(to, values, at, length):
        """The values of the block before key ``at``, and 0 behind the last one.

        Column after column of swizzled rows: so a thread's places are a constant apart.
        """
        if at > length:
            for share, number, j, d in T.grid(shares, columns // part, keys_a_step // shares, part):
                row: T.let = share * (keys_a_step // shares) + j
                to[row, number * part + d] = T.if_then_else(
                    at - keys_a_step + row < length, values[row, number * part + d],
                    T.cast(0, dtype),
                )  # fmt: skip

    @T.inline
    def steps(Q, Out, Lse, tile, keys, mask, beside, factor):
        Q_s = T.alloc_buffer((rows, wide), dtype, scope="shared")
        K_s = T.alloc_buffer((keys_a_step, wide), dtype, scope="shared")
        V_s = T.alloc_buffer((keys_a_step, columns), dtype, scope="shared")
        V_z = V_s if in_place else T.alloc_buffer((keys_a_step, columns), dtype, scope="shared")
        S = T.alloc_buffer((rows, keys_a_step), "float32", scope="accumulator")
        P = T.alloc_buffer((rows, keys_a_step), dtype, scope="fragment")
        acc = T.alloc_buffer((rows, columns), "float32", scope="accumulator")
        largest = T.alloc_buffer((rows,), "float32", scope="fragment")
        shrink = T.alloc_buffer((rows,), "float32", scope="fragment")
        total = T.alloc_buffer((rows,), "float32", scope="fragment")
        out = T.alloc_buffer((rows, columns), dtype, scope="fragment")
        first: T.let = tile.first
        start: T.int32 = tile.begin + first
        head: T.int32 = beside * heads
        skipped: T.int32 = T.truncdiv(T.max(mask.begin(first), 0), keys_a_step)
        blocks: T.int32 = T.truncdiv(
            T.max(mask.end(first + (queries - 1)), 0) + (keys_a_step - 1), keys_a_step
        )
        first_masked: T.int32 = T.truncdiv(T.max(mask.whole(first), 0), keys_a_step)
        Tx.cta.copy_async(
            Q_s, Q[start : start + queries, head : head + heads, 0:wide], dispatch="tma_auto"
        )
        Tx.cta.fill(largest, T.max(T.float32(NOTHING) / factor, T.float32(LOWEST)))
        Tx.cta.fill(total, T.float32(1))
        Tx.cta.zero(P)
        Tx.cta.zero(acc)
        for step in wl.pipelined(T.max(blocks - skipped, 0) + 1, stages):
            block: T.int32 = skipped + step
            keys.load(K_s, V_s, block, step)
            at: T.int32 = block * keys_a_step
            if in_place:  # before the first MMA, which warpgroups would have to await otherwise
                clear_end(V_s, V_s, at, keys.length)
            Tx.cta.gemm_async(S, Q_s, K_s)
            if in_place:
                Tx.cta.gemm_async(acc, P, V_s, transB=True, accum=True)
            elif at > keys.length:
                clear_end(V_z, V_s, at, keys.length)
                Tx.cta.gemm_async(acc, P, V_z, transB=True, accum=True)
            else:
                Tx.cta.gemm_async(acc, P, V_s, transB=True, accum=True)
            if block >= first_masked:
                for i, j in T.grid(rows, keys_a_step):
                    S[i, j] = T.if_then_else(
                        mask.sees(first + T.truncdiv(i, heads), at + j), S[i, j], T.float32("-inf")
                    )
            Tx.cta.copy(shrink, largest)
            Tx.cta.max(largest, S, axes=(1,), accum=True)
            for i in T.serial(rows):
                shrink[i] = T.exp2((shrink[i] - largest[i]) * factor)
                total[i] = total[i] * shrink[i]
            for i, j in T.grid(rows, keys_a_step):
                S[i, j] = T.exp2(S[i, j] * factor - largest[i] * factor)
            Tx.cta.sum(total, S, axes=(1,), accum=True)
            Tx.cta.cast(P, S)
            for i, j in T.grid(rows, columns):
                acc[i, j] = acc[i, j] * shrink[i]
        left: T.int32 = tile.length - first
        for i in T.serial(rows):
            if T.truncdiv(i, heads) < left:
                Lse[start + T.truncdiv(i, heads), head + T.truncmod(i, heads)] = largest[
                    i
                ] * factor + T.log2(total[i])
        # TMA stores whole tiles. Rows behind the end are those of the next sequence.
        if left >= queries:
            for i, j in T.grid(rows, columns):
                out[i, j] = T.cast(acc[i, j] / total[i], dtype)
            Tx.cta.copy_async(
                Out[start : start + queries, head : head + heads, 0:columns], out,
                dispatch="tma_auto",
            )  # fmt: skip
        else:
            for i, j in T.grid(rows, columns):
                if T.And(T.truncdiv(i, heads) < left, j < value_dim):
                    Out[start + T.truncdiv(i, heads), head + T.truncmod(i, heads), j] = T.cast(
                        acc[i, j] / total[i], dtype
                    )

    return steps

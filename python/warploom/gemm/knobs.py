"""The choices of one GEMM kernel as data, with the rules that tell legal ones.

:class:`GemmKnobs` does not depend on a problem; :meth:`GemmKnobs.why_not` says whether a kernel
for one can be built with them: instruction shapes, shared memory, registers. It is cheap enough to
be asked for thousands of candidates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

from warploom.errors import IllegalCombination
from warploom.gemm.memory import ALIGN
from warploom.gemm.problem import GemmProblem
from warploom.language.hints import PLAYERS
from warploom.layout.smem_matrix import ATOM_ROWS
from warploom.target import (
    GPUS,
    SM90A,
    TMA,
    WGMMA_M,
    WgmmaKind,
    piece_buffers,
    swizzled_pieces,
    transposed_pieces,
    wgmma_kind,
)
from warploom.target.arch import Arch
from warploom.target.dtypes import bits_of

#: Registers that a computing thread needs beside accumulators: addresses, phases, the epilogue; and
#: where results depend on nothing but the sums.
_OVERHEAD_REGISTERS, _OVERHEAD_OF_SUMS = 56, 40
#: Registers of a thread of the loading warps.
_LOADING_REGISTERS = 40
#: Stores by TMA go through so many columns of each computing warpgroup: what swizzled rows of 128,
#: 64 and 32 bytes hold of 16-bit results.
STORE_COLUMNS = (64, 32, 16)
#: SMs that compute: all of an H200, or as many as divide tiles of powers of two evenly.
SMS = (132, 128)
#: Buffers that each computing warpgroup has for the widest of these pieces.
STORE_BUFFERS = (2, 1, 4)
#: Bytes of the elements of results that are stored by TMA, as stage_stores does.
_STAGED_BYTES = (2, 4)
#: Bytes of an element of an accumulator.
_SUM_BYTES = 4
#: Knobs that are true or false.
_SWITCHES = ("swap_ab", "in_cluster", "stream_k", "specialise", "persistent", "ping_pong")
#: Knobs that may be 0, beside these.
_FROM_ZERO = (*_SWITCHES, "keep_a")
#: What the L2 cache is told of the operands: nothing, to drop B first, and to drop A last as well.
KEEP_A = (0, 1, 2)
#: CTAs that can exchange sums in a cluster.
SHARERS = (2, 4, 8)
#: Bytes kept for mbarriers and alignment.
_BARRIER_BYTES = 1024


@dataclass(frozen=True)
class GemmKnobs:
    """Choices of one kernel; the defaults suit large 16-bit products.

    Attributes
    ----------
    tile_m, tile_n, tile_k : int
        Rows and columns of the result that a CTA computes at a time, and the depth of a stage.
    stages : int
        Steps of K that are loaded ahead.
    consumers : int
        Warpgroups that multiply, each with an equal share of the accumulator's rows.
    swap_ab : bool
        Compute the transpose, so that columns are the side that is a multiple of 64: for few rows.
    cluster_m, cluster_n : int
        CTAs of a cluster along rows, which share tiles of B, and along columns, which share A.
    group : int
        Rows of clusters that are visited together, so that their operands stay in the L2 cache.
    split_k : int
        Parts of the sum that different CTAs compute.
    ctas_per_sm : int
        CTAs that share an SM.
    turns : int
        Warpgroups that take turns with the steps, each computing all rows of a tile; for tiles of
        few rows.
    in_cluster : bool
        Whether the CTAs that compute parts of a sum are a cluster, and exchange them through its
        shared memory, and not through the workspace.
    stream_k : bool
        Whether CTAs share the tiles that would not keep all of them busy.
    specialise : bool
        Whether warps of their own load, and not those that multiply.
    persistent : bool
        Whether a CTA computes tile after tile, and not one only.
    store_columns : int
        Columns, at most, of the pieces in which a tile leaves, one of :data:`STORE_COLUMNS`.
    store_buffers : int
        Pieces that a warpgroup has buffers for, one of :data:`STORE_BUFFERS`.
    sms : int
        SMs that compute, one of :data:`SMS`: where fewer take as many turns, power and the L2 cache
        are left to these.
    ping_pong : bool
        Whether two warpgroups compute alternate tiles, each all rows of its own.
    keep_a : int
        How much longer the L2 cache keeps what is loaded of A, which tiles of a group share, than
        of B: one of :data:`KEEP_A`.
    """

    tile_m: int = 128
    tile_n: int = 256
    tile_k: int = 64
    stages: int = 4
    consumers: int = 2
    swap_ab: bool = False
    cluster_m: int = 1
    cluster_n: int = 1
    group: int = 8
    split_k: int = 1
    ctas_per_sm: int = 1
    turns: int = 1
    in_cluster: bool = False
    stream_k: bool = False
    specialise: bool = True
    persistent: bool = True
    store_columns: int = 64
    store_buffers: int = 2
    sms: int = 132
    ping_pong: bool = False
    keep_a: int = 0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if int(value) < (name not in _FROM_ZERO):
                raise IllegalCombination(f"{name} = {value}: it must be at least 1.")

    @classmethod
    def of(cls, values: Mapping[str, int]) -> GemmKnobs:
        """Knobs from integers by name, as annotations hold them.

        Raises
        ------
        IllegalCombination
            If there is no knob of a name.
        """
        cls.check_names(values)
        made = {name: int(value) for name, value in values.items()}
        return cls(**{**made, **{name: bool(made[name]) for name in _SWITCHES if name in made}})

    @classmethod
    def check_names(cls, names: Iterable[str]) -> None:
        """Raise :class:`IllegalCombination` if one is no knob."""
        known = [field.name for field in fields(cls)]
        for name in names:
            if name not in known:
                raise IllegalCombination(f"{name!r} is no knob; knobs are {', '.join(known)}.")

    def values(self) -> dict[str, int]:
        """All knobs as integers, by name."""
        return {field.name: int(getattr(self, field.name)) for field in fields(self)}

    @property
    def accumulator(self) -> tuple[int, int]:
        """Rows, a multiple of 64, and columns of the accumulator."""
        return (self.tile_n, self.tile_m) if self.swap_ab else (self.tile_m, self.tile_n)

    @property
    def warpgroups(self) -> int:
        """Warpgroups that compute, of which each stores tiles, or its rows of them."""
        return PLAYERS if self.ping_pong else self.consumers

    def hints(self) -> dict[str, Any]:
        """The choices that passes make, as arguments of ``wl.hints``."""
        found: dict[str, Any] = {
            "cluster": (self.cluster_m, self.cluster_n), "raster": "grouped", "group": self.group,
            "consumers": self.consumers,
        }  # fmt: skip
        for name in ("split_k", "ctas_per_sm", "turns"):
            if getattr(self, name) > 1:
                found[name] = getattr(self, name)
        if self.sms != SMS[0]:
            size = self.cluster_m * self.cluster_n * (self.split_k if self.in_cluster else 1)
            wanted = self.sms * self.ctas_per_sm // size * size
            found["ctas"] = min(wanted, GPUS["h200"].resident(size, self.ctas_per_sm))
        if self.in_cluster:
            found["exchange"] = "cluster"
        found |= {name: True for name in ("stream_k", "ping_pong") if getattr(self, name)}
        stores = {"store_columns": STORE_COLUMNS[0], "store_buffers": STORE_BUFFERS[0]}
        found |= {k: getattr(self, k) for k, usual in stores.items() if getattr(self, k) != usual}
        found |= {name: False for name in ("specialise", "persistent") if not getattr(self, name)}
        return found

    def check(self, problem: GemmProblem, arch: Arch = SM90A) -> None:
        """Raise :class:`IllegalCombination` with :meth:`why_not`, if there is a reason."""
        reason = self.why_not(problem, arch)
        if reason is not None:
            raise IllegalCombination(reason)

    def why_not(self, problem: GemmProblem, arch: Arch = SM90A) -> str | None:
        """Why no kernel for a problem can have these choices; None if one can."""
        try:
            return next((text for holds, text in self._rules(problem, arch) if not holds), None)
        except IllegalCombination as reason:
            return str(reason)

    def sharers(self, problem: GemmProblem) -> tuple[int, int]:
        """CTAs that load a tile of A together, and of B: of a cluster, if parts are whole atoms.

        Parts are of the rows of the tile in memory, which are steps of K where those of A are
        columns.
        """
        a_rows = self.tile_m if problem.layout[0] == "N" else self.tile_k
        b_rows = self.tile_n if problem.layout[1] == "T" else self.tile_k
        a, b = self.cluster_n, self.cluster_m
        return 1 if a_rows % (a * ATOM_ROWS) else a, 1 if b_rows % (b * ATOM_ROWS) else b

    def shared_bytes(self, problem: GemmProblem) -> int:
        """Shared memory of a CTA: operands, what stores go through, sums of turns, barriers."""
        stores = {
            bits_of(dtype) // 8: self._store_bytes(problem, dtype) for dtype in problem.outputs
        }
        ring = self.stages * self.stage_bytes(problem)
        places = self.turns - 1 + self.in_cluster
        sums = places * self.tile_m * self.tile_n * problem.products * _SUM_BYTES
        return ring + sum(stores.values()) + sums + _BARRIER_BYTES

    def stage_bytes(self, problem: GemmProblem) -> int:
        """Bytes of operands that one step loads."""
        rows = zip((problem.a_bits, problem.b_bits), problem.computed, strict=True)
        a_row, b_row = (self._row_bytes(*one) for one in rows)
        return math.ceil(self.tile_m * a_row + self.tile_n * problem.products * b_row)

    def _row_bytes(self, bits: float, computed: bool) -> float:
        """Bytes that a step loads of a row; scales of a row may be less than TMA loads."""
        size = self.tile_k * bits / 8
        return math.ceil(size / ALIGN) * ALIGN if computed else size

    def stores_pieces(self, problem: GemmProblem, dtype: str) -> bool:
        """Whether results of a dtype leave by TMA in pieces.

        Of those that are computed as the transpose, the others go through a whole tile: bytes, of
        which a thread has too few neighbours; rows of other than whole 16 bytes, which TMA cannot
        store; and pixels of several taps, which pieces of 8 rows may be no box of.
        """
        size = bits_of(dtype) // 8
        if not self.swap_ab:
            return size in _STAGED_BYTES
        return size in _STAGED_BYTES and _has_chunks(problem, dtype) and problem.taps == 1

    def _store_bytes(self, problem: GemmProblem, dtype: str) -> int:
        size = bits_of(dtype) // 8
        if not self.stores_pieces(problem, dtype):
            return self.tile_m * self.tile_n * size if self.swap_ab else 0
        rows, columns = self.accumulator
        return self.warpgroups * _buffer_bytes(
            rows // self.consumers, columns, size, self.swap_ab, self.store_columns,
            self.store_buffers,
        )  # fmt: skip

    def tile_registers(self, problem: GemmProblem) -> int:
        """Registers of a computing thread that hold its part of accumulators and operands."""
        rows, columns = self.accumulator
        share = rows // self.consumers // WGMMA_M
        held = _kind(problem).d_registers(columns) * share * problem.products
        if any(problem.computed):
            # The operands that are computed, in pairs, for one step.
            count = problem.products if problem.computed[1] else 1
            held += count * share * WGMMA_M * self.tile_k // SM90A.warpgroup // 2
        return held

    def most_stages(self, problem: GemmProblem, arch: Arch = SM90A) -> int:
        """Stages that fit into the shared memory of a CTA."""
        one = replace(self, stages=1).shared_bytes(problem)
        left = _shared_of_each(arch, self.ctas_per_sm) - one
        return left // self.stage_bytes(problem) + 1

    def _rules(self, problem: GemmProblem, arch: Arch) -> Iterator[tuple[bool, str]]:
        """Every rule, with the sentence that explains its violation."""
        kind = _kind(problem)
        rows, columns = self.accumulator
        computed = problem.computed
        yield not all(computed), "Both operands are computed; one of them must be loaded."
        yield (
            not any(computed) or self.swap_ab == computed[1],
            f"swap_ab = {self.swap_ab}: the operand that is computed goes through registers, which "
            "only the side of 64-row instructions does.",
        )
        side = "tile_n" if self.swap_ab else "tile_m"
        share = WGMMA_M * self.consumers
        yield (
            rows % share == 0,
            f"{side} = {rows}: {self.consumers} consumers need a multiple of {share}.",
        )
        yield (
            self.turns == 1 or (self.consumers == 1 and self.turns <= 3),
            f"turns = {self.turns} with {self.consumers} consumers: up to 3 warpgroups take turns, "
            "and share no rows.",
        )
        yield (
            self.stages % self.turns == 0,
            f"stages = {self.stages}: {self.turns} turns need a multiple, the same for each.",
        )
        kind.split_n(columns)  # raises with its own sentence
        yield (
            self.tile_k % kind.k == 0,
            f"tile_k = {self.tile_k}: one wgmma of {problem.a_dtype} consumes {kind.k}, allowed "
            "are its multiples.",
        )
        yield (
            self.tile_m <= TMA.box_extent and self.tile_n <= TMA.box_extent,
            f"A tile of {self.tile_m} x {self.tile_n}: a TMA box has at most {TMA.box_extent} "
            "elements along a dimension.",
        )
        width = problem.reduced
        yield (
            not width or (not self.swap_ab and self._spans_reduced(problem)),
            f"tile_n = {self.tile_n}, swap_ab = {self.swap_ab}: rows are reduced over {width} "
            "columns, which one tile has, not exchanged.",
        )
        by_threads = self.swap_ab and not all(_has_chunks(problem, d) for d in problem.outputs)
        yield (
            not by_threads or self.tile_m % self.consumers == 0,
            f"tile_m = {self.tile_m} with swap_ab and rows of {problem.n} columns, which TMA cannot"
            f" store: {self.consumers} consumers need a multiple.",
        )
        arch.check_cluster(self.cluster_m * self.cluster_n)
        yield (
            self.tile_n % self.cluster_m == 0 and self.tile_m % self.cluster_n == 0,
            f"cluster {self.cluster_m} x {self.cluster_n}: each CTA loads an equal part of a tile "
            f"of {self.tile_m} x {self.tile_n}.",
        )
        yield from self._sharing_rules()
        limit = _shared_of_each(arch, self.ctas_per_sm)
        yield (
            self.shared_bytes(problem) <= limit,
            f"{self.stages} stages of a {self.tile_m} x {self.tile_n} x {self.tile_k} tile need "
            f"{self.shared_bytes(problem)} bytes of shared memory, a CTA has {limit}; use fewer "
            "stages or smaller tiles.",
        )
        more = bool(problem.inputs or problem.reduced or any(problem.computed))
        needed = self.tile_registers(problem)
        needed += _OVERHEAD_REGISTERS if more else _OVERHEAD_OF_SUMS
        given = self._registers(arch)
        yield (
            needed <= given,
            f"A computing thread needs {needed} registers and has {given}: use a smaller tile than "
            f"{self.tile_m} x {self.tile_n} or other than {self.consumers} consumers.",
        )

    def _sharing_rules(self) -> Iterator[tuple[bool, str]]:
        """Rules on who computes what."""
        alone = self.cluster_m == self.cluster_n == 1
        cluster = f"cluster {self.cluster_m} x {self.cluster_n}"
        yield (
            not self.in_cluster or (self.split_k in SHARERS and alone and self.specialise),
            f"in_cluster with split_k = {self.split_k}, {cluster}, specialise = "
            f"{self.specialise}: {' or '.join(map(str, SHARERS))} CTAs of a tile are the cluster, "
            "in which warps of their own load.",
        )
        yield (
            self.store_columns in (STORE_COLUMNS[:1] if self.swap_ab else STORE_COLUMNS),
            f"store_columns = {self.store_columns}: allowed are "
            f"{', '.join(map(str, STORE_COLUMNS))}, and {STORE_COLUMNS[0]} with swap_ab, which "
            "stores pieces of other shapes.",
        )
        yield (
            self.sms in (SMS if self.persistent else SMS[:1]),
            f"sms = {self.sms}, persistent = {self.persistent}: allowed are "
            f"{' and '.join(map(str, SMS))}, the second of a persistent grid.",
        )
        allowed = STORE_BUFFERS[:1] if self.swap_ab else STORE_BUFFERS
        yield (
            self.store_buffers in allowed,
            f"store_buffers = {self.store_buffers}: allowed are "
            f"{', '.join(map(str, STORE_BUFFERS))}, and {STORE_BUFFERS[0]} with swap_ab, which "
            "stores pieces of other shapes.",
        )
        yield (
            self.keep_a in KEEP_A,
            f"keep_a = {self.keep_a}: allowed are {', '.join(map(str, KEEP_A))}.",
        )
        yield (
            not self.stream_k or self.split_k == 1,
            f"stream_k with split_k = {self.split_k}: both say how CTAs share tiles; use one.",
        )
        yield (
            not self.ping_pong
            or ((self.consumers, self.turns, self.split_k) == (1, 1, 1)
                and not (self.swap_ab or self.stream_k)
                and self.specialise and self.persistent),
            f"ping_pong with consumers = {self.consumers}, turns = {self.turns}, split_k = "
            f"{self.split_k}, swap_ab = {self.swap_ab}, stream_k = {self.stream_k}, specialise = "
            f"{self.specialise}, persistent = {self.persistent}: each of two warpgroups computes "
            "whole tiles of a persistent CTA, and stores them piece by piece.",
        )  # fmt: skip
        yield (
            self.persistent or (self.split_k == 1 and not self.stream_k and alone),
            f"persistent = False with split_k = {self.split_k}, stream_k = {self.stream_k}, "
            f"{cluster}: a CTA for each tile has no other to share with.",
        )
        yield (
            self.specialise or (alone and self.turns == 1),
            f"specialise = False with {cluster}, turns = {self.turns}: warpgroups that load for "
            "themselves neither share loads nor take turns.",
        )

    def _spans_reduced(self, problem: GemmProblem) -> bool:
        """Whether a tile has all columns that are reduced together, and no others of the rows."""
        if problem.reduced == problem.n:
            return self.tile_n >= problem.reduced
        return self.tile_n == problem.reduced

    def _registers(self, arch: Arch) -> int:
        """Registers of a computing thread, once the loading ones have given theirs away."""
        loading = _LOADING_REGISTERS * arch.warpgroup if self.specialise else 0
        left = arch.registers_per_sm // self.ctas_per_sm - loading
        share = left // (arch.warpgroup * self.warpgroups * self.turns)
        return min(share // arch.setmaxnreg.step * arch.setmaxnreg.step, arch.registers_per_thread)


@lru_cache
def _kind(problem: GemmProblem) -> WgmmaKind:
    return wgmma_kind(problem.a_dtype, problem.b_dtype, problem.accumulator)


@lru_cache(maxsize=1024)
def _buffer_bytes(
    rows: int, columns: int, size: int, transposed: bool, most_columns: int, most_buffers: int
) -> int:
    """Bytes of a warpgroup's buffers, by which so many rows of an accumulator leave in pieces."""
    if transposed:
        heights = transposed_pieces(columns, WGMMA_M, size)
        widths = [WGMMA_M] * (rows // WGMMA_M)
    else:
        heights = [WGMMA_M] * (rows // WGMMA_M)
        widths = swizzled_pieces(columns, size, most_columns)
    if not (heights and widths):
        return 0
    buffers = piece_buffers(widths * len(heights), most_buffers)
    return max(heights) * sum(width * count for width, count in buffers.items()) * size


def _has_chunks(problem: GemmProblem, dtype: str) -> bool:
    """Whether rows of a result are known to be whole 16 bytes, as TMA stores them."""
    return problem.n is not None and problem.n * bits_of(dtype) // 8 % TMA.chunk_bytes == 0


def _shared_of_each(arch: Arch, ctas: int) -> int:
    reserved = arch.shared_bytes_per_sm - arch.shared_bytes_per_block
    return min(arch.shared_bytes_per_block, arch.shared_bytes_per_sm // ctas - reserved)

"""What a GEMM program is built for: a frozen set of choices that proves itself legal.

A :class:`GemmConfig` that exists can be compiled and launched: its tiles are legal wgmma shapes,
its TMA boxes and its shared memory fit, its accumulators fit in registers. It does not depend on
the sizes of the matrices; :meth:`GemmConfig.check_shape` tells whether a size can be loaded by TMA.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import tvm

from warploom.errors import IllegalCombination
from warploom.layout.smem_matrix import SharedMatrix
from warploom.target import (
    SM90A,
    TMA,
    WGMMA_M,
    Major,
    RegisterRoles,
    Swizzle,
    WgmmaKind,
    wgmma_kind,
)
from warploom.target.dtypes import is_float8, name_dtypes

#: Operand layouts by the BLAS name of the product: how A and B lie in global memory.
LAYOUTS = {"NT": "A [M, K], B [N, K]", "NN": "A [M, K], B [K, N]"}
#: Operand dtypes; float8 ones are multiplied by a scale for each tensor.
DTYPES = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
#: Result dtypes.
OUT_DTYPES = ("float16", "bfloat16")

#: Registers a consumer thread needs beside its accumulators: addresses, phases, the epilogue.
OVERHEAD_REGISTERS = 40


def widest_swizzle(row_bytes: int) -> Swizzle:
    """The widest swizzle whose atoms fill rows of ``row_bytes``: fewest shared-memory conflicts."""
    return max((s for s in Swizzle if row_bytes % s.row_bytes == 0), key=lambda s: s.row_bytes)


_COUNTS = ("tile_m", "tile_n", "tile_k", "stages", "cluster", "consumers", "group", "ctas")
#: Buffers of each computing warpgroup, of 64 rows by 64 columns, through which C is stored.
_STORE_BUFFERS, _STORE_COLUMNS = 2, 64


@dataclass(frozen=True)
class GemmConfig:
    """Choices of one kernel; every field has a default that suits large float16 products.

    Attributes
    ----------
    dtype, out_dtype : str
        TVM dtype of A and B, and of C. Accumulation is in float32.
    layout : str
        ``"NT"``: A [M, K], B [N, K]; ``"NN"``: A [M, K], B [K, N] (16-bit dtypes only).
    tile_m, tile_n, tile_k : int
        Elements of C that one CTA computes at a time, and of K that one stage holds.
    stages : int
        Slots of the ring of (A, B) tiles in shared memory.
    cluster : int
        CTAs along M that share one B tile: each loads its part of it for all (TMA multicast).
    consumers : int
        Warpgroups that multiply, each an equal share of the rows of the wgmma tile.
    group : int
        Rows of cluster tiles that are visited together, so that A and B tiles stay in L2.
    swap_ab : bool
        Compute C^T = B A^T: rows of B are the 64-row side of wgmma and rows of A its N. For few
        rows of A.
    ctas : int, optional
        CTAs of the persistent grid; without it as many as the device holds.

    Raises
    ------
    IllegalCombination
        If the kernel cannot exist; the message names the value, the rule and what is allowed.
    """

    dtype: str = "float16"
    out_dtype: str = "float16"
    layout: str = "NT"
    tile_m: int = 128
    tile_n: int = 256
    tile_k: int = 64
    stages: int = 4
    cluster: int = 2
    consumers: int = 2
    group: int = 8
    swap_ab: bool = False
    ctas: int | None = None

    def __post_init__(self) -> None:
        name_dtypes(self, "dtype", "out_dtype")
        # A generator: a rule may rely on those before it.
        for holds, sentence in self._rules():
            if not holds:
                raise IllegalCombination(sentence)

    @cached_property
    def kind(self) -> WgmmaKind:
        """The tensor-core instruction."""
        return wgmma_kind(self.dtype, self.dtype, "float32")

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of A or B."""
        return tvm.DataType(self.dtype).bits // 8

    @property
    def scaled(self) -> bool:
        """Whether the kernel takes one scale for each of A and B."""
        return is_float8(self.dtype)

    @property
    def wgmma_tile(self) -> tuple[int, int]:
        """Rows (the 64-row side) and columns (N) of the accumulator of one CTA."""
        return (self.tile_n, self.tile_m) if self.swap_ab else (self.tile_m, self.tile_n)

    @property
    def consumer_rows(self) -> int:
        """Rows of the accumulator of one consumer warpgroup."""
        return self.wgmma_tile[0] // self.consumers

    @property
    def threads(self) -> int:
        """Threads of a CTA: one producer warpgroup and the consumers."""
        return SM90A.warpgroup * (1 + self.consumers)

    @property
    def b_share(self) -> int:
        """Columns of the B tile that each CTA of a cluster loads."""
        return self.tile_n // self.cluster

    @cached_property
    def a_tile(self) -> SharedMatrix:
        """One stage of A in shared memory."""
        swizzle = widest_swizzle(self.tile_k * self.element_bytes)
        return SharedMatrix(self.dtype, Major.K, swizzle, self.tile_m, self.tile_k)

    @cached_property
    def b_tile(self) -> SharedMatrix:
        """One stage of B in shared memory."""
        major = Major.K if self.layout == "NT" else Major.MN
        contiguous = self.tile_k if major is Major.K else self.b_share
        swizzle = widest_swizzle(contiguous * self.element_bytes)
        return SharedMatrix(self.dtype, major, swizzle, self.tile_n, self.tile_k)

    @property
    def stage_bytes(self) -> int:
        """Bytes that one stage's TMA copies deliver to one CTA."""
        return (self.tile_m + self.tile_n) * self.tile_k * self.element_bytes

    @property
    def shared_memory(self) -> tuple[tuple[str, int], ...]:
        """What the kernel keeps in shared memory, as (purpose, bytes)."""
        ring = self.stages * self.tile_k * self.element_bytes
        rows = [
            (f"A, {self.stages} x {self.tile_m} x {self.tile_k}", ring * self.tile_m),
            (f"B, {self.stages} x {self.tile_n} x {self.tile_k}", ring * self.tile_n),
        ]
        if self.swap_ab:
            rows.append((f"C, {self.tile_m} x {self.tile_n}", 2 * self.tile_m * self.tile_n))
        else:
            shape = (self.consumers, _STORE_BUFFERS, WGMMA_M, min(self.tile_n, _STORE_COLUMNS))
            rows.append((f"C, {' x '.join(map(str, shape))}", 2 * math.prod(shape)))
        return (*rows, (f"mbarriers, 2 x {self.stages}", 16 * self.stages))

    @property
    def shared_bytes(self) -> int:
        """Sum of :attr:`shared_memory`."""
        return sum(size for _, size in self.shared_memory)

    @property
    def accumulator_registers(self) -> int:
        """Registers of a consumer thread that hold its part of the tile."""
        return self.kind.d_registers(self.wgmma_tile[1]) * (self.consumer_rows // WGMMA_M)

    @property
    def needed_registers(self) -> int:
        """Registers of a consumer thread below which the compiler would spill."""
        staged = 0 if self.swap_ab else WGMMA_M * _STORE_COLUMNS // SM90A.warpgroup // 2
        return self.accumulator_registers + staged + OVERHEAD_REGISTERS

    @property
    def launch_registers(self) -> int:
        """Registers that each thread starts with when one CTA has the SM for itself."""
        return min(SM90A.registers_per_thread, SM90A.registers_of_each(1, self.threads))

    @property
    def register_split(self) -> tuple[int, int] | None:
        """Registers of a producer and of a consumer thread after ``setmaxnreg``.

        None where the consumers need no more than the launch gives them.
        """
        if self.needed_registers <= self.launch_registers:
            return None
        return RegisterRoles(SM90A, self.consumers).split()

    def _rules(self) -> Iterator[tuple[bool, str]]:
        """Every rule with the sentence that explains its violation, in order of dependence."""
        yield self.dtype in DTYPES, f"dtype {self.dtype!r}: allowed are {', '.join(DTYPES)}."
        yield (
            self.out_dtype in OUT_DTYPES,
            f"out_dtype {self.out_dtype!r}: allowed are {', '.join(OUT_DTYPES)}.",
        )
        allowed = "; ".join(f"{name}: {what}" for name, what in LAYOUTS.items())
        yield self.layout in LAYOUTS, f"layout {self.layout!r}: allowed are {allowed}."
        yield (
            self.layout == "NT" or self.kind.transpose,
            f"layout {self.layout!r} with {self.dtype}: the tensor core reads 8-bit operands "
            "K-major only; store B as [N, K] and use layout 'NT'.",
        )
        for name in _COUNTS:
            value = getattr(self, name)
            yield value is None or value >= 1, f"{name} = {value}: it must be at least 1."
        yield (
            self.stages >= 2,
            "stages = 1: a stage is released while the next one is multiplied, so there must be 2.",
        )
        yield from self._tile_rules()
        yield from self._cluster_rules()
        yield from self._budget_rules()

    def _tile_rules(self) -> Iterator[tuple[bool, str]]:
        side = "tile_n" if self.swap_ab else "tile_m"
        rows, columns = self.wgmma_tile
        yield (
            rows % (WGMMA_M * self.consumers) == 0,
            f"{side} = {rows}: {self.consumers} consumers need a multiple of "
            f"{WGMMA_M * self.consumers}, {WGMMA_M} rows a wgmma.",
        )
        # Raises with its own sentence if no instruction has this width.
        self.kind.split_n(columns)
        yield (
            self.tile_k % self.kind.k == 0,
            f"tile_k = {self.tile_k}: one wgmma of {self.dtype} consumes {self.kind.k}, "
            "allowed are its multiples.",
        )
        yield (
            self.tile_m <= TMA.box_extent and self.b_share <= TMA.box_extent,
            f"A CTA loads {self.tile_m} rows of A and {self.b_share} of B at a time; "
            f"a TMA box has at most {TMA.box_extent}.",
        )

    def _cluster_rules(self) -> Iterator[tuple[bool, str]]:
        SM90A.check_cluster(self.cluster)
        yield (
            self.ctas is None or self.ctas % self.cluster == 0,
            f"cluster = {self.cluster}: it must divide ctas = {self.ctas}.",
        )
        yield (
            self.cluster == 1 or not self.swap_ab,
            f"cluster = {self.cluster} with swap_ab: few rows of A leave nothing to share along "
            "M; use cluster = 1.",
        )
        align = self.b_tile.mn_align
        yield (
            self.tile_n % (self.cluster * align) == 0,
            f"tile_n = {self.tile_n}: each of {self.cluster} CTAs loads an equal part of B in "
            f"units of {align} columns, allowed are multiples of {self.cluster * align}.",
        )

    def _budget_rules(self) -> Iterator[tuple[bool, str]]:
        limit = SM90A.shared_bytes_per_block
        lines = "".join(f"\n  {size:>7}  {purpose}" for purpose, size in self.shared_memory)
        yield (
            self.shared_bytes <= limit,
            f"The kernel needs {self.shared_bytes} bytes of shared memory, a CTA has {limit}; "
            f"use fewer stages or smaller tiles:{lines}",
        )
        split = self.register_split
        given = self.launch_registers if split is None else split[1]
        yield (
            self.needed_registers <= given,
            f"A consumer thread needs {self.needed_registers} registers "
            f"({self.accumulator_registers} of them accumulators) and gets {given}: "
            f"use a smaller tile than {self.tile_m} x {self.tile_n} or other than "
            f"{self.consumers} consumers.",
        )

    def check_shape(self, n: int, k: int, m: int | None = None) -> None:
        """Raise unless matrices of these sizes can be loaded and stored by TMA.

        Raises
        ------
        IllegalCombination
            If an extent is not positive, or a row pitch is no multiple of 16 bytes.
        """
        for name, extent in (("M", m), ("N", n), ("K", k)):
            if extent is not None and extent < 1:
                raise IllegalCombination(f"{name} = {extent} is not a positive extent.")
        if n == 1:
            raise IllegalCombination(
                "N = 1 is a matrix-vector product, which this program does not compute; pass at "
                "least 2 columns."
            )
        b_pitch = k if self.layout == "NT" else n
        pitches = [("A", "K", k, self.dtype), ("B", "NK"[self.layout == "NT"], b_pitch, self.dtype)]
        if not self.swap_ab:
            pitches.append(("C", "N", n, self.out_dtype))
        for matrix, dimension, extent, dtype in pitches:
            size = tvm.DataType(dtype).bits // 8
            if extent * size % 16:
                raise IllegalCombination(
                    f"{matrix} has rows of {extent} {dtype}, {extent * size} bytes; TMA needs a "
                    f"multiple of 16, so pad {dimension} to a multiple of {16 // size}."
                )

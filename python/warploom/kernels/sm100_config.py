"""What one Blackwell GEMM kernel is built for, as :mod:`warploom.kernels.config` is for Hopper.

A :class:`Sm100GemmConfig` that exists can be compiled and launched: the tensor core has an
instruction for its tile, the TMA boxes and shared memory fit, and so do the accumulators (and the
scale factors) in tensor memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from warploom.errors import IllegalCombination
from warploom.kernels.config import OUT_DTYPES, widest_swizzle
from warploom.layout.smem_matrix import SharedMatrix
from warploom.layout.tensor_memory import TensorMemoryPlan, plan_columns
from warploom.target import SM100A, TMA, Major, Tcgen05Kind, tcgen05_kinds
from warploom.target.dtypes import bits_of, name_dtypes

#: Rows of C of one CTA: the lanes of tensor memory, and the threads of the epilogue.
TILE_M = SM100A.tensor_memory.lanes
#: Operand dtypes; float8 carries scale factors.
DTYPES = ("float16", "bfloat16", "float8_e4m3fn")
#: Type of a scale factor, a power of two, and how many elements of K it scales.
SCALE_DTYPE, SCALE_VECTOR = "float8_e8m0fnu", 32
#: A block of scale factors as tcgen05 copies it: 128 rows by 4 factors, in 512 bytes.
SCALE_ROWS, SCALE_COLUMNS = 128, 4
SCALE_BYTES = SCALE_ROWS * SCALE_COLUMNS
#: Columns of tensor memory that the factors of 128 rows take: 4 bytes a cell, 32 rows a column.
SCALE_TENSOR_COLUMNS = SCALE_ROWS // SM100A.warp

_COUNTS = (
    "tile_n", "tile_k", "stages", "accumulators", "group", "store_n", "store_buffers", "ctas",
)  # fmt: skip


@dataclass(frozen=True)
class Sm100GemmConfig:
    """Choices of one kernel; A is ``[M, K]`` and B ``[N, K]``.

    Attributes
    ----------
    dtype, out_dtype : str
        TVM dtype of A and B, and of C. Accumulation is in float32. float8_e4m3fn makes the kernel
        block-scaled.
    cta_group : int
        CTAs that compute a tile together: 1, or a pair (2) whose tensor cores share B.
    tile_n, tile_k : int
        Columns of the tile that one CTA, or the pair, computes at a time, and elements of K that
        one stage holds. Each CTA computes 128 rows.
    stages : int
        Slots of the ring of (A, B) tiles in shared memory.
    accumulators : int
        Tiles of the accumulator in tensor memory. With two, a persistent kernel multiplies into
        one while the epilogue empties the other.
    group : int
        Rows of tiles that are visited together, so that A and B tiles stay in L2.
    store_n, store_buffers : int
        Columns of C that the epilogue stages for one TMA store, and how many it stages ahead.
    ctas : int
        CTAs of a persistent grid: the SMs of the device.

    Raises
    ------
    IllegalCombination
        If the kernel cannot exist; the message names the value, the rule and what is allowed.
    """

    dtype: str = "float16"
    out_dtype: str = "float16"
    cta_group: int = 1
    tile_n: int = 128
    tile_k: int = 64
    stages: int = 4
    accumulators: int = 1
    group: int = 8
    store_n: int = 64
    store_buffers: int = 2
    ctas: int = 148

    def __post_init__(self) -> None:
        name_dtypes(self, "dtype", "out_dtype")
        # A generator: a rule may rely on those before it.
        for holds, sentence in self._rules():
            if not holds:
                raise IllegalCombination(sentence)

    @cached_property
    def kind(self) -> Tcgen05Kind:
        """The tensor-core instruction."""
        scale = SCALE_DTYPE if self.scaled else None
        return tcgen05_kinds(self.dtype, self.dtype, "float32", scale)[0]

    @property
    def scaled(self) -> bool:
        """Whether blocks of 32 elements of A and B carry scale factors."""
        return self.dtype.startswith("float8")

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of A or B."""
        return bits_of(self.dtype) // 8

    @property
    def b_share(self) -> int:
        """Rows of B that each CTA of a pair loads; its tensor core reads the other's, too."""
        return self.tile_n // self.cta_group

    @cached_property
    def a_tile(self) -> SharedMatrix:
        """One stage of A in the shared memory of a CTA."""
        swizzle = widest_swizzle(self.tile_k * self.element_bytes)
        return SharedMatrix(self.dtype, Major.K, swizzle, TILE_M, self.tile_k)

    @cached_property
    def b_tile(self) -> SharedMatrix:
        """One stage of B in the shared memory of a CTA."""
        swizzle = widest_swizzle(self.tile_k * self.element_bytes)
        return SharedMatrix(self.dtype, Major.K, swizzle, self.b_share, self.tile_k)

    @property
    def scale_blocks(self) -> tuple[int, int]:
        """Blocks of scale factors of the A tile and of the B tile in one stage."""
        return (TILE_M // SCALE_ROWS, self.tile_n // SCALE_ROWS) if self.scaled else (0, 0)

    @property
    def stage_bytes(self) -> int:
        """Bytes that one stage's copies deliver to one CTA."""
        operands = (TILE_M + self.b_share) * self.tile_k * self.element_bytes
        return operands + SCALE_BYTES * sum(self.scale_blocks)

    @cached_property
    def tensor_memory(self) -> TensorMemoryPlan:
        """Columns of the accumulators and, one set a stage, of the scale factors."""
        columns = {"accumulators": self.accumulators * self.tile_n}
        if self.scaled:
            a_blocks, b_blocks = self.scale_blocks
            columns["scale_a"] = self.stages * a_blocks * SCALE_TENSOR_COLUMNS
            columns["scale_b"] = self.stages * b_blocks * SCALE_TENSOR_COLUMNS
        return plan_columns(**columns)

    @property
    def shared_memory(self) -> tuple[tuple[str, int], ...]:
        """What the kernel keeps in shared memory, as (purpose, bytes)."""
        stage = f"{self.stages} x ({TILE_M} + {self.b_share}) x {self.tile_k}"
        count = self.store_buffers * TILE_M * self.store_n
        barriers = 2 * self.stages + 2 * self.accumulators
        return (
            (f"A and B, {stage}", self.stages * self.stage_bytes),
            (f"C, {self.store_buffers} x {TILE_M} x {self.store_n}", 2 * count),
            (f"mbarriers, {barriers}, and an address", 8 * barriers + 4),
        )

    @property
    def shared_bytes(self) -> int:
        """Sum of :attr:`shared_memory`."""
        return sum(size for _, size in self.shared_memory)

    def _rules(self) -> Iterator[tuple[bool, str]]:
        """Every rule with the sentence that explains its violation, in order of dependence."""
        yield self.dtype in DTYPES, f"dtype {self.dtype!r}: allowed are {', '.join(DTYPES)}."
        yield (
            self.out_dtype in OUT_DTYPES,
            f"out_dtype {self.out_dtype!r}: allowed are {', '.join(OUT_DTYPES)}.",
        )
        for name in _COUNTS:
            value = getattr(self, name)
            yield value >= 1, f"{name} = {value}: it must be at least 1."
        yield (
            self.stages >= 2,
            "stages = 1: a stage is loaded while another is multiplied, so there must be 2.",
        )
        yield (
            self.cta_group in (1, 2),
            f"cta_group = {self.cta_group}: a tile is computed by 1 CTA or by 2.",
        )
        # Raises with its own sentence if no instruction computes this tile.
        self.kind.check_shape(TILE_M * self.cta_group, self.tile_n, self.cta_group)
        yield (
            self.tile_k % self.kind.k == 0,
            f"tile_k = {self.tile_k}: one tcgen05.mma of {self.dtype} consumes {self.kind.k}, "
            "allowed are its multiples.",
        )
        yield (
            not self.scaled or self.tile_k == SCALE_COLUMNS * SCALE_VECTOR,
            f"tile_k = {self.tile_k}: a stage of {self.dtype} holds {SCALE_COLUMNS} scale factors "
            f"of {SCALE_VECTOR} elements, so it must be {SCALE_COLUMNS * SCALE_VECTOR}.",
        )
        yield (
            not self.scaled or self.tile_n % SCALE_ROWS == 0,
            f"tile_n = {self.tile_n}: scale factors come in blocks of {SCALE_ROWS} rows of B, "
            "allowed are its multiples.",
        )
        yield (
            self.b_share <= TMA.box_extent,
            f"A CTA loads {self.b_share} rows of B at a time; a TMA box has at most "
            f"{TMA.box_extent}.",
        )
        yield (
            self.accumulators <= 2,
            f"accumulators = {self.accumulators}: one is multiplied into while another is "
            "stored, so 1 and 2 are allowed.",
        )
        yield from self._store_rules()
        # Raises with its own sentence if the columns do not fit.
        assert self.tensor_memory.allocation <= SM100A.tensor_memory.columns
        lines = "".join(f"\n  {size:>7}  {purpose}" for purpose, size in self.shared_memory)
        yield (
            self.shared_bytes <= SM100A.shared_bytes_per_block,
            f"The kernel needs {self.shared_bytes} bytes of shared memory, a CTA has "
            f"{SM100A.shared_bytes_per_block}; use fewer stages or smaller tiles:{lines}",
        )

    def _store_rules(self) -> Iterator[tuple[bool, str]]:
        yield (
            self.store_n in (16, 32, 64) and self.tile_n % self.store_n == 0,
            f"store_n = {self.store_n}: allowed are 16, 32 and 64 (one swizzled row of 16-bit "
            f"elements) if they divide tile_n = {self.tile_n}.",
        )
        pieces = self.tile_n // self.store_n
        yield (
            pieces % self.store_buffers == 0,
            f"store_buffers = {self.store_buffers}: it must divide the {pieces} pieces of "
            f"{self.store_n} columns in a tile, so that the next tile starts with the oldest "
            "buffer.",
        )

    def require(self, kernel: str, **values: int | bool) -> None:
        """Raise :class:`IllegalCombination` unless attributes have the values that a kernel needs.

        Parameters
        ----------
        kernel : str
            Its name, for the message.
        **values : int or bool
            What it needs.
        """
        for name, wanted in values.items():
            value = getattr(self, name)
            if value != wanted:
                raise IllegalCombination(
                    f"{kernel} needs a configuration with {name} = {wanted}, this one has {value}."
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
        for matrix, dimension, extent, dtype in (
            ("A", "K", k, self.dtype), ("B", "K", k, self.dtype), ("C", "N", n, self.out_dtype),
        ):  # fmt: skip
            size = bits_of(dtype) // 8
            if extent * size % 16:
                raise IllegalCombination(
                    f"{matrix} has rows of {extent} {dtype}, {extent * size} bytes; TMA needs a "
                    f"multiple of 16, so pad {dimension} to a multiple of {16 // size}."
                )

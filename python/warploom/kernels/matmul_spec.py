"""What a generated matmul is built for, and a sentence for each that there is not.

The caller says all of it; nothing is chosen here. Values of choices are those of the one table,
:data:`warploom.tile.choices.CHOICES`. The rest specifies instructions and tensor maps: all types,
both layouts of both operands, swizzles, fills.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from warploom.errors import IllegalCombination
from warploom.kernels.barrier_log import BarrierLog
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
from warploom.target.dtypes import name_dtypes
from warploom.target.spelling import (
    L2Promotion,
    OobFill,
    read_l2_promotion,
    read_oob_fill,
    read_swizzle,
)
from warploom.target.tensor_map import NAN_DTYPES
from warploom.tile.choices import BY_NAME

#: BLAS names of the layouts: how A and B lie in global memory.
LAYOUTS = {
    "NT": "A [M, K], B [N, K]",
    "NN": "A [M, K], B [K, N]",
    "TT": "A [K, M], B [N, K]",
    "TN": "A [K, M], B [K, N]",
}
#: Accumulator -> what a result may be rounded to.
RESULTS = {
    "float32": ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
    "float16": ("float16", "float32"),
    "int32": ("int32",),
}
#: Choices that have several spellings, and what reads them.
_SPELLED = {
    "a_swizzle": read_swizzle, "b_swizzle": read_swizzle, "l2_promotion": read_l2_promotion,
    "oob_fill": read_oob_fill,
}  # fmt: skip
#: Rows of the table of choices that a caller gives by name.
_CHOICES = ("stages", "consumers", "ctas_per_sm", "group")
#: Registers that a multiplying thread needs beside its accumulators.
OVERHEAD_REGISTERS = 40


@dataclass(frozen=True)
class MatmulSpec:
    """One generated matmul, whatever the extents of the matrices.

    Attributes
    ----------
    specialised : bool
        Whether a warpgroup of its own loads; else the multiplying ones do it themselves.
    dtype, b_dtype : str
        Of A and of B; float32 is multiplied as tf32.
    accumulator : str
        Dtype of the sums: float32, float16 or int32, as the operands allow.
    out_dtype : str
        Of C: :data:`RESULTS`.
    layout : str
        One of :data:`LAYOUTS`; 8- and 32-bit operands are ``"NT"``.
    tile : (int, int, int)
        Rows and columns of C that a CTA computes, and elements of K of one stage.
    stages : int
        Slots of the ring of (A, B) tiles in shared memory, 1 or more.
    consumers : int
        Warpgroups that multiply, each an equal share of the rows.
    registers : (int, int) or None
        Registers of a producer and of a consumer thread after ``setmaxnreg``; None: as the
        compiler gives them, or what the accumulators need if that is more. Without ``specialised``
        there is nobody to take them from.
    ctas_per_sm : int
        CTAs that share an SM's registers and shared memory.
    group : int
        Rows of tiles that are computed at about the same time, so that they stay in L2.
    a_swizzle, b_swizzle : Swizzle or None
        Of A and B in shared memory; None: the widest that the tile allows. These and the next two
        are given in any spelling of :mod:`warploom.target.spelling`, such as ``"64B"``.
    l2_promotion : L2Promotion
        Of the tensor maps of A and B.
    oob_fill : OobFill
        What A and B are read as outside of the matrices: ``"zeros"``, or ``"nan"``, which shows
        whether a result depends on it; K must be a multiple of the tile's then.
    log : BarrierLog or None
        Whose barrier events are printed; None compiles to a kernel without any of that.

    Raises
    ------
    IllegalCombination
        If there is no such kernel.
    """

    specialised: bool = True
    dtype: str = "float16"
    b_dtype: str = "float16"
    accumulator: str = "float32"
    out_dtype: str = "float32"
    layout: str = "NT"
    tile: tuple[int, int, int] = (128, 128, 64)
    stages: int = 3
    consumers: int = 1
    registers: tuple[int, int] | None = None
    ctas_per_sm: int = 1
    group: int = 8
    a_swizzle: Swizzle | None = None
    b_swizzle: Swizzle | None = None
    l2_promotion: L2Promotion = L2Promotion.B128
    oob_fill: OobFill = OobFill.ZERO
    log: BarrierLog | None = None

    def __post_init__(self) -> None:
        name_dtypes(self, "dtype", "b_dtype", "accumulator", "out_dtype")
        for name, read in _SPELLED.items():
            value = getattr(self, name)
            if not (value is None and name.endswith("swizzle")):
                object.__setattr__(self, name, read(name, value))
        # A generator: a rule may rely on those before it.
        for holds, sentence in self._rules():
            if not holds:
                raise IllegalCombination(f"matmul: {sentence}")

    @cached_property
    def kind(self) -> WgmmaKind:
        """The tensor-core instruction."""
        return wgmma_kind(self.dtype, self.b_dtype, self.accumulator)

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of A, and of one of B."""
        return self.kind.bits // 8

    @cached_property
    def a_tile(self) -> SharedMatrix:
        """One stage of A in shared memory."""
        major = Major.MN if self.layout[0] == "T" else Major.K
        return _operand(self.dtype, major, self.a_swizzle, self.tile[0], self.tile[2])

    @cached_property
    def b_tile(self) -> SharedMatrix:
        """One stage of B in shared memory."""
        major = Major.MN if self.layout[1] == "N" else Major.K
        return _operand(self.b_dtype, major, self.b_swizzle, self.tile[1], self.tile[2])

    @property
    def consumer_rows(self) -> int:
        """Rows of C that one warpgroup computes."""
        return self.tile[0] // self.consumers

    @property
    def warpgroups(self) -> int:
        """Warpgroups of a CTA."""
        return self.consumers + self.specialised

    @property
    def stage_bytes(self) -> int:
        """Bytes that the copies of one stage deliver."""
        return (self.tile[0] + self.tile[1]) * self.tile[2] * self.element_bytes

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA: the ring and its mbarriers."""
        return self.stages * (self.stage_bytes + 8 * (1 + self.specialised))

    @property
    def launch_registers(self) -> int:
        """Registers that each thread starts with."""
        return SM90A.registers_of_each(self.ctas_per_sm, self.warpgroups * SM90A.warpgroup)

    @property
    def roles(self) -> RegisterRoles:
        """The warpgroups of a specialised kernel that share registers."""
        return RegisterRoles(SM90A, self.consumers, self.ctas_per_sm)

    @property
    def needed_registers(self) -> int:
        """Registers of a multiplying thread below which the compiler would spill."""
        sums = self.consumer_rows // WGMMA_M * self.kind.d_registers(self.tile[1])
        return sums + OVERHEAD_REGISTERS

    @property
    def register_split(self) -> tuple[int, int] | None:
        """Registers of a producer and of a consumer thread; None leaves them as they are."""
        if self.registers is not None or not self.specialised:
            return self.registers
        if self.needed_registers <= self.launch_registers:
            return None
        return self.roles.split()

    def _rules(self) -> Iterator[tuple[bool, str]]:
        """Every rule with the sentence that explains its violation, in order of dependence."""
        allowed = "; ".join(f"{name}: {what}" for name, what in LAYOUTS.items())
        yield self.layout in LAYOUTS, f"layout {self.layout!r}: allowed are {allowed}."
        chosen = {name: getattr(self, name) for name in _CHOICES}
        chosen |= zip(("tile_m", "tile_n", "tile_k"), self.tile, strict=True)
        for name, value in chosen.items():
            reason = BY_NAME[name].kind.why_not(value)
            yield reason is None, f"{name} = {value}: {reason}."
        results = RESULTS[self.kind.d]  # raises with its own sentence if there is no instruction
        yield (
            self.out_dtype in results,
            f"sums in {self.accumulator} become {', '.join(results)}, not {self.out_dtype}.",
        )
        yield (
            self.layout == "NT" or self.kind.transpose,
            f"layout {self.layout!r} with {self.dtype}: the tensor core reads only 16-bit "
            "operands MN-major; use layout 'NT'.",
        )
        yield (
            self.oob_fill is OobFill.ZERO or self.dtype in NAN_DTYPES,
            f"oob_fill 'nan' with {self.dtype}: tensor maps fill with NaN only "
            f"{', '.join(NAN_DTYPES)}.",
        )
        yield from self._tile_rules()
        yield from self._budget_rules()

    def _tile_rules(self) -> Iterator[tuple[bool, str]]:
        rows, columns, depth = self.tile
        share = WGMMA_M * self.consumers
        yield (
            rows % share == 0,
            f"{rows} rows a tile: {self.consumers} consumers need a multiple of {share}.",
        )
        yield (
            depth % self.kind.k == 0,
            f"K = {depth} a stage: one instruction of {self.dtype} takes {self.kind.k}, allowed "
            "are its multiples.",
        )
        yield (
            max(rows, columns, depth if "N" in self.layout[1] or "T" in self.layout[0] else 0)
            <= TMA.box_extent,
            f"tile {rows} x {columns} x {depth}: a TMA box has at most {TMA.box_extent} rows.",
        )
        # Both raise with a sentence of their own.
        self.kind.split_n(columns, self.b_tile.mn_align)
        yield (
            WGMMA_M % self.a_tile.mn_align == 0,
            f"A's swizzle atoms of {self.a_tile.mn_align} rows do not divide {WGMMA_M}.",
        )

    def _budget_rules(self) -> Iterator[tuple[bool, str]]:
        threads = self.warpgroups * SM90A.warpgroup
        yield (
            threads <= SM90A.threads_per_block,
            f"{threads} threads: a CTA has at most {SM90A.threads_per_block}.",
        )
        limit = SM90A.shared_bytes_of_each(self.ctas_per_sm)
        yield (
            self.shared_bytes <= limit,
            f"{self.stages} stages of {self.stage_bytes} bytes: a CTA has {limit} bytes of shared "
            f"memory where {self.ctas_per_sm} share an SM; use fewer stages or smaller tiles.",
        )
        if self.registers is not None:
            yield from self._register_rules(*self.registers)
        split = self.register_split
        given = self.launch_registers if split is None else split[1]
        given = min(given, SM90A.registers_per_thread)
        yield (
            self.needed_registers <= given,
            f"a multiplying thread needs {self.needed_registers} registers and has {given}; use a "
            "smaller tile, more consumers or fewer CTAs an SM.",
        )

    def _register_rules(self, producer: int, consumer: int) -> Iterator[tuple[bool, str]]:
        yield (
            self.specialised,
            f"registers = {self.registers}: only a specialised kernel has roles to split them.",
        )
        self.roles.check(producer, consumer)  # raises with a sentence of its own


def _operand(
    dtype: str, major: Major, swizzle: Swizzle | None, mn: int, k: int
) -> SharedMatrix:
    if swizzle is None:
        return SharedMatrix.widest(dtype, major, mn, k)
    return SharedMatrix(dtype, major, swizzle, mn, k)

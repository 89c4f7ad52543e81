"""Reads the three operands of a matmul as wgmma sees them.

Each ``read_*`` function takes a TVM buffer region and returns a small frozen description, or raises
:class:`IllegalCombination` with one sentence that names the operand, the rule and what to change.
Emission (:mod:`warploom.intrin.wgmma_emitter`) then only does arithmetic on legal operands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, IntImm
from tvm.tirx.layout import S, TileLayout

from warploom.errors import IllegalCombination
from warploom.layout.fragment import wgmma_accumulator, wgmma_register_a
from warploom.layout.smem_matrix import SharedMatrix
from warploom.target.swizzle import Major
from warploom.target.wgmma import WGMMA_M, WgmmaKind
from warploom.target.wgmma_descriptor import ADDRESS_MASK, CHUNK_BYTES


@dataclass(frozen=True)
class WarpgroupSpan:
    """The warpgroups that execute one call: ``count`` of them, from warp ``first_warp`` on."""

    count: int
    first_warp: int


@dataclass(frozen=True)
class Accumulator:
    """D: a ``(m, n)`` part of a register tile; ``m`` counts the rows of one warpgroup."""

    buffer: Buffer
    m: int
    n: int
    row: int
    column: int

    def first_register(self, kind: WgmmaKind, block: Any, column: Any) -> Any:
        """Index of the first 32-bit register of a 64-row ``block`` at ``column`` of the part."""
        block = block + self.row // WGMMA_M
        per_block, per_core_tile = kind.d_registers(int(self.buffer.shape[-1])), kind.d_registers(8)
        return block * per_block + (self.column + column) // 8 * per_core_tile


@dataclass(frozen=True)
class SharedOperand:
    """A or B in shared memory: where the region starts and how its bytes are laid out."""

    buffer: Buffer
    matrix: SharedMatrix
    mn: int
    k: int
    lead_bytes: Any
    mn_start: Any
    k_start: Any

    def descriptor(self, mn: Any, k: Any) -> Any:
        """The descriptor, uint64, of the part from its element ``(mn, k)`` on."""
        offset = self.lead_bytes + self.matrix.byte_offset(self.mn_start + mn, self.k_start + k)
        chunk = Analyzer().simplify(tvm.tirx.floordiv(tvm.runtime.convert(offset), CHUNK_BYTES))
        buffer = self.buffer
        base = T.cuda.cvta_generic_to_shared(buffer.ptr_to([0] * len(buffer.shape)))
        start = ((base & T.uint32(ADDRESS_MASK)) >> T.uint32(4)) + T.cast(chunk, "uint32")
        return IntImm("uint64", self.matrix.descriptor) + T.cast(start, "uint64")

    @property
    def fits_atoms(self) -> bool:
        """Whether from its start on, distances within the part are those of a whole matrix.

        They are not where it starts within a swizzle atom and ends in another: the next atom is
        then nearer than the atoms' width says.
        """
        start, extent = (
            (self.k_start, self.k) if self.matrix.major is Major.K else (self.mn_start, self.mn)
        )
        width, analyzer = self.matrix.atom_columns, Analyzer()
        if analyzer.can_prove_equal(tvm.tirx.floormod(start, width), 0):
            return True
        return isinstance(start, int | IntImm) and int(start) % width + extent <= width


@dataclass(frozen=True)
class DescribedOperand:
    """A or B in shared memory, of which a register holds the descriptor of element (0, 0)."""

    value: Any
    matrix: SharedMatrix

    def descriptor(self, mn: Any, k: Any) -> Any:
        """The descriptor, uint64, of the part from its element ``(mn, k)`` on."""
        chunk = self.matrix.byte_offset(mn, k) // CHUNK_BYTES
        if isinstance(chunk, int):
            return self.value + IntImm("uint64", chunk) if chunk else self.value
        return self.value + T.cast(Analyzer().simplify(chunk), "uint64")


@dataclass(frozen=True)
class RegisterOperand:
    """A in registers: a ``(m, k)`` part of a fragment, ``m`` counting rows of one warpgroup."""

    buffer: Buffer
    mn: int
    k: int
    row: int
    k_start: int

    def first_register(self, kind: WgmmaKind, block: Any, step: Any) -> Any:
        """Index of the first of the four registers that feed 64-row ``block`` at K ``step``."""
        steps_per_block = int(self.buffer.shape[-1]) // kind.a_k
        block = block + self.row // WGMMA_M
        return (block * steps_per_block + self.k_start // kind.a_k + step) * kind.a_registers


def registers(buffer: Buffer, dtype: str = "uint32") -> Any:
    """The thread's part of a register tile, as the 32-bit registers that instructions name."""
    count = 1
    for it in buffer.layout.shard:
        count *= 1 if it.axis.is_thread() else int(it.extent)
    flat = buffer.local(count, layout=TileLayout(S[(count,)]))
    return flat if str(buffer.dtype) == dtype else flat.view(dtype)


def _matrix_extents(region: TensorRegion, name: str, analyzer: Analyzer) -> tuple[int, int]:
    """Rows and columns of a region whose leading dimensions have extent 1."""
    extents = [analyzer.simplify(r.extent) for r in region.region]
    if any(not isinstance(e, IntImm) for e in extents):
        raise IllegalCombination(
            f"wgmma: the extents of {name} must be constant, got {extents}; slice it statically."
        )
    *lead, rows, columns = (int(e) for e in extents)
    if any(e != 1 for e in lead):
        raise IllegalCombination(
            f"wgmma: {name} must be a matrix, got extents {[*lead, rows, columns]}; "
            "index its leading dimensions with one value each."
        )
    return rows, columns


def _constant(value: Any, noun: str, analyzer: Analyzer) -> int:
    value = analyzer.simplify(value)
    if not isinstance(value, IntImm):
        raise IllegalCombination(
            f"wgmma: {noun} must be a constant, since registers cannot be indexed; got {value}."
        )
    return int(value)


def _require_multiple(value: Any, of: int, noun: str, why: str, analyzer: Analyzer) -> None:
    if of > 1 and not analyzer.can_prove_equal(tvm.tirx.floormod(value, of), 0):
        raise IllegalCombination(
            f"wgmma: {noun} = {value} is not provably a multiple of {of}, {why}."
        )


def _same_layout(layout: Any, expected: Any) -> bool:
    return layout is not None and tvm_ffi.structural_equal(
        layout.canonicalize(), expected.canonicalize()
    )


def _require_fragment(buffer: Buffer, name: str, expected: Any, recipe: str) -> None:
    if not _same_layout(buffer.layout, expected):
        raise IllegalCombination(
            f"wgmma: {name} has layout {buffer.layout}, which is not the fragment of the tensor "
            f"core; allocate it with layout={recipe}."
        )


def read_accumulator(region: TensorRegion, span: WarpgroupSpan, analyzer: Analyzer) -> Accumulator:
    """D of the call, or a decline."""
    buffer = region.source
    if buffer.scope() != "local":
        raise IllegalCombination(
            f"wgmma: D must be in registers (scope 'local'), got scope '{buffer.scope()}'."
        )
    rows, columns = _matrix_extents(region, "D", analyzer)
    if len(buffer.shape) != 2:
        raise IllegalCombination(
            f"wgmma: D must have two dimensions, got shape {list(map(str, buffer.shape))}."
        )
    height, width = (int(e) for e in buffer.shape)
    if height % (WGMMA_M * span.count) or width % 8:
        raise IllegalCombination(
            f"wgmma: D has shape {height} x {width}; its rows must be a multiple of "
            f"{WGMMA_M * span.count} (64 for each of {span.count} warpgroups) and its columns of 8."
        )
    if rows % (WGMMA_M * span.count):
        raise IllegalCombination(
            f"wgmma: D has {rows} rows, allowed are multiples of {WGMMA_M * span.count}."
        )
    if span.count > 1 and rows != height:
        raise IllegalCombination(
            f"wgmma: {span.count} warpgroups must compute all {height} rows of D, got {rows}; "
            "slice rows at warpgroup scope (Tx.wg) instead."
        )
    expected = wgmma_accumulator(height, width, span.count, span.first_warp)
    recipe = f"wgmma_accumulator({height}, {width}"
    recipe += f", {span.count}, {span.first_warp})" if span.count > 1 else ")"
    _require_fragment(buffer, "D", expected, recipe)
    row = _constant(region.region[-2].min, "the first row of D", analyzer)
    column = _constant(region.region[-1].min, "the first column of D", analyzer)
    _require_multiple(row, WGMMA_M, "the first row of D", "the rows of one instruction", analyzer)
    _require_multiple(column, 8, "the first column of D", "the columns of a core tile", analyzer)
    return Accumulator(buffer, rows // span.count, columns, row, column)


def read_shared(
    region: TensorRegion, transposed: bool, name: str, kind: WgmmaKind, analyzer: Analyzer
) -> SharedOperand:
    """A or B in shared memory, or a decline."""
    buffer = region.source
    major = Major.MN if transposed else Major.K
    if major not in kind.majors:
        flag = f"trans{name}"
        raise IllegalCombination(
            f"wgmma: {name} is {buffer.dtype} and MN-major ({flag}=True); the hardware reads only "
            "16-bit operands MN-major, store it K-major."
        )
    try:
        matrix = SharedMatrix.from_buffer(buffer, major)
    except IllegalCombination as error:
        raise IllegalCombination(f"wgmma: {name}: {error}") from error
    rows, columns = _matrix_extents(region, name, analyzer)
    starts = [r.min for r in region.region]
    row, column = starts[-2:]
    (mn, k), (mn_start, k_start) = (
        ((columns, rows), (column, row)) if transposed else ((rows, columns), (row, column))
    )
    _require_multiple(mn_start, matrix.mn_align, f"the first {name} row", "its swizzle", analyzer)
    _require_multiple(k_start, matrix.k_align, f"the first K of {name}", "one step of K", analyzer)
    _require_aligned_base(buffer, name, matrix)
    lead, stride = 0, int(buffer.shape[-1]) * int(buffer.shape[-2]) * matrix.element_bytes
    for extent, start in zip(reversed(buffer.shape[:-2]), reversed(starts[:-2]), strict=True):
        lead = lead + start * stride
        stride *= int(extent)
    return SharedOperand(buffer, matrix, mn, k, lead, mn_start, k_start)


def _require_aligned_base(buffer: Buffer, name: str, matrix: SharedMatrix) -> None:
    """The XOR of a swizzle acts on absolute address bits, so the buffer must start on an atom."""
    atom = matrix.swizzle.atom_bytes
    start = buffer.elem_offset
    if isinstance(start, IntImm) and int(start) * matrix.element_bytes % atom:
        raise IllegalCombination(
            f"wgmma: {name} starts {int(start) * matrix.element_bytes} bytes into shared memory, "
            f"a {matrix.swizzle.name} swizzle needs a multiple of {atom}; allocate it with "
            f"align={atom}."
        )


def read_register_a(
    region: TensorRegion, transposed: bool, kind: WgmmaKind, span: WarpgroupSpan, analyzer: Analyzer
) -> RegisterOperand:
    """A in registers, or a decline."""
    buffer = region.source
    if transposed:
        raise IllegalCombination(
            "wgmma: A in registers is always K-major; pass it as [M, K] with transA=False."
        )
    if span.count > 1:
        raise IllegalCombination(
            "wgmma: A in registers belongs to one warpgroup; call Tx.wg.gemm_async."
        )
    rows, columns = _matrix_extents(region, "A", analyzer)
    if len(buffer.shape) != 2:
        raise IllegalCombination(
            f"wgmma: A in registers needs two dimensions, got {list(map(str, buffer.shape))}."
        )
    height, width = (int(e) for e in buffer.shape)
    if height % WGMMA_M or width % kind.a_k:
        raise IllegalCombination(
            f"wgmma: A in registers has shape {height} x {width}; its rows must be a multiple of "
            f"{WGMMA_M} and its columns of {kind.a_k}."
        )
    recipe = f"wgmma_register_a({kind.a!r}, {width}, m={height})"
    _require_fragment(buffer, "A", wgmma_register_a(kind.a, width, height), recipe)
    row = _constant(region.region[-2].min, "the first row of A", analyzer)
    k_start = _constant(region.region[-1].min, "the first K of A", analyzer)
    _require_multiple(row, WGMMA_M, "the first row of A", "the rows of one instruction", analyzer)
    _require_multiple(k_start, kind.a_k, "the first K of A", "one step of K", analyzer)
    return RegisterOperand(buffer, rows, columns, row, k_start)

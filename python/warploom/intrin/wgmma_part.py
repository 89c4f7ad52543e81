"""The part of a matmul on Hopper that is one warpgroup's: its place, and its operands.

Sources: PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Self

from tvm.ir import Expr, TensorRegion
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import IntImm, is_buffer_var

from warploom.errors import IllegalCombination
from warploom.intrin.wgmma_matmul import WgmmaMatmul
from warploom.intrin.wgmma_metadata import Metadata, read_metadata
from warploom.intrin.wgmma_operands import (
    Accumulator,
    DescribedOperand,
    RegisterOperand,
    SharedOperand,
    WarpgroupSpan,
    read_accumulator,
    read_register_a,
    read_shared,
)
from warploom.target.swizzle import Major

#: Registers are those of one warpgroup, the first.
ONE_WARPGROUP = WarpgroupSpan(1, 0)


@dataclass(frozen=True)
class WgmmaPart(WgmmaMatmul):
    """A matmul, of which ``warpgroup`` computes a part if several warpgroups share it."""

    warpgroup: Any = field(default=None, compare=False, repr=False)

    def at(self, warpgroup: Any) -> Self:
        """The emitter of one of the warpgroups that share the matmul.

        Parameters
        ----------
        warpgroup : int or Expr
            Which one, from 0 on, the same in all its threads: its row is that number modulo
            ``warpgroups[0]``, then come columns, then parts of K.

        Raises
        ------
        IllegalCombination
            If a constant is out of range.
        """
        warpgroup, count = index_of(scalar(warpgroup)), prod(self.warpgroups)
        if isinstance(warpgroup, int) and not 0 <= warpgroup < count:
            raise IllegalCombination(
                f"wgmma: warpgroup {warpgroup} is not within 0 to {count - 1}, those that share "
                "the matmul."
            )
        return replace(self, warpgroup=warpgroup)

    @property
    def origin(self) -> tuple[Any, Any]:
        """Row and column of the CTA's matmul at which D of this warpgroup begins."""
        row, column, _ = self._place
        return row * self.m, column * self.n

    @property
    def _place(self) -> tuple[Any, Any, Any]:
        """Which part of the rows, of the columns and of K is this warpgroup's."""
        rows, columns, depth = self.warpgroups
        if rows * columns * depth == 1:
            return 0, 0, 0
        if self.warpgroup is None:
            raise IllegalCombination(
                f"wgmma: {rows * columns * depth} warpgroups share this matmul; say which one "
                "emits with at(warpgroup)."
            )
        return (
            _digit(self.warpgroup, 1, rows, columns * depth == 1),
            _digit(self.warpgroup, rows, columns, depth == 1),
            _digit(self.warpgroup, rows * columns, depth, True),
        )

    def a_descriptor(self, region: Any) -> Expr:
        """The descriptor of A, uint64, for :meth:`ss` and :meth:`ss_atom`.

        Parameters
        ----------
        region : TensorRegion or Buffer
            ``block[0] x block[2]`` elements, those of all warpgroups, of a shared buffer with the
            layout :attr:`a` (as the buffer has it).

        Raises
        ------
        IllegalCombination
            If the region is no such operand, or starts within a swizzle atom and ends in another:
            pass regions to :meth:`ss_atom` then.
        """
        return self._described(region, "A")

    def b_descriptor(self, region: Any) -> Expr:
        """The descriptor of B, uint64; as :meth:`a_descriptor`, of N and K of the block."""
        return self._described(region, "B")

    def _described(self, region: Any, name: str) -> Expr:
        operand = self.shared_operand(region, name)
        if isinstance(operand, SharedOperand) and not operand.fits_atoms:
            raise IllegalCombination(
                f"wgmma: {name} does not provably start at a multiple of "
                f"{operand.matrix.atom_columns} elements, a swizzle atom; one descriptor cannot "
                "serve all of it, pass the region itself."
            )
        return operand.descriptor(0, 0)

    def shared_operand(self, value: Any, name: str) -> SharedOperand | DescribedOperand:
        """``"A"`` or ``"B"`` in shared memory, of this warpgroup: a region or a descriptor."""
        if isinstance(value, SharedOperand | DescribedOperand):
            return value
        side = 0 if name == "A" else 1
        matrix, extent = (self.a, self.m) if name == "A" else (self.b, self.n)
        if matrix is None:
            raise IllegalCombination("wgmma: A is only in registers in this matmul; call rs.")
        region = as_region(value)
        if region is None:
            value = scalar(value)
            if not isinstance(value, Expr) or str(value.ty.dtype) != "uint64":
                raise IllegalCombination(
                    f"wgmma: {name} must be a part of a shared buffer or its descriptor (uint64), "
                    f"got {value}."
                )
            return DescribedOperand(value, matrix)
        if not region.source.scope().startswith("shared"):
            raise IllegalCombination(
                f"wgmma: {name} must be in shared memory, got scope '{region.source.scope()}'."
            )
        transposed = matrix.major is Major.MN
        operand = read_shared(region, transposed, name, self.kind, Analyzer())
        if operand.matrix != matrix:
            raise IllegalCombination(
                f"wgmma: {name} lies in {region.source.name} as {operand.matrix}, the emitter was "
                f"made for {matrix}."
            )
        depth, whole = self.k, self.block[2]
        if name == "A":
            depth, whole = self.a_columns(depth), self.a_columns(whole)
        self._require_extents(name, (operand.mn, operand.k), (self.block[side], whole))
        place = self._place
        return replace(
            operand, mn=extent, k=depth, mn_start=operand.mn_start + place[side] * extent,
            k_start=operand.k_start + place[2] * depth,
        )  # fmt: skip

    def metadata_of(self, value: Any) -> Metadata | None:
        """The metadata of a sparse A, of this warpgroup; None where A is dense.

        Raises
        ------
        IllegalCombination
            If there is none of a sparse A, or some of a dense one, or it does not fit.
        """
        if (value is None) == self.kind.sparse:
            rule = "A is sparse, pass metadata=" if self.kind.sparse else "A is dense, drop it"
            raise IllegalCombination(f"wgmma: metadata of A is {value}; {rule}.")
        if value is None:
            return None
        if isinstance(value, Metadata):
            return value
        region = as_region(value)
        if region is None:
            raise IllegalCombination("wgmma: the metadata of A must be a part of a shared buffer.")
        found = read_metadata(region, self.kind, Analyzer())
        rows, steps = self.block[0], self.block[2] // self.kind.k
        wanted = (rows, steps * self.kind.metadata_bytes)
        self._require_extents("the metadata of A", (found.rows, found.columns), wanted)
        place = self._place
        column = place[2] * (self.steps * self.kind.metadata_bytes)
        return replace(found, row=found.row + place[0] * self.m, column=found.column + column)

    def registers_of_a(self, value: Any) -> RegisterOperand:
        """A of this warpgroup, in registers."""
        if isinstance(value, RegisterOperand):
            return value
        region = as_region(value)
        if region is None or region.source.scope() != "local":
            raise IllegalCombination("wgmma: A must be a part of a register tile (scope 'local').")
        operand = read_register_a(region, False, self.kind, ONE_WARPGROUP, Analyzer())
        self._require_extents("A", (operand.mn, operand.k), (self.m, self.a_columns(self.k)))
        return operand

    def accumulator(self, value: Any) -> Accumulator:
        """D of this warpgroup, in registers."""
        if isinstance(value, Accumulator):
            return value
        region = as_region(value)
        if region is None:
            raise IllegalCombination("wgmma: D must be a part of a register tile (scope 'local').")
        operand = read_accumulator(region, ONE_WARPGROUP, Analyzer())
        if str(operand.buffer.dtype) != self.kind.d:
            raise IllegalCombination(
                f"wgmma: D has elements of {operand.buffer.dtype}, not {self.kind.d}."
            )
        self._require_extents("D", (operand.m, operand.n), (self.m, self.n))
        return operand

    def _require_extents(self, name: str, got: tuple[int, int], wanted: tuple[int, int]) -> None:
        if got != wanted:
            raise IllegalCombination(
                f"wgmma: {name} is {got[0]} x {got[1]}, this matmul needs {wanted[0]} x "
                f"{wanted[1]}."
            )


def as_region(value: Any) -> TensorRegion | None:
    """A whole buffer, or a part of one, as a region; None for anything else."""
    if isinstance(value, TensorRegion):
        return value
    if is_buffer_var(value):
        return value[tuple(slice(0, extent) for extent in value.shape)]
    return None


def scalar(value: Any) -> Any:
    """The value of a variable that was declared as ``x: T.uint64``."""
    return value.scalar if isinstance(value, T.scalar_wrapper) else value


def index_of(value: Any) -> Any:
    """A constant as an int; an expression as it is."""
    return int(value) if isinstance(value, int | IntImm) else value


def _digit(number: Any, unit: int, base: int, last: bool) -> Any:
    """``number // unit % base``; of the last digit, there is nothing to take away."""
    if base == 1:
        return 0
    if isinstance(number, int):
        return number // unit % base
    number = number if unit == 1 else T.truncdiv(number, unit)
    return number if last else T.truncmod(number, base)

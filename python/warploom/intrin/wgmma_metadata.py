"""Metadata of a sparse A: from shared memory into the registers that ``wgmma.mma_async.sp`` reads.

In shared memory it is row-major, as :mod:`warploom.sparse` describes it: 4 bytes of a row for each
instruction, or 8 if elements have 8 bits. The four threads of a warp that share two rows, eight
apart, hold their 16 bytes of metadata, each a register:

* 8-bit elements: threads 0 and 2 hold the first row's words of one instruction, 1 and 3 those of
  the second row.
* wider elements: thread ``t`` holds 16 bits of both rows, those of the second above. Two threads
  have what one instruction needs; its sparsity selector says which two.

Four bits that are zero, which loads over the edges of a matrix bring, are made ``0x4`` on the way.

Source: PTX ISA, "Sparse matrix storage" of ``wgmma.mma_async.sp``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import tvm
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.script.ir_builder import IRBuilder
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, IntImm

from warploom.errors import IllegalCombination
from warploom.target.wgmma import WGMMA_M, WgmmaKind

#: The dtype of metadata in memory.
METADATA = "uint8"
#: Bytes of a row that the registers of four threads hold.
_GROUP_BYTES = 8
_FILLED = (
    "unsigned int some = word | word >> 1; some |= some >> 2; "
    "return word | (~some & 0x11111111u) << 2;"
)
_FUNCTIONS = {
    "warploom_metadata_rows": (
        "const void* first, const void* second",
        "unsigned int word = *(const unsigned short*)first "
        "| (unsigned int)*(const unsigned short*)second << 16; ",
    ),
    "warploom_metadata_word": ("const void* at", "unsigned int word = *(const unsigned int*)at; "),
}


@dataclass(frozen=True)
class Metadata:
    """Metadata of A in shared memory: rows of a matrix of bytes.

    Attributes
    ----------
    buffer : Buffer
    rows, columns : int
        Extents of the region; rows count those of all warpgroups.
    lead : tuple of Expr
        Indices before the last two.
    row, column : Expr
        Where the region begins.
    """

    buffer: Buffer
    rows: int
    columns: int
    lead: tuple[Any, ...]
    row: Any
    column: Any

    def from_row(self, row: Any) -> Self:
        """The metadata of the rows from ``row`` on."""
        return replace(self, row=self.row + row)

    def load(self, kind: WgmmaKind, blocks: int, steps: int) -> Registers:
        """Load the metadata of ``blocks`` of 64 rows and ``steps`` of K; emits the statements."""
        groups = -(-steps // kind.selectors)
        words = T.alloc_buffer((blocks * groups,), "uint32", scope="local")
        IRBuilder.name("metadata", words)
        lane, warp = T.truncmod(T.thread_id(), 32), T.truncmod(T.truncdiv(T.thread_id(), 32), 4)
        pair = T.truncdiv(lane, 4)
        for block in range(blocks):
            row = block * WGMMA_M + warp * 16 + pair
            for group in range(groups):
                start = group * _GROUP_BYTES
                if kind.selectors == 1:
                    at = self._place(row + T.truncmod(lane, 2) * 8,
                                     start + T.truncmod(T.truncdiv(lane, 2), 2) * 4)  # fmt: skip
                    value = _call("warploom_metadata_word", at)
                else:
                    # The threads of the second selector have nothing behind the last of them.
                    holders = 2 * min(kind.selectors, steps - group * kind.selectors)
                    column = start + T.truncmod(lane, holders) * 2
                    places = (self._place(row + 8 * half, column) for half in range(2))
                    value = _call("warploom_metadata_rows", *places)
                T.buffer_store(words, value, [block * groups + group])
        return Registers(words, groups, kind.selectors)

    def _place(self, row: Any, column: Any) -> Any:
        return self.buffer.ptr_to([*self.lead, self.row + row, self.column + column])


@dataclass(frozen=True)
class Registers:
    """The registers of a thread: ``groups`` of instructions along K for each 64 rows."""

    words: Buffer
    groups: int
    selectors: int

    def operands(self, block: int, step: int) -> tuple[Any, int]:
        """``sp-meta`` and ``sp-sel`` of one instruction."""
        return self.words[block * self.groups + step // self.selectors], step % self.selectors


def _call(name: str, *places: Any) -> Any:
    parameters, loads = _FUNCTIONS[name]
    source = (
        f"__forceinline__ __device__ unsigned int {name}({parameters}) {{ {loads}{_FILLED} }}"
    )
    return T.cuda.func_call(name, *places, source_code=source, return_type="uint32")


def read_metadata(region: TensorRegion, kind: WgmmaKind, analyzer: Analyzer) -> Metadata:
    """The metadata of a call, or a decline.

    Raises
    ------
    IllegalCombination
        If it is not row-major bytes in shared memory, or does not begin at a step of K.
    """
    buffer = region.source
    if not buffer.scope().startswith("shared") or str(buffer.dtype) != METADATA:
        raise IllegalCombination(
            f"wgmma: the metadata of A is {buffer.dtype} in scope '{buffer.scope()}'; it must be "
            f"{METADATA} in shared memory, as warploom.sparse.compress makes it."
        )
    extents = [analyzer.simplify(part.extent) for part in region.region]
    starts = [part.min for part in region.region]
    matrix = len(extents) >= 2 and all(isinstance(e, IntImm) for e in extents)
    if not matrix or any(int(e) != 1 for e in extents[:-2]):
        raise IllegalCombination(
            f"wgmma: the metadata of A must be a matrix of constant extents, got {extents}; index "
            "its leading dimensions with one value each."
        )
    rows, columns = (int(e) for e in extents[-2:])
    column = starts[-1]
    if not analyzer.can_prove_equal(tvm.tirx.floormod(column, kind.metadata_bytes), 0):
        raise IllegalCombination(
            f"wgmma: the first column of A's metadata = {column} is not provably a multiple of "
            f"{kind.metadata_bytes}, its bytes for one step of K."
        )
    if int(buffer.shape[-1]) % kind.metadata_bytes:
        raise IllegalCombination(
            f"wgmma: rows of A's metadata have {buffer.shape[-1]} bytes, no multiple of "
            f"{kind.metadata_bytes}, those of one step of K; pad K with zeros."
        )
    return Metadata(buffer, rows, columns, tuple(starts[:-2]), starts[-2], column)

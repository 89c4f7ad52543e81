"""Loads of a thread: words, 16 bytes at a time, for elements that it needs of a tile or a matrix.

A nest reads element after element. A thread needs each only once, and where it needs neighbours,
one instruction brings them: 4 words instead of one byte. All loads of a nest come before its
arithmetic, so that their latencies overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, Stmt
from tvm.tirx.layout import S, TileLayout

from warploom.errors import IllegalCombination
from warploom.intrin import half_pairs
from warploom.layout.smem_matrix import CHUNK_BYTES, SharedMatrix
from warploom.target import Major
from warploom.tile import ir
from warploom.tile.scopes import is_global, is_shared

_WORD_BYTES = 4
Offsets = tuple[int, ...]


@dataclass(frozen=True)
class Place:
    """Where an element is: the word, and its first bit there."""

    word: Any
    bit: int


@dataclass(frozen=True)
class Memory:
    """Where words are loaded from.

    Attributes
    ----------
    holds : callable
        Whether a buffer is there.
    has_chunks : callable
        Whether 16 bytes of a buffer's row that begin at a multiple of 16 lie together.
    load : callable
        The call that loads bytes into words: (words, address, bytes).
    """

    holds: Callable[[Buffer], bool]
    has_chunks: Callable[[Buffer], bool]
    load: Callable[[list[Any], Any, int], Any]


class LoadedWords:
    """The elements of shared or global memory that one thread reads.

    Parameters
    ----------
    value : Expr
        What reads them, such as the values that a nest stores.
    elements : list of Element
        One for each register of the thread: ``expression`` places a load.
    analyzer : Analyzer
        Ranges of the variables.
    memory : Memory
        Loads from elsewhere stay as they are.

    Attributes
    ----------
    buffers : list of Buffer
        Registers for the words.
    loads : list of Stmt
        The statements that fill them.
    """

    def __init__(
        self, value: Any, elements: list[Any], analyzer: Analyzer, memory: Memory | None = None
    ) -> None:
        self._analyzer, self._memory = analyzer, memory or SHARED
        self._sites: list[tuple[TensorLoad, list[Place]]] = []
        self.buffers: list[Buffer] = []
        self.loads: list[Stmt] = []
        sites = list(self._loads_of(value))
        for buffer in dict.fromkeys(site.source for site in sites):
            own = [site for site in sites if site.source.same_as(buffer)]
            self._add(buffer, own, elements)

    @property
    def statements(self) -> list[Stmt]:
        """The registers and the loads."""
        return [*map(tirx.AllocBuffer, self.buffers), *self.loads]

    def of(self, load: TensorLoad, register: int) -> Place | None:
        """Where the element is that a load means for a register; None if it stays a load."""
        for site, places in self._sites:
            if tvm_ffi.structural_equal(site, load):
                return places[register]
        return None

    def _add(self, buffer: Buffer, sites: list[TensorLoad], elements: list[Any]) -> None:
        if str(buffer.dtype) == "bool" or tvm.DataType(str(buffer.dtype)).bits not in (8, 16, 32):
            return
        placed = [[element.expression(site) for element in elements] for site in sites]
        first = placed[0][0]
        offsets = [[self._distance(first, load) for load in row] for row in placed]
        if any(offset is None for row in offsets for offset in row):
            return
        needed = {o: load for row, at in zip(placed, offsets, strict=True)
                  for load, o in zip(row, at, strict=True)}  # fmt: skip
        vectors = list(self._vectors(first, sorted(needed)))
        size = tvm.DataType(str(buffer.dtype)).bits // 8
        counts = [max(1, len(vector) * size // _WORD_BYTES) for vector in vectors]
        words = tirx.decl_buffer(
            (sum(counts),), "uint32", f"{buffer.name}_words", scope="local",
            layout=TileLayout(S[(sum(counts),)]),
        )  # fmt: skip
        self.buffers.append(words)
        where: dict[Offsets, Place] = {}
        start = 0
        for vector, count in zip(vectors, counts, strict=True):
            load = needed[vector[0]]
            own = [words[start + i] for i in range(count)]
            address = ir.address(load.source, *load.indices)
            self.loads.append(ir.evaluate(self._memory.load(own, address, len(vector) * size)))
            for number, offset in enumerate(vector):
                word, byte = divmod(number * size, _WORD_BYTES)
                where[offset] = Place(words[start + word], byte * 8)
            start += count
        self._sites += [
            (site, [where[o] for o in row]) for site, row in zip(sites, offsets, strict=True)
        ]

    def _distance(self, first: TensorLoad, second: TensorLoad) -> Offsets | None:
        """Indices of a load less those of the first, if these are numbers."""
        distances = []
        for a, b in zip(second.indices, first.indices, strict=True):
            distance = 0 if a.same_as(b) else self._analyzer.simplify(a - b)
            if not isinstance(distance, (int, tirx.IntImm)):
                return None
            distances.append(int(distance))
        return tuple(distances)

    def _vectors(self, first: TensorLoad, needed: list[Offsets]) -> Iterator[list[Offsets]]:
        """The elements, in groups that one instruction loads; the widest groups first."""
        size = tvm.DataType(str(first.source.dtype)).bits // 8
        length = CHUNK_BYTES // size if self._memory.has_chunks(first.source) else 1
        left = dict.fromkeys(needed)
        while length > 1:
            for start in needed:
                group = [(*start[:-1], start[-1] + i) for i in range(length)]
                if all(load in left for load in group) and self._aligned(first, start, length):
                    for load in group:
                        del left[load]
                    yield group
            length //= 2
        for load in left:
            yield [load]

    def _loads_of(self, value: Any) -> Iterator[TensorLoad]:
        """Loads from this memory, each once."""
        loads: list[TensorLoad] = []

        def visit(load: TensorLoad) -> None:
            if (
                ir.is_buffer(load.source)
                and self._memory.holds(load.source)
                and not any(tvm_ffi.structural_equal(load, known) for known in loads)
            ):
                loads.append(load)

        tvm_ffi.structural_walk(value, (TensorLoad, visit))
        return iter(loads)

    def _aligned(self, first: TensorLoad, start: Offsets, length: int) -> bool:
        column = first.indices[-1] + start[-1]
        return self._analyzer.can_prove(tirx.FloorMod(column, ir.as_expr(length)) == 0)


def _has_whole_rows(buffer: Buffer) -> bool:
    """Whether rows are a known number of whole 16 bytes."""
    size, row = tvm.DataType(str(buffer.dtype)).bits // 8, buffer.shape[-1]
    return isinstance(row, tirx.IntImm) and int(row) * size % CHUNK_BYTES == 0


def has_chunks(buffer: Buffer) -> bool:
    """Whether 16 bytes of a row that begin at a multiple of 16 lie together."""
    if not _has_whole_rows(buffer):
        return False
    plain = tirx.decl_buffer(buffer.shape, str(buffer.dtype), scope=buffer.scope())
    if buffer.layout is None or tvm_ffi.structural_equal(buffer.layout, plain.layout):
        return True
    try:
        SharedMatrix.from_buffer(buffer, Major.K)
    except IllegalCombination:
        return False
    return True


#: Shared tiles, swizzled or not.
SHARED = Memory(is_shared, has_chunks, half_pairs.load)
#: Matrices in global memory.
GLOBAL = Memory(is_global, _has_whole_rows, half_pairs.load)

"""Loads of shared tiles in a nest: each thread loads words, 16 bytes at a time.

A nest reads element after element. A thread needs each only once, and where it needs neighbours,
one instruction brings them: 4 words instead of one byte. All loads of a nest come before its
arithmetic, so that their latencies overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from warploom.tile.scopes import is_shared

_WORD_BYTES = 4
Offsets = tuple[int, ...]


@dataclass(frozen=True)
class Place:
    """Where an element is: the word, and its first bit there."""

    word: Any
    bit: int


class SharedWords:
    """The shared elements that one thread reads in a nest.

    Parameters
    ----------
    value : Expr
        The values that the nest stores.
    elements : list of Element
        One for each register of the thread.
    """

    def __init__(self, value: Any, elements: list[Any], analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        self._sites: list[tuple[TensorLoad, list[Place]]] = []
        self.statements: list[Stmt] = []
        sites = list(_shared_loads(value))
        for buffer in dict.fromkeys(site.source for site in sites):
            own = [site for site in sites if site.source.same_as(buffer)]
            self._add(buffer, own, elements)

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
        self.statements.append(tirx.AllocBuffer(words))
        where: dict[Offsets, Place] = {}
        start = 0
        for vector, count in zip(vectors, counts, strict=True):
            load = needed[vector[0]]
            own = [words[start + i] for i in range(count)]
            address = ir.address(buffer, *load.indices)
            self.statements.append(ir.evaluate(half_pairs.load(own, address, len(vector) * size)))
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
        length = CHUNK_BYTES // size if has_chunks(first.source) else 1
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

    def _aligned(self, first: TensorLoad, start: Offsets, length: int) -> bool:
        column = first.indices[-1] + start[-1]
        return self._analyzer.can_prove(tirx.FloorMod(column, ir.as_expr(length)) == 0)


def _shared_loads(value: Any) -> Iterator[TensorLoad]:
    """Loads from shared tiles, each once."""
    loads: list[TensorLoad] = []

    def visit(load: TensorLoad) -> None:
        if (
            ir.is_buffer(load.source)
            and is_shared(load.source)
            and not any(tvm_ffi.structural_equal(load, known) for known in loads)
        ):
            loads.append(load)

    tvm_ffi.structural_walk(value, (TensorLoad, visit))
    return iter(loads)


def has_chunks(buffer: Buffer) -> bool:
    """Whether 16 bytes of a row that begin at a multiple of 16 lie together."""
    size = tvm.DataType(str(buffer.dtype)).bits // 8
    if int(buffer.shape[-1]) * size % CHUNK_BYTES:
        return False
    plain = tirx.decl_buffer(buffer.shape, str(buffer.dtype), scope=buffer.scope())
    if buffer.layout is None or tvm_ffi.structural_equal(buffer.layout, plain.layout):
        return True
    try:
        SharedMatrix.from_buffer(buffer, Major.K)
    except IllegalCombination:
        return False
    return True

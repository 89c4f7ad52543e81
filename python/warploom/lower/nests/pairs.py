"""16-bit arithmetic of a nest in pairs: one instruction for two neighbouring registers.

A register of a thread holds two 16-bit elements, and the GPU adds and multiplies both at once. A
nest whose element is a sum or a product of 16-bit numbers becomes such instructions on whole
words. Values that a nest converts from integers, such as weights of 4 bits, never passes through
conversions of one element (:mod:`warploom.lower.nests.integers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.ir.prim import expr as prim
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Stmt, Var

from warploom.intrin import half_pairs
from warploom.lower.nests.elements import Element, in_pairs, narrowed
from warploom.lower.nests.integers import Windows, as_pair, is_integer, permute
from warploom.lower.nests.loads import LoadedWords, Place
from warploom.ops.register_tile import RegisterTile
from warploom.tile import ir
from warploom.tile.nest import Binding, ElementStore, Part
from warploom.tile.scopes import is_shared, is_tile

_OPERATIONS = {prim.Add: "add", prim.Sub: "sub", prim.Mul: "mul"}


def paired_store(parts: Sequence[Part], tile: RegisterTile) -> ElementStore | None:
    """The store that a nest consists of, if pairs of its elements are computed together."""
    store = inlined(parts)
    if store is None or store.buffer.scope() != "local" or not in_pairs(tile):
        return None
    value, dtype = store.value, str(store.buffer.dtype)
    if dtype not in half_pairs.PAIRS or str(value.ty.dtype) != dtype:
        return None
    arithmetic = type(value) in _OPERATIONS
    return store if arithmetic or _is_conversion(value) else None


def inlined(parts: Sequence[Part]) -> ElementStore | None:
    """Return the only store of a nest, with the values of variables in their place."""
    table: dict[Var, Any] = {}
    *bindings, last = parts
    for binding in bindings:
        if not isinstance(binding, Binding):
            return None
        table[binding.variable] = ir.substitute(binding.value, table)
    if not isinstance(last, ElementStore):
        return None
    return ElementStore(ir.substitute(last.raw, table))


def in_words(store: ElementStore, elements: list[Element], analyzer: Analyzer) -> list[Stmt]:
    """A nest on all registers of a thread: its loads, then its arithmetic.

    Parameters
    ----------
    store : ElementStore
        The result of :func:`paired_store`.
    elements : list of Element
        One for each register, in order.
    """
    shared = LoadedWords(store.value, elements, analyzer)
    statements = list(shared.statements)
    for register in range(0, len(elements), 2):
        low = elements[register]
        pair = Pair(low, elements[register + 1], register, shared, analyzer, statements)
        words = low.context.registers(store.buffer, "uint32")
        number = low.number(store.buffer, store.indices)
        value = pair.word(store.value)
        statements.append(tirx.BufferStore(words, value, [number // 2]))
    return statements


def _is_conversion(value: Any) -> bool:
    return isinstance(value, prim.Cast) and is_integer(value.value)


@dataclass(frozen=True)
class Pair:
    """Two neighbouring registers; a value of both is a word.

    Attributes
    ----------
    low, high : Element
    register : int
        The number of the lower one.
    loaded : LoadedWords
        Elements that are in registers already.
    """

    low: Element
    high: Element
    register: int
    loaded: LoadedWords
    analyzer: Analyzer
    #: Statements that have to come before.
    statements: list[Stmt]

    def word(self, value: Any) -> Any:
        """The value of a 16-bit expression in both."""
        dtype = str(value.ty.dtype)
        if type(value) in _OPERATIONS:
            exact = self._integers(value, dtype)
            if exact is not None:
                return exact
            operands = [self.word(value.a), self.word(value.b)]
            return half_pairs.arithmetic(_OPERATIONS[type(value)], dtype, *operands)
        if isinstance(value, prim.FloatImm):
            return half_pairs.both(dtype, float(value), float(value))
        if isinstance(value, TensorLoad):
            return self._load(value)
        if isinstance(value, prim.Cast):
            exact = self._integers(value, dtype)
            if exact is not None:
                return exact
            if str(value.value.ty.dtype) == "float32":
                return half_pairs.convert(
                    dtype, self.low.expression(value.value), self.high.expression(value.value)
                )
        return self._one_by_one(value)

    def _one_by_one(self, value: Any) -> Any:
        before, value = narrowed(value, [self.low, self.high])
        self.statements.extend(before)
        halves = [_bits(half.expression(value)) for half in (self.low, self.high)]
        return permute(*halves, half_pairs.LOW_HALVES)

    def _load(self, load: TensorLoad) -> Any:
        """Two elements of a tile, taken from words that are in registers already."""
        low, high = (self.loaded.of(load, self.register + i) for i in range(2))
        if low is None or high is None:
            own = is_tile(load.source) and not is_shared(load.source)
            return self._register(load) if own else self._one_by_one(load)
        if tvm_ffi.structural_equal(low.word, high.word) and (low.bit, high.bit) == (0, 16):
            return low.word
        return permute(low.word, high.word, _half(low.bit) | _half(high.bit + 32) << 8)

    def _register(self, load: TensorLoad) -> Any:
        source = load.source
        first, second = (half.number(source, load.indices) for half in (self.low, self.high))
        if first % 2 or second != first + 1:
            return self._one_by_one(load)
        return self.low.context.registers(source, "uint32")[first // 2]

    def _integers(self, value: Any, dtype: str) -> Any | None:
        """A converted integer, plus or less a constant, if it lies in a word."""
        offset = 0
        if type(value) in (prim.Add, prim.Sub) and isinstance(value.b, prim.FloatImm):
            number = float(value.b)
            if not number.is_integer():
                return None
            value, offset = value.a, int(number) * (1 if isinstance(value, prim.Add) else -1)
        if not _is_conversion(value):
            return None
        value = value.value
        while type(value) in (prim.Add, prim.Sub) and isinstance(value.b, prim.IntImm):
            if tvm.DataType(str(value.ty.dtype)) != tvm.DataType("int32"):
                return None
            offset += int(value.b) * (1 if isinstance(value, prim.Add) else -1)
            value = value.a
        both = [
            Windows(lambda load, at=at: self._place(load, at), half.expression, self.analyzer)
            for at, half in enumerate((self.low, self.high))
        ]
        low, high = (windows.of(value) for windows in both)
        if low is None or high is None:
            return None
        return as_pair(low, high, offset, dtype, both[0].simple)

    def _place(self, load: TensorLoad, at: int) -> Place | None:
        return self.loaded.of(load, self.register + at)


def _bits(value: Any) -> Any:
    """A 16-bit number as the low half of a word."""
    return T.Cast("uint32", T.reinterpret("uint16", value))


def _half(bit: int) -> int:
    """The part of a selector that chooses the half that begins at a bit of two words."""
    byte = bit // 8
    return byte | byte + 1 << 4

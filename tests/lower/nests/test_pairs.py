"""16-bit arithmetic in pairs: bit for bit what the interpreter defines, from few instructions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from tests.shared.lowered_programs import run
from tests.shared.machine_code import listing_of, needs_disassembler
from tests.shared.tile_programs.case import numpy_dtype, random_values
from warploom import language as wl
from warploom.language.builtins.values import numpy_of
from warploom.layout.weight_order import WEIGHT_ORDERS, pack_weights
from warploom.lower.lowerings import lower

ROWS, COLUMNS, GROUP = 64, 128, 32


@dataclass(frozen=True)
class Stored:
    """How integers lie in a shared tile, and how a nest gets at them.

    Attributes
    ----------
    dtype : str
        Of the tile, which has ``columns`` of them in a row.
    value : callable
        ``value(tile, y, x, dtype)``: the number as a 16-bit float.
    """

    dtype: str
    columns: int
    value: Callable[[Any, Any, Any, str], Any]


def field(word: Any, shift: Any, bits: int, kind: str) -> Any:
    """``bits`` of a word, as an int32; the word is unsigned, signed, or cast to int32 first."""
    if kind == "uint32":
        masked = word >> T.cast(shift, "uint32") & T.uint32(2**bits - 1)
        return T.cast(masked, "int32")
    return (T.cast(word, "int32") >> shift) & (2**bits - 1)


def words(bits: int, kind: str = "uint32", order: str = "natural", offset: int = 0) -> Stored:
    """Integers of a few bits in words of 32."""

    def value(tile: Any, y: Any, x: Any, dtype: str) -> Any:
        at, shift = (
            WEIGHT_ORDERS[order](x, bits)
            if order == "fragments"
            else (x // (32 // bits), x % (32 // bits) * bits)
        )
        return T.cast(field(tile[y, at], shift, bits, kind) - offset, dtype)

    return Stored(kind, COLUMNS * bits // 32, value)


def nibbles(odd_first: bool) -> Stored:
    """Two integers of a byte."""

    def value(tile: Any, y: Any, x: Any, dtype: str) -> Any:
        shift = (1 - x % 2 if odd_first else x % 2) * 4
        return T.cast(field(tile[y, x // 2], shift, 4, "byte") - 8, dtype)

    return Stored("uint8", COLUMNS // 2, value)


def converted(kind: str, offset: int = 0) -> Stored:
    """One integer an element."""

    def value(tile: Any, y: Any, x: Any, dtype: str) -> Any:
        return T.cast(T.cast(tile[y, x], "int32") - offset, dtype)

    return Stored(kind, COLUMNS, value)


def float_offset() -> Stored:
    """The zero point is subtracted from the 16-bit float."""

    def value(tile: Any, y: Any, x: Any, dtype: str) -> Any:
        nibble = field(tile[y, x // 8], x % 8 * 4, 4, "uint32")
        return T.cast(nibble, dtype) - T.cast(T.float32(7), dtype)

    return Stored("uint32", COLUMNS // 8, value)


STORED = {
    "int4, even first": nibbles(False),
    "int4, odd first": nibbles(True),
    "int4 in words": words(4, offset=8),
    "int4 in signed words": words(4, "int32", offset=8),
    "int4 in fragments": words(4, order="fragments", offset=8),
    "int4 in fragments of signed words": words(4, "int32", "fragments"),
    "int4 with a float offset": float_offset(),
    "int2": words(2, offset=1),
    "int8 in words": words(8, offset=128),
    "int8 in fragments": words(8, order="fragments", offset=128),
    "int8": converted("int8"),
    "uint8 less 128": converted("uint8", 128),
    "int8 plus 7": converted("int8", -7),
    "uint16, which rounds": converted("uint16"),
    "int8 with an offset that rounds": converted("int8", 3001),
}


def dequantise(stored: Stored, dtype: str) -> PrimFunc:
    """C = integers * scale, with a scale for a row and ``GROUP`` columns."""

    @T.prim_func
    def program(
        W: T.Buffer((ROWS, stored.columns), stored.dtype),
        S: T.Buffer((COLUMNS // GROUP, ROWS), dtype),
        C: T.Buffer((ROWS, COLUMNS), dtype),
    ):
        T.device_entry()
        wl.hints(specialise=True)  # in the fragment of an MMA
        T.cta_id([1])
        W_s = T.alloc_buffer((ROWS, stored.columns), stored.dtype, scope="shared")
        S_s = T.alloc_buffer((COLUMNS // GROUP, ROWS), dtype, scope="shared")
        out = T.alloc_buffer((ROWS, COLUMNS), dtype, scope="fragment")
        Tx.cta.copy_async(W_s, W[0:ROWS, 0 : stored.columns])
        Tx.cta.copy_async(S_s, S[0 : COLUMNS // GROUP, 0:ROWS])
        for y, x in T.grid(ROWS, COLUMNS):
            out[y, x] = stored.value(W_s, y, x, dtype) * S_s[x // GROUP, y]
        Tx.cta.copy(C[0:ROWS, 0:COLUMNS], out)

    return program


def random_bits(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    kind = np.dtype(dtype)
    return rng.integers(0, 256, (*shape[:-1], shape[-1] * kind.itemsize), np.uint8).view(kind)


def same_bits(func: PrimFunc, arguments: list[Any]) -> np.ndarray:
    """The result of the kernel, which is that of the interpreter to the last bit."""
    dtype = numpy_of(str(func.params[-1].ty.dtype))
    arguments.append(np.full((ROWS, COLUMNS), np.nan).astype(dtype))
    result = run(lower(func), arguments)[-1]
    wl.interpret(func, arguments)
    assert np.array_equal(result.view(np.uint16), arguments[-1].view(np.uint16))
    return result


def cases() -> list:
    """All for float16; for bfloat16 every run those that it treats in another way."""
    different = ("int4, odd first", "int4 in words", "int8", "int8 with an offset that rounds")
    return [
        pytest.param(
            name, dtype, id=f"{name}, {dtype}",
            marks=[pytest.mark.slow] * (dtype == "bfloat16" and name not in different),
        )
        for name in STORED
        for dtype in ("float16", "bfloat16")
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype"), cases())
@pytest.mark.some(5)
def test_integers_become_exactly_the_floats_they_are(name, dtype, rng):
    stored = STORED[name]
    scale = rng.uniform(-2, 2, (COLUMNS // GROUP, ROWS)).astype(numpy_dtype(dtype))
    data = random_bits(rng, (ROWS, stored.columns), stored.dtype)
    result = same_bits(dequantise(stored, dtype), [data, scale])
    assert np.unique(result).size > COLUMNS


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("order", WEIGHT_ORDERS)
def test_packed_weights_come_back(bits, order, rng):
    half = 2 ** (bits - 1)
    weights = rng.integers(-half, half, (ROWS, COLUMNS))
    scale = np.ones((COLUMNS // GROUP, ROWS), np.float16)
    program = dequantise(words(bits, order=order, offset=half), "float16")
    packed = pack_weights(weights, bits, order)
    assert np.array_equal(same_bits(program, [packed, scale]), weights)


@pytest.mark.parametrize(
    ("weights", "order", "message"),
    [
        (np.full((1, 128), 8), "natural", "Weights of 4 bits are -8 to 7"),
        (np.zeros((1, 64), int), "fragments", "wants multiples of 128, so pad them"),
        (np.zeros((1, 4), int), "natural", "wants multiples of 8, so pad them"),
    ],
)
def test_weights_that_cannot_be_packed(weights, order, message):
    with pytest.raises(ValueError, match=message):
        pack_weights(weights, 4, order)


def instructions(name: str, dtype: str = "float16") -> dict[str, int]:
    """How often each device function of the nest is called, for 64 elements of a thread."""
    text = lower(dequantise(STORED[name], dtype)).script()
    calls = re.findall(r'func_call\("warploom_(\w+)"', text)
    return {call: calls.count(call) for call in calls}


def test_a_thread_loads_and_computes_whole_words():
    pairs = ROWS * COLUMNS // 128 // 2
    for name, words_read in (
        ("int4 in fragments", 8), ("int8 in fragments", 16), ("int4 in words", 32)
    ):  # fmt: skip
        found = instructions(name)
        assert 2 * found.get("load_8", 0) + 4 * found.get("load_16", 0) == words_read, name
        # Scales of 2 rows and 4 groups.
        assert found["load_2"] == 2 * COLUMNS // GROUP and "load_4" not in found, name
        assert found["mul_f16x2"] == pairs, name
        assert found.get("add_f16x2", 0) + found.get("fma_f16x2", 0) == pairs, name
        assert "cvt_f16x2" not in found, name
    # Seven bits of a bfloat16 have no room for eight: these pass through float32.
    assert instructions("int8", "bfloat16")["cvt_bf16x2"] == pairs
    # A whole byte is taken by its number: nothing is shifted.
    for name in ("int8", "uint8 less 128", "int8 in words"):
        assert all("insert" not in instructions(name, one) for one in ("float16", "bfloat16"))
    # A product of numbers that have to be rounded first is no conversion of a window.
    assert "add_f16x2" not in instructions("uint16, which rounds")


@needs_disassembler
def test_factors_are_not_copied_for_each_pair():
    listing = listing_of(lower(dequantise(STORED["int4 in words"], "float16")), "tirx")
    assert listing.count("HFMA2") >= ROWS * COLUMNS // 128 // 2
    # Of integers in the lowest bits, and of those four above.
    factors = int(np.array([1, 1 / 16], np.float16).view(np.uint32)[0])
    assert 1 <= listing.count(f"{factors:#x}") <= 2


def arithmetic(dtype: str, direct: bool) -> PrimFunc:
    """Sums and products of tiles in registers and in shared memory, a vector and constants."""

    @T.prim_func
    def program(
        A: T.Buffer((ROWS, COLUMNS), dtype), B: T.Buffer((ROWS, COLUMNS), dtype),
        V: T.Buffer((COLUMNS,), dtype), C: T.Buffer((ROWS, COLUMNS), dtype),
    ):  # fmt: skip
        T.device_entry()
        wl.hints(specialise=True)  # in the fragment of an MMA
        T.cta_id([1])
        A_s = T.alloc_buffer((ROWS, COLUMNS), dtype, scope="shared")
        B_s = T.alloc_buffer((ROWS, COLUMNS), dtype, scope="shared")
        a = T.alloc_buffer((ROWS, COLUMNS), dtype, scope="fragment")
        wide = T.alloc_buffer((ROWS, COLUMNS), "float32", scope="fragment")
        out = T.alloc_buffer((ROWS, COLUMNS), dtype, scope="fragment")
        Tx.cta.copy_async(A_s, A[0:ROWS, 0:COLUMNS])
        Tx.cta.copy_async(B_s, B[0:ROWS, 0:COLUMNS])
        for y, x in T.grid(ROWS, COLUMNS):
            a[y, x] = A_s[y, x]
        for y, x in T.grid(ROWS, COLUMNS):
            wide[y, x] = T.cast(B_s[ROWS - 1 - y, x], "float32") * T.float32(1.7)
        for y, x in T.grid(ROWS, COLUMNS):
            product: T.let = a[y, x] * B_s[y, COLUMNS - 1 - x]
            shifted: T.let = T.cast(wide[y, x], dtype) - (V[x] if direct else V[y])
            out[y, x] = (product + shifted) * T.cast(T.float32(3), dtype)
        Tx.cta.copy(C[0:ROWS, 0:COLUMNS], out)

    return program


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.some(1)
def test_every_operation_rounds(dtype, direct, rng):
    inputs = [random_values(rng, s, dtype) for s in ((ROWS, COLUMNS),) * 2 + ((COLUMNS,),)]
    result = same_bits(arithmetic(dtype, direct), inputs)
    assert np.isfinite(result.astype(np.float32)).all()
    calls = re.findall(r'func_call\("warploom_(\w+)"', lower(arithmetic(dtype, direct)).script())
    pair = {"float16": "f16x2", "bfloat16": "bf16x2"}[dtype]
    assert calls.count(f"mul_{pair}") == 2 * calls.count(f"sub_{pair}") == 64
    assert ml_dtypes.finfo(result.dtype).bits == 16


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_neighbours_in_shared_memory_are_words_as_they_are(dtype, rng):
    @T.prim_func
    def program(
        A: T.Buffer((ROWS, COLUMNS), dtype), B: T.Buffer((ROWS, COLUMNS), dtype),
        C: T.Buffer((ROWS, COLUMNS), dtype),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((ROWS, COLUMNS), dtype, scope="shared")
        B_s = T.alloc_buffer((ROWS, COLUMNS), dtype, scope="shared")
        out = T.alloc_buffer((ROWS, COLUMNS), dtype, scope="fragment")
        Tx.cta.copy_async(A_s, A[0:ROWS, 0:COLUMNS])
        Tx.cta.copy_async(B_s, B[0:ROWS, 0:COLUMNS])
        for y, x in T.grid(ROWS, COLUMNS):
            out[y, x] = A_s[y, x] * B_s[y, x]
        Tx.cta.copy(C[0:ROWS, 0:COLUMNS], out)

    same_bits(program, [random_values(rng, (ROWS, COLUMNS), dtype) for _ in range(2)])
    calls = re.findall(r'func_call\("warploom_(\w+)"', lower(program).script())
    pair = {"float16": "f16x2", "bfloat16": "bf16x2"}[dtype]
    assert calls.count(f"mul_{pair}") == ROWS * COLUMNS // 128 // 2 and "prmt" not in calls


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_floats_are_narrowed_two_at_once(dtype, rng):
    @T.prim_func
    def program(A: T.Buffer((ROWS, COLUMNS), "float32"), C: T.Buffer((ROWS, COLUMNS), dtype)):
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((ROWS, COLUMNS), "float32", scope="shared")
        out = T.alloc_buffer((ROWS, COLUMNS), dtype, scope="fragment")
        Tx.cta.copy_async(A_s, A[0:ROWS, 0:COLUMNS])
        for y, x in T.grid(ROWS, COLUMNS):
            out[y, x] = T.cast(A_s[y, x] * T.float32(1.7), dtype)
        Tx.cta.copy(C[0:ROWS, 0:COLUMNS], out)

    same_bits(program, [random_values(rng, (ROWS, COLUMNS), "float32")])
    assert "T.ptx.cvt(" in lower(program).script()

"""``wl.print``: GPUs, the emulator and ``interpret`` print the same text."""

from __future__ import annotations

import re
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.language import print_programs
from tests.shared.lowered_programs import hinted, run
from warploom import emulator
from warploom import language as wl
from warploom.errors import Decline, LoweringWarning
from warploom.language.print_format import Format, formatted, kind_of
from warploom.language.values.dtypes import DTYPES
from warploom.lower.lowerings import lower
from warploom.target import cuda_target

pytestmark = pytest.mark.gpu
ALL = print_programs.POSITIONS[:4]


def by_cta(text: str) -> dict[str, list[str]]:
    """The lines of each CTA, whose coordinates they begin with, in their order."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        found.setdefault(" ".join(line.split()[:2]), []).append(line)
    return found


def agree(texts, func: Any, args: list[Any], arch: str, **hints: Any) -> int:
    """Compare the texts and the results of a program; gives the number of lines."""
    expected = [np.copy(one) for one in args]
    meant, _ = texts(lambda: wl.interpret(func, expected))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LoweringWarning)
        kernel = lower(hinted(func, **hints), arch)
    said, after = texts(lambda: run(kernel, args, arch))
    assert by_cta(said) == by_cta(meant)
    for got, wanted in zip(after, expected, strict=True):
        np.testing.assert_array_equal(got, wanted)
    return len(meant.splitlines())


# -- values ----------------------------------------------------------------------------------------


def extremes(rng: np.random.Generator, dtype: str, count: int) -> np.ndarray:
    """Limits, zeros, infinities and NaN of a dtype among random bits."""
    kind = DTYPES[dtype]
    if dtype == "bool":
        return rng.integers(0, 2, count).astype(bool)
    values = rng.integers(0, 256, count * kind.itemsize, np.uint8).view(kind).copy()
    limits = ml_dtypes.iinfo(kind) if kind.kind in "iu" else ml_dtypes.finfo(kind)
    chosen = [limits.min, limits.max, 1]
    if kind.kind not in "iu":
        chosen += [np.inf, -np.inf, np.nan, -np.nan, 0.0, -0.0, 3.14159, 1e-5, 999999.5]
    with np.errstate(all="ignore"):
        values[: len(chosen)] = np.array(chosen).astype(kind) if kind.kind not in "iu" else chosen
    return values


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.some(4)
def test_values_of_each_dtype(dtype, rng, texts):
    """By hand and in a tile program, with and without a form."""
    count = 20
    integer = dtype.startswith(("int", "uint"))
    form = "{:#06x} {:<22X}|" if integer else "{:+.9e} {:09.3f}"
    form = "{:<3d}|{:2}" if dtype == "bool" else form
    values = extremes(rng, dtype, count)

    @T.prim_func
    def by_hand(A: T.Buffer((count,), dtype)):
        T.device_entry()
        T.cta_id([1])
        T.thread_id([32])
        for i in range(count):
            wl.print("{} {:>24} " + form, A[i], A[i], A[i], A[i])

    @T.prim_func
    def tiles(A: T.Buffer((count,), dtype), B: T.Buffer((64, 32), dtype)):
        T.device_entry()
        T.cta_id([1])
        S = T.alloc_buffer((64, 32), dtype, scope="shared")
        for y, x in T.grid(64, 32):
            S[y, x] = A[x]
        for i in range(count):
            wl.print("{} {:>24} " + form, S[i, i], A[i], S[0, i], A[i])
        for y, x in T.grid(64, 32):
            B[y, x] = S[y, x]

    meant, _ = texts(lambda: wl.interpret(tiles, [values, np.zeros((64, 32), values.dtype)]))
    said, _ = texts(lambda: emulator.run(by_hand, [values]))
    assert said == meant
    said, _ = texts(lambda: run(lower(tiles), [values, np.zeros((64, 32), values.dtype)]))
    assert said == meant


def test_numbers_and_strings_of_python(texts):
    @T.prim_func
    def func(A: T.Buffer((4,), "float32")):
        T.device_entry()
        T.cta_id([1])
        T.thread_id([32])
        wl.print("100% {{{}}} \"é\" → \\ ? {} {} {} {:.17g} {:>5}|{}\tend\nnext 😀", -3, True,
                 2**40, 2**64 - 1, 0.1, "ab", "{}")  # fmt: skip
        wl.print(T.int8(-1), "text", 1.5, np.float32(0.5))
        wl.print("nothing else")
        wl.print("never", predicate=False)
        wl.print("nor this", predicate=0)
        wl.print("but this", predicate=1)

    text, _ = texts(lambda: emulator.run(func, [np.zeros(4, "float32")]))
    expected = (
        '100% {-3} "é" → \\ ? 1 1099511627776 18446744073709551615 0.10000000000000001    ab|{}'
        "\tend\nnext 😀\n-1 text 1.5 0.5\nnothing else\nbut this\n"
    )
    assert text == expected


@given(
    st.sampled_from(["int8", "uint16", "int32", "int64", "float32", "float64"]),
    st.sampled_from(["", "<", ">"]), st.booleans(), st.integers(0, 12), st.data(),
)  # fmt: skip
def test_forms_are_those_of_python(dtype, side, zero, width, data):
    """Where Python's ``format`` has the form, the text is Python's, but for infinities and NaN."""
    kind = kind_of(dtype)
    letter = data.draw(st.sampled_from(kind.letters))
    zeros = "0" if zero and not side and width else ""
    form = f"{side}{zeros}{width or ''}{letter}"
    if dtype.startswith("float"):
        value = data.draw(st.floats(allow_nan=False, allow_infinity=False))
    else:
        limits = np.iinfo(dtype)
        low = 0 if letter in "xX" else limits.min
        value = data.draw(st.integers(low, limits.max))
    side = side or ">"
    expected = format(value, form if zeros else side + form.lstrip("<>"))
    assert formatted(Format.parse("{:" + form + "}"), [(kind, 64, value)]) == expected


# -- kernels by hand -------------------------------------------------------------------------------


def test_threads_and_predicates(texts):
    @T.prim_func
    def func(A: T.Buffer((2, 64), "int32")):
        T.device_entry()
        cta = T.cta_id([2])
        thread = T.thread_id([64])
        wl.print("{} one {}", cta, thread)
        wl.print("{} given {}", cta, A[cta, thread], thread=37)
        wl.print("{} chosen {}", cta, thread, thread=cta + 40)
        wl.print("{} all {}", cta, thread, thread=None)
        wl.print("{} some {}", cta, thread, thread=None, predicate=A[cta, thread] % 16 == 3)
        if cta == 1:
            for i in range(3):
                wl.print("{} loop {}", cta, i, predicate=i != 1)

    data = np.arange(128, dtype="int32").reshape(2, 64)
    text, _ = texts(lambda: emulator.run(func, [data]))
    lines = text.splitlines()
    for cta in range(2):
        expected = [f"{cta} one 0", f"{cta} given {data[cta, 37]}", f"{cta} chosen {40 + cta}"]
        expected += [f"{cta} all {i}" for i in range(64)]
        expected += [f"{cta} some {i}" for i in range(64) if data[cta, i] % 16 == 3]
        expected += [f"{cta} loop {i}" for i in (0, 2)] if cta else []
        assert sorted(one for one in lines if one[0] == str(cta)) == sorted(expected)
        mine = [one for one in lines if re.match(f"{cta} (one|loop)", one)]
        assert mine == [one for one in expected if re.match(f"{cta} (one|loop)", one)]


def test_addresses(texts):
    @T.prim_func
    def func(A: T.Buffer((4,), "float32")):
        T.device_entry()
        T.cta_id([1])
        T.thread_id([32])
        wl.print("{} {:>20}", A.data, T.address_of(A[1]))

    text, _ = texts(lambda: emulator.run(func, [np.zeros(4, "float32")]))
    first, second = (int(one, 16) for one in text.split())
    assert second == first + 4


@pytest.mark.parametrize("pipeline", ["warploom", "tirx"])
def test_every_pipeline_makes_code_of_it(pipeline):
    @T.prim_func
    def func(A: T.Buffer((4,), "float32")):
        T.device_entry()
        T.cta_id([1])
        T.thread_id([32])
        wl.print("{}", A[0])

    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    executable = tvm.compile(module, cuda_target("sm_90a"), tir_pipeline=pipeline)
    source = executable.mod.imports[0].inspect_source()
    assert "warploom.print" not in source and "printf" in source


def test_a_printed_program_is_read_again():
    func = print_programs.gemm(ALL)
    again = tvm.script.from_source(func.script())
    tvm.ir.assert_structural_equal(func, again)


# -- tile programs ---------------------------------------------------------------------------------

ROLES, SIMPLE, BLACKWELL = ("sm_90a", {}), ("sm_90a", {"specialise": False}), ("sm_100a", {})


@pytest.mark.parametrize("way", [ROLES, SIMPLE, BLACKWELL], ids=["roles", "simple", "sm_100a"])
@pytest.mark.parametrize("extent", [0, 1, 3])
@pytest.mark.some(3)
def test_every_position_and_trip_count(way, extent, rng, texts):
    arch, hints = way
    func = print_programs.gemm(ALL, extent=extent)
    lines = agree(texts, func, print_programs.operands(rng, func), arch, **hints)
    assert lines == 4 * (3 + extent + 2 * (extent > 1))


@pytest.mark.parametrize(
    ("arch", "shape", "tile", "hints"),
    [
        ("sm_90a", (128, 128), (128, 64), {"consumers": 2}),
        ("sm_90a", (128, 128), (64, 64), {"cluster": (2, 1)}),
        ("sm_90a", (128, 128), (64, 64), {"persistent": False}),
        ("sm_90a", (128, 128), (64, 64), {"ping_pong": True}),
        ("sm_90a", (128, 128), (64, 64), {"slice_k": 2}),
        ("sm_100a", (256, 128), (128, 64), {"cluster": (2, 1)}),
        ("sm_100a", (128, 128), (128, 64), {"scheduler": "clc"}),
    ],
)
@pytest.mark.some(3)
def test_hints_do_not_change_the_text(arch, shape, tile, hints, rng, texts, grid_of):
    if hints.get("persistent", True) and "scheduler" not in hints:
        grid_of(1)  # several tiles for each CTA
    func = print_programs.gemm(ALL, shape=shape, tile=tile)
    assert agree(texts, func, print_programs.operands(rng, func), arch, **hints)


@pytest.mark.parametrize("hint", [{"split_k": 2}, {"stream_k": True}])
def test_sums_of_several_ctas_are_printed_behind_the_loop(hint, rng, texts):
    func = print_programs.gemm(("after",))
    assert agree(texts, func, print_programs.operands(rng, func), "sm_90a", **hint) == 8
    for where in ("before", "loop"):
        with pytest.raises(Decline, match=r"wl\.print stands before the loop .* behind the loop"):
            lower(hinted(print_programs.gemm((where,)), **hint))


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_vectors_scalars_and_places_from_memory(arch, rng, texts):
    """Fragments of one dimension, scalars, indices from memory and outside of global memory."""
    M, N, K = 128, 64, 32

    @T.prim_func
    def func(A: T.Buffer((M, K), "float16"), B: T.Buffer((N, K), "float16"),
             index: T.Buffer((4,), "int32"), C: T.Buffer((M,), "float32")):  # fmt: skip
        T.device_entry()
        i = T.cta_id([1])
        A_s = T.alloc_buffer((M, K), "float16", scope="shared")
        B_s = T.alloc_buffer((N, K), "float16", scope="shared")
        acc = T.alloc_buffer((M, N), "float32", scope="accumulator")
        row = T.alloc_buffer((M,), "float32", scope="fragment")
        Tx.cta.copy_async(A_s, A)
        Tx.cta.copy_async(B_s, B)
        Tx.cta.gemm_async(acc, A_s, B_s)
        Tx.cta.sum(row, acc, axes=1)
        place: T.int32 = index[0]
        for q in range(4):
            wl.print("{} 0 {}: {} {} {}", i, q, row[q * 37], row[index[q]], acc[place, index[q]])
        wl.print("{} 0 {} {}", i, index[place + 100], A_s[index[3], 0])
        wl.print("{} 0 {}", i, T.if_then_else(place < 0, row[0], -row[0]), predicate=row[3] > -1e9)
        for y in T.serial(M):
            C[y] = row[y]

    a, b = (rng.integers(-4, 5, shape).astype("float16") for shape in ((M, K), (N, K)))
    index = np.array([5, 63, 200, -1], "int32")
    args = [a, b, index, np.full(M, np.nan, "float32")]
    assert agree(texts, func, args, arch) == 6


def test_the_loading_thread_prints(rng, texts):
    """In ``wl.loading`` its order to other lines is open, its own is that of the program."""

    @T.prim_func
    def func(A: T.Buffer((256, 64), "float16"), B: T.Buffer((256, 64), "float16")):
        T.device_entry()
        i = T.cta_id([1])
        S = T.alloc_buffer((256, 64), "float16", scope="shared")
        full = wl.mbarrier.alloc(4)
        wl.mbarrier.init(full, 1)
        for k in T.serial(4):
            with wl.loading():
                wl.print("{} loads {} {}", i, k, A[k, 0], predicate=k != 2)
                wl.mbarrier.expect(full, k, 64 * 64 * 2)
                Tx.cta.copy_async(S[k * 64 : k * 64 + 64, :], A[k * 64 : k * 64 + 64, :],
                                  mbar=wl.mbarrier.address(full, k))  # fmt: skip
        for k in T.serial(4):
            wl.mbarrier.wait(full, k, 0)
            wl.print("{} reads {} {}", i, k, S[k * 64 + 1, k])
        for y, x in T.grid(256, 64):
            B[y, x] = S[y, x]

    args = [rng.integers(-9, 9, (256, 64)).astype("float16"), np.zeros((256, 64), "float16")]
    meant, _ = texts(lambda: wl.interpret(func, [np.copy(one) for one in args]))
    for hints in ({}, {"specialise": False}):
        said, _ = texts(lambda hints=hints: run(lower(hinted(func, **hints)), args))
        assert by_cta(said) == by_cta(meant)


@pytest.mark.parametrize("between", [True, False])
def test_a_stage_is_read_behind_its_loads(between, rng, texts):
    """Where the threads load themselves, what is read between loads is a ring of its own."""

    @T.prim_func
    def func(A: T.Buffer((192, 64), "float16"), rows: T.Buffer((3, 16), "int32"),
             B: T.Buffer((192, 64), "float16")):  # fmt: skip
        T.device_entry()
        i = T.cta_id([1])
        S = T.alloc_buffer((64, 64), "float16", scope="shared")
        I_s = T.alloc_buffer((1, 16), "int32", scope="shared")
        R = T.alloc_buffer((64, 64), "float16", scope="shared")
        for k in T.serial(3):
            Tx.cta.copy_async(I_s, rows[k : k + 1, :])
            wl.print("{} 0 {}", i, I_s[0, 2], predicate=between)
            Tx.cta.copy_async(S, A[k * 64 : k * 64 + 64, :])
            wl.print("{} 0 {} {}", i, I_s[0, 3], S[k, 0])
            for y, x in T.grid(64, 64):
                R[y, x] = S[y, x] + T.cast(I_s[0, 1], "float16")
            for y, x in T.grid(64, 64):
                B[k * 64 + y, x] = R[y, x]

    args = [rng.integers(-9, 9, (192, 64)).astype("float16")]
    args += [rng.integers(-9, 9, (3, 16)).astype("int32"), np.full((192, 64), np.nan, "float16")]
    for hints in ({}, {"specialise": False}):
        assert agree(texts, func, args, "sm_90a", **hints) == 3 + 3 * between


# -- tiles -----------------------------------------------------------------------------------------


def whole_tiles(scope, columns, dtype):
    """Prints a tile, regions of it, a vector and global memory, in a loop and behind it."""

    @T.prim_func
    def func(A: T.Buffer((2, 64, columns), dtype), C: T.Buffer((2, 64, columns), dtype)):
        T.device_entry()
        b = T.cta_id([2])
        x = T.alloc_buffer((64, columns), dtype, scope=scope)
        row = T.alloc_buffer((columns,), dtype, scope="fragment")
        for i, j in T.grid(64, columns):
            x[i, j] = A[b, i, j]
        for k in T.serial(2):
            Tx.cta.add(x, x, T.Cast(dtype, k + 1))
            wl.print("{} 0 step {}: {:>9.4f}|", b, k, x[62:64, k : k + 19])
        wl.print("{} 1 {} {}", b, A[b, 3, columns - 2 : columns], 5, predicate=A[0, 0, 0] > -9)
        wl.print("{} 2 {}", b, x, predicate=b == 1)
        Tx.cta.copy(row, A[b, 5, 0:columns])
        wl.print("{} 3 {}", b, row)
        Tx.cta.copy(C[b, 0:64, 0:columns], x)

    return func


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("scope", ["shared", "fragment"])
@pytest.mark.parametrize("columns", [24, 32, 37])
@pytest.mark.filterwarnings("ignore")
@pytest.mark.some(3)
def test_whole_tiles(columns, scope, arch, rng, texts):
    func = whole_tiles(scope, columns, "float32")
    a = rng.standard_normal((2, 64, columns)).astype(np.float32)
    lines = agree(texts, func, [a, np.full_like(a, np.nan)], arch)
    each = -(-columns // 16)
    assert lines == 2 * (2 * 2 * 2 + 1 + each) + 64 * each


def test_the_lines_of_a_tile(texts):
    @T.prim_func
    def func(A: T.Buffer((4, 20), "int32")):
        T.device_entry()
        T.cta_id([1])
        T.thread_id([32])
        wl.print("<{:>2}>", A[1:3, 1:19])

    values = np.arange(80, dtype=np.int32).reshape(4, 20)
    said, _ = texts(lambda: emulator.run(func, [values]))
    numbers = [" ".join(f"{n:>2}" for n in row) for row in
               (range(21, 37), range(37, 39), range(41, 57), range(57, 59))]  # fmt: skip
    places = ["1, 1:17", "1, 17:19", "2, 1:17", "2, 17:19"]
    assert said.splitlines() == [f"<A[{p}]: {n}>" for p, n in zip(places, numbers, strict=True)]

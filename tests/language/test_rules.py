"""Rules that the interpreter and every lowering share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.ir_builder import IRBuilder
from tvm.script.tirx import tile as Tx

from tests.shared.lowered_programs import run
from warploom import language as wl
from warploom.errors import Decline, TileProgramError
from warploom.lower.lowerings import lower
from warploom.tile.read import is_tile_program

ARCHS = ("sm_90a", "sm_100a")
M, N, K = 64, 64, 64
INDEX = ((M,), "int32")


def product(epilogue: Callable, rows: int = M, *parameters: tuple[tuple[int, ...], str]) -> Any:
    """A B^T in one step, and ``epilogue(acc, C, *others)``, which emits the rest."""
    shapes = [*parameters, ((1,), "int32"), ((1,), "int32")][:2]

    @T.prim_func
    def func(
        A: T.Buffer((M, K), "float16"), B: T.Buffer((N, K), "float16"),
        X: T.Buffer(shapes[0][0], shapes[0][1]), Y: T.Buffer(shapes[1][0], shapes[1][1]),
        C: T.Buffer((rows, N), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((M, K), "float16", scope="shared")
        B_s = T.alloc_buffer((N, K), "float16", scope="shared")
        acc = T.alloc_buffer((M, N), "float32", scope="accumulator")
        Tx.cta.copy_async(A_s, A[0:M, 0:K])
        Tx.cta.copy_async(B_s, B[0:N, 0:K])
        Tx.cta.gemm_async(acc, A_s, B_s)
        epilogue(acc, C, X, Y)

    return func


def named(name: str, shape: tuple[int, ...], scope: str) -> Any:
    """A float32 tile; outside of a program, TVM does not see what it is called."""
    tile = T.alloc_buffer(shape, "float32", scope=scope)
    IRBuilder.name(name, tile)
    return tile


def data(rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.integers(-2, 3, (M, K)).astype("float16") for _ in range(2)]


def require_alike(
    func: Any, arguments: list[np.ndarray], archs: Sequence[str] = ARCHS
) -> np.ndarray:
    """The last argument by the interpreter, which the kernels get as well."""
    meant = [np.copy(one) for one in arguments]
    wl.interpret(func, meant)
    for arch in archs:
        found = run(lower(func, arch), [np.copy(one) for one in arguments], arch)
        np.testing.assert_array_equal(found[-1], meant[-1], arch)
    return meant[-1]


def require_refused(func: Any, words: str) -> None:
    """Both lowerings refuse a program, with the author's line and the interpreter's sentence."""
    shapes = [(p.ty.shape, str(p.ty.dtype)) for p in func.params]
    arguments = [np.zeros([int(e) for e in shape], dtype) for shape, dtype in shapes]
    with pytest.raises(TileProgramError, match=words) as refusal:
        wl.interpret(func, arguments)
    assert " --> " in str(refusal.value) and "test_rules.py:" in str(refusal.value)
    for arch in ARCHS:
        with pytest.raises(TileProgramError) as other:
            lower(func, arch)
        assert str(other.value) == str(refusal.value)


# --- nests ------------------------------------------------------------------------------------


def on_both_sides(acc, C, X, Y):
    with T.grid(M, N) as (i, j), T.If(T.Or(i < j, X[i] > 0)):
        with T.Then():
            T.buffer_store(C, acc[i, j], [i, j])
        with T.Else():
            T.buffer_store(C, acc[i, j] * T.float32(-3), [i, j])


def test_statements_under_conditions_on_places_and_memory(rng):
    func = product(on_both_sides, M, INDEX)
    a, b = data(rng)
    flags = rng.integers(0, 2, M).astype("int32")
    one = np.zeros(1, "int32")
    after = require_alike(func, [a, b, flags, one, np.full((M, N), np.nan, np.float32)])
    c = a.astype("float32") @ b.astype("float32").T
    i, j = np.indices(c.shape)
    np.testing.assert_array_equal(after, np.where((i < j) | (flags[:, None] > 0), c, -3 * c))


def inner_rows(acc, C, X, Y):
    tile = named("tile", (M, N), "shared")
    Tx.cta.zero(tile)
    with T.serial(1, M - 1) as i, T.serial(0, N) as j:
        T.buffer_store(tile, Y[i + 1, j] - Y[i - 1, j], [i, j])
    with T.grid(M, N) as (i, j):
        T.buffer_store(C, acc[i, j] + tile[i, j], [i, j])


def test_loops_that_do_not_begin_at_0(rng):
    func = product(inner_rows, M, INDEX, ((M, N), "float32"))
    a, b = data(rng)
    y = rng.integers(-9, 9, (M, N)).astype("float32")
    start = [a, b, np.zeros(M, "int32"), y, np.full((M, N), np.nan, np.float32)]
    expected = a.astype("float32") @ b.astype("float32").T
    expected[1:-1] += y[2:] - y[:-2]
    np.testing.assert_array_equal(require_alike(func, start), expected)


ELSEWHERE = {
    "halved": lambda j: j // 2, "turned": lambda j: (j + 1) % N, "mirrored": lambda j: N - 1 - j,
    "in pairs": lambda j: j // 8 * 8 + (j + 4) % 8, "one column": lambda j: 5,
}  # fmt: skip


@pytest.mark.parametrize("name", ELSEWHERE)
def test_registers_at_other_columns(rng, name):
    """A kernel has the interpreter's result, or the lowering says what is in its way."""
    func = product(
        nest(lambda acc, C, X, Y, i, j: T.buffer_store(C, acc[i, ELSEWHERE[name](j)], [i, j]))
    )
    one = np.zeros(1, "int32")
    before = [*data(rng), one, one, np.full((M, N), np.nan, np.float32)]
    meant = [np.copy(argument) for argument in before]
    wl.interpret(func, meant)
    for arch in ARCHS:
        try:
            kernel = lower(func, arch)
        except Decline as reason:
            assert "acc" in str(reason)
        else:
            np.testing.assert_array_equal(run(kernel, before, arch)[-1], meant[-1])


def parts_of_rows(acc, C, X, Y):
    wide = named("wide", (M, N + 16), "shared")
    Tx.cta.zero(wide)
    with T.grid(M, N) as (i, j):
        T.buffer_store(wide, acc[i, j], [i, j + 8])
    Tx.cta.copy(C, wide[0:M, 8 : N + 8])


def test_parts_of_the_rows_of_a_shared_tile_are_stored(rng):
    one = np.zeros(1, "int32")
    a, b = data(rng)
    after = require_alike(
        product(parts_of_rows), [a, b, one, one, np.full((M, N), np.nan, np.float32)]
    )
    np.testing.assert_array_equal(after, a.astype("float32") @ b.astype("float32").T)


def emits(body: Callable) -> Callable:
    """An epilogue that has its result and its tiles, then ``body(acc, C, X, Y, out, tile)``."""

    def epilogue(acc, C, X, Y):
        out, tile = named("out", (M, N), "fragment"), named("tile", (M, N), "shared")
        Tx.cta.copy(out, acc)
        Tx.cta.zero(tile)
        body(acc, C, X, Y, out, tile)
        Tx.cta.copy(C, out)

    return epilogue


def nest(store: Callable, extents: tuple[int, int] = (M, N)) -> Callable:
    def body(*buffers):
        with T.grid(*extents) as (i, j):
            store(*buffers, i, j)

    return body


REFUSED = {
    "sum by stores": (r"both store C\[v, 0\]; .* Tx.cta.sum", nest(
        lambda acc, C, X, Y, out, tile, i, j: T.buffer_store(C, C[i, 0] + acc[i, j], [i, 0]))),
    "histogram": ("at an index read from memory, and reads tile", nest(
        lambda acc, C, X, Y, out, tile, i, j: T.buffer_store(tile, tile[X[i], j] + 1, [X[i], j]))),
    "running sum": (r"reads tile\[v, T.max\(v - 1, 0\)\], an element that iteration", nest(
        lambda acc, C, X, Y, out, tile, i, j: T.buffer_store(
            tile, tile[i, j] + tile[i, T.max(j - 1, 0)], [i, j]))),
    "beyond the tile": (r"out\[0, 64\] lies outside of out, .* shape \(64, 64\)", nest(
        lambda acc, C, X, Y, out, tile, i, j: T.buffer_store(out, acc[i, T.min(j, 9)], [i, j]),
        (M, N + 8))),
    "before the tile": (r"tile\[0, -1\] lies outside of tile", nest(
        lambda acc, C, X, Y, out, tile, i, j: T.buffer_store(out, tile[i, j - 1], [i, j]))),
    "index computed in a branch": (r"tile\[\d+, 64\] lies outside", nest(
        lambda acc, C, X, Y, out, tile, i, j: T.buffer_store(
            out, T.if_then_else(i > 3, tile[i, j + 1], T.float32(0)), [i, j]))),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_both_refuse(name):
    words, body = REFUSED[name]
    require_refused(product(emits(body), M, INDEX), words)


#: What a nest reads of the tile that it stores, and whether every run has the same places.
AT = {
    "memory": (lambda y, turn, X: X[y], False),
    "a choice by memory": (lambda y, turn, X: T.if_then_else(X[y] > 0, y, 15 - y), False),
    "a scalar that changes": (lambda y, turn, X: (y + turn) % 16, False),
    "itself": (lambda y, turn, X: y, True),
}


@pytest.mark.parametrize("read", AT)
@pytest.mark.parametrize("store", ("a scalar that changes", "itself"))
def test_reads_of_places_that_only_the_run_tells(read, store):
    """They are the iteration's own, in so many words, or both refuse."""
    (reads, known), (stores, _) = AT[read], AT[store]

    @T.prim_func
    def func(X: T.Buffer((16,), "int32"), C: T.Buffer((16,), "int32")):
        T.device_entry()
        T.cta_id([1])
        tile = T.alloc_buffer((16,), "int32", scope="shared")
        turn: T.int32 = 0
        Tx.cta.fill(tile, 1)
        for _ in T.serial(0, 3):
            for y in range(16):
                tile[stores(y, turn, X)] = tile[reads(y, turn, X)] * 2 + y
            turn = turn + 1
        Tx.cta.copy(C, tile)

    if read == store:
        assert np.ptp(require_alike(func, [np.zeros(16, np.int32)] * 2, ARCHS[:1])) > 0
    else:
        assert not (known and AT[store][1])
        require_refused(func, "places only the run tells; .* read tile into another tile first")


def test_a_fault_of_a_middle_iteration_is_refused_when_it_runs():
    @T.prim_func
    def func(C: T.Buffer((16,), "int32")):
        T.device_entry()
        T.cta_id([1])
        tile = T.alloc_buffer((16,), "int32", scope="shared")
        Tx.cta.fill(tile, 1)
        for k in T.serial(0, 3):
            for y in range(16):
                tile[y] = tile[(y + k * (2 - k)) % 16] + 1
            Tx.cta.add(tile, tile, 1)
        Tx.cta.copy(C, tile)

    with pytest.raises(TileProgramError, match=r"reads tile\[.*, an element that iteration"):
        wl.interpret(func, [np.zeros(16, np.int32)])


def _zero_a_row(acc, C, X, Y, out, tile):
    Tx.cta.zero(tile[X[0] : X[0] + 1, 0:N])


def _zero_rows_that_memory_counts(acc, C, X, Y, out, tile):
    with T.serial(0, X[0]) as row:
        Tx.cta.zero(tile[row : row + 1, 0:N])


@pytest.mark.parametrize("body", [_zero_a_row, _zero_rows_that_memory_counts])
def test_regions_of_tiles_begin_at_no_index_of_memory(body):
    """Nor at the variable of a loop whose extent memory holds."""
    words = "tile, in shared memory, begins at an index read from memory"
    require_refused(product(emits(body), M, INDEX), words)


def test_the_result_of_a_matmul_is_read():
    require_refused(product(lambda acc, C, X, Y: Tx.cta.zero(acc)), "nothing reads acc, the result")


def test_a_guarded_read_is_inside():
    """Elements that no iteration needs are not read."""
    guarded = nest(lambda acc, C, X, Y, out, tile, i, j: T.buffer_store(
        out, T.if_then_else(j > 0, tile[i, j - 1], T.float32(0)), [i, j]))  # fmt: skip
    for arch in ARCHS:
        lower(product(emits(guarded), M, INDEX), arch)


# --- other shapes of a buffer -----------------------------------------------------------------


def test_another_shape_of_a_parameter(rng):
    @T.prim_func
    def func(A: T.Buffer((2, 32, 64), "float16"), C: T.Buffer((64, 64), "float16")):
        rows = T.decl_buffer((64, 64), "float16", data=A.data)
        T.device_entry()
        T.cta_id([1])
        tile = T.alloc_buffer((64, 64), "float16", scope="fragment")
        Tx.cta.copy(tile, rows[0:64, 0:64])
        Tx.cta.copy(C, tile)

    a = rng.standard_normal((2, 32, 64)).astype("float16")
    c = np.full((64, 64), np.nan, "float16")
    wl.interpret(func, [a, c])
    np.testing.assert_array_equal(c, a.reshape(64, 64))


def test_another_dtype_of_a_parameter_is_refused():
    @T.prim_func
    def func(A: T.Buffer((64, 64), "float16"), C: T.Buffer((64, 64), "uint16")):
        words = T.decl_buffer((64, 64), "uint16", data=A.data)
        T.device_entry()
        T.cta_id([1])
        tile = T.alloc_buffer((64, 64), "uint16", scope="fragment")
        Tx.cta.copy(tile, words[0:64, 0:64])
        Tx.cta.copy(C, tile)

    require_refused(func, "words, of dtype uint16 in global memory, is declared over A, of dtype")


# --- what is a tile program -------------------------------------------------------------------


def transposed(by_thread: bool = False) -> Any:
    """A program with shared tiles alone."""

    @T.prim_func
    def func(A: T.Buffer((64, 128), "float16"), C: T.Buffer((128, 64), "float16")):
        T.device_entry()
        i = T.cta_id([2])
        if by_thread:
            T.thread_id([128])
        a = T.alloc_buffer((64, 64), "float16", scope="shared")
        c = T.alloc_buffer((64, 64), "float16", scope="shared")
        Tx.cta.copy_async(a, A[0:64, i * 64 : i * 64 + 64])
        for y, x in T.grid(64, 64):
            c[y, x] = a[x, y]
        Tx.cta.copy(C[i * 64 : i * 64 + 64, 0:64], c)

    return func


def test_shared_tiles_alone_make_a_tile_program(rng):
    assert not is_tile_program(transposed(by_thread=True))
    assert is_tile_program(transposed())
    a = rng.standard_normal((64, 128)).astype("float16")
    for arch in ("sm_90a", "sm_100a"):
        poison = np.full((128, 64), np.nan, "float16")
        (_, c) = run(lower(transposed(), arch), [a, poison], arch)
        np.testing.assert_array_equal(c, a.T)


def unconsumed(steps: int, after: bool) -> Any:
    """Sums of steps so far; nobody reads the last."""

    @T.prim_func
    def func(A: T.Buffer((64 * steps, 64), "float16"), C: T.Buffer((64 * steps, 64), "float32")):
        T.device_entry()
        T.cta_id([1])
        a = T.alloc_buffer((64, 64), "float16", scope="shared")
        acc = T.alloc_buffer((64, 64), "float32", scope="accumulator")
        out = T.alloc_buffer((64, 64), "float32", scope="fragment")
        Tx.cta.zero(acc)
        for t in wl.pipelined(steps, stages=2):
            Tx.cta.copy_async(a, A[t * 64 : t * 64 + 64, 0:64])
            Tx.cta.copy(out, acc)
            Tx.cta.copy(C[t * 64 : t * 64 + 64, 0:64], out)
            Tx.cta.gemm_async(acc, a, a, transA=True, transB=True, accum=True)
        if after:
            last = T.alloc_buffer((64, 64), "float16", scope="shared")
            Tx.cta.copy_async(last, A[0:64, 0:64])
            Tx.cta.gemm_async(acc, last, last, transA=True, transB=True, accum=True)

    return func


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.some(1)
def test_a_last_result_that_nobody_reads(rng, steps):
    """Tensor memory is not freed while an MMA into it still runs."""
    a = rng.integers(-2, 3, (64 * steps, 64)).astype("float16")
    for after in (False, True):
        require_alike(unconsumed(steps, after), [a, np.full(a.shape, np.nan, np.float32)])

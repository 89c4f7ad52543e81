"""Programs and arguments that the interpreter refuses, each with one sentence that says why."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.ir_builder import IRBuilder
from tvm.script.tirx import tile as Tx

from warploom import language as wl
from warploom.errors import TileProgramError

N = 16


def tiles() -> SimpleNamespace:
    """One tile of every kind."""

    def tile(name, scope, dtype="float32", shape=(N, N)):
        buffer = T.alloc_buffer(shape, dtype, scope=scope)
        IRBuilder.name(name, buffer)
        return buffer

    kinds = {
        "shared": ("shared",),
        "half": ("shared", "float16"),
        "byte": ("shared", "int8"),
        "wide": ("shared", "float16", (N, 2 * N)),
        "cube": ("shared", "float16", (2, N, N)),
        "fragment": ("fragment",),
        "half_fragment": ("fragment", "float16"),
        "row": ("fragment", "float32", (N,)),
        "half_row": ("fragment", "float16", (N,)),
        "acc": ("accumulator",),
    }
    made = {name: tile(name, *kind) for name, kind in kinds.items()}
    for one in made.values():
        Tx.cta.zero(one)
    return SimpleNamespace(**made)


def run(body: Callable) -> None:
    """Interpret ``body``, a function that emits statements on tiles and a global buffer."""

    @T.prim_func(check_well_formed=False)
    def func(g: T.handle):
        G = T.match_buffer(g, (N, N), "float32")
        T.device_entry()
        T.cta_id([1])
        body(tiles(), G)

    wl.interpret(func, [np.zeros((N, N), np.float32)])


def store(buffer, value: Callable, index: Callable | None = None, extents=(N, N)) -> None:
    """A nest with one store; ``index`` and ``value`` are functions of the loop variables."""
    with T.grid(*extents) as loops:
        loops = list(loops) if len(extents) > 1 else [loops]
        T.buffer_store(buffer, value(*loops), index(*loops) if index else loops)


def silent(*values: object) -> None:
    """The parser takes the value of a call for a statement, unless it is None."""


def scalar(value) -> None:
    x = T.local_scalar("float32")
    T.buffer_store(x.scalar.source, value, [0])


ONE = T.float32(1)
PRIMITIVES = {
    "copy from G of dtype float32 to half of dtype float16": lambda t, G: Tx.cta.copy(t.half, G),
    "copy of extents .* without extents of 1 they must be equal": lambda t, G: Tx.cta.copy_async(
        t.shared[0:8, 0:16], G[0:16, 0:8], dispatch="tma_auto"
    ),
    r"region shared\[8:24, 0:16\] reaches over the edge of shared, which has scope shared": (
        lambda t, G: Tx.cta.copy(t.shared[8:24, 0:16], G)
    ),
    r"region half\[-1:15, 0:16\] reaches over the edge": lambda t, G: Tx.cta.cast(
        t.fragment, t.half[-1:15, 0:16]
    ),
    "gemm_async writes shared in scope shared; it must be an accumulator": (
        lambda t, G: Tx.cta.gemm_async(t.shared, t.half, t.half)
    ),
    "B, half_fragment, in scope fragment; A must be shared or a fragment, B shared": (
        lambda t, G: Tx.cta.gemm_async(t.acc, t.half, t.half_fragment)
    ),
    "A, G, in scope global": lambda t, G: Tx.cta.gemm_async(t.acc, G, t.half),
    "A, byte, of dtype int8 and B, half, of dtype float16 into acc.* multiplies these; allowed": (
        lambda t, G: Tx.cta.gemm_async(t.acc, t.byte, t.half)
    ),
    "A, byte, of dtype int8 and B, byte, of dtype int8 into acc of dtype float32.* dtype int32": (
        lambda t, G: Tx.cta.gemm_async(t.acc, t.byte, t.byte)
    ),
    r"A, wide, \[M, K\] = \(16, 32\) and B, half, \[N, K\] = \(16, 16\) does not fit acc": (
        lambda t, G: Tx.cta.gemm_async(t.acc, t.wide, t.half)
    ),
    r"A, wide, \[M, K\] = \(32, 16\)": lambda t, G: Tx.cta.gemm_async(
        t.acc, t.wide, t.half, transA=True
    ),
    "operand A, cube, has a region of extents .* two dimensions": lambda t, G: Tx.cta.gemm_async(
        t.acc, t.cube, t.half
    ),
    "gemm_async with scales: no block-scaled format has A of float16": (
        lambda t, G: Tx.cta.gemm_async(t.acc, t.half, t.half, t.half, t.half)
    ),
    "has the option wait=2; it takes SFA, SFB, sparse, transA, transB and accum only": (
        lambda t, G: Tx.cta.gemm_async(t.acc, t.half, t.half, wait=2)
    ),
    "has the option negate_a=True; it takes": (
        lambda t, G: Tx.cta.gemm_async(t.acc, t.half, t.half, negate_a=True)
    ),
    r"row of extents \(8,\) does not broadcast to fragment": lambda t, G: Tx.cta.add(
        t.fragment, t.acc, t.row[0:8]
    ),
    "have dtypes float16 and float32; cast them": lambda t, G: Tx.cta.mul(t.acc, t.acc, t.half),
    "destination of an elementwise primitive, G, is in global memory": (
        lambda t, G: Tx.cta.exp(G, t.fragment)
    ),
    "an operand of an elementwise primitive, G, is in global": (
        lambda t, G: Tx.cta.add(t.fragment, t.acc, G)
    ),
    "the destination of zero, G": lambda t, G: Tx.cta.zero(G),
    "the source of a reduction, G": lambda t, G: Tx.cta.sum(t.row, G, axes=1),
    r"axes \[2\] of a reduction are not dimensions of acc, which has 2": (
        lambda t, G: Tx.cta.sum(t.row, t.acc, axes=2)
    ),
    r"row has a region of extents \(8,\); reducing .* gives \(16,\)": (
        lambda t, G: Tx.cta.max(t.row[0:8], t.acc, axes=1)
    ),
    "reduction of acc of dtype float32 into half_row of dtype float16": (
        lambda t, G: Tx.cta.min(t.half_row, t.acc, axes=1)
    ),
    "predicate of select has 1 parameters; fragment has 2 dimensions": (
        lambda t, G: Tx.cta.select(t.fragment, t.acc, ONE, lambda i: i > 2)
    ),
    "permute_layout is no part of tile programs; allowed are add, argmax": (
        lambda t, G: Tx.cta.permute_layout(t.shared, t.shared)
    ),
    r"fill has the scope warpgroup; write Tx\.cta\.fill": lambda t, G: Tx.wg.fill(t.acc, ONE),
}
NESTS = {
    r"\(v = 0, v = 0\) and \(v = 0, v = 1\) of the nest both store row\[v\]; each iteration must": (
        lambda t, G: store(t.row, lambda i, j: ONE, lambda i, j: [i])
    ),
    r"\(v = 0\) and \(v = 2\) of the nest both store row": lambda t, G: store(
        t.row, lambda i: ONE, lambda i: [i % 2], (N,)
    ),
    r"both store G\[v, 0\]": lambda t, G: store(G, lambda i, j: ONE, lambda i, j: [i, 0]),
    r"iteration \(v = 0, v = 0\) of the nest reads shared\[v, \(v \+ 1\) % 16\], an element that": (
        lambda t, G: store(t.shared, lambda i, j: t.shared[i, (j + 1) % N])
    ),
    "read from a tile that the nest does not store, or write two nests": (
        lambda t, G: store(t.shared, lambda i, j: t.shared[j, i])
    ),
    r"shared\[0, 16\] lies outside of shared": lambda t, G: store(
        t.shared, lambda i, j: ONE, lambda i, j: [i, j + 1]
    ),
    r"shared\[0, 16\] lies outside of shared, which has scope shared and shape \(16, 16\)": (
        lambda t, G: store(t.fragment, lambda i, j: t.shared[i, j + N])
    ),
    r"fragment\[16, 0\] lies outside of fragment": lambda t, G: store(
        t.fragment, lambda i, j: ONE, None, (N + 1, N)
    ),
    "reads row, in scope fragment, outside of an elementwise nest": lambda t, G: scalar(t.row[0]),
}


@pytest.mark.parametrize("message", PRIMITIVES | NESTS)
def test_illegal_statements(message):
    with pytest.raises(TileProgramError, match=message):
        run((PRIMITIVES | NESTS)[message])


def test_two_stores_of_a_tile_at_different_loop_variables():
    def body(t, G):
        with T.grid(N, N) as (i, j):
            T.buffer_store(t.shared, ONE, [i, j])
            T.buffer_store(t.shared, ONE, [j, i])

    with pytest.raises(TileProgramError, match=r"stores shared\[v, v\], an element that"):
        run(body)


def test_loops_bound_to_threads():
    def body(t, G):
        with T.thread_binding(0, N, thread="threadIdx.x") as i:
            T.buffer_store(t.row, ONE, [i])

    with pytest.raises(TileProgramError, match="bound to threads; a tile program has none"):
        run(body)


def test_nests_whose_extent_depends_on_a_loop_variable():
    def body(t, G):
        with T.serial(N) as i, T.serial(i + 1) as j:
            T.buffer_store(t.shared, ONE, [i, j])

    with pytest.raises(TileProgramError, match=r"variable .* has no value here"):
        run(body)


def test_statements_that_are_no_part_of_the_language():
    def forever(t, G):
        with T.While(T.bool(True)):
            T.evaluate(0)

    with pytest.raises(TileProgramError, match="nothing in the while loop changes its condition"):
        run(forever)
    with pytest.raises(TileProgramError, match="has the statement cta_sync, in which threads"):
        run(lambda t, G: T.evaluate(T.cuda.cta_sync()))
    with pytest.raises(TileProgramError, match=r"threads update memory with T.cuda.atomic_add"):
        run(lambda t, G: T.evaluate(T.cuda.atomic_add(G.ptr_to([0, 0]), ONE)))


@pytest.mark.parametrize(
    ("shape", "dtype", "scope", "message"),
    [
        ((N, N), "float32", "warp", "allocated in scope 'warp'; allowed are shared"),
        ((2, 1), "uint64", "wgmma.descriptor", "only a kernel with threads of its own makes"),
        ((2,), "uint32", "mbarrier", "have dtype uint32; it must be uint64"),
        ((N, N), "bfloat16", "tmem", "has dtype bfloat16 .* float32, float16, int32"),
        ((4,), "float32", "local", r"array of shape \(4,\) in local memory"),
        ((N, N), "bfloat16", "accumulator", "has dtype bfloat16 .* float32, float16, int32"),
        ((2, N, N), "float32", "accumulator", "must have two dimensions"),
        ((), "float32", "fragment", "has no dimension; give a single value the shape"),
        ((0, N), "float32", "shared", "extents must be at least 1"),
        ((N, N), "float4_e2m1fn", "shared", "dtype 'float4_e2m1fn' cannot be interpreted"),
    ],
)
def test_illegal_tiles(shape, dtype, scope, message):
    with pytest.raises(TileProgramError, match=message):
        run(lambda t, G: silent(T.alloc_buffer(shape, dtype, scope=scope)))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (lambda: None, "has 0 statements T.cta_id; it must have 1"),
        (lambda: silent(T.cta_id([1]), T.cta_id([2])), "has 2 statements"),
        (lambda: silent(T.thread_id([128])), r"is no T\.cta_id with extents"),
        (lambda: silent(T.cta_id()), r"is no T\.cta_id with extents"),
    ],
)
def test_illegal_ids(ids, message):
    @T.prim_func(check_well_formed=False)
    def func():
        T.device_entry()
        ids()
        T.evaluate(0)

    with pytest.raises(TileProgramError, match=message):
        wl.interpret(func, [])


def test_attributes_that_are_no_hints():
    @T.prim_func
    def func():
        T.device_entry()
        T.cta_id([1])
        T.attr({"pragma_unroll": 1})
        T.evaluate(0)

    with pytest.raises(TileProgramError, match=r"'pragma_unroll' is no hint; .* 'warploom.'"):
        wl.interpret(func, [])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([np.zeros((4, 8), "float32")], "1 arguments for 3 parameters: A, B, x"),
        ([np.zeros((4, 8), "float16"), None, 1], "A is a float16 array of rank 2; .* float32"),
        ([np.zeros(4, "float32"), None, 1], "A is a float32 array of rank 1; .* rank 2"),
        ([[1.0], None, 1], "A is a list; it must be a float32 array"),
        (
            [np.zeros((4, 8), "float32"), np.zeros((5, 8), "float32"), 1],
            r"B has shape \(5, 8\); it must be \(4, 8\)",
        ),
        (
            [np.zeros((4, 9), "float32"), np.zeros((4, 8), "float32"), 1],
            r"A has shape \(4, 9\); it must be \(4, 8\)",
        ),
    ],
)
def test_illegal_arguments(arguments, message):
    @T.prim_func
    def func(a: T.handle, b: T.handle, x: T.float32):
        m = T.int32()
        A = T.match_buffer(a, (m, 8), "float32")
        B = T.match_buffer(b, (m, 8), "float32")
        T.device_entry()
        T.cta_id([1])
        tile = T.alloc_buffer((8, 8), "float32", scope="shared")
        Tx.cta.copy(tile, A[0:8, 0:8])
        Tx.cta.mul(tile, tile, x)
        Tx.cta.copy(B[0:8, 0:8], tile)

    with pytest.raises(TileProgramError, match=message):
        wl.interpret(func, arguments)

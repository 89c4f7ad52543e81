"""``tcgen05.mma.sp`` of tile programs: every kind, shape and way of metadata, and what declines."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared import tile_programs
from tests.shared.lowered_programs import check, exact, hinted, local_memory, worst_error
from tests.shared.tile_programs import sparse_gemm
from warploom import emulator
from warploom import language as wl
from warploom.errors import TileProgramError
from warploom.layout.metadata_words import to_words
from warploom.layout.smem_matrix import SharedMatrix
from warploom.lower.lowerings import lower
from warploom.lower.trace import lower_trace
from warploom.sparse import decompress
from warploom.target import Major, Swizzle
from warploom.target.wgmma import WGMMA_SPARSE_KINDS

SM100A = "sm_100a"
#: K of a tile whose metadata has rows of 16 bytes, which TMA wants.
DEEP = {"float32": 64}
#: Tensor memory is read in 32-bit elements.
KINDS = [kind for kind in WGMMA_SPARSE_KINDS if kind.d != "float16"]


def said(func: tvm.tirx.PrimFunc, **hints) -> str:
    steps = lower_trace(hinted(func, **hints), SM100A)
    return "\n".join(text for step in steps for text in step.decisions)


def require_sparse(func: tvm.tirx.PrimFunc, **hints) -> str:
    """What passes say of a program whose MMAs are all sparse ones."""
    text = said(func, **hints)
    assert "tcgen05.mma.sp, kind" in text and "made dense" not in text, text
    return text


@pytest.mark.gpu
@pytest.mark.parametrize("words", [False, True], ids=["bytes", "words"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: f"{k.a}-{k.b}-{k.d}")
@pytest.mark.some(4)
def test_every_type(kind, words, rng):
    bk = DEEP.get(kind.a, 128)
    case = sparse_gemm(
        128, 32, 2 * bk, (128, 32, bk), kind.a, kind.b, kind.d, stages=2, words=words
    )
    require_sparse(case.func)
    check(case, rng, SM100A)


@pytest.mark.gpu
@pytest.mark.parametrize("words", [False, True], ids=["bytes", "words"])
@pytest.mark.parametrize(
    "size, tile, hints",
    [
        ((256, 16, 256), (256, 16, 128), {}),
        ((128, 256, 128), (128, 256, 128), {}),
        ((128, 48, 512), (128, 48, 256), {"stages": 1}),
        ((256, 64, 256), (128, 32, 128), {"cluster": (2, 1)}),
        ((512, 32, 256), (256, 32, 128), {"cluster": (2, 1)}),
        ((128, 64, 256), (128, 32, 128), {"cluster": (1, 2)}),
        ((256, 128, 256), (128, 64, 128), {"cluster": (2, 2)}),
        ((128, 32, 512), (128, 32, 128), {"split_k": 2}),
        ((128, 64, 384), (128, 32, 128), {"stream_k": True}),
        ((256, 64, 128), (128, 32, 128), {"scheduler": "clc"}),
        ((128, 32, 128), (128, 32, 128), {"persistent": False}),
    ],
)
@pytest.mark.some(6)
@pytest.mark.in_turn(2)
def test_shapes_and_hints(size, tile, hints, words, rng):
    dtype = ("float16", "int8")[int(rng.integers(2))]
    case = sparse_gemm(*size, tile, dtype, words=words)
    text = require_sparse(case.func, **hints)
    assert ("two CTAs multiply together" in text) == (hints.get("cluster", (1,))[0] == 2)
    check(case, rng, SM100A, **hints)


@pytest.mark.gpu
@pytest.mark.parametrize("words", [False, True], ids=["bytes", "words"])
@pytest.mark.parametrize("m, n, k", [(1, 32, 128), (100, 40, 208), (130, 24, 384), (127, 16, 144)])
@pytest.mark.parametrize("dtype", ["bfloat16", "uint8", "float32"])
@pytest.mark.some(4)
@pytest.mark.in_turn(2)
def test_matrices_that_are_no_multiple_of_tiles(dtype, m, n, k, words, rng):
    """Beyond A, threads put the metadata of first elements; words have it from the start."""
    case = sparse_gemm(m, n, k, (128, 32, 128), dtype, words=words)
    require_sparse(case.func)
    check(case, rng, SM100A)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype, layout", [("float16", "TN"), ("bfloat16", "NN"), ("int8", "TT"),
                                           ("float8_e5m2", "TN")])  # fmt: skip
@pytest.mark.some(2)
def test_operands_along_m_and_n(dtype, layout, rng):
    case = sparse_gemm(128, 32, 256, (128, 32, 128), dtype, layout=layout)
    require_sparse(case.func)
    check(case, rng, SM100A)


@functools.cache
def in_steps(deep, stages, words):
    """A program that multiplies so many steps of K; the result is 0 where there is none."""
    dtype, per = ("uint32", 4) if words else ("uint8", 16)

    @T.prim_func
    def program(A: T.Buffer((128, deep // 2), "float16"),
                E: T.Buffer((128, deep // 128 * per), dtype),
                B: T.Buffer((16, deep), "float16"), C: T.Buffer((128, 16), "float32"),
                steps: T.int32):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        acc = wl.alloc_accumulator((128, 16))
        Tx.cta.zero(acc)
        for k in wl.pipelined(steps, stages):
            A_s, E_s = wl.load(A, (0, k), (128, 64)), wl.load(E, (0, k), (128, per))
            B_s = wl.load(B, (0, k), (16, 128))
            Tx.cta.gemm_async(acc, A_s, B_s, sparse=E_s, accum=True)
        wl.store(C, (0, 0), acc)

    return program


@pytest.mark.gpu
@pytest.mark.parametrize("words", [False, True], ids=["bytes", "words"])
@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.some(2)
@pytest.mark.in_turn(2)
def test_trip_counts(stages, words, rng):
    """One kernel for all numbers of steps: none, fewer than stages, as many, and more."""
    k = (2 * stages + 1) * 128
    func = in_steps(k, stages, words)
    require_sparse(func)
    kernel = lower(func, SM100A).with_attr("global_symbol", "main")
    values, metadata, b, c = sparse_gemm(128, 16, k, (128, 16, 128)).arguments(rng)
    given = to_words(metadata, "float16") if words else metadata
    for steps in sorted({0, 1, stages - 1, stages, stages + 1, 2 * stages + 1}):
        outputs = emulator.run(
            kernel, [values, given, b, np.copy(c), steps], checks=True, arch=SM100A
        ).outputs
        dense = decompress(values, metadata).astype(np.float64)[:, : steps * 128]
        expected = dense @ b.astype(np.float64)[:, : steps * 128].T
        np.testing.assert_allclose(outputs[3], expected, atol=1e-3)


def in_parts(first, deep, words):
    """MMAs of parts of tiles along K: ``deep`` elements from ``first`` on, and the rest."""
    dtype, unit = ("uint32", 32) if words else ("uint8", 8)
    last, every = first + deep, 256 // unit
    of_a, of_e = ((first // one, last // one) for one in (2, unit))

    @T.prim_func
    def program(A: T.Buffer((128, 128), "float16"), E: T.Buffer((128, every), dtype),
                B: T.Buffer((32, 256), "float16"), C: T.Buffer((128, 32), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        acc = wl.alloc_accumulator((128, 32))
        A_s, E_s = wl.load(A[0:128, 0:128]), wl.load(E[0:128, 0:every])
        B_s = wl.load(B[0:32, 0:256])
        Tx.cta.gemm_async(acc, A_s[0:128, of_a[0] : of_a[1]], B_s[0:32, first:last],
                          sparse=E_s[0:128, of_e[0] : of_e[1]])  # fmt: skip
        Tx.cta.gemm_async(acc, A_s[0:128, 0 : of_a[0]], B_s[0:32, 0:first],
                          sparse=E_s[0:128, 0 : of_e[0]], accum=True)  # fmt: skip
        wl.store(C, (0, 0), acc)

    return program


@pytest.mark.gpu
@pytest.mark.parametrize("words", [False, True], ids=["bytes", "words"])
@pytest.mark.parametrize("first, deep", [(32, 32), (64, 96), (128, 128), (96, 160), (224, 32)])
@pytest.mark.some(2)
def test_parts_of_tiles(first, deep, words, rng):
    """Words that copies cannot read from where they are go through threads."""
    func = in_parts(first, deep, words)
    text = require_sparse(func)
    assert ("metadata by threads" in text) == (not words or first % 128 != 0)
    values, metadata, b, c = sparse_gemm(128, 32, 256, (128, 32, 128)).arguments(rng)
    given = to_words(metadata, "float16") if words else metadata
    kernel = lower(func, SM100A).with_attr("global_symbol", "main")
    outputs = emulator.run(kernel, [values, given, b, c], checks=True, arch=SM100A).outputs
    dense, every = decompress(values, metadata).astype(np.float64), first + deep
    expected = dense[:, :every] @ b.astype(np.float64)[:, :every].T
    np.testing.assert_allclose(outputs[3], expected, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(24))
@pytest.mark.some(2)
@pytest.mark.in_turn(2)
def test_random_programs(seed, rng):
    case = tile_programs.random_program(np.random.default_rng(seed), sparse=True)
    check(case, rng, SM100A)


@pytest.mark.in_turn(2)
def test_random_programs_are_diverse():
    texts = [
        said(tile_programs.random_program(np.random.default_rng(seed), sparse=True).func)
        for seed in range(10, 20)
    ]
    for part in ("kind f16", "metadata by threads", "metadata as E_s has it", "made dense"):
        assert any(part in text for text in texts), part


@pytest.mark.gpu
@pytest.mark.parametrize(
    "tile, dtype, layout, consumers, reason",
    [
        ((64, 32, 128), "float16", "NT", None, "has 128 rows for each of 1 .*and acc has 64"),
        ((128, 32, 128), "float16", "NT", 2, "has 128 rows for each of 2 .*and acc has 128"),
        ((128, 32, 64), "float32", "TT", None, "A_s is float32 along M"),
        ((128, 32, 48), "bfloat16", "NT", None, "K = 48 is no multiple of 32"),
    ],
)
@pytest.mark.some(2)
def test_other_programs_are_made_dense(tile, dtype, layout, consumers, reason, rng):
    case = sparse_gemm(128, 80, 2 * tile[2], tile, dtype, layout=layout, stages=2)
    hints = {"consumers": consumers} if consumers else {}
    text = said(case.func, **hints)
    assert "tcgen05.mma.sp, kind" not in text
    assert re.search(f"operand A_s_dense: a sparse A, made dense by threads, for .*{reason}", text)
    check(case, rng, SM100A, **hints)


@pytest.mark.gpu
@pytest.mark.parametrize("place", [0, 32], ids=["inside an atom", "across atoms"])
def test_rows_of_b_stay_in_an_atom(place, rng):
    """An instruction reads 64 bytes of a row of B; parts that begin elsewhere are made dense."""
    first, last = place // 2, place // 2 + 128

    @T.prim_func
    def program(A: T.Buffer((128, 64), "float16"), E: T.Buffer((128, 16), "uint8"),
                B: T.Buffer((16, 192), "float16"), C: T.Buffer((128, 16), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        acc = wl.alloc_accumulator((128, 16))
        A_s, E_s = wl.load(A[0:128, 0:64]), wl.load(E[0:128, 0:16])
        B_s = wl.load(B[0:16, 0:192])
        Tx.cta.gemm_async(acc, A_s, B_s[0:16, first:last], sparse=E_s)
        wl.store(C, (0, 0), acc)

    text = said(program)
    assert ("made dense" in text) == (first > 0), text
    if first:
        assert "the part of B_s begins at 16, not known to be a multiple of 32" in text
    case = sparse_gemm(128, 16, 128, (128, 16, 128))
    values, metadata, _, c = case.arguments(rng)
    b = rng.integers(-4, 5, (16, 192)).astype("float16")
    kernel = lower(program, SM100A).with_attr("global_symbol", "main")
    outputs = emulator.run(kernel, [values, metadata, b, c], checks=True, arch=SM100A).outputs
    part = b[:, first:last].astype(np.float64)
    expected = decompress(values, metadata).astype(np.float64) @ part.T
    np.testing.assert_allclose(outputs[3], expected, atol=1e-2)


def with_words(rows, columns, scope="shared"):
    """One MMA of 128 rows and K = 128, with metadata in a tile of this shape."""

    @T.prim_func
    def program(C: T.Buffer((128, 16), "float32")):
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((128, 64), "float16", scope="shared")
        E_s = T.alloc_buffer((rows, columns), "uint32", scope=scope)
        B_s = T.alloc_buffer((16, 128), "float16", scope="shared")
        acc = T.alloc_buffer((128, 16), "float32", scope="accumulator")
        Tx.cta.zero(A_s)
        Tx.cta.zero(E_s)
        Tx.cta.zero(B_s)
        Tx.cta.gemm_async(acc, A_s, B_s, sparse=E_s)
        Tx.cta.copy(C, acc)

    return program


@pytest.mark.parametrize(
    "rows, columns, scope, sentence",
    [
        (128, 16, "shared", r"metadata E_s of extents .*128, 16.* M = 128 and K = 128 .* K / 32"),
        (64, 4, "shared", "metadata E_s of extents .*64, 4"),
        (128, 4, "fragment", "E_s, of dtype uint32 in scope fragment; it must be uint8 and shared"),
    ],
)
def test_words_that_break_a_rule_are_refused(rows, columns, scope, sentence):
    program = with_words(rows, columns, scope)
    for use in (lambda: lower(program, SM100A), lambda: lower(program, "sm_90a")):
        with pytest.raises(TileProgramError, match=sentence):
            use()


def test_words_of_zeros_are_refused():
    with pytest.raises(TileProgramError, match=r"E_s: .*byte 0 of the metadata of row 0 is 0x0"):
        wl.interpret(with_words(128, 4), [np.zeros((128, 16), "float32")])


@pytest.mark.gpu
@pytest.mark.parametrize("arch", ["sm_90a", SM100A])
@pytest.mark.parametrize("dtype", ["float16", "int8", "float32"])
@pytest.mark.parametrize("rows", [64, 128])
@pytest.mark.some(3)
@pytest.mark.in_turn(2)
def test_words_serve_both_architectures(arch, dtype, rows, rng):
    bk = DEEP.get(dtype, 128)
    case = sparse_gemm(128, 32, 2 * bk, (rows, 32, bk), dtype, words=True)
    arguments = exact(case.arguments(rng))
    after = [np.copy(a) for a in arguments]
    wl.interpret(case.func, after)
    assert worst_error(case, arguments, after) <= 1
    check(case, rng, arch)


@pytest.mark.parametrize(
    "dtype, tile", [("float16", (128, 256, 128)), ("int8", (128, 128, 256)),
                    ("float8_e4m3fn", (128, 256, 256)), ("bfloat16", (256, 128, 128)),
                    ("float32", (128, 128, 64))]
)  # fmt: skip
@pytest.mark.parametrize("words", [False, True], ids=["bytes", "words"])
@pytest.mark.some(1)
@pytest.mark.in_turn(4)
def test_usual_tiles_have_no_spills(dtype, tile, words):
    case = sparse_gemm(1024, 1024, 1024, tile, dtype, words=words)
    assert local_memory(case.func, SM100A) == (0, 0, 0)
    text = lower(case.func, SM100A).script()
    # The script has an instruction for each step of K of each warpgroup.
    step = {"float16": 32, "bfloat16": 32, "float32": 16}.get(dtype, 64)
    assert text.count('"mma", "sp"') == tile[2] // step * (tile[0] // 128)


def test_decisions_name_the_columns():
    text = require_sparse(sparse_gemm(256, 256, 512, (128, 256, 256)).func)
    assert "tensor memory: acc in 1 x 1 x 256 columns" in text
    assert "tensor memory: metadata in 8 columns" in text
    assert "E_s_words from the threads to the tensor core and back, in two places" in text
    text = require_sparse(sparse_gemm(256, 256, 512, (128, 256, 256), words=True).func)
    assert "tile barriers: E_s" not in text
    assert "ring of A_s, E_s, B_s" in text


def test_swizzles_of_the_author():
    """A B whose atoms have rows of 32 bytes is read by dense MMAs alone."""
    narrow = SharedMatrix("float16", Major.K, Swizzle.B32, 16, 128).layout()

    @T.prim_func
    def program(A: T.Buffer((128, 64), "float16"), E: T.Buffer((128, 16), "uint8"),
                B: T.Buffer((16, 128), "float16"), C: T.Buffer((128, 16), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        acc = wl.alloc_accumulator((128, 16))
        A_s, E_s = wl.load(A[0:128, 0:64]), wl.load(E[0:128, 0:16])
        B_s = T.alloc_buffer((16, 128), "float16", scope="shared", layout=narrow)
        Tx.cta.copy_async(B_s, B[0:16, 0:128])
        Tx.cta.gemm_async(acc, A_s, B_s, sparse=E_s)
        wl.store(C, (0, 0), acc)

    assert "B_s has a swizzle of 32 bytes, and an instruction reads rows of 64" in said(program)

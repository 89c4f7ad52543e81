"""MMAs with a sparse A: lowered for both architectures, and executed with all checks."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.lowered_programs import check, exact, local_memory, worst_error
from tests.shared.machine_code import listing_of
from tests.shared.tile_programs import sparse_gemm
from warploom import emulator
from warploom import language as wl
from warploom.errors import Decline, DispatchError, TileProgramError
from warploom.lower.analysis import consumers
from warploom.lower.lowerings import lower
from warploom.sparse import decompress
from warploom.target.wgmma import WGMMA_SPARSE_KINDS

SM90A, SM100A = "sm_90a", "sm_100a"
#: A tile whose metadata has rows of 16 bytes, which TMA wants, for each width of elements.
TILE = {1: (64, 32, 128), 2: (64, 32, 128), 4: (64, 32, 64)}
WIDTH = {"float16": 2, "bfloat16": 2, "float32": 4}


def tile_of(dtype: str) -> tuple[int, int, int]:
    return TILE[WIDTH.get(dtype, 1)]


def interpreted(case, rng) -> float:
    arguments = exact(case.arguments(rng))
    after = [np.copy(a) if isinstance(a, np.ndarray) else a for a in arguments]
    wl.interpret(case.func, after)
    return worst_error(case, arguments, after)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", WGMMA_SPARSE_KINDS, ids=lambda k: f"{k.a}-{k.b}-{k.d}")
@pytest.mark.some(6)
def test_every_type(kind, rng):
    bm, bn, bk = tile_of(kind.a)
    case = sparse_gemm(bm, bn, 2 * bk, (bm, bn, bk), kind.a, kind.b, kind.d)
    assert interpreted(case, rng) <= 1
    check(case, rng)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "int8", "float8_e4m3fn"])
@pytest.mark.some(1)
@pytest.mark.in_turn(2)
def test_blackwell(dtype, rng):
    bm, bn, bk = tile_of(dtype)
    check(sparse_gemm(100, bn, 2 * bk, (bm, bn, bk), dtype), rng, SM100A)


@pytest.mark.gpu
@pytest.mark.parametrize("arch", [SM90A, SM100A])
@pytest.mark.parametrize("k", [128, 208, 384])
@pytest.mark.parametrize("dtype", ["bfloat16", "uint8"])
@pytest.mark.some(2)
@pytest.mark.in_turn(2)
def test_matrices_that_are_no_multiple_of_tiles(arch, k, dtype, rng):
    """Outside of A, metadata is read as 0, which stands for the first elements."""
    case = sparse_gemm(72, 40, k, (64, 32, 128), dtype)
    assert interpreted(case, rng) <= 1
    check(case, rng, arch)


@pytest.mark.gpu
@pytest.mark.parametrize(("stages", "arch"), [*((n, SM90A) for n in (1, 2, 3)), (2, SM100A)])
@pytest.mark.some(1)
@pytest.mark.in_turn(2)
def test_trip_counts(stages, arch, rng):
    """One kernel for all numbers of steps: none, fewer than stages, as many, and more."""
    k = (2 * stages + 1) * 128
    kernel = lower(in_steps(k, stages), arch).with_attr("global_symbol", "main")
    case = sparse_gemm(64, 16, k, (64, 16, 128))
    values, metadata, b, c = case.arguments(rng)
    more = {stages - 1, stages + 1, 2 * stages + 1} if arch == SM90A else set()
    for steps in sorted({0, 1, stages, *more}):
        outputs = emulator.run(
            kernel, [values, metadata, b, np.copy(c), steps], checks=True, arch=arch
        ).outputs
        dense = decompress(values, metadata).astype(np.float64)[:, : steps * 128]
        expected = dense @ b.astype(np.float64)[:, : steps * 128].T
        np.testing.assert_allclose(outputs[3], expected, atol=1e-3)


@functools.cache
def in_steps(deep, stages):
    """A program that multiplies so many steps of K; the result is 0 where there is none."""

    @T.prim_func
    def program(A: T.Buffer((64, deep // 2), "float16"), E: T.Buffer((64, deep // 8), "uint8"),
                B: T.Buffer((16, deep), "float16"), C: T.Buffer((64, 16), "float32"),
                steps: T.int32):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        acc = wl.alloc_accumulator((64, 16))
        Tx.cta.zero(acc)
        for k in wl.pipelined(steps, stages):
            A_s, E_s = wl.load(A, (0, k), (64, 64)), wl.load(E, (0, k), (64, 16))
            B_s = wl.load(B, (0, k), (16, 128))
            Tx.cta.gemm_async(acc, A_s, B_s, sparse=E_s, accum=True)
        wl.store(C, (0, 0), acc)

    return program


@pytest.mark.gpu
@pytest.mark.parametrize(
    "size, tile, hints",
    [
        ((128, 32, 256), (128, 32, 128), {}),
        ((128, 32, 256), (128, 32, 128), {"consumers": 1}),
        ((256, 32, 256), (128, 32, 128), {"cluster": (2, 1)}),
        ((64, 64, 256), (64, 32, 128), {"cluster": (1, 2)}),
        ((64, 32, 512), (64, 32, 128), {"split_k": 2}),
        ((64, 32, 512), (64, 32, 128), {"slice_k": 2}),
        ((64, 64, 384), (64, 32, 128), {"stream_k": True}),
        ((128, 64, 256), (64, 32, 128), {"ping_pong": True}),
        ((128, 32, 256), (128, 32, 128), {"specialise": False}),
        ((64, 32, 512), (64, 32, 256), {}),
    ],
)
@pytest.mark.some(5)
def test_hints(size, tile, hints, rng):
    check(sparse_gemm(*size, tile), rng, **hints)


@pytest.mark.gpu
@pytest.mark.parametrize("arch", [SM90A, SM100A])
@pytest.mark.parametrize("dtype, layout", [("float16", "TN"), ("float16", "NN"), ("int8", "TT")])
@pytest.mark.some(2)
@pytest.mark.in_turn(2)
def test_operands_along_m_and_n(arch, dtype, layout, rng):
    check(sparse_gemm(64, 32, 256, (64, 32, 128), dtype, layout=layout), rng, arch)


@pytest.mark.gpu
def test_metadata_in_any_order(rng):
    """Hardware takes two indices in any order."""
    case = sparse_gemm(64, 32, 128, (64, 32, 128))
    arguments = case.arguments(rng)
    low, high = arguments[1] & 0x33, arguments[1] & 0xCC
    turned = rng.integers(0, 2, low.shape).astype(bool)
    arguments[1] = np.where(turned, low << 2 | high >> 2, arguments[1])
    kernel = lower(case.func, SM90A).with_attr("global_symbol", "main")
    outputs = emulator.run(kernel, [np.copy(a) for a in arguments], checks=True).outputs
    np.testing.assert_allclose(outputs[3], case.expected(arguments)[3], atol=1e-3)


@pytest.mark.gpu
def test_illegal_metadata_is_reported(rng):
    case = sparse_gemm(64, 32, 128, (64, 32, 128))
    arguments = case.arguments(rng)
    arguments[1][3, 5] = 0x4A
    with pytest.raises(TileProgramError, match=r"E_s: .* row 3, group 10 .* is 0xa"):
        wl.interpret(case.func, [np.copy(a) for a in arguments])
    kernel = lower(case.func, SM90A).with_attr("global_symbol", "main")
    with pytest.raises(Exception, match=r"sparsity metadata of row 3 .* is 0xa; its two indices"):
        emulator.run(kernel, [np.copy(a) for a in arguments], checks=True)


@pytest.mark.in_turn(2)
@pytest.mark.skipif(not emulator.is_enabled(), reason="a GPU may be right by chance")
def test_a_stage_is_released_when_all_threads_have_read_its_metadata(monkeypatch, rng):
    case = sparse_gemm(128, 32, 1024, (128, 32, 128), stages=1)
    check(case, rng)
    name = "warploom.lower.hopper.specialize_warps.read_by_threads"
    assert consumers.read_by_threads.__name__ in name
    monkeypatch.setattr(name, lambda ring, plan: False)
    with pytest.raises(Exception, match="data race"):
        for _ in range(3):
            check(case, rng)


@pytest.mark.parametrize(
    "dtype, tile", [("float16", (128, 256, 128)), ("int8", (128, 128, 256)),
                    ("float8_e4m3fn", (128, 256, 256)), ("bfloat16", (256, 128, 128))]
)  # fmt: skip
@pytest.mark.some(1)
@pytest.mark.in_turn(4)
def test_usual_tiles_have_no_spills_and_no_waits_between_instructions(dtype, tile):
    case = sparse_gemm(1024, 1024, 1024, tile, dtype)
    assert local_memory(case.func, SM90A) == (0, 0, 0)
    text = listing_of(lower(case.func, SM90A), "tirx")
    mmas = [line for line in text.splitlines() if "GMMA.SP" in line]
    assert len(mmas) == tile[2] // (64 if dtype in ("int8", "float8_e4m3fn") else 32) * (
        tile[0] // 128
    )
    # The last instruction of a group alone is waited for.
    assert sum("gsb0" in line for line in mmas) == 1


def refused(program, sentence: str) -> None:
    with pytest.raises((TileProgramError, Decline), match=sentence):
        lower(program, SM90A)


def with_tiles(a=(64, 64), e=(64, 16), b=(32, 128), dtypes=("float16", "uint8", "float16"),
               scopes=("shared", "shared"), options=None):  # fmt: skip
    """One MMA of tiles of these shapes."""
    options = options or {}

    @T.prim_func
    def program(C: T.Buffer((64, 32), "float32")):
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer(a, dtypes[0], scope=scopes[0])
        E_s = T.alloc_buffer(e, dtypes[1], scope=scopes[1])
        B_s = T.alloc_buffer(b, dtypes[2], scope="shared")
        acc = T.alloc_buffer((64, 32), "float32", scope="accumulator")
        Tx.cta.zero(A_s)
        Tx.cta.zero(E_s)
        Tx.cta.zero(B_s)
        Tx.cta.gemm_async(acc, A_s, B_s, sparse=E_s, **options)
        Tx.cta.copy(C, acc)

    return program


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"e": (64, 8)}, r"metadata E_s of extents .*64, 8.* M = 64 and K = 128 .* K / 8"),
        ({"e": (32, 16)}, "metadata E_s of extents .*32, 16"),
        ({"dtypes": ("float16", "int8", "float16")}, "metadata E_s, of dtype int8 .* be uint8"),
        ({"scopes": ("shared", "fragment")}, "E_s, of dtype uint8 in scope fragment"),
        ({"scopes": ("fragment", "shared")}, "A, A_s, in scope fragment; a sparse A must be"),
        ({"b": (32, 64)}, r"\[M, K / 2, here doubled\] = .*64, 128.* B_s, \[N, K\] = .*32, 64"),
        ({"dtypes": ("float64", "uint8", "float64")}, "dtype float64; sparse MMAs take float16"),
        ({"options": {"wait": True}}, "sparse, transA, transB and accum only"),
    ],
)
def test_what_breaks_a_rule_is_refused(changes, sentence):
    program = with_tiles(**changes)
    refused(program, sentence)
    with pytest.raises(TileProgramError, match=sentence):
        wl.interpret(program, [np.zeros((64, 32), "float32")])


def test_a_tile_without_whole_instructions_is_declined():
    sentence = "metadata have 6 bytes, no multiple of 4, those of one step of K; pad K"
    with pytest.raises(DispatchError, match=sentence):
        emulator.run(with_tiles((64, 24), (64, 6), (32, 48)), [np.zeros((64, 32), "float32")])


def test_scripts_go_round():
    func = sparse_gemm().func
    text = func.script()
    assert "E_s[0:64, 0:16]" in text
    tvm.ir.assert_structural_equal(
        tvm.script.from_source(text, {"T": T, "Tx": Tx, "wl": wl, "tvm": tvm}), func
    )


def test_short_form():
    @T.prim_func
    def program(A: T.Buffer((64, 64), "int8"), E: T.Buffer((64, 16), "uint8"),
                B: T.Buffer((32, 128), "int8"), C: T.Buffer((64, 32), "int32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s, E_s = wl.load(A[0:64, 0:64]), wl.load(E[0:64, 0:16])
        B_s = wl.load(B[0:32, 0:128])
        wl.store(C, (0, 0), wl.gemm(A_s, B_s, sparse=E_s))

    case = sparse_gemm(64, 32, 128, (64, 32, 128), "int8")
    arguments = case.arguments(np.random.default_rng(3))
    expected = case.expected(arguments)[3]
    wl.interpret(program, arguments)
    np.testing.assert_array_equal(arguments[3], expected)



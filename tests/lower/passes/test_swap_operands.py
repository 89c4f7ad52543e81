"""Accumulators of few rows, which are computed as their transpose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from tests.shared import tile_programs
from tests.shared.lowered_programs import after_passes, check, hinted, local_memory
from tests.shared.tile_programs.case import Case, poisoned, random_values, wide
from warploom import language as wl
from warploom.errors import Decline
from warploom.lower.lowerings import lower
from warploom.lower.passes.canonicalize import canonicalize
from warploom.lower.passes.infer_layouts import infer_layouts
from warploom.tile.statement import Allocation, Mma, walk

ARCHS = ("sm_90a", "sm_100a")


@pytest.mark.parametrize("layout", ["NT", "TN", "NN", "TT"])
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("tile", [(8, 64), (16, 128), (32, 64), (48, 256), (24, 64)])
@pytest.mark.some(6)
def test_gemms_of_few_rows(tile, layout, arch, rng):
    rows = 2 * tile[0] - (3 if layout[0] == "N" else 0)
    check(tile_programs.gemm(rows, tile[1] + 8, 72, (*tile, 32), layout=layout), rng, arch)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int8"])
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.some(3)
def test_dtypes(dtype, arch, rng):
    if (dtype, arch) == ("int8", "sm_100a"):
        pytest.skip("no tcgen05 schedule takes int8")
    check(tile_programs.gemm(16, 128, 96, (16, 64, 64), dtype), rng, arch)


def epilogue(scope: str, direct: bool) -> Case:
    """C = (A B^T + column) * row: vectors along both dimensions, of registers and of memory."""

    @T.prim_func
    def func(A: T.Buffer((16, 64), "float16"), B: T.Buffer((64, 64), "float16"),
             Column: T.Buffer((12,), "float32"), Row: T.Buffer((64,), "float32"),
             C: T.Buffer((16, 64), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((16, 64), "float16", scope="shared")
        B_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        acc = T.alloc_buffer((16, 64), "float32", scope="accumulator")
        column = T.alloc_buffer((16,), "float32", scope="fragment")
        out = T.alloc_buffer((16, 64), "float32", scope=scope)
        Tx.cta.copy_async(A_s, A[0:16, 0:64])
        Tx.cta.copy_async(B_s, B[0:64, 0:64])
        Tx.cta.gemm_async(acc, A_s, B_s)
        Tx.cta.copy(column, Column[0:16])
        for i, j in T.grid(16, 64):
            acc[i, j] = (acc[i, j] + column[i]) * Row[j]
        if direct:
            Tx.cta.copy(C[0:16, 0:64], acc)
        else:
            Tx.cta.cast(out, acc)
            Tx.cta.copy(C[0:16, 0:64], out)

    def arguments(rng: np.random.Generator) -> list[Any]:
        shapes = [((16, 64), "float16"), ((64, 64), "float16"), ((12,), "float32"),
                  ((64,), "float32")]  # fmt: skip
        made = [random_values(rng, shape, dtype) for shape, dtype in shapes]
        return [*made, poisoned((16, 64), "float32")]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, b, column, row, _ = map(wide, args)
        return {4: (a @ b.T + np.pad(column, (0, 4))[:, None]) * row}

    return Case(func, arguments, expected, 2e-6)


@pytest.mark.parametrize(
    ("scope", "direct"), [("fragment", False), ("shared", False), ("shared", True)]
)
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.some(4)
def test_vectors_along_both_dimensions(arch, scope, direct, rng):
    check(epilogue(scope, direct), rng, arch)


def test_operands_change_places():
    case = tile_programs.gemm(16, 64, 32, (16, 64, 32))
    program = after_passes(case.func, canonicalize)
    (mma,) = (one for one in walk(program.block) if isinstance(one, Mma))
    assert [region.source.name for region in mma.operands] == ["B_s", "A_s"]
    assert [int(extent) for extent in mma.d.shape] == [64, 16]
    kept = after_passes(tile_programs.gemm(64, 64, 32).func, canonicalize)
    shapes = {
        one.buffer.name: tuple(map(int, one.buffer.shape))
        for one in walk(kept.block) if isinstance(one, Allocation)
    }  # fmt: skip
    assert shapes["acc"] == (64, 64)


@pytest.mark.parametrize("columns", [48, 96])
def test_other_numbers_of_columns_are_declined(columns):
    with pytest.raises(Decline, match=r"acc has 16 rows; .* fewer need a multiple of 64 columns"):
        lower(tile_programs.gemm(16, columns, 32, (16, columns, 32)).func)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("tile", [(16, 128, 64), (32, 256, 64)])
def test_nothing_is_spilled(tile, arch):
    func = tile_programs.gemm(tile[0], 512, 512, tile, out_dtype="float16").func
    assert local_memory(func, arch) == (0, 0, 0)


def test_consumers_share_the_columns(rng):
    check(tile_programs.gemm(16, 128, 64, (16, 128, 32)), rng, consumers=2)
    with pytest.raises(Decline, match="3 consumer warpgroups cannot share tiles of"):
        lower(hinted(tile_programs.gemm(16, 128, 64, (16, 128, 32)).func, consumers=3))


def gradients(queries: int, keys: int, columns: int, read: bool = False) -> Case:
    """Q = P^T K beside P = K A^T: of ``queries`` rows, where P has those of the keys."""

    @T.prim_func
    def func(A: T.Buffer((queries, 16), "float16"), B: T.Buffer((keys, 16), "float16"),
             K: T.Buffer((keys, columns), "float16"),
             Q: T.Buffer((queries, columns), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = wl.load(A[0:queries, 0:16])
        B_s = wl.load(B[0:keys, 0:16])
        K_s = wl.load(K[0:keys, 0:columns])
        P_s = T.alloc_shared((keys, queries), "float16")
        Tx.cta.copy(P_s, wl.cast(wl.gemm(B_s, A_s), "float16"))
        acc = wl.gemm(P_s, K_s, transA=True, transB=True)
        if read:
            total = wl.alloc_fragment((queries,))
            Tx.cta.sum(total, acc, axes=(1,))
            for i, j in T.grid(queries, columns):
                acc[i, j] = acc[i, j] - total[i]
        wl.store(Q[0:queries, 0:columns], acc)

    def arguments(rng: np.random.Generator) -> list[Any]:
        shapes = [(queries, 16), (keys, 16), (keys, columns)]
        made = [random_values(rng, shape, "float16") for shape in shapes]
        return [*made, poisoned((queries, columns), "float32")]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, b, k, _ = map(wide, args)
        result = wide((b @ a.T).astype(np.float16)).T @ k
        return {3: result - read * result.sum(1, keepdims=True)}

    return Case(func, arguments, expected, 1e-3)


def decided(func: PrimFunc) -> str:
    return "\n".join(after_passes(func, canonicalize, infer_layouts).decisions)


@pytest.mark.parametrize(
    ("queries", "keys", "columns", "count"),
    [(64, 128, 128, 2), (64, 128, 256, 2), (64, 192, 192, 3), (128, 128, 128, 2)],
)
@pytest.mark.some(2)
def test_more_warpgroups_share_a_transpose(queries, keys, columns, count, rng):
    case = gradients(queries, keys, columns)
    said = decided(case.func)
    assert f"consumers: {count} warpgroups" in said
    assert (f"computed as {columns} x {queries}" in said) == (queries < keys)
    for arch in ARCHS[: 1 if keys % 128 else 2]:  # tensor memory holds no 192 rows
        check(case, rng, arch)


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (gradients(64, 128, 64), "columns that two warpgroups cannot share"),
        (gradients(64, 128, 128, read=True), "a reduction of its rows"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_some_results_stay_as_they_are(case, why, rng):
    said = decided(case.func)
    assert "consumers: 1 warpgroups" in said and "computed as" not in said, why
    check(case, rng)


def test_a_hint_of_fewer_warpgroups_needs_no_transpose():
    case = gradients(64, 128, 128)
    assert "computed as" not in decided(hinted(case.func, consumers=1))

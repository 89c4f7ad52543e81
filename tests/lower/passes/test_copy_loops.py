"""Loops of copies: pages and rows of a tile, which are loaded or stored one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.lowered_programs import check
from tests.shared.tile_programs.case import Case, poisoned, random_values, wide
from warploom import language as wl
from warploom.lower.emit import fill_stages
from warploom.lower.lowerings import lower
from warploom.lower.trace import lower_trace
from warploom.target import cuda_target

ARCHS = ("sm_90a", "sm_100a")
M, N, K, BK, TOKENS = 128, 64, 128, 64, 300


def gathered(rows: int, bm: int = 64, scalar: str = "", out_rows: int = 0,
             scope: str = "fragment") -> Case:  # fmt: skip
    """C[to] = A[from] B^T: groups of rows come from places in a table, and may be stored so."""
    parts = bm // rows

    @T.prim_func
    def func(A: T.Buffer((TOKENS, K), "float16"), B: T.Buffer((N, K), "float16"),
             FROM: T.Buffer((M // rows,), "int32"), TO: T.Buffer((M,), "int32"),
             C: T.Buffer((TOKENS, N), "float32")):  # fmt: skip
        T.device_entry()
        i = T.cta_id([M // bm])
        A_s = T.alloc_buffer((bm, BK), "float16", scope="shared")
        B_s = T.alloc_buffer((N, BK), "float16", scope="shared")
        acc = T.alloc_buffer((bm, N), "float32", scope="accumulator")
        out = T.alloc_buffer((bm, N), "float32", scope=scope)
        for k in wl.pipelined(K // BK):
            for g in T.serial(parts):
                if scalar == "variable":
                    first: T.int32 = FROM[i * parts + g]
                    Tx.cta.copy_async(A_s[g * rows : g * rows + rows, 0:BK],
                                      A[first : first + rows, k * BK : k * BK + BK])
                elif scalar == "value":
                    at: T.let = i * parts + g
                    first: T.let = FROM[at]
                    Tx.cta.copy_async(A_s[g * rows : g * rows + rows, 0:BK],
                                      A[first : first + rows, k * BK : k * BK + BK])
                else:
                    Tx.cta.copy_async(
                        A_s[g * rows : g * rows + rows, 0:BK],
                        A[FROM[i * parts + g] : FROM[i * parts + g] + rows, k * BK : k * BK + BK],
                    )
            Tx.cta.copy_async(B_s, B[0:N, k * BK : k * BK + BK])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        Tx.cta.cast(out, acc)
        if out_rows > 0:
            for r in T.serial(bm // out_rows):
                Tx.cta.copy(
                    C[TO[i * bm + r * out_rows] : TO[i * bm + r * out_rows] + out_rows, 0:N],
                    out[r * out_rows : r * out_rows + out_rows, 0:N],
                )
        else:
            Tx.cta.copy(C[i * bm : i * bm + bm, 0:N], out)

    def arguments(rng: np.random.Generator) -> list[Any]:
        # The last rows of a group may lie beyond the end, where copies read zeros.
        starts = rng.integers(0, TOKENS, M // rows).astype(np.int32)
        step = max(out_rows, 1)
        places = step * rng.permutation(TOKENS // step)[: M // step]
        to = (places[:, None] + np.arange(step)).reshape(-1)[:M].astype(np.int32)
        return [
            random_values(rng, (TOKENS, K), "float16"), random_values(rng, (N, K), "float16"),
            starts, to, poisoned((TOKENS, N), "float32"),
        ]  # fmt: skip

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, b, starts, to, c = args
        padded = np.concatenate([wide(a), np.zeros((rows, K))])
        result = padded[(starts[:, None] + np.arange(rows)).reshape(-1)] @ wide(b).T
        whole = c.astype(np.float64)
        whole[to if out_rows else np.arange(M)] = result
        return {4: whole}

    return Case(func, arguments, expected, 2e-6)


def compare(case: Case, rng: np.random.Generator, arch: str) -> None:
    """Where C is not stored it keeps its poison, which is no number."""
    poisonless = Case(
        case.func,
        lambda rng: [*case.arguments(rng)[:4], np.full((TOKENS, N), 7, "float32")],
        case.expected,
        case.tolerance,
    )
    check(poisonless, rng, arch)


@pytest.mark.parametrize("scalar", ["", "variable", "value"])
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("rows", [8, 16, 32])
@pytest.mark.some(4)
def test_pages_come_by_tma(rows, arch, scalar, rng):
    case = gathered(rows, scalar=scalar)
    names = [step.name for step in lower_trace(case.func, arch)]
    assert "Multistage" not in names
    compare(case, rng, arch)


@pytest.mark.parametrize("scalar", ["", "value"])
@pytest.mark.parametrize("bm", [64, 128])
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.some(6)
def test_gathered_rows_come_by_threads(rows, bm, arch, scalar, rng):
    compare(gathered(rows, bm, scalar), rng, arch)


@pytest.mark.parametrize("scope", ["fragment", "shared"])
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("out_rows", [1, 4, 16])
@pytest.mark.some(5)
def test_rows_are_scattered(out_rows, arch, scope, rng):
    compare(gathered(8, 128, out_rows=out_rows, scope=scope), rng, arch)


def test_pages_are_filled_in_one_stage_of_a_ring():
    told = [one for step in lower_trace(gathered(16).func, "sm_90a") for one in step.decisions]
    assert any(one.startswith("ring of A_s, B_s: ") for one in told)


def gathered_rows(
    dtype: str = "float16", bm: int = 64, columns: int = 64, both: bool = False, **sizes: int
) -> Case:
    """C = A[from] B^T, or C = A[from] B[from]^T: each row of a tile has an index, or none."""
    n, steps = 64, sizes.get("steps", 2)
    k = steps * columns

    @T.prim_func
    def func(A: T.Buffer((TOKENS, k), dtype), B: T.Buffer((TOKENS, k), dtype),
             FROM: T.Buffer((2 * bm,), "int32"), C: T.Buffer((2 * bm, n), "float32")):  # fmt: skip
        T.device_entry()
        i = T.cta_id([2])
        A_s = T.alloc_buffer((bm, columns), dtype, scope="shared")
        B_s = T.alloc_buffer((n, columns), dtype, scope="shared")
        acc = T.alloc_buffer((bm, n), "float32", scope="accumulator")
        for step in wl.pipelined(steps, 2):
            for r in range(bm):
                row: T.let = FROM[i * bm + r]
                Tx.cta.copy_async(
                    A_s[r : r + 1, 0:columns],
                    A[row : row + 1, step * columns : step * columns + columns],
                )
            if both:
                for r in range(n):
                    Tx.cta.copy_async(
                        B_s[r : r + 1, 0:columns],
                        B[FROM[r] : FROM[r] + 1, step * columns : step * columns + columns],
                    )
            else:
                Tx.cta.copy_async(B_s, B[0:n, step * columns : step * columns + columns])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=step > 0)
        Tx.cta.copy(C[i * bm : i * bm + bm, 0:n], acc)

    def arguments(rng: np.random.Generator) -> list[Any]:
        rows = rng.integers(0, TOKENS, 2 * bm).astype(np.int32)
        # Rows outside of the matrix are zero.
        rows[rng.integers(0, 2 * bm, 3)] = -1, TOKENS, TOKENS + 900
        made = [random_values(rng, (TOKENS, k), dtype) for _ in "ab"]
        return [*made, rows, poisoned((2 * bm, n), "float32")]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, b, rows = (wide(one) for one in args[:3])
        rows = rows.astype(int)
        inside = ((rows >= 0) & (rows < TOKENS))[:, None]
        left = np.where(inside, a[np.clip(rows, 0, TOKENS - 1)], 0)
        right = np.where(inside, b[np.clip(rows, 0, TOKENS - 1)], 0)[:n] if both else b[:n]
        return {3: left @ right.T}

    return Case(func, arguments, expected, 1e-5)


def cuda(case: Case) -> str:
    module = tvm.IRModule({"main": lower(case.func, "sm_100a", quiet=True)})
    built = tvm.compile(module, cuda_target("sm_100a"), tir_pipeline="tirx")
    return built.mod.imports[0].inspect_source()


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(
    "options",
    [
        {}, {"bm": 128}, {"both": True}, {"columns": 128}, {"columns": 16},
        {"dtype": "float8_e4m3fn"}, {"dtype": "bfloat16", "columns": 32}, {"steps": 5},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.some(6)
def test_rows_with_an_index_each(options, arch, rng):
    check(gathered_rows(**options), rng, arch)


def test_blackwell_gathers_four_rows_at_a_time():
    case = gathered_rows(columns=128)
    # Two swizzle atoms of columns of 64 rows; the definition of the instruction is one more.
    assert cuda(case).count("tile__gather4") >= 64 // 4
    decisions = [one for step in lower_trace(case.func, "sm_100a") for one in step.decisions]
    assert any("ring of A_s, B_s: 2 stages" in one for one in decisions)


def test_rows_that_gather4_does_not_fill_are_copied_by_threads(rng):
    # Four rows of 16 bytes are no multiple of what TMA wants.
    case = gathered_rows("float16", columns=24)
    assert "gather4" not in cuda(case)


def test_each_row_of_four_has_its_place(monkeypatch, rng):
    """With the rows of one instruction in another order the result is wrong."""
    whole = fill_stages.rows_of
    skipped: list[int] = []

    def in_another_order(group: Any) -> Any:
        rows = whole(group)
        if not skipped:
            skipped.append(1)
            return [rows[0], *rows[:3]]
        return rows

    monkeypatch.setattr(fill_stages, "rows_of", in_another_order)
    case = gathered_rows()
    with pytest.raises(AssertionError, match="of the allowed error"):
        check(case, rng, "sm_100a")

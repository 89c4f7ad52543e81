"""Loops of copies: pages and rows of a tile, which are loaded or stored one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.lowered_programs import check
from tests.shared.tile_programs.case import Case, poisoned, random_values, wide
from warploom import language as wl
from warploom.lower.trace import lower_trace

ARCHS = ("sm_90a", "sm_100a")
M, N, K, BK, TOKENS = 128, 64, 128, 64, 300


def gathered(rows: int, bm: int = 64, scalar: bool = False, out_rows: int = 0,
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
                if scalar:
                    first: T.int32 = FROM[i * parts + g]
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


@pytest.mark.parametrize("scalar", [False, True])
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("rows", [8, 16, 32])
@pytest.mark.some(4)
def test_pages_come_by_tma(rows, arch, scalar, rng):
    case = gathered(rows, scalar=scalar)
    names = [step.name for step in lower_trace(case.func, arch)]
    assert "Multistage" not in names
    compare(case, rng, arch)


@pytest.mark.parametrize("bm", [64, 128])
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.some(4)
def test_gathered_rows_come_by_threads(rows, bm, arch, rng):
    compare(gathered(rows, bm), rng, arch)


@pytest.mark.parametrize("scope", ["fragment", "shared"])
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("out_rows", [1, 4, 16])
@pytest.mark.some(5)
def test_rows_are_scattered(out_rows, arch, scope, rng):
    compare(gathered(8, 128, out_rows=out_rows, scope=scope), rng, arch)


def test_pages_are_filled_in_one_stage_of_a_ring():
    told = [one for step in lower_trace(gathered(16).func, "sm_90a") for one in step.decisions]
    assert any(one.startswith("ring of A_s, B_s: ") for one in told)

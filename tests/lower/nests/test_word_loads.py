"""Nests that read narrow elements of shared tiles load words of them."""

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
from warploom.lower.lowerings import lower
from warploom.target import cuda_target

NARROW = ("float16", "bfloat16", "int8", "uint8", "float8_e4m3fn")


def scaled(
    dtype: str, scope: str, column: Any = lambda j: j, guarded: bool = False, rows: int = 64
) -> Case:
    """D = f(A) B: f scales rows of A, in float32, on their way to the MMA."""
    n, k, steps = 32, 64, 3
    value = "bfloat16" if dtype == "bfloat16" else "float16"

    def element(A_s: Any, i: Any, j: Any) -> Any:
        if guarded:
            return T.if_then_else(j < k - 1, T.cast(A_s[i, j + 1], "float32"), T.float32(0))
        return T.cast(A_s[i, column(j)], "float32")

    @T.prim_func
    def program(
        A: T.Buffer((rows, steps * k), dtype), R: T.Buffer((rows,), "float32"),
        B: T.Buffer((n, steps * k), value), D: T.Buffer((rows, n), "float32"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((rows, k), dtype, scope="shared")
        B_s = T.alloc_buffer((n, k), value, scope="shared")
        A_f = T.alloc_buffer((rows, k), value, scope=scope)
        r = T.alloc_buffer((rows,), "float32", scope="fragment")
        d = T.alloc_buffer((rows, n), "float32", scope="accumulator")
        Tx.cta.copy(r, R)
        for step in wl.pipelined(steps, 2):
            Tx.cta.copy_async(A_s, A[0:rows, step * k : step * k + k])
            Tx.cta.copy_async(B_s, B[0:n, step * k : step * k + k])
            for i, j in T.grid(rows, k):
                A_f[i, j] = T.cast(element(A_s, i, j) * r[i], value)
            Tx.cta.gemm_async(d, A_f, B_s, accum=step > 0)
        Tx.cta.copy(D, d)

    def arguments(rng: np.random.Generator) -> list[Any]:
        a = random_values(rng, (rows, steps * k), dtype)
        scales = np.exp2(rng.integers(-8, -4, rows)).astype(np.float32)
        return [
            a, scales, random_values(rng, (n, steps * k), value), poisoned((rows, n), "float32")
        ]  # fmt: skip

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, r, b = (wide(one) for one in args[:3])
        a = a.reshape(rows, steps, k)
        at = np.arange(k)
        a = np.roll(a, -1, axis=2) * (at < k - 1) if guarded else a[:, :, column(at)]
        return {3: (a * r[:, None, None]).reshape(rows, -1) @ b.T}

    return Case(program, arguments, expected, 1e-5)


def cuda(func: Any, arch: str) -> str:
    module = tvm.IRModule({"main": lower(func, arch, quiet=True)})
    built = tvm.compile(module, cuda_target(arch), tir_pipeline="tirx")
    return built.mod.imports[0].inspect_source()


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("scope", ["fragment", "shared"])
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.some(6)
def test_elements_on_their_way_to_an_mma(dtype, scope, arch, rng):
    check(scaled(dtype, scope), rng, arch)


@pytest.mark.parametrize("column", [lambda j: j // 2, lambda j: 63 - j, lambda j: j // 4 * 4])
@pytest.mark.parametrize("dtype", ["float16", "int8"])
@pytest.mark.some(3)
def test_other_columns(dtype, column, rng):
    check(scaled(dtype, "fragment", column), rng)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_elements_under_a_condition_are_not_read_before(dtype, rng):
    case = scaled(dtype, "fragment", guarded=True)
    assert "warploom_load_" not in cuda(case.func, "sm_90a")
    check(case, rng)


@pytest.mark.parametrize(("dtype", "size"), [("float16", 4), ("bfloat16", 4), ("int8", 2)])
def test_pairs_are_loaded_and_stored_together(dtype, size):
    source = cuda(scaled(dtype, "shared").func, "sm_90a")
    assert source.count(f"warploom_load_{size}(") == 1 + 16
    assert source.count("warploom_store_word(") == 1 + 16
    assert f"warploom_load_{size // 2}(" not in source


def test_threads_with_whole_rows_load_16_bytes():
    source = cuda(scaled("float16", "fragment", rows=128).func, "sm_100a")
    assert source.count("warploom_load_16(") == 1 + 64 // 8
    assert "warploom_load_4(" not in source

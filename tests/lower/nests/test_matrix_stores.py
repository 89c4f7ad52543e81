"""16-bit tiles go from registers to shared memory by ``stmatrix``, as they lie or transposed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.lower.nests.test_word_loads import cuda
from tests.shared.lowered_programs import check
from tests.shared.tile_programs.case import Case, poisoned, precision, random_values, wide
from warploom import language as wl


def stored(
    rows: int, columns: int, dtype: str, transposed: bool = False, start: int = 0,
    computed: bool = False,
) -> Case:  # fmt: skip
    """C = (A B^T + 1) D: the left matrix goes through shared memory, behind ``start`` rows."""
    k, n = 32, 16
    height, width = (columns, rows) if transposed else (rows, columns)

    @T.prim_func
    def program(
        A: T.Buffer((rows, k), dtype), B: T.Buffer((columns, k), dtype),
        D: T.Buffer((n, columns), dtype), C: T.Buffer((rows, n), "float32"),
        P: T.Buffer((start + height, width), dtype),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = wl.load(A[0:rows, 0:k])
        B_s = wl.load(B[0:columns, 0:k])
        D_s = wl.load(D[0:n, 0:columns])
        P_s = T.alloc_buffer((start + height, width), dtype, scope="shared")
        Tx.cta.zero(P_s)
        acc = wl.gemm(A_s, B_s)
        if computed:
            for i, j in T.grid(rows, columns):
                if transposed:
                    P_s[start + j, i] = T.cast(acc[i, j] + T.float32(1), dtype)
                else:
                    P_s[start + i, j] = T.cast(acc[i, j] + T.float32(1), dtype)
        else:
            for i, j in T.grid(rows, columns):
                acc[i, j] = acc[i, j] + T.float32(1)
            p = wl.cast(acc, dtype)
            for i, j in T.grid(rows, columns):
                if transposed:
                    P_s[start + j, i] = p[i, j]
                else:
                    P_s[start + i, j] = p[i, j]
        result = wl.alloc_accumulator((rows, n))
        Tx.cta.gemm_async(
            result, P_s[start : start + height, 0:width], D_s, transA=transposed, accum=False
        )
        wl.store(C[0:rows, 0:n], result)
        Tx.cta.copy(P[0 : start + height, 0:width], P_s)

    def arguments(rng: np.random.Generator) -> list[Any]:
        shapes = [(rows, k), (columns, k), (n, columns)]
        outputs = [((rows, n), "float32"), ((start + height, width), dtype)]
        return [
            *(random_values(rng, shape, dtype) for shape in shapes),
            *(poisoned(*output) for output in outputs),
        ]  # fmt: skip

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        a, b, d = map(wide, args[:3])
        p = a @ b.T + 1
        rounded = wide(p.astype(np.float32).astype(args[0].dtype))
        there = p.T if transposed else p
        return {3: rounded @ d.T, 4: np.concatenate([np.zeros((start, width)), there])}

    return Case(program, arguments, expected, 2 * precision(dtype))


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("rows", "columns", "start"), [(64, 16, 0), (64, 64, 64), (128, 96, 0), (192, 48, 0)]
)
@pytest.mark.some(6)
def test_tiles_are_stored(rows, columns, start, dtype, transposed, computed, rng):
    case = stored(rows, columns, dtype, transposed, start, computed)
    check(case, rng)
    name = "warploom_stmatrix_trans" if transposed else "warploom_stmatrix"
    assert f"  {name}((" in cuda(case.func, "sm_90a")


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("columns", [8, 24, 40])
@pytest.mark.some(2)
def test_columns_that_no_instruction_stores_go_element_by_element(columns, transposed, rng):
    # Elements of a row of K come in sixteens: these columns are rows of the result instead.
    case = turned(columns, transposed)
    check(case, rng)
    assert "warploom_stmatrix" not in cuda(case.func, "sm_90a")


def turned(columns: int, transposed: bool) -> Case:
    """P = A B^T in float16, of any columns."""
    shape = (columns, 64) if transposed else (64, columns)

    @T.prim_func
    def program(
        A: T.Buffer((64, 16), "float16"), B: T.Buffer((columns, 16), "float16"),
        P: T.Buffer(shape, "float16"),
    ):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = wl.load(A[0:64, 0:16])
        B_s = wl.load(B[0:columns, 0:16])
        P_s = T.alloc_buffer(shape, "float16", scope="shared")
        p = wl.cast(wl.gemm(A_s, B_s), "float16")
        for i, j in T.grid(64, columns):
            if transposed:
                P_s[j, i] = p[i, j]
            else:
                P_s[i, j] = p[i, j]
        Tx.cta.copy(P[0 : shape[0], 0 : shape[1]], P_s)

    def arguments(rng: np.random.Generator) -> list[Any]:
        made = [random_values(rng, one, "float16") for one in [(64, 16), (columns, 16)]]
        return [*made, poisoned(shape, "float16")]

    def expected(args: list[Any]) -> dict[int, np.ndarray]:
        product = wide(args[0]) @ wide(args[1]).T
        return {2: product.T if transposed else product}

    return Case(program, arguments, expected, precision("float16"))

"""Accumulators of 64 and of 128 rows in one program, in tensor memory and in registers."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.lowered_programs import check, local_memory
from tests.shared.tile_programs.case import Case, poisoned
from warploom import language as wl
from warploom.errors import Decline
from warploom.lower.lowerings import lower

D, STEPS = 64, 3


def two_matmuls(first: int, second: int, columns: int) -> Case:
    """S = X Y^T of ``first`` rows, and sums of S^T Z, of ``second`` rows; both with row vectors."""

    @T.prim_func
    def program(X: T.Buffer((STEPS, first, D), "float16"), Y: T.Buffer((second, D), "float16"),
                Z: T.Buffer((STEPS, first, columns), "float16"),
                Largest: T.Buffer((STEPS, first), "float32"),
                Out: T.Buffer((second, columns), "float16"),
                Sums: T.Buffer((second,), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        S = wl.alloc_accumulator((first, second))
        acc = wl.alloc_accumulator((second, columns))
        W = T.alloc_shared((first, second), "float16")
        largest = wl.alloc_fragment((first,))
        sums = wl.alloc_fragment((second,))
        Y_s = wl.load(Y, (0, 0), (second, D))
        for k in wl.pipelined(STEPS, stages=2):
            X_s = wl.load(X, (k, 0, 0), (first, D))
            Z_s = wl.load(Z, (k, 0, 0), (first, columns))
            Tx.cta.gemm_async(S, X_s, Y_s)
            Tx.cta.max(largest, S, axes=(1,))
            wl.store(Largest, (k, 0), largest)
            for i, j in T.grid(first, second):
                W[i, j] = T.cast(T.min(S[i, j] - largest[i], T.float32(0)), "float16")
            Tx.cta.gemm_async(acc, W, Z_s, transA=True, transB=True, accum=k > 0)
        Tx.cta.sum(sums, acc, axes=(1,))
        for i, j in T.grid(second, columns):
            acc[i, j] = acc[i, j] - sums[i]
        wl.store(Out, (0, 0), acc)
        wl.store(Sums, (0,), sums)

    def expected(args: list) -> dict[int, np.ndarray]:
        x, y, z = (each.astype(np.float64) for each in args[:3])
        s = x @ y.T
        largest = s.max(2)
        acc = sum((s[k] - largest[k][:, None]).T @ z[k] for k in range(STEPS))
        return {3: largest, 4: acc - acc.sum(1, keepdims=True), 5: acc.sum(1)}

    shapes = (STEPS, first, D), (second, D), (STEPS, first, columns)
    return Case(
        program,
        lambda rng: [
            *((rng.standard_normal(shape) * 0.3).astype(np.float16) for shape in shapes),
            poisoned((STEPS, first), "float32"), poisoned((second, columns), "float16"),
            poisoned((second,), "float32"),
        ],
        expected,
        3e-3,
    )  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize(("first", "second"), [(64, 128), (128, 64)])
@pytest.mark.parametrize("columns", [32, 64, 128])
@pytest.mark.some(4)
def test_matmuls_of_64_and_128_rows(columns, first, second, arch, rng):
    check(two_matmuls(first, second, columns), rng, arch)


@pytest.mark.parametrize(("first", "second"), [(64, 128), (128, 64)])
def test_they_stay_in_registers(first, second):
    assert local_memory(two_matmuls(first, second, 64).func, "sm_100a") == (0, 0, 0)


def test_a_transposed_tile_has_rows_of_its_own(rng):
    rows, columns = 64, 128

    @T.prim_func
    def program(A: T.Buffer((rows, D), "float16"), B: T.Buffer((columns, D), "float16"),
                Out: T.Buffer((columns,), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        acc = wl.gemm(wl.load(A, (0, 0), (rows, D)), wl.load(B, (0, 0), (columns, D)))
        S = T.alloc_shared((rows, columns), "float32")
        turned = wl.alloc_fragment((columns, rows))
        sums = wl.alloc_fragment((columns,))
        Tx.cta.copy(S, acc)
        for i, j in T.grid(columns, rows):
            turned[i, j] = S[j, i]
        Tx.cta.sum(sums, turned, axes=(1,))
        wl.store(Out, (0,), sums)

    case = Case(
        program,
        lambda rng: [
            *(rng.standard_normal((n, D)).astype(np.float16) for n in (rows, columns)),
            poisoned((columns,), "float32"),
        ],
        lambda args: {2: (args[0].astype(np.float64) @ args[1].astype(np.float64).T).sum(0)},
        1e-5,
    )  # fmt: skip
    check(case, rng, "sm_100a")


def test_vectors_along_columns_are_declined():
    @T.prim_func
    def program(A: T.Buffer((64, D), "float16"), B: T.Buffer((128, D), "float16"),
                Bias: T.Buffer((128,), "float32"), Out: T.Buffer((64, 128), "float32"),
                Other: T.Buffer((128, 64), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = wl.load(A, (0, 0), (64, D))
        B_s = wl.load(B, (0, 0), (128, D))
        bias = T.alloc_buffer((128,), "float32", scope="fragment")
        acc = wl.gemm(A_s, B_s)
        other = wl.gemm(B_s, A_s)
        Tx.cta.copy(bias, Bias[0:128])
        for i, j in T.grid(64, 128):
            acc[i, j] = acc[i, j] + bias[j]
        wl.store(Out, (0, 0), acc)
        wl.store(Other, (0, 0), other)

    with pytest.raises(Decline, match=r"vector bias lies along the columns .* 64 and 128 rows"):
        lower(program, "sm_100a")

"""Statements on a part of a tile do what they say on that part, and nothing elsewhere."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.lowered_programs import run
from warploom import language as wl
from warploom.errors import Decline
from warploom.lower.lowerings import lower

ARCHS = ("sm_90a", "sm_100a")
ROWS, COLUMNS, K = 128, 64, 64
#: First and number of the columns, and first and number of the rows, of a part.
PARTS = [
    (0, 48, 0, 128), (0, 40, 0, 128), (16, 48, 0, 128), (8, 8, 0, 128), (0, 64, 0, 64),
    (0, 64, 64, 64), (24, 16, 16, 48), (1, 62, 0, 128), (0, 1, 0, 128), (0, 64, 5, 1),
]  # fmt: skip


def program(what: str, part: tuple[int, int, int, int], dtype: str, wide: int):
    """An MMA whose result goes through a statement on a part of a tile."""
    first, count, row, rows = part

    @T.prim_func
    def kernel(
        A: T.Buffer((ROWS, K), "float16"), B: T.Buffer((COLUMNS, K), "float16"),
        X: T.Buffer((ROWS, wide), dtype), C: T.Buffer((ROWS, wide), dtype),
    ):  # fmt: skip
        T.device_entry()
        i = T.cta_id([1])
        A_s = T.alloc_buffer((ROWS, K), "float16", scope="shared")
        B_s = T.alloc_buffer((COLUMNS, K), "float16", scope="shared")
        acc = T.alloc_buffer((ROWS, COLUMNS), "float32", scope="accumulator")
        out = T.alloc_buffer((ROWS, COLUMNS), dtype, scope="fragment")
        for k in wl.pipelined(1, 2):
            Tx.cta.copy_async(A_s, A[i * ROWS : i * ROWS + ROWS, k * K : k * K + K])
            Tx.cta.copy_async(B_s, B[0:COLUMNS, k * K : k * K + K])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        for y, x in T.grid(ROWS, COLUMNS):
            out[y, x] = T.cast(acc[y, x], dtype)
        if what == "store":
            Tx.cta.copy(C[row : row + rows, 2 : 2 + count],
                        out[row : row + rows, first : first + count])
        if what == "load":
            Tx.cta.copy(out[row : row + rows, first : first + count],
                        X[row : row + rows, 2 : 2 + count])
            Tx.cta.copy(C[0:ROWS, 0:COLUMNS], out)
        if what == "copy":
            other = T.alloc_buffer((ROWS, COLUMNS), dtype, scope="fragment")
            Tx.cta.zero(other)
            Tx.cta.copy(other[row : row + rows, first : first + count],
                        out[row : row + rows, first : first + count])
            Tx.cta.copy(C[0:ROWS, 0:COLUMNS], other)
        if what == "fill":
            Tx.cta.fill(out[row : row + rows, first : first + count], 3)
            Tx.cta.copy(C[0:ROWS, 0:COLUMNS], out)
        if what == "sum":
            total = T.alloc_buffer((ROWS,), "float32", scope="fragment")
            Tx.cta.zero(total)
            Tx.cta.sum(total[row : row + rows],
                       acc[row : row + rows, first : first + count], axes=[-1])
            for y, x in T.grid(ROWS, COLUMNS):
                out[y, x] = T.cast(total[y], dtype)
            Tx.cta.copy(C[0:ROWS, 0:COLUMNS], out)

    return kernel


@pytest.mark.some(16)
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("what", ["store", "load", "copy", "fill", "sum"])
@pytest.mark.parametrize("part", PARTS, ids=str)
def test_nothing_but_the_part_is_touched(what, part, arch, rng):
    dtype = str(rng.choice(["float16", "float32", "bfloat16"]))
    func = program(what, part, dtype, wide := int(rng.choice([64, 72, 96, 70])))
    a, b = (rng.integers(-2, 3, (n, K)).astype(np.float16) for n in (ROWS, COLUMNS))
    x = rng.integers(-9, 9, (ROWS, wide)).astype(np.float32)
    c = np.full((ROWS, wide), 77, np.float32)
    x, c = (one.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype) for one in (x, c))
    print(dtype, wide)
    meant = [np.copy(one) for one in (a, b, x, c)]
    wl.interpret(func, meant)
    if what == "sum" and part[3] != ROWS:  # its warpgroups would meet at different places
        with pytest.raises(Decline, match="warpgroups share a tile by rows"):
            lower(func, arch)
        return
    found = run(lower(func, arch), [a, b, x, c], arch)[-1]
    np.testing.assert_array_equal(found.astype(np.float32), meant[-1].astype(np.float32))

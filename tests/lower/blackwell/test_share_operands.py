"""Operand A that threads compute: through tensor memory of Blackwell, or through shared memory."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared import tile_programs
from tests.shared.lowered_programs import check, hinted, run
from warploom import language as wl
from warploom.errors import Decline
from warploom.lower.analysis.fragments import fragments
from warploom.lower.blackwell.share_operands import share_operands
from warploom.lower.lowerings import lower
from warploom.lower.passes.canonicalize import canonicalize
from warploom.target import SM100A
from warploom.tile import ir
from warploom.tile.program import allocations
from warploom.tile.read import read

ARCH = SM100A.name
BN, BK = 32, 32


def doubled(
    rows: int, steps: int, how: str = "", dtype: str = "float16", bk: int = BK, bn: int = BN
) -> tvm.tirx.PrimFunc:
    """C = (2 A) Bᵀ for one tile of rows, where threads compute the fragment 2 A."""
    depth = steps * bk

    @T.prim_func
    def func(A: T.Buffer((rows, depth), dtype), B: T.Buffer((bn, depth), dtype),
             C: T.Buffer((rows, bn), "float32")):  # fmt: skip
        T.device_entry()
        T.cta_id([1])
        A_s = T.alloc_buffer((rows, bk), dtype, scope="shared")
        B_s = T.alloc_buffer((bn, bk), dtype, scope="shared")
        A_f = T.alloc_buffer((rows, bk), dtype, scope="fragment")
        acc = T.alloc_buffer((rows, bn), "float32", scope="accumulator")
        if how == "added to":
            Tx.cta.zero(A_f)
        for k in wl.pipelined(steps, 3):
            Tx.cta.copy_async(A_s, A[0:rows, k * bk : k * bk + bk])
            Tx.cta.copy_async(B_s, B[0:bn, k * bk : k * bk + bk])
            for y, x in T.grid(rows, bk):
                if how == "added to":
                    A_f[y, x] = A_f[y, x] + A_s[y, x]
                else:
                    A_f[y, x] = A_s[y, x] + A_s[y, x]
            Tx.cta.gemm_async(acc, A_f, B_s, accum=k > 0)
        Tx.cta.copy(C, acc)

    return func


def decided(func: tvm.tirx.PrimFunc) -> str:
    """Where the operand goes, and why."""
    (line,) = share_operands(canonicalize(read(func, ARCH))).decisions
    return line


@pytest.mark.parametrize(
    "func, sentence",
    [
        (doubled(128, 2), "A_f: through tensor memory"),
        (doubled(256, 2), "A_f: through tensor memory"),
        (hinted(doubled(128, 2), consumers=2), "threads do not hold whole rows"),
        (doubled(64, 2), "threads do not hold whole rows"),
        (doubled(128, 2, "added to"), "not only nests write it and MMAs read it"),
        (doubled(128, 2, dtype="float8_e4m3fn"), "only 16-bit elements"),
        (doubled(128, 2, bk=24), "in multiples of 16"),
        (
            tile_programs.attention(128, 128, tile=(256, 128)).func,
            "tensor memory has 512 columns, and accumulators take 512",
        ),
        (
            hinted(tile_programs.attention(128, 128, tile=(128, 128)).func, ctas_per_sm=2),
            "tensor memory has 256 columns, and accumulators take 256",
        ),
    ],
)
def test_where_operands_go(func, sentence):
    assert sentence in decided(func)


def test_an_own_layout_of_a_fragment_is_declined():
    program = read(doubled(128, 2), ARCH)
    (tile,) = (one for one in allocations(program.body) if one.name == "A_f")
    layout = fragments(False, 64).matrix(128, BK, warpgroups=2)
    own = tirx.decl_buffer(tile.shape, "float16", "A_f", scope="fragment", layout=layout)
    body = tuple(ir.substitute(one, {tile: own}) for one in program.body)
    with pytest.raises(Decline, match="A_f has a layout of its own"):
        lower(program.replace(body=body).to_func(), ARCH)


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
@pytest.mark.parametrize("rows, how", [(128, ""), (256, ""), (64, ""), (128, "added to")])
@pytest.mark.some(4)
def test_operands_that_threads_compute_are_right(rng, rows, how, steps):
    func = doubled(rows, steps, how)
    arrays = [
        rng.standard_normal((rows, steps * BK)).astype("float16"),
        rng.standard_normal((BN, steps * BK)).astype("float16"),
        np.full((rows, BN), np.nan, "float32"),
    ]
    expected = [array.copy() for array in arrays]
    wl.interpret(func, expected)
    result = run(lower(func, ARCH), arrays, ARCH)[2]
    scale = np.abs(expected[2]).max()
    np.testing.assert_allclose(result, expected[2], rtol=0, atol=1e-5 * scale)


def test_pairs_multiply_from_the_tensor_memory_of_both(rng, grid_of):
    grid_of(1)
    case = tile_programs.attention(300, tile=(128, 64), stages=2)
    assert "P: through tensor memory" in decided(case.func)
    kernel = lower(hinted(case.func, cluster=(2, 1)), ARCH).script()
    (place,) = (line for line in kernel.splitlines() if line.strip().startswith("P = "))
    assert 'scope="tmem"' in place and "cta_group=2" in kernel
    check(case, rng, arch=ARCH, cluster=(2, 1))

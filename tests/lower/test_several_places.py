"""A tile that is loaded in several places: the first and the last step stand beside the loop."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from tests.shared.lowered_programs import hinted, run
from warploom import language as wl
from warploom.errors import Decline
from warploom.lower.lowerings import lower
from warploom.lower.trace import lower_trace

BM, BN, BK = 128, 32, 32


def program(steps: int, stages: int, split: bool = True) -> PrimFunc:
    """C is A times the sum of the blocks of B, D that of E; B is a step ahead of E.

    Keys and values of attention are loaded so.
    """
    m = 2 * BM

    @T.prim_func
    def apart(
        A: T.Buffer((m, BK), "float16"), B: T.Buffer((steps * BN, BK), "float16"),
        E: T.Buffer((steps * BN, BK), "float16"), C: T.Buffer((m, BN), "float32"),
        D: T.Buffer((m, BN), "float32"),
    ):  # fmt: skip
        T.device_entry()
        if split:
            wl.hints(split_rings=True, ctas=1)  # its two tiles go on with the stages
        bi = T.cta_id([2])
        A_s = T.alloc_buffer((BM, BK), "float16", scope="shared")
        B_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
        E_s = T.alloc_buffer((BN, BK), "float16", scope="shared")
        c = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        d = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        Tx.cta.copy_async(A_s, A[bi * BM : bi * BM + BM, 0:BK])
        Tx.cta.zero(d)
        Tx.cta.copy_async(B_s, B[0:BN, 0:BK])
        Tx.cta.gemm_async(c, A_s, B_s)
        for s in wl.pipelined(steps - 1, stages):
            Tx.cta.copy_async(B_s, B[s * BN + BN : s * BN + 2 * BN, 0:BK])
            Tx.cta.copy_async(E_s, E[s * BN : s * BN + BN, 0:BK])
            Tx.cta.gemm_async(c, A_s, B_s, accum=True)
            Tx.cta.gemm_async(d, A_s, E_s, accum=True)
        Tx.cta.copy_async(E_s, E[steps * BN - BN : steps * BN, 0:BK])
        Tx.cta.gemm_async(d, A_s, E_s, accum=True)
        Tx.cta.copy(C[bi * BM : bi * BM + BM, 0:BN], c)
        Tx.cta.copy(D[bi * BM : bi * BM + BM, 0:BN], d)

    return apart


def check(func: PrimFunc, steps: int, rng: np.random.Generator) -> None:
    """Run it on the emulator, with its checks; both results are exact sums of small integers."""
    shapes = (2 * BM, BK), (steps * BN, BK), (steps * BN, BK)
    a, b, e = (rng.integers(-4, 5, shape).astype(np.float16) for shape in shapes)
    poison = np.full((2 * BM, BN), np.nan, np.float32)
    *_, c, d = run(func, [a, b, e, poison, poison.copy()])
    for found, blocks in ((c, b), (d, e)):
        total = blocks.astype(float).reshape(steps, BN, BK).sum(axis=0)
        np.testing.assert_array_equal(found, a.astype(float) @ total.T)


def sentences(func: PrimFunc) -> list[str]:
    return [sentence for step in lower_trace(func) for sentence in step.decisions]


@pytest.mark.parametrize("specialise", [True, False])
@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("steps", [1, 2, 3, 6])
@pytest.mark.some(8)
def test_every_number_of_steps_and_stages(
    steps: int, stages: int, specialise: bool, rng: np.random.Generator
) -> None:
    check(hinted(program(steps, stages), specialise=specialise), steps, rng)


def test_warps_with_roles_fill_one_ring_from_all_places() -> None:
    found = [one for one in sentences(program(4, 2)) if one.startswith("ring of")]
    assert found == [
        f"ring of A_s: 1 stages of {BM * BK * 2} bytes",
        f"ring of B_s: 2 stages of {BN * BK * 2} bytes",
        f"ring of E_s: 2 stages of {BN * BK * 2} bytes",
    ]


def test_warps_without_roles_load_all_places_into_the_same_memory() -> None:
    kernel = lower(hinted(program(4, 3), specialise=False)).script()
    assert "B_s_1_full" in kernel, "a ring for each place"
    declared = [line.split(" = ")[0].strip() for line in kernel.splitlines() if "decl_buf" in line]
    assert [name for name in declared if name.startswith(("B_s", "E_s"))][:2] == ["B_s", "E_s"]
    assert sum(name in ("B_s", "E_s") for name in declared) == 2, "and one memory"


def test_without_the_hint_a_tile_is_loaded_in_one_place() -> None:
    with pytest.raises(Decline, match="loaded in two places; use one tile for each, or the hint"):
        lower(program(4, 2, split=False))


def other_companions() -> PrimFunc:
    """A tile that is loaded with another tile in one place, and without it in the other."""

    @T.prim_func
    def mixed(A: T.Buffer((64, 64), "float16"), C: T.Buffer((64, 64), "float16")):
        T.device_entry()
        wl.hints(split_rings=True)
        T.cta_id([1])
        A_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        B_s = T.alloc_buffer((64, 64), "float16", scope="shared")
        Tx.cta.copy_async(A_s, A[0:64, 0:64])
        Tx.cta.copy_async(B_s, A[0:64, 0:64])
        for i, j in T.grid(64, 64):
            C[i, j] = A_s[i, j] + B_s[i, j]
        for _ in wl.pipelined(2):
            Tx.cta.copy_async(A_s, A[0:64, 0:64])
            for i, j in T.grid(64, 64):
                C[i, j] = A_s[i, j]

    return mixed


def test_declines_companions_that_differ() -> None:
    with pytest.raises(Decline, match="use other tiles with it"):
        lower(other_companions())

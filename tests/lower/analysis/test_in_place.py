"""Buffers that a CTA reads where it stores them."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.lowered_programs import run
from tests.shared.tile_programs.case import random_values, wide
from warploom import language as wl
from warploom.errors import Decline
from warploom.lower.lowerings import lower

BM, BN = 64, 32


def added(way, hints, shift=0):
    """``C = A B + 2 C``, where the old C comes by a nest, a copy or a load."""

    @T.prim_func
    def func(
        A: T.Buffer((128, 64), "float16"), B: T.Buffer((64, 64), "float16"),
        C: T.Buffer((100, 64), "float16"),
    ):  # fmt: skip
        T.device_entry()
        wl.hints(**hints)
        i, j = T.cta_id([2, 2])
        A_s = T.alloc_buffer((BM, 32), "float16", scope="shared")
        B_s = T.alloc_buffer((BN, 32), "float16", scope="shared")
        acc = T.alloc_buffer((BM, BN), "float32", scope="accumulator")
        old = T.alloc_buffer((BM, BN), "float16", scope="shared" if way == "load" else "fragment")
        out = T.alloc_buffer((BM, BN), "float16", scope="fragment")
        region = T.meta_var(C[i * BM : i * BM + BM, j * BN : j * BN + BN])
        if way == "load":
            Tx.cta.copy_async(old, region)
        if way == "copy":
            Tx.cta.copy(old, region)
        if way == "nest":
            for y, x in T.grid(BM, BN):
                old[y, x] = C[i * BM + y, j * BN + x + shift]
        for k in wl.pipelined(2):
            Tx.cta.copy_async(A_s, A[i * BM : i * BM + BM, k * 32 : k * 32 + 32])
            Tx.cta.copy_async(B_s, B[j * BN : j * BN + BN, k * 32 : k * 32 + 32])
            Tx.cta.gemm_async(acc, A_s, B_s, accum=k > 0)
        for y, x in T.grid(BM, BN):
            out[y, x] = T.cast(
                acc[y, x] + T.float32(2) * T.cast(old[y, x], "float32"), "float16"
            )
        Tx.cta.copy(region, out)

    return func


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("hints", [{"persistent": False}, {"ctas": 1}])
@pytest.mark.parametrize("way", ["nest", "copy", "load"])
@pytest.mark.some(4)
def test_c_is_read_where_it_is_stored(way, hints, arch, rng):
    a, b, c = (random_values(rng, shape, "float16") for shape in ((128, 64), (64, 64), (100, 64)))
    expected = (wide(a) @ wide(b).T)[:100] + 2 * wide(c)
    func = added(way, hints)
    interpreted = [np.copy(x) for x in (a, b, c)]
    wl.interpret(func, interpreted)
    for got in (interpreted[2], run(lower(func, arch), [a, b, np.copy(c)], arch)[2]):
        assert np.abs(wide(got) - expected).max() <= 2e-3 * np.abs(expected).max()


@pytest.mark.parametrize(("hints", "shift"), [({"ctas": 1}, 1), ({"split_k": 2}, 0)])
def test_other_elements_and_shared_tiles_are_declined(hints, shift):
    with pytest.raises(Decline, match="not known to read only elements that this CTA stores"):
        lower(added("nest", hints, shift))

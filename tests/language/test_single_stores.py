"""Single elements that are stored or updated outside of loops."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tests.shared.lowered_programs import run
from warploom import language as wl
from warploom.lower.lowerings import lower


def sums(rows, columns):
    @T.prim_func
    def func(X: T.Buffer((rows, columns), "float32"), Each: T.Buffer((rows,), "float32"),
             Most: T.Buffer((rows, 2), "float32"), All: T.Buffer((1, 1), "float32")):  # fmt: skip
        T.device_entry()
        b = T.cta_id([rows])
        x = wl.load(X, (b, 0), (1, columns), scope="fragment")
        total = wl.alloc_fragment((1, 1))
        most = wl.alloc_fragment((1, 1))
        Tx.cta.sum(total, x, axes=(0, 1))
        Tx.cta.max(most, x, axes=(0, 1))
        Each[b] = total[0, 0] * 2.0
        wl.atomic_add(All[0, 0], total[0, 0])
        if b > 0:
            Most[b, 0] = most[0, 0]
            Most[b, 1] = most[0, 0] - total[0, 0]
        else:
            Most[b, 0] = 7.0

    return func


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("columns", [1, 40, 300])
def test_sums_of_ctas(columns, arch, rng):
    rows, func = 3, sums(3, columns)
    x = rng.standard_normal((rows, columns)).astype("float32")
    each, most = np.full(rows, np.nan, "float32"), np.full((rows, 2), np.nan, "float32")
    arguments = [x, each, most, np.full((1, 1), 5, "float32")]
    exact = x.astype(float)
    wl.interpret(func, interpreted := [np.copy(a) for a in arguments])
    for found in (interpreted, run(lower(func, arch), [np.copy(a) for a in arguments], arch)):
        assert np.allclose(found[1], 2 * exact.sum(1), atol=1e-4)
        assert np.allclose(found[3], 5 + exact.sum(), atol=1e-4)
        assert found[2][0, 0] == 7 and np.isnan(found[2][0, 1])
        assert (found[2][1:, 0] == x[1:].max(1)).all()
        assert np.allclose(found[2][1:, 1], (exact.max(1) - exact.sum(1))[1:], atol=1e-4)

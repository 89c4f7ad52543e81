"""The kernel that adds parts of attention, alone: any number of parts, and nothing beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

from tests.shared.tile_programs.case import numpy_dtype, precision
from warploom import emulator
from warploom.programs.merge_parts import THREADS, Parts
from warploom.tile.kinds import MARK

pytestmark = pytest.mark.gpu


def _program(rows: int, slots: int, columns: int, width: int, dtype: str, alone: bool) -> Any:
    """Row r is the sum of ``Count[r]`` parts from slot ``First[r]`` on, in column ``r % columns``:
    by all threads of a CTA, or by the r-th group of them alone.
    """

    @T.prim_func
    def merge(p: T.handle, s: T.handle, f: T.handle, c: T.handle, o: T.handle, ls: T.handle):
        Given = T.match_buffer(p, (slots, columns, width), "float32")
        GivenLse = T.match_buffer(s, (slots, columns), "float32")
        First = T.match_buffer(f, (rows,), "int32")
        Count = T.match_buffer(c, (rows,), "int32")
        Out = T.match_buffer(o, (rows, width), dtype)
        Lse = T.match_buffer(ls, (rows,), "float32")
        T.device_entry()
        T.cta_id([1])
        thread = T.thread_id([THREADS])
        parts = Parts(Given, GivenLse, Out, Lse)
        if alone:
            row: T.let = parts.group(thread)
            if row < T.min(rows, parts.groups):
                parts.merge_alone(First[row], Count[row], T.truncmod(row, columns), row, thread)
        else:
            for number in T.serial(rows):
                parts.merge(
                    First[number], Count[number], T.truncmod(number, columns), number, thread
                )

    return merge.with_attr(MARK, True)


@pytest.mark.parametrize(
    ("width", "dtype"),
    [(8, "float16"), (72, "bfloat16"), (128, "float16"), (256, "bfloat16"), (512, "float16")],
)
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.some(4)
def test_any_number_of_parts(rng, width, dtype, alone):
    """As many as are loaded together, one less and one more; what no row has is NaN."""
    groups = THREADS // (width // 4)
    together = 4 if alone else min(groups * 4, 70)
    counts = [1, together, together + 1, together - 1, 2, 5][: groups if alone else None]
    columns, firsts = 3, np.cumsum([1, *(count + 1 for count in counts)])[:-1]
    slots = int(firsts[-1]) + counts[-1] + 1
    given = np.full((slots, columns, width), np.nan, "float32")
    given_lse = np.full((slots, columns), np.nan, "float32")
    out, lse = np.zeros((len(counts), width)), np.zeros(len(counts))
    for row, (first, count) in enumerate(zip(firsts, counts, strict=True)):
        values = rng.standard_normal((count, width)).astype("float32")
        sums = (rng.standard_normal(count) * 20).astype("float32")
        if row == 1 and count > 1:
            sums[0] = -5e4  # a part whose keys are all hidden
        given[first : first + count, row % columns] = values
        given_lse[first : first + count, row % columns] = sums
        weights = np.exp2(sums.astype(np.float64) - sums.max())
        out[row] = weights @ values / weights.sum()
        lse[row] = sums.max() + np.log2(weights.sum())
    arguments = [
        given, given_lse, firsts.astype("int32"), np.array(counts, "int32"),
        np.full(out.shape, np.nan).astype(numpy_dtype(dtype)),
        np.full(lse.shape, np.nan, "float32"),
    ]  # fmt: skip
    program = _program(len(counts), slots, columns, width, dtype, alone)
    *_, got, got_lse = emulator.run(program, arguments).outputs
    assert np.abs(np.asarray(got).astype(np.float64) - out).max() <= precision(dtype) * max(
        np.abs(out).max(), 1
    )
    assert np.abs(np.asarray(got_lse) - lse).max() <= 1e-5 * np.abs(lse).max()

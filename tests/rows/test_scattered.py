"""Elements that lie anywhere in a buffer that is small beside the results."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.tirx import PrimFunc

import warploom
from warploom.errors import Decline
from warploom.rows import read_rows, row_kernel
from warploom.rows.choose import arranged


def columns_of(
    image: tuple[int, int, int, int], taps: int, stride: int, padding: int, columns: int, dtype: str
) -> PrimFunc:
    """Rows of what the filters see of each pixel, channels first, with zeros behind the last."""
    n, c, h, w = image
    x = te.placeholder(image, dtype, "x")
    high, wide = ((extent + 2 * padding - taps) // stride + 1 for extent in (h, w))

    def element(i: tirx.Var, p: tirx.Var, q: tirx.Var, k: tirx.Var) -> tirx.PrimExpr:
        tap = k % taps**2
        row = p * stride + tap // taps - padding
        column = q * stride + tap % taps - padding
        inside = tirx.all(
            k < c * taps**2, row >= 0, row < h, column >= 0, column < w
        )  # fmt: skip
        return tirx.if_then_else(inside, x[i, k // taps**2, row, column], tirx.const(0, dtype))

    return te.create_prim_func([x, te.compute((n, high, wide, columns), element, "columns")])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(
    ("image", "taps", "stride", "padding"), [((2, 3, 9, 10), 7, 2, 3), ((1, 2, 5, 6), 3, 1, 1)]
)
def test_rows_of_pixels_are_gathered(
    image: tuple[int, int, int, int], taps: int, stride: int, padding: int, dtype: str,
    rng: np.random.Generator,
) -> None:  # fmt: skip
    columns = -(-image[1] * taps**2 // 8) * 8
    function = columns_of(image, taps, stride, padding, columns, dtype)
    plan = arranged(read_rows(function))[1]
    # Lanes have neighbouring pixels, of which there are 50 and 30: no multiple of 8.
    assert (plan.vector, plan.beside) == (8 if dtype == "float16" else 4, 8)
    kernel = row_kernel(read_rows(function)).with_attr("global_symbol", "main")
    target = warploom.cuda_target("h200")
    built = tvm.compile(tvm.IRModule({"main": kernel}), target, tir_pipeline="warploom")
    x = rng.standard_normal(image).astype(dtype)
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (taps, taps), (2, 3))
    seen = windows[:, :, ::stride, ::stride].transpose(0, 2, 3, 1, 4, 5)
    wanted = np.zeros((*seen.shape[:3], columns), dtype)
    wanted[..., : image[1] * taps**2] = seen.reshape(*seen.shape[:3], -1)
    given = [tvm.runtime.tensor(one, tvm.cuda(0)) for one in (x, np.full_like(wanted, np.nan))]
    built["main"](*given)
    np.testing.assert_array_equal(given[1].numpy(), wanted)


def test_elements_of_a_large_buffer_are_left_to_tvm() -> None:
    function = columns_of((1, 16, 24, 24), 2, 2, 0, 64, "float16")
    with pytest.raises(Decline, match="of runs shorter than 16 bytes"):
        arranged(read_rows(function))

"""Convolutions as S-TIR functions, as te and Relax write them, and what they compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from tests.shared.gemm_functions import Function, _wide


@dataclass(frozen=True)
class Convolution:
    """Sizes of a convolution of images ``[n, h, w, c]`` with ``k`` filters.

    Attributes
    ----------
    n : int or None
        Images; None for a number that the launch knows.
    padding : (int, int, int, int)
        Above, left, below and right.
    weights : str
        ``"OHWI"`` or ``"HWIO"``.
    epilogue : bool
        Whether bias, ReLU and a residual follow.
    """

    n: int | None = 2
    h: int = 9
    w: int = 10
    c: int = 64
    k: int = 72
    taps: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (1, 1, 1, 1)
    dilation: tuple[int, int] = (1, 1)
    weights: str = "OHWI"
    dtype: str = "float16"
    epilogue: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the result."""
        top, left, bottom, right = self.padding
        whole = self.h + top + bottom, self.w + left + right
        return tuple(
            (extent - d * (t - 1) - 1) // s + 1
            for extent, t, s, d in zip(whole, self.taps, self.stride, self.dilation, strict=True)
        )

    def function(self) -> Function:
        """The S-TIR function, with a block that pads if there is padding."""
        n = te.var("n") if self.n is None else self.n
        (r, s), (sy, sx), (dy, dx) = self.taps, self.stride, self.dilation
        top, left, bottom, right = self.padding
        x = te.placeholder((n, self.h, self.w, self.c), self.dtype, "X")
        ohwi = self.weights == "OHWI"
        shape = (self.k, r, s, self.c) if ohwi else (r, s, self.c, self.k)
        f = te.placeholder(shape, self.dtype, "F")
        padded = x
        if any(self.padding):
            padded = te.compute(
                (n, self.h + top + bottom, self.w + left + right, self.c),
                lambda i, y, z, q: tirx.if_then_else(
                    tirx.all(y >= top, y < top + self.h, z >= left, z < left + self.w),
                    x[i, y - top, z - left, q],
                    tirx.const(0, self.dtype),
                ),
                "pad",
            )
        u, v, q = (te.reduce_axis((0, e), name) for e, name in ((r, "u"), (s, "v"), (self.c, "q")))
        rows, columns = self.size
        total = te.compute(
            (n, rows, columns, self.k),
            lambda i, y, z, o: te.sum(
                padded[i, y * sy + u * dy, z * sx + v * dx, q].astype("float32")
                * (f[o, u, v, q] if ohwi else f[u, v, q, o]).astype("float32"),
                [u, v, q],
            ),
            "conv2d",
        )
        if not self.epilogue:
            y = te.compute(total.shape, lambda *at: total[at].astype(self.dtype), "Y")
            return Function(te.create_prim_func([x, f, y]), self._expected)
        bias = te.placeholder((self.k,), "float32", "bias")
        residual = te.placeholder(total.shape, self.dtype, "residual")
        shifted = te.compute(total.shape, lambda *at: total[at] + bias[at[-1]], "shifted")
        y = te.compute(
            total.shape,
            lambda *at: te.max(
                shifted[at] + residual[at].astype("float32"), tirx.const(0, "float32")
            ).astype(self.dtype),
            "Y",
        )
        return Function(te.create_prim_func([x, f, bias, residual, y]), self._expected)

    def _expected(self, x: Any, f: Any, *others: Any) -> list[np.ndarray]:
        x, f = _wide(x), _wide(f if self.weights == "OHWI" else f.transpose(3, 0, 1, 2))
        top, left, bottom, right = self.padding
        x = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
        reach = tuple(d * (t - 1) + 1 for t, d in zip(self.taps, self.dilation, strict=True))
        windows = np.lib.stride_tricks.sliding_window_view(x, reach, (1, 2))
        windows = windows[:, :: self.stride[0], :: self.stride[1]]
        windows = windows[..., :: self.dilation[0], :: self.dilation[1]]
        y = np.einsum("nhwcrs,krsc->nhwk", windows, f, optimize=True)
        if self.epilogue:
            y = np.maximum(y + _wide(others[0]) + _wide(others[1]), 0)
        return [y]


CONVOLUTIONS: dict[str, Convolution] = {
    "3 x 3": Convolution(),
    "3 x 3, epilogue": Convolution(epilogue=True),
    "3 x 3, stride 2, HWIO": Convolution(stride=(2, 2), weights="HWIO", epilogue=True),
    "3 x 3, two strides": Convolution(h=12, stride=(2, 1), dtype="bfloat16"),
    "3 x 3, dilation": Convolution(padding=(2, 2, 2, 2), dilation=(2, 2)),
    "3 x 3, dilation and stride": Convolution(
        padding=(3, 2, 3, 2), dilation=(2, 2), stride=(2, 2), h=14
    ),
    "3 x 3, dilation and twice the stride": Convolution(
        padding=(3, 3, 3, 3), dilation=(2, 1), stride=(4, 3), h=14, w=17
    ),
    "1 x 1": Convolution(taps=(1, 1), padding=(0, 0, 0, 0), epilogue=True),
    "1 x 1, stride 2": Convolution(taps=(1, 1), padding=(0, 0, 0, 0), stride=(2, 2)),
    "2 x 5, uneven padding": Convolution(taps=(2, 5), padding=(0, 3, 1, 0), c=40),
    "7 x 7, stride 2": Convolution(1, 15, 17, 8, 16, (7, 7), (2, 2), (3, 3, 3, 3)),
    "one image, one row": Convolution(1, 1, 90, taps=(1, 3), padding=(0, 1, 0, 1)),
    "unknown number": Convolution(None, epilogue=True),
    "unknown number, stride 2": Convolution(None, stride=(2, 2)),
    "few channels out": Convolution(k=12),
}

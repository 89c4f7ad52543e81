"""Convolution as a GEMM, without the matrix: boxes of the image come by TMA.

The rows of operand A are the pixels of a rectangle of the output; for each tap of the filter and
each block of channels, one copy brings the pixels of the input that they see. Outside of the image
it brings zeros: that is the padding.
"""

from __future__ import annotations

from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx
from tvm.tirx import PrimFunc

from warploom import language as wl
from warploom.errors import IllegalCombination
from warploom.kernels.kernel_name import named
from warploom.target import TMA
from warploom.target.dtypes import with_dtype_names


@with_dtype_names
@named
def conv2d(
    n: int, h: int, w: int, c: int, k: int, taps: tuple[int, int] = (3, 3), stride: int = 1,
    padding: int = 1, dtype: str = "float16", tile: tuple[int, int, int, int] = (8, 16, 128, 64),
    stages: int = 4, relu: bool = True, dilation: int = 1,
) -> PrimFunc:  # fmt: skip
    """The tile program of ``relu(convolution + bias)`` on images ``[n, h, w, c]``.

    Parameters
    ----------
    n, h, w, c, k : int
        Images, their rows, columns and channels, and channels of the output.
    taps : (int, int)
        Rows and columns of the filters.
    stride, padding, dilation : int
        The same along rows and columns. The stride is at most 8: copies take every so many pixels.
    dtype : str
        Of images, filters and output; sums are float32.
    tile : (int, int, int, int)
        Rows and columns of the output's rectangle, its channels, and input channels a step, which
        must divide ``c``.

    Returns
    -------
    PrimFunc
        ``(X, F, bias, Y)``: X ``[n, h, w, c]``; filters F ``[k, *taps, c]``; bias ``[k]``, float32;
        Y ``[n, rows, columns, k]``.

    Raises
    ------
    IllegalCombination
        If the tile does not divide the channels, there is no output or one channel of it, or the
        stride is no element stride of TMA.

    Examples
    --------
    >>> program = programs.conv2d(8, 56, 56, 64, 128)
    >>> executable = tvm.compile(
    ...     tvm.IRModule({"main": program}), target, tir_pipeline="warploom"
    ... )  # doctest: +SKIP
    """
    (r, s), (bh, bw, bn, bk) = taps, tile
    if c % bk or k < 2 or not 1 <= stride <= TMA.element_stride:
        raise IllegalCombination(
            f"{c} channels must be a multiple of {bk}, the output's {k} at least 2, and a stride "
            f"of {stride} be within 1 to {TMA.element_stride}."
        )
    rows, columns = (
        (x + 2 * padding - dilation * (t - 1) - 1) // stride + 1
        for x, t in zip((h, w), taps, strict=True)
    )
    if min(rows, columns) < 1:
        raise IllegalCombination(
            f"filters of {r} x {s}, {dilation} apart, are larger than images of {h} x {w} with a "
            f"padding of {padding}; there is no output."
        )
    down, across, blocks = -(-rows // bh), -(-columns // bw), c // bk
    # A copy of neighbours is one that TVM plans itself.
    every = {} if stride == 1 else {"steps": (1, stride, stride, 1)}

    @T.prim_func
    def convolution(x: T.handle, f: T.handle, b: T.handle, y: T.handle):
        X, F = T.match_buffer(x, (n, h, w, c), dtype), T.match_buffer(f, (k, r, s, c), dtype)
        bias = T.match_buffer(b, (k,), "float32")
        Y = T.match_buffer(y, (n, rows, columns, k), dtype)
        T.device_entry()
        place, j = T.cta_id([n * down * across, -(-k // bn)])
        X_s = T.alloc_buffer((bh * bw, bk), dtype, scope="shared")
        F_s = T.alloc_buffer((bn, bk), dtype, scope="shared")
        acc = T.alloc_buffer((bh * bw, bn), "float32", scope="accumulator")
        out = T.alloc_buffer((bh * bw, bn), dtype, scope="fragment")
        image: T.int32 = T.truncdiv(place, down * across)
        top: T.int32 = T.truncmod(T.truncdiv(place, across), down) * bh
        left: T.int32 = T.truncmod(place, across) * bw
        for step in wl.pipelined(r * s * blocks, stages):
            channel: T.int32 = T.truncmod(step, blocks) * bk
            v: T.int32 = T.truncdiv(step, blocks * s)
            u: T.int32 = T.truncmod(T.truncdiv(step, blocks), s)
            row: T.int32 = top * stride + v * dilation - padding
            column: T.int32 = left * stride + u * dilation - padding
            Tx.cta.copy_async(
                X_s, X[image, row : row + bh, column : column + bw, channel : channel + bk],
                dispatch="tma_auto", **every,
            )  # fmt: skip
            Tx.cta.copy_async(F_s, F[j * bn : j * bn + bn, v, u, channel : channel + bk])
            Tx.cta.gemm_async(acc, X_s, F_s, accum=step > 0)
        for p, q in T.grid(bh * bw, bn):
            value = T.meta_var(acc[p, q] + bias[j * bn + q])
            out[p, q] = T.cast(T.max(value, T.float32(0)) if relu else value, dtype)
        Tx.cta.copy_async(
            Y[image, top : top + bh, left : left + bw, j * bn : j * bn + bn], out,
            dispatch="tma_auto",
        )  # fmt: skip

    return convolution

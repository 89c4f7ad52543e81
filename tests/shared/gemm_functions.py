"""S-TIR functions that are matmuls, as te and Relax make them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes  # noqa: F401  (numpy learns float8 and bfloat16)
import numpy as np
import tvm
from tvm import te, tirx
from tvm.tirx import PrimFunc

from tests.shared.reference import SUMS, SUMS_FLOAT8, assert_rounded, numpy_dtype


@dataclass(frozen=True)
class Function:
    """A function, and what its results are for given inputs, in higher precision."""

    func: PrimFunc
    expected: Callable[..., list[np.ndarray]]
    outputs: int = 1
    #: How often values are rounded to the dtype of a result.
    roundings: int = 1
    #: What sums may lose, in parts of the largest result.
    sums: float = SUMS

    def assert_right(self, results: Sequence[np.ndarray], arguments: Sequence[np.ndarray]) -> None:
        """Every element of the results is right but for rounding."""
        for found, wanted in zip(results, self.expected(*arguments), strict=True):
            assert_rounded(found, wanted, self.roundings, self.sums)

    def arguments(self, rng: np.random.Generator, **sizes: int) -> list[np.ndarray]:
        """Random inputs, and outputs full of NaN (or of a rare number)."""
        found = []
        params = self.func.params
        for number, param in enumerate(params):
            shape = [sizes[str(e)] if isinstance(e, tirx.Var) else int(e) for e in param.shape]
            dtype = str(param.dtype)
            if number >= len(params) - self.outputs:
                poison = 113 if dtype == "int32" else np.nan
                found.append(np.full(shape, poison, numpy_dtype(dtype)))
            elif dtype.startswith(("int", "uint")):
                info = np.iinfo(dtype)
                found.append(rng.integers(info.min, info.max, shape, dtype, endpoint=True))
            else:
                found.append(rng.standard_normal(shape).astype(numpy_dtype(dtype)))
        return found


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.int64 if array.dtype.kind in "iu" else np.float64)


def matmul(
    m: Any = 70, n: int = 136, k: int = 96, dtype: str = "float16", out: str = "float16",
    layout: str = "NT", accumulator: str = "float32",
) -> Function:  # fmt: skip
    """C = A B, by the BLAS names of layouts."""
    m = te.var("m") if m is None else m
    a = te.placeholder((m, k) if layout[0] == "N" else (k, m), dtype, "A")
    b = te.placeholder((n, k) if layout[1] == "T" else (k, n), dtype, "B")
    r = te.reduce_axis((0, k), "r")
    total = te.compute(
        (m, n),
        lambda i, j: te.sum(
            (a[i, r] if layout[0] == "N" else a[r, i]).astype(accumulator)
            * (b[j, r] if layout[1] == "T" else b[r, j]).astype(accumulator),
            r,
        ),
        "matmul",
    )
    c = te.compute((m, n), lambda i, j: total[i, j].astype(out), "C")

    def expected(a: np.ndarray, b: np.ndarray, *_: np.ndarray) -> list[np.ndarray]:
        a, b = _wide(a), _wide(b)
        return [(a if layout[0] == "N" else a.T) @ (b.T if layout[1] == "T" else b)]

    sums = SUMS_FLOAT8 if dtype.startswith("float8") else SUMS
    return Function(te.create_prim_func([a, b, c]), expected, sums=sums)


def half_accumulation(m: int = 40, n: int = 72, k: int = 64) -> Function:
    """A sum that the function forms in float16, as Relax writes it."""
    a, b = te.placeholder((1, m, k), "float16", "A"), te.placeholder((n, k), "float16", "B")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((1, m, n), lambda s, i, j: te.sum(a[s, i, r] * b[j, r], r), "matmul")
    return Function(
        te.create_prim_func([a, b, c]), lambda a, b, *_: [_wide(a) @ _wide(b).T]
    )


def batched(
    batch: Any = 3, m: Any = 40, n: Any = 72, k: int = 64, layout: str = "NT"
) -> Function:
    """Several matmuls; sizes may be names of numbers that the launch knows."""
    b, m, n = (te.var(one) if isinstance(one, str) else one for one in (batch, m, n))
    x = te.placeholder((b, m, k), "float16", "X")
    y = te.placeholder((b, n, k) if layout == "NT" else (b, k, n), "float16", "Y")
    r = te.reduce_axis((0, k), "r")
    total = te.compute(
        (b, m, n),
        lambda s, i, j: te.sum(
            x[s, i, r].astype("float32")
            * (y[s, j, r] if layout == "NT" else y[s, r, j]).astype("float32"),
            r,
        ),
        "matmul",
    )
    c = te.compute(total.shape, lambda *at: total[at].astype("float16"), "C")
    return Function(
        te.create_prim_func([x, y, c]),
        lambda x, y, *_: [_wide(x) @ (_wide(y).swapaxes(1, 2) if layout == "NT" else _wide(y))],
    )


def heads(batch: int = 2, groups: int = 2, share: int = 3, m: int = 40, n: int = 72) -> Function:
    """Scores of grouped heads: several of Q share one of K."""
    q = te.placeholder((batch, groups * share, m, 64), "float16", "Q")
    k = te.placeholder((batch, groups, n, 64), "float16", "K")
    r = te.reduce_axis((0, 64), "r")
    total = te.compute(
        (batch, groups * share, m, n),
        lambda b, h, i, j: te.sum(
            q[b, h, i, r].astype("float32") * k[b, h // share, j, r].astype("float32"), r
        ),
        "matmul",
    )
    scores = te.compute(total.shape, lambda *at: total[at] * tirx.const(0.125, "float32"), "S")
    return Function(
        te.create_prim_func([q, k, scores]),
        lambda q, k, *_: [
            0.125 * np.einsum("bhid,bhjd->bhij", _wide(q), np.repeat(_wide(k), share, 1))
        ],
    )


def two_summed_axes(m: int = 40, n: int = 72, parts: int = 3, depth: int = 64) -> Function:
    """The sum over heads and their elements, where the operands lie differently."""
    a = te.placeholder((parts, m, depth), "float16", "A")
    b = te.placeholder((n, parts * depth), "float16", "B")
    h, d = te.reduce_axis((0, parts), "h"), te.reduce_axis((0, depth), "d")
    total = te.compute(
        (m, n),
        lambda i, j: te.sum(
            a[h, i, d].astype("float32") * b[j, h * depth + d].astype("float32"), [h, d]
        ),
        "matmul",
    )
    c = te.compute((m, n), lambda i, j: total[i, j].astype("float16"), "C")
    return Function(
        te.create_prim_func([a, b, c]),
        lambda a, b, *_: [_wide(a).transpose(1, 0, 2).reshape(m, -1) @ _wide(b).T],
    )


def epilogue(m: int = 70, n: int = 136, k: int = 96) -> Function:
    """gelu(A B^T + bias) * scale + residual, in several blocks."""
    a, b = te.placeholder((m, k), "float16", "A"), te.placeholder((n, k), "float16", "B")
    bias = te.placeholder((n,), "float16", "bias")
    rows = te.placeholder((m,), "float32", "rows")
    residual = te.placeholder((m, n), "float16", "residual")
    r = te.reduce_axis((0, k), "r")
    total = te.compute(
        (m, n), lambda i, j: te.sum(a[i, r].astype("float32") * b[j, r].astype("float32"), r), "sum"
    )
    shifted = te.compute((m, n), lambda i, j: total[i, j] + bias[j].astype("float32"), "shifted")
    gelu = te.compute(
        (m, n),
        lambda i, j: shifted[i, j]
        * (
            tirx.const(0.5, "float32")
            + tirx.const(0.5, "float32")
            * te.erf(shifted[i, j] * tirx.const(0.5**0.5, "float32"))
        ),
        "gelu",
    )
    scaled = te.compute((m, n), lambda i, j: gelu[i, j] * rows[i], "scaled")
    c = te.compute(
        (m, n), lambda i, j: scaled[i, j].astype("float16") + residual[i, j], "C"
    )

    def expected(a: Any, b: Any, bias: Any, rows: Any, residual: Any, *_: Any) -> list[Any]:
        from math import erf

        x = _wide(a) @ _wide(b).T + _wide(bias)
        return [x * (0.5 + 0.5 * np.vectorize(erf)(x * 0.5**0.5)) * rows[:, None] + residual]

    return Function(te.create_prim_func([a, b, bias, rows, residual, c]), expected, roundings=2)


def swiglu(m: int = 70, half: int = 72, k: int = 96) -> Function:
    """silu of one half of the columns times the other half."""
    a, b = te.placeholder((m, k), "float16", "A"), te.placeholder((2 * half, k), "float16", "B")
    r = te.reduce_axis((0, k), "r")
    total = te.compute(
        (m, 2 * half),
        lambda i, j: te.sum(a[i, r].astype("float32") * b[j, r].astype("float32"), r),
        "matmul",
    )
    gate = te.compute(
        (m, half), lambda i, j: total[i, j] * te.sigmoid(total[i, j]), "gate"
    )
    c = te.compute(
        (m, half), lambda i, j: (gate[i, j] * total[i, j + half]).astype("float16"), "C"
    )

    def expected(a: Any, b: Any, *_: Any) -> list[Any]:
        x = _wide(a) @ _wide(b).T
        return [x[:, :half] / (1 + np.exp(-x[:, :half])) * x[:, half:]]

    return Function(te.create_prim_func([a, b, c]), expected)


def split(m: int = 40, n: int = 64, k: int = 64) -> Function:
    """Two results, each half of the columns, one of them transposed into heads."""
    a, b = te.placeholder((m, k), "float16", "A"), te.placeholder((2 * n, k), "float16", "B")
    r = te.reduce_axis((0, k), "r")
    total = te.compute(
        (m, 2 * n),
        lambda i, j: te.sum(a[i, r].astype("float32") * b[j, r].astype("float32"), r),
        "matmul",
    )
    first = te.compute((m, n), lambda i, j: total[i, j].astype("float16"), "first")
    second = te.compute((m, n), lambda i, j: total[i, j + n], "second")

    def expected(a: Any, b: Any, *_: Any) -> list[Any]:
        x = _wide(a) @ _wide(b).T
        return [x[:, :n], x[:, n:]]

    return Function(te.create_prim_func([a, b, first, second]), expected, 2)


def into_heads(m: int = 40, count: int = 3, depth: int = 64, k: int = 64) -> Function:
    """A reshape and a transposition after the matmul."""
    a = te.placeholder((m, k), "float16", "A")
    b = te.placeholder((count * depth, k), "float16", "B")
    r = te.reduce_axis((0, k), "r")
    total = te.compute(
        (m, count * depth),
        lambda i, j: te.sum(a[i, r].astype("float32") * b[j, r].astype("float32"), r),
        "matmul",
    )
    c = te.compute(
        (count, m, depth), lambda h, i, d: total[i, h * depth + d].astype("float16"), "C"
    )
    return Function(
        te.create_prim_func([a, b, c]),
        lambda a, b, *_: [(_wide(a) @ _wide(b).T).reshape(m, count, depth).transpose(1, 0, 2)],
    )


def dequantised(
    m: int = 20, n: int = 136, k: int = 256, bits: int = 4, group: int = 32, stored: str = "uint32"
) -> Function:
    """Weights in words, with a scale a group, as quantised Relax models have them."""
    per = tvm.DataType(stored).bits // bits
    x = te.placeholder((m, k), "float16", "X")
    w = te.placeholder((n, k // per), stored, "W")
    s = te.placeholder((n, k // group), "float16", "S")

    def weight(j: Any, r: Any) -> Any:
        field = w[j, r // per] >> (r % per * bits).astype(stored) & tirx.const(2**bits - 1, stored)
        return (field.astype("float16") - tirx.const(2 ** (bits - 1) - 1, "float16")) * s[
            j, r // group
        ]

    decoded = te.compute((n, k), weight, "decode")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((m, n), lambda i, j: te.sum(x[i, r] * decoded[j, r], r), "matmul")

    def expected(x: Any, w: Any, s: Any, *_: Any) -> list[Any]:
        fields = w[:, :, None] >> (np.arange(per) * bits).astype(stored) & (2**bits - 1)
        weights = fields.reshape(n, k).astype(np.float64) - (2 ** (bits - 1) - 1)
        weights = (weights * np.repeat(_wide(s), group, 1)).astype(np.float16)
        return [_wide(x) @ _wide(weights).T]

    return Function(te.create_prim_func([x, w, s, c]), expected)


FUNCTIONS: dict[str, Callable[[], Function]] = {
    **{f"layout {name}": (lambda name=name: matmul(72, layout=name)) for name in
       ("NT", "NN", "TN", "TT")},
    "float32 result": lambda: matmul(out="float32"),
    "bfloat16": lambda: matmul(dtype="bfloat16", out="bfloat16"),
    "float8": lambda: matmul(dtype="float8_e4m3fn", k=128),
    "int8": lambda: matmul(dtype="int8", out="int32", accumulator="int32", k=128),
    "one row": lambda: matmul(1),
    "half accumulation": half_accumulation,
    "heads": heads,
    "batched": lambda: batched(layout="NN"),
    "two summed axes": two_summed_axes,
    "epilogue": epilogue,
    "swiglu": swiglu,
    "split": split,
    "into heads": into_heads,
    "4-bit words": dequantised,
    "8-bit words": lambda: dequantised(bits=8),
    "4-bit bytes": lambda: dequantised(stored="uint8"),
}  # fmt: skip

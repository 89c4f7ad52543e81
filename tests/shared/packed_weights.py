"""Matmuls with packed weights as quantised models lay them out: words along K or along columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from tests.shared.gemm_functions import Function
from tests.shared.reference import numpy_dtype

#: A factor of two products that are multiplied; it rounds nothing.
_SMALL = 2.0**-10


@dataclass(frozen=True)
class Packed:
    """A matmul ``X W^T`` and what is around it.

    Attributes
    ----------
    m : int or None
        Rows; None for a number that the launch knows.
    n, k : int
    bits : int
        Of a weight: 4 or 8, in words of 32 bits.
    group : int
        Weights along K that share a scale.
    order : str
        ``"nk"``: words along K in rows of weights (MLC's q4f16_1); ``"kn"``: words along K, and
        neighbours of a row are other columns (q4f16_0, GPTQ); ``"along n"``: words along columns
        (AWQ, whose fields are interleaved).
    zeros : bool
        Whether groups have zero points, in words along columns.
    after : str
        ``"add"`` a residual, ``"gate"`` (two products, multiplied and made smaller), or nothing.
    dtype : str
        Of X, the scales and the result.
    """

    m: int | None = 3
    n: int = 64
    k: int = 512
    bits: int = 4
    group: int = 32
    order: str = "nk"
    zeros: bool = False
    after: str = ""
    dtype: str = "float16"

    @property
    def per_word(self) -> int:
        """Weights of a word."""
        return 32 // self.bits

    @property
    def rows(self) -> int:
        """Rows of W, of all products."""
        return 2 * self.n if self.after == "gate" else self.n

    def function(self) -> Function:
        """The function, and what its results are in higher precision."""
        dtype, rows, k, per = self.dtype, self.rows, self.k, self.per_word
        m = te.var("m") if self.m is None else self.m
        x = te.placeholder((m, k), dtype, "X")
        shapes = {"nk": (rows, k // per), "kn": (k // per, rows), "along n": (k, rows // per)}
        words = te.placeholder(shapes[self.order], "uint32", "W")
        groups = (rows, k // self.group) if self.order == "nk" else (k // self.group, rows)
        scales = te.placeholder(groups, dtype, "S")
        zeros = te.placeholder((k // self.group, rows // per), "uint32", "Z")
        inputs = [x, words, scales, *([zeros] if self.zeros else [])]

        def weight(j: Any, r: Any) -> Any:
            if self.order == "along n":
                field = self._field(words[r, j // per], self._place(j))
            else:
                word = words[j, r // per] if self.order == "nk" else words[r // per, j]
                field = self._field(word, r % per)
            scale = (scales[j, r // self.group] if self.order == "nk"
                     else scales[r // self.group, j])  # fmt: skip
            zero = tirx.const(2 ** (self.bits - 1) - 1, dtype)
            if self.zeros:
                packed = zeros[r // self.group, j // per]
                zero = self._field(packed, self._place(j)).astype(dtype)
            return (field.astype(dtype) - zero) * scale

        weights = te.compute((rows, k), weight, "decode")

        def product(first: int, name: str) -> te.Tensor:
            r = te.reduce_axis((0, k), "r")
            return te.compute(
                (m, self.n), lambda i, j: te.sum(x[i, r] * weights[first + j, r], r), name
            )

        total = product(0, "matmul")
        result = total
        if self.after == "add":
            other = te.placeholder((m, self.n), dtype, "Y")
            inputs.append(other)
            result = te.compute((m, self.n), lambda i, j: total[i, j] + other[i, j], "C")
        elif self.after == "gate":
            up = product(self.n, "up")
            small = tirx.const(_SMALL, dtype)  # float16 holds no product of two large numbers
            result = te.compute((m, self.n), lambda i, j: total[i, j] * small * up[i, j], "C")
        roundings = {"": 1, "add": 2, "gate": 3}[self.after]
        return Function(te.create_prim_func([*inputs, result]), self._expected, 1, roundings)

    def _field(self, word: Any, place: Any) -> Any:
        shift = (place * self.bits).astype("uint32")
        return word >> shift & tirx.const(2**self.bits - 1, "uint32")

    def _place(self, column: Any) -> Any:
        """Where a word along columns has the field of a column."""
        place = column % self.per_word
        interleaved = self.order == "along n" and self.bits == 4
        return place // 2 + place % 2 * 4 if interleaved else place

    def _unpacked(self, words: np.ndarray) -> np.ndarray:
        """Fields of words along columns, in the order of the columns."""
        places = np.array([self._place(column) for column in range(self.per_word)])
        fields = words[:, :, None] >> (places * self.bits).astype("uint32") & 2**self.bits - 1
        return fields.reshape(len(words), self.rows)

    def _expected(self, x: Any, words: Any, scales: Any, *rest: Any) -> list[np.ndarray]:
        shifts = (np.arange(self.per_word) * self.bits).astype("uint32")
        if self.order == "along n":
            fields = self._unpacked(words).T
        elif self.order == "kn":
            fields = (words[:, None, :] >> shifts[None, :, None] & 2**self.bits - 1)
            fields = fields.reshape(self.k, self.rows).T
        else:
            fields = (words[:, :, None] >> shifts & 2**self.bits - 1).reshape(self.rows, self.k)
        zeros: Any = 2 ** (self.bits - 1) - 1
        if self.zeros:
            zeros = np.repeat(self._unpacked(rest[0]).T.astype(np.float64), self.group, 1)
        scales = scales.astype(np.float64)
        scales = np.repeat(scales if self.order == "nk" else scales.T, self.group, 1)
        weights = ((fields.astype(np.float64) - zeros) * scales).astype(numpy_dtype(self.dtype))
        found = x.astype(np.float64) @ weights.astype(np.float64).T
        if self.after == "gate":
            return [found[:, : self.n] * _SMALL * found[:, self.n :]]
        return [found + rest[-2].astype(np.float64)] if self.after == "add" else [found]

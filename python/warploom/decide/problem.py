"""What a GEMM computes: sizes and types as plain data.

Configs, the model of costs and databases go by it: numbers and names only, equal for functions
that are tuned alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from warploom.decide.pixels import PixelAxis
from warploom.target import TMA, WgmmaKind, wgmma_kind
from warploom.target.dtypes import bits_of, is_float8, with_dtype_names

#: Bytes that TMA wants base addresses and strides aligned to.
ALIGN = 16

#: How the tensor core multiplies operands that it cannot multiply as they are.
_AS = {"float32": "float32 as tf32"}

#: Extents that an operand of an epilogue varies along, by name.
SHAPES = {(False, False): "scalar", (True, False): "column", (False, True): "row",
          (True, True): "tile"}  # fmt: skip


@dataclass(frozen=True)
class GemmProblem:
    """Sizes and types of ``C[b, m, n] = f(sum over k of A[b, m, k] B[b, n, k], ...)``.

    Attributes
    ----------
    m, n, k : int or None
        Rows, columns and products; None for a size that is known when the kernel is launched.
    batch : int or None
        How many products of that size there are.
    a_dtype, b_dtype : str
        What the tensor core multiplies.
    layout : str
        ``"NT"``, ``"NN"``, ``"TN"`` or ``"TT"``: whether A has K or M, and B N or K, in its
        last-but-one dimension, by the BLAS name (T for B is ``[N, K]``).
    accumulator : str
        ``"float32"`` or ``"int32"``.
    products : int
        Products that share A and the loop over K, such as the two of SwiGLU.
    a_bits, b_bits : float
        Bits that an element of the operands has in memory: fewer than its dtype has where it is
        computed, such as 4.5 for 4-bit weights of which 32 have a scale of 16 bits.
    inputs : tuple of (str, str)
        What the epilogue reads: dtype, and along which extents it varies (``"scalar"``,
        ``"row"``, ``"column"`` or ``"tile"``).
    outputs : tuple of str
        Dtypes of the results.
    computed : (bool, bool)
        Whether A, and B, are computed from what lies in memory.
    taps : int
        Of a convolution, the products of K that read the image at another place each; no step of
        the sum belongs to two of them. 1 of other products.
    reduced : int
        Columns of the result that a reduction of its rows spans; 0 if there is none.
    pixels : tuple of PixelAxis
        What the rows are, where a tile has a box of pixels; empty where rows are those of matrices.
    finish : tuple of float
        Instructions of the epilogue for each element of a tile, beside its store: as of
        :class:`~warploom.decide.price.work.Nest` ``fma``, ``alu``, ``mufu`` and ``convert``. Empty
        if there are none. Problems that differ in nothing else are equal: records do not have it.
    """

    m: int | None
    n: int | None
    k: int | None
    batch: int | None
    a_dtype: str
    b_dtype: str
    layout: str
    accumulator: str
    products: int
    a_bits: float
    b_bits: float
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[str, ...]
    computed: tuple[bool, bool] = (False, False)
    taps: int = 1
    reduced: int = 0
    pixels: tuple[PixelAxis, ...] = ()
    finish: tuple[float, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        sizes = " x ".join(
            "?" if extent is None else str(extent) for extent in (self.m, self.n, self.k)
        )
        parts = [f"{sizes} {self.layout}", f"{_dtypes(self)} -> {self.accumulator}"]
        if self.batch != 1:
            parts.append(f"batch {'?' if self.batch is None else self.batch}")
        if self.taps > 1:
            parts.append(f"{self.taps} taps")
        if self.pixels:
            parts.append(f"pixels {' x '.join(map(_pixels, self.pixels))}")
        if self.reduced:
            parts.append(f"rows reduced over {self.reduced} columns")
        if self.products > 1:
            parts.append(f"{self.products} products")
        if self.inputs:
            parts.append("epilogue reads " + ", ".join(" ".join(words) for words in self.inputs))
        return ", ".join([*parts, f"out {', '.join(self.outputs)}"])


def _pixels(axis: PixelAxis) -> str:
    extent = "?" if axis.extent is None else str(axis.extent)
    return f"{extent} in steps of {axis.step}" if axis.step > 1 else extent


def _dtypes(problem: GemmProblem) -> str:
    return " x ".join(
        f"{dtype} from {bits:g} bits" if computed else _AS.get(dtype, dtype)
        for dtype, bits, computed in zip(
            (problem.a_dtype, problem.b_dtype),
            (problem.a_bits, problem.b_bits),
            problem.computed,
            strict=True,
        )
    )


@with_dtype_names
def plain_gemm(
    m: int | None, n: int | None, k: int | None, dtype: str = "float16",
    out_dtype: str | None = None, layout: str = "NT",
) -> GemmProblem:  # fmt: skip
    """The problem ``C = A B`` without an epilogue; float8 has a scale for each operand.

    Parameters
    ----------
    m, n, k : int or None
        None for a size that is dynamic.
    dtype, out_dtype : str
        Of A and B, and of C: by default that of A and B, bfloat16 for float8, int32 for int8.
    layout : str
        As :class:`GemmProblem` has it.

    Examples
    --------
    >>> str(plain_gemm(512, 4096, 4096))
    '512 x 4096 x 4096 NT, float16 x float16 -> float32, out float16'
    """
    bits, integers = float(bits_of(dtype)), dtype in ("int8", "uint8")
    scales = (("float32", "scalar"),) * 2 if is_float8(dtype) else ()
    usual = "bfloat16" if is_float8(dtype) else "int32" if integers else dtype
    return GemmProblem(
        m, n, k, 1, dtype, dtype, layout, "int32" if integers else "float32", 1, bits, bits,
        inputs=scales, outputs=(out_dtype or usual,),
    )  # fmt: skip


@lru_cache
def kind_of(problem: GemmProblem) -> WgmmaKind:
    """The instruction that multiplies a problem's operands."""
    return wgmma_kind(problem.a_dtype, problem.b_dtype, problem.accumulator)


def has_chunks(problem: GemmProblem, dtype: str) -> bool:
    """Whether rows of a result are known to be whole 16 bytes, as TMA stores them."""
    return problem.n is not None and problem.n * bits_of(dtype) // 8 % TMA.chunk_bytes == 0


def steps_of(problem: GemmProblem, tile_k: int) -> int | None:
    """Steps of a tile's loop, each ``tile_k`` deep; None if only the launch knows the sum."""
    if problem.k is None:
        return None
    return problem.taps * -(-problem.k // problem.taps // tile_k)

"""What a matmul-like function computes: sizes and types as plain data, formulas beside them.

:class:`GemmProblem` is what configurations, the analytic model and databases go by: numbers and
names only, equal for functions that are tuned alike. :class:`GemmFunction` adds the formulas of one
function, from which a kernel is generated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tvm.ir.expr import TensorLoad
from tvm.tirx import Buffer, PrimFunc, Var

from warploom.target import TMA, WgmmaKind, wgmma_kind
from warploom.target.dtypes import bits_of

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

    def __str__(self) -> str:
        sizes = " x ".join(
            "?" if extent is None else str(extent) for extent in (self.m, self.n, self.k)
        )
        parts = [f"{sizes} {self.layout}", f"{_dtypes(self)} -> {self.accumulator}"]
        if self.batch != 1:
            parts.append(f"batch {'?' if self.batch is None else self.batch}")
        if self.taps > 1:
            parts.append(f"{self.taps} taps")
        if self.reduced:
            parts.append(f"rows reduced over {self.reduced} columns")
        if self.products > 1:
            parts.append(f"{self.products} products")
        if self.inputs:
            parts.append("epilogue reads " + ", ".join(" ".join(words) for words in self.inputs))
        return ", ".join([*parts, f"out {', '.join(self.outputs)}"])


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


@dataclass(frozen=True)
class Axis:
    """A variable of the formulas, and its extent from 0 on."""

    var: Var
    extent: Any


@dataclass(frozen=True)
class Operand:
    """A factor of a product.

    Attributes
    ----------
    value : Expr
        In terms of the function's axes, of the dtype that is multiplied.
    load : TensorLoad or None
        The element of a parameter that it is; None where it is computed.
    """

    value: Any
    load: TensorLoad | None


@dataclass(frozen=True)
class Product:
    """Operands of one sum over K; ``accumulator`` stands for the sum in the outputs."""

    a: Operand
    b: Operand
    accumulator: Var


@dataclass(frozen=True)
class Output:
    """``buffer[indices] = value``, in terms of axes and accumulators."""

    buffer: Buffer
    indices: tuple[Any, ...]
    value: Any


@dataclass(frozen=True)
class RowReduction:
    """``buffer[indices]`` is the sum or extremum of ``value`` along ``width`` columns.

    Attributes
    ----------
    buffer : Buffer
    indices : tuple of Expr
        In terms of the rows' axes, and of ``part``.
    value : Expr
        In terms of axes and accumulators.
    kind : str
        ``"sum"``, ``"max"`` or ``"min"``.
    part : Var
        Counts the parts of ``width`` columns.
    width : int
    """

    buffer: Buffer
    indices: tuple[Any, ...]
    value: Any
    kind: str
    part: Var
    width: int


@dataclass(frozen=True)
class View:
    """A parameter seen with another shape: the same elements, one after the other."""

    param: Buffer
    buffer: Buffer


@dataclass(frozen=True)
class GemmFunction:
    """A recognised function: the problem, and the formulas that a kernel computes.

    Attributes
    ----------
    func : PrimFunc
        The S-TIR function.
    anchor : str
        Name of the block with the sum, which carries the annotations of a schedule.
    problem : GemmProblem
        Its sizes and types.
    rows, columns : Axis
        The axes that a tile of the result extends along.
    pixels : tuple of Axis
        What the rows are, where they are several axes in row-major order: ``rows`` then is an axis
        of as many elements as all of them, and does not occur in formulas. Otherwise empty.
    views : tuple of View
        What formulas read and store instead of parameters.
    reductions : tuple of RowReduction
        What is computed of whole rows of a tile.
    batch : tuple of Axis
        The other axes of the results, the outermost first.
    summed : tuple of Axis
        The axes of the sum, the one along rows of memory last.
    products : tuple of Product
        What is summed.
    outputs : tuple of Output
        What is stored.
    """

    func: PrimFunc
    anchor: str
    problem: GemmProblem
    rows: Axis
    columns: Axis
    batch: tuple[Axis, ...]
    summed: tuple[Axis, ...]
    products: tuple[Product, ...]
    outputs: tuple[Output, ...]
    pixels: tuple[Axis, ...] = ()
    views: tuple[View, ...] = ()
    reductions: tuple[RowReduction, ...] = ()

    def param_of(self, buffer: Buffer) -> Buffer:
        """The parameter that formulas read as a buffer: itself, or what that is a view of."""
        seen = (view.param for view in self.views if view.buffer.same_as(buffer))
        return next(seen, buffer)

    @property
    def row_axes(self) -> tuple[Axis, ...]:
        """The axes that occur in formulas for the rows."""
        return self.pixels or (self.rows,)

"""Random operands of a product on the GPU, and the check of what was computed from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from warploom.bench.suite import GemmShape
from warploom.target.dtypes import is_float8

#: Input sets together exceed this many bytes: twice the largest L2 cache (60 MB on GH100).
ROTATING_BYTES = 2 * 60 * 1000 * 1000
#: Largest ``|C - reference| / |reference|`` (Frobenius norms) of a right result, by result dtype
#: for 16-bit operands: half a unit in the last place, on average, and room for the summation.
RELATIVE_ERROR = {"float16": 5e-4, "bfloat16": 4e-3}
#: 8-bit operands: tensor cores keep about 13 fractional bits while they add (fast accumulation).
_RELATIVE_ERROR_FLOAT8 = 1e-2


@dataclass(frozen=True)
class Operands:
    """One input set, and a result of its own.

    Attributes
    ----------
    a, b : torch.Tensor
        ``[m, k]`` and ``[n, k]``, contiguous, normal random numbers.
    scale_a, scale_b : torch.Tensor
        float32 tensors of one element, factors of the result for 8-bit dtypes.
    c : torch.Tensor
        ``[m, n]``.
    """

    a: Any
    b: Any
    scale_a: Any
    scale_b: Any
    c: Any


def input_sets(shape: GemmShape) -> int:
    """How many input sets keep the operands of successive launches out of the L2 cache."""
    return max(2, -(-ROTATING_BYTES // shape.input_bytes))


def make_operands(torch: Any, shape: GemmShape, seed: int) -> Operands:
    """Random operands that depend on ``seed`` alone, and a poisoned result."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    dtype, result = getattr(torch, shape.dtype), getattr(torch, shape.result_dtype)

    def normal(rows: int) -> Any:
        values = torch.randn(rows, shape.k, device="cuda", generator=generator)
        return values.to(dtype)

    scales = [torch.full((1,), value, device="cuda") for value in (0.75, 1.25)]
    c = torch.full((shape.m, shape.n), float("nan"), dtype=result, device="cuda")
    return Operands(normal(shape.m), normal(shape.n), *scales, c)


def relative_error(torch: Any, shape: GemmShape, operands: Operands) -> float:
    """``|C - A B^T| / |A B^T|`` against float32; NaN if any element was left out.

    float32 (not tf32) products of 16- and 8-bit numbers are exact, and their sums err by far
    less than a 16-bit result.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    reference = operands.a.float() @ operands.b.float().T
    if is_float8(shape.dtype):
        reference *= operands.scale_a * operands.scale_b
    difference = operands.c.float() - reference
    return float(difference.norm() / reference.norm())


def allowed_error(shape: GemmShape) -> float:
    """Bound of :func:`relative_error`."""
    if is_float8(shape.dtype):
        return _RELATIVE_ERROR_FLOAT8
    return RELATIVE_ERROR[shape.result_dtype]

"""Random operands of a GEMM on the GPU, and the check of results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from warploom.gemm_shape import GemmShape
from warploom.target.dtypes import is_float8
from warploom_bench.check import Deviation, deviation

#: Input sets together exceed this many bytes: twice the largest L2 cache (60 MB on GH100).
ROTATING_BYTES = 2 * 60 * 1000 * 1000
#: Largest ``|C - reference| / |reference|`` (Frobenius norms) of a right result, by dtype of the
#: operands: half a unit in the last place, on average, and room for the summation. Tensor cores
#: keep about 13 fractional bits of 8-bit floats while they add (fast accumulation), and 10 of tf32.
RELATIVE_ERROR = {
    "float16": 5e-4, "bfloat16": 4e-3, "float8_e4m3fn": 1e-2, "int8": 0.0, "tfloat32": 1e-3
}  # fmt: skip
#: Epilogues that round the sum to 16 bits before they go on, as separate kernels do, err more.
_ROUNDED_TWICE = 2.0


@dataclass(frozen=True)
class Operands:
    """An input set, with a result buffer of its own.

    Attributes
    ----------
    a, b : torch.Tensor
        Of :attr:`GemmShape.a_shape` and :attr:`GemmShape.b_shape`, contiguous, normal random
        numbers, or random integers.
    scale_a, scale_b : torch.Tensor
        float32 tensors of one element, factors of the result for 8-bit floats.
    c : torch.Tensor
        ``[m, columns]``.
    bias, residual : torch.Tensor, optional
        ``[n]`` and ``[m, n]``, where the epilogue has them.
    """

    a: Any
    b: Any
    scale_a: Any
    scale_b: Any
    c: Any
    bias: Any = None
    residual: Any = None


def input_sets(shape: GemmShape) -> int:
    """How many input sets keep the operands of successive launches out of the L2 cache."""
    return max(2, -(-ROTATING_BYTES // shape.input_bytes))


def poison(dtype: str) -> Any:
    """A number that no right result is full of."""
    return -(2**31) if dtype == "int32" else float("nan")


def make_operands(torch: Any, shape: GemmShape, seed: int) -> Operands:
    """Random operands that depend on ``seed`` alone, and a poisoned result."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    dtype, result = getattr(torch, shape.storage_dtype), getattr(torch, shape.result_dtype)

    def random(*extents: int, deviation: float = 1.0) -> Any:
        if dtype == torch.int8:
            return torch.randint(
                -128, 128, extents, device="cuda", generator=generator, dtype=dtype
            )
        normal = torch.randn(extents, device="cuda", generator=generator)
        return (normal * deviation).to(dtype)

    scales = [torch.full((1,), value, device="cuda") for value in (0.75, 1.25)]
    c = torch.full(
        (shape.m, shape.columns), poison(shape.result_dtype), dtype=result, device="cuda"
    )
    bias = random(shape.n) if shape.epilogue.startswith("bias") else None
    residual = random(shape.m, shape.n) if shape.epilogue == "residual" else None
    # A product of two sums of as many normal numbers would exceed what float16 holds.
    small = shape.k**-0.5 if shape.epilogue == "swiglu" else 1.0
    a, b = random(*shape.a_shape), random(*shape.b_shape, deviation=small)
    return Operands(a, b, *scales, c, bias, residual)


def check(torch: Any, shape: GemmShape, operands: Operands) -> Deviation:
    """Compare all elements of the result with a reference in float32.

    float32 (not tf32) products of 16- and 8-bit numbers are exact, and their sums err by far
    less than a 16-bit result. Integers are summed in float64, exactly.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    wide = torch.float64 if shape.dtype == "int8" else torch.float32
    reference = left(shape, operands).to(wide) @ right(shape, operands).to(wide)
    if is_float8(shape.dtype):
        reference *= operands.scale_a * operands.scale_b
    reference = epilogue(torch, shape, operands, reference)
    return deviation(operands.c.to(wide), reference)


def left(shape: GemmShape, operands: Operands) -> Any:
    """A as ``[m, k]``, a view."""
    return operands.a if shape.layout[0] == "N" else operands.a.T


def right(shape: GemmShape, operands: Operands) -> Any:
    """B as ``[k, n]``, a view."""
    return operands.b if shape.layout[1] == "N" else operands.b.T


def epilogue(torch: Any, shape: GemmShape, operands: Operands, total: Any) -> Any:
    """The epilogue, in PyTorch and in the dtype of ``total``."""
    if shape.epilogue.startswith("bias"):
        total = total + operands.bias.to(total.dtype)
    if shape.epilogue == "bias_gelu":
        return torch.nn.functional.gelu(total, approximate="tanh")
    if shape.epilogue == "residual":
        return total + operands.residual.to(total.dtype)
    if shape.epilogue == "swiglu":
        gate, up = total.chunk(2, dim=1)
        return torch.nn.functional.silu(gate) * up
    return total


def allowed_error(shape: GemmShape) -> float:
    """Bound of the relative error that :func:`check` finds."""
    factor = 1.0 if shape.epilogue == "none" else _ROUNDED_TWICE
    return RELATIVE_ERROR[shape.dtype] * factor


def arguments(shape: GemmShape, operands: Operands) -> tuple[Any, ...]:
    """Arguments of this package's kernels."""
    scales = (operands.scale_a, operands.scale_b) if is_float8(shape.dtype) else ()
    extra = (operand for operand in (operands.bias, operands.residual) if operand is not None)
    return (operands.a, operands.b, *scales, *extra, operands.c)

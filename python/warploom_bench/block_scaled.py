"""``python -m warploom_bench block-scaled``: 8-bit floats with a scale for blocks of 128.

Against cuBLASLt's GEMMs with the same scales (1 x 128 of A, 128 x 128 of B), which PyTorch's
``_scaled_mm`` gives where the library has them. One with a single scale for each operand and fast
accumulation is measured beside, as what the tensor core can do: it computes something else, and is
checked against that. A variant, such as tile=256x128x128,stages=4,cluster=1x2,order_mmas=true,
has the program's choice of tile, stages and cluster for the shape, except for those that it names.
Exit status: 0 if every result is right, 1 if one is wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from warploom.command_line import Parser, extents, positive
from warploom_bench.check import Deviation, deviation
from warploom_bench.dequant import parse_changes
from warploom_bench.operands import RELATIVE_ERROR, ROTATING_BYTES
from warploom_bench.options import kernel_options, timing_options
from warploom_bench.programs import Competitor, add_common, compare, run_program
from warploom_bench.report import Comparison
from warploom_bench.suite import load_suite

if TYPE_CHECKING:
    from tvm.runtime import Executable

_DTYPE = "float8_e4m3fn"
#: Of a scale. The machine that measures may lack TVM, which the program's module imports.
_BLOCK = 128


@dataclass(frozen=True)
class BlockScaledShape:
    """``C[m, n] = A[m, k] B[n, k]^T`` with scales for blocks.

    Attributes
    ----------
    group : str
        Shapes of a group are summarised together.
    m, n, k : int
    out_dtype : str
    target : float, optional
        Ratio to the library that must be reached.
    """

    HEADER: ClassVar[str] = "shape MxNxK"
    group: str
    m: int
    n: int
    k: int
    out_dtype: str = "bfloat16"
    target: float | None = None

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k} {self.out_dtype}"

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """Of A, B and C; scales are few."""
        return (self.m + self.n) * self.k + 2 * self.m * self.n

    @property
    def scale_shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of A's scales, blocks of K first, and of B's."""
        blocks = -(-self.k // _BLOCK)
        return (blocks, self.m), (-(-self.n // _BLOCK), blocks)


@dataclass
class Operands:
    """A, B, their scales, the result, and whether it has the scales of blocks or none."""

    a: Any
    b: Any
    scale_a: Any
    scale_b: Any
    c: Any
    unit_scale: Any
    blocks: bool = True


def make_operands(torch: Any, shape: BlockScaledShape, seed: int) -> list[Operands]:
    """Random operands, in as many copies as do not fit into the L2 cache together."""
    generator = torch.Generator(device="cuda").manual_seed(seed)

    def numbers(*extents: int) -> Any:
        random = torch.randn(extents, device="cuda", generator=generator)
        return random.to(getattr(torch, _DTYPE))

    def scales(extents: tuple[int, int]) -> Any:
        return torch.rand(extents, device="cuda", generator=generator) * 1.5 + 0.5

    tensors = (
        numbers(shape.m, shape.k), numbers(shape.n, shape.k), *map(scales, shape.scale_shapes),
        torch.empty((shape.m, shape.n), dtype=getattr(torch, shape.out_dtype), device="cuda"),
        torch.ones((1,), device="cuda"),
    )  # fmt: skip
    copies = max(2, -(-ROTATING_BYTES // ((shape.m + shape.n) * shape.k)))
    return [Operands(*(tensor.clone() for tensor in tensors)) for _ in range(copies)]


def check(o: Operands) -> Deviation:
    """Compare all elements of the result with a reference in float32."""
    a, b = o.a.float(), o.b.float()
    if o.blocks:
        (m, k), n = a.shape, b.shape[0]
        a = a * o.scale_a.T.repeat_interleave(_BLOCK, dim=1)[:m, :k]
        of_b = o.scale_b.repeat_interleave(_BLOCK, dim=0).repeat_interleave(_BLOCK, dim=1)
        b = b * of_b[:n, :k]
    return deviation(o.c.float(), a @ b.T)


def program(shape: BlockScaledShape, changes: str = "") -> Executable:
    """The tile program of this package, compiled; it takes any number of rows.

    ``changes`` are those of :func:`warploom_bench.dequant.parse_changes`.
    """
    import tvm

    from warploom.decide import choose
    from warploom.decide.families.block_scaled import BlockScaledProblem
    from warploom.programs import gemm_block_scaled
    from warploom.programs.gemm_block_scaled import options_of
    from warploom.target import default_target

    chosen = options_of(choose(BlockScaledProblem(shape.m, shape.n, shape.k)))
    chosen |= parse_changes(changes) if changes else {}
    func = gemm_block_scaled(
        shape.n, shape.k, None, _DTYPE, shape.out_dtype, scale_layout="KM", **chosen
    )
    target, _ = default_target()
    return tvm.compile(tvm.IRModule({"main": func}), target, tir_pipeline="warploom")


def our_gemm(function: Callable[..., object]) -> Competitor:
    """A compiled program as a function of operands."""

    def of_blocks(o: Operands) -> None:
        o.blocks = True
        function(o.a, o.b, o.scale_a, o.scale_b, o.c)

    return of_blocks


def library_gemms(torch: Any) -> dict[str, Competitor]:
    """cuBLASLt through PyTorch, the one with our scales first."""

    def of_blocks(o: Operands) -> None:
        o.blocks = True
        # Views: A's scales have neighbouring rows, B's neighbouring blocks of K, side by side.
        torch._scaled_mm(o.a, o.b.T, o.scale_a.T, o.scale_b.T, out_dtype=o.c.dtype, out=o.c)

    def of_tensors(o: Operands) -> None:
        o.blocks = False
        torch._scaled_mm(
            o.a, o.b.T, o.unit_scale, o.unit_scale, out_dtype=o.c.dtype, use_fast_accum=True,
            out=o.c,
        )

    return {"cuBLASLt, the same scales": of_blocks, "cuBLASLt, no scales": of_tensors}


def compare_shape(
    torch: Any,
    shape: BlockScaledShape,
    functions: Mapping[str, Callable[..., object]],
    options: argparse.Namespace,
) -> Comparison | None:
    """Check and time all competitors on one shape."""
    sets = make_operands(torch, shape, options.seed)
    ours = {name: our_gemm(function) for name, function in functions.items()}
    libraries = library_gemms(torch)
    allowed = RELATIVE_ERROR[_DTYPE]
    return compare(torch, shape, ours, libraries, sets, check, allowed, options)


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit status is explained above."""
    parser = Parser(
        prog="warploom bench block-scaled", description=__doc__,
        parents=[timing_options("block-scaled.json, .md and .png"), kernel_options()],
    )  # fmt: skip
    parser.add_argument(
        "--shape", type=extents("MxNxK"), action="append", metavar="MxNxK",
        help="repeatable (default: those of the group deepseek of the suite public)",
    )  # fmt: skip
    parser.add_argument("--m", type=positive, help="of the default shapes, only those of M rows")
    parser.add_argument("--out-dtype", choices=("float16", "bfloat16"), default="bfloat16")
    add_common(parser)
    options = parser.parse_args(arguments)
    sizes = options.shape or []
    if not sizes:
        known = load_suite("public", (_DTYPE,), ["deepseek"])
        sizes = [(s.m, s.n, s.k) for s in known if options.m in (None, s.m)]
    shapes = [BlockScaledShape(f"M = {m}", m, n, k, options.out_dtype) for m, n, k in sizes]
    return run_program(
        "block-scaled", arguments, options, shapes, program,
        lambda torch, shape, functions: compare_shape(torch, shape, functions, options),
    )  # fmt: skip

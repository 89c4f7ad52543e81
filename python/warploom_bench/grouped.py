"""``python -m warploom_bench grouped``: the GEMMs of a mixture of experts.

Rows of experts follow each other, of random numbers that only the device knows when our kernel is
launched, and so does PyTorch's ``_grouped_mm``; a loop of cuBLAS GEMMs knows them on the host.
Exit status: 0 if every result is right, 1 if one is wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from warploom.command_line import Parser, extents, positive
from warploom_bench.check import Deviation, deviation, worst_of
from warploom_bench.dequant import parse_changes
from warploom_bench.operands import RELATIVE_ERROR, ROTATING_BYTES
from warploom_bench.options import kernel_options, timing_options
from warploom_bench.programs import Competitor, add_common, compare, run_program
from warploom_bench.report import Comparison

if TYPE_CHECKING:
    from tvm.runtime import Executable

#: Experts, N and K of the layers of Mixtral 8x7B, and of those 64 of DeepSeek-V3 that a GPU has.
LAYERS = ((8, 28672, 4096), (8, 4096, 14336), (64, 4096, 7168), (64, 7168, 2048))
#: Rows of all experts together.
_ROWS = (1024, 8192)


@dataclass(frozen=True)
class GroupedShape:
    """``C[rows of g] = X[rows of g] W[g]^T`` with ``m`` rows in all.

    Attributes
    ----------
    group : str
        Shapes of a group are summarised together.
    groups, m, n, k : int
        Weights, rows of all groups, and rows and columns of a weight.
    dtype : str
    target : float, optional
        Ratio to the library that must be reached.
    """

    HEADER: ClassVar[str] = "groups x MxNxK"
    group: str
    groups: int
    m: int
    n: int
    k: int
    dtype: str = "bfloat16"
    target: float | None = None

    def __str__(self) -> str:
        return f"{self.groups} x {self.m}x{self.n}x{self.k} {self.dtype}"

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """Of the weights, X and C in 16 bits."""
        return 2 * (self.groups * self.n * self.k + self.m * (self.k + self.n))


@dataclass
class Operands:
    """X, the weights, first rows of groups on the device and on the host, and the result."""

    x: Any
    w: Any
    indptr: Any
    starts: Sequence[int]
    c: Any
    result: Any = None


def group_starts(shape: GroupedShape, seed: int) -> np.ndarray:
    """First rows of groups of uneven random sizes, and the number of rows in all."""
    rng = np.random.default_rng(seed)
    sizes = rng.multinomial(shape.m, rng.dirichlet(np.ones(shape.groups)))
    return np.cumsum([0, *sizes]).astype(np.int32)


def make_operands(torch: Any, shape: GroupedShape, seed: int) -> list[Operands]:
    """Random operands, in as many copies as do not fit into the L2 cache together."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    dtype = getattr(torch, shape.dtype)
    starts = group_starts(shape, seed)
    x = torch.randn((shape.m, shape.k), device="cuda", generator=generator).to(dtype)
    weights = (shape.groups, shape.n, shape.k)
    w = torch.randn(weights, device="cuda", generator=generator, dtype=dtype)
    indptr = torch.from_numpy(starts).cuda()
    c = torch.empty((shape.m, shape.n), dtype=dtype, device="cuda")
    copies = max(2, -(-ROTATING_BYTES // (w.numel() * w.element_size())))
    return [
        Operands(x.clone(), w.clone(), indptr.clone(), starts.tolist(), c.clone())
        for _ in range(copies)
    ]


def check(o: Operands) -> Deviation:
    """Compare all elements of the result with a reference in float32, group by group."""
    return worst_of(
        *(
            deviation(o.result[start:end].float(), o.x[start:end].float() @ o.w[number].float().T)
            for number, (start, end) in enumerate(zip(o.starts, o.starts[1:], strict=False))
            if end > start
        )
    )


def program(shape: GroupedShape, changes: str = "") -> Executable:
    """The tile program of this package, compiled for this number of rows.

    ``changes`` are those of :func:`warploom_bench.dequant.parse_changes`.
    """
    import tvm

    from warploom.programs import gemm_grouped
    from warploom.target import default_target

    func = gemm_grouped(
        shape.groups, shape.n, shape.k, shape.m, shape.dtype,
        **(parse_changes(changes) if changes else {}),
    )  # fmt: skip
    target, _ = default_target()
    return tvm.compile(tvm.IRModule({"main": func}), target, tir_pipeline="warploom")


def our_gemm(function: Callable[..., object]) -> Competitor:
    """A compiled program as a function of operands."""

    def of_groups(o: Operands) -> None:
        function(o.x, o.w, o.indptr, o.c)
        o.result = o.c

    return of_groups


def library_gemms(torch: Any) -> dict[str, Competitor]:
    """PyTorch's GEMM of groups, and one GEMM of cuBLAS after the other."""

    def grouped_mm(o: Operands) -> None:
        o.result = torch._grouped_mm(o.x, o.w.transpose(1, 2), offs=o.indptr[1:])

    def loop(o: Operands) -> None:
        for number, (start, end) in enumerate(zip(o.starts, o.starts[1:], strict=False)):
            if end > start:
                torch.mm(o.x[start:end], o.w[number].T, out=o.c[start:end])
        o.result = o.c

    return {"torch._grouped_mm": grouped_mm, "cuBLAS, one by one": loop}


def compare_shape(
    torch: Any,
    shape: GroupedShape,
    functions: Mapping[str, Callable[..., object]],
    options: argparse.Namespace,
) -> Comparison | None:
    """Check and time all competitors on one shape."""
    sets = make_operands(torch, shape, options.seed)
    ours = {name: our_gemm(function) for name, function in functions.items()}
    libraries = library_gemms(torch)
    allowed = RELATIVE_ERROR[shape.dtype]
    return compare(torch, shape, ours, libraries, sets, check, allowed, options)


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit status is explained above."""
    parser = Parser(
        prog="warploom bench grouped", description=__doc__,
        parents=[timing_options("grouped.json, .md and .png"), kernel_options()],
    )  # fmt: skip
    parser.add_argument(
        "--m", type=positive, action="append",
        help=f"rows of all groups; repeatable (default: {', '.join(map(str, _ROWS))})",
    )  # fmt: skip
    layers = ", ".join("x".join(map(str, layer)) for layer in LAYERS)
    parser.add_argument(
        "--layer", type=extents("GROUPSxNxK"), action="append", metavar="GROUPSxNxK",
        help=f"repeatable (default: {layers})",
    )  # fmt: skip
    parser.add_argument("--dtype", choices=("float16", "bfloat16"), default="bfloat16")
    add_common(parser)
    options = parser.parse_args(arguments)
    chosen = options.layer or LAYERS
    shapes = [
        GroupedShape(f"{groups} groups", groups, m, n, k, options.dtype)
        for groups, n, k in chosen for m in options.m or _ROWS
    ]  # fmt: skip
    return run_program(
        "grouped", arguments, options, shapes, program,
        lambda torch, shape, functions: compare_shape(torch, shape, functions, options),
    )  # fmt: skip

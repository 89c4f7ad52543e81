"""``warploom bench generated``: the generated matmuls against cuBLAS, checked and timed.

The case is that of MLIR's generator of Hopper matmuls: float16 to float32, tiles of 128 x 128 x 64,
three stages, and a budget of 40 and 232 registers with roles.

Exit status: 0 if every result is right, 1 if one is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from warploom.command_line import Parser, output_folder, positive
from warploom.gemm_shape import GemmShape
from warploom_bench import ladder
from warploom_bench.backends import Competitor
from warploom_bench.environment import environment
from warploom_bench.report import EXIT_RIGHT, EXIT_WRONG
from warploom_bench.run import import_torch

#: Tile, stages and result of every row.
CHOICES = {"tile": (128, 128, 64), "stages": 3, "out_dtype": "float32"}


class Float32Result(GemmShape):
    """A float16 GEMM whose result is stored as it was summed."""

    @property
    def result_dtype(self) -> str:
        return "float32"


def kernels() -> dict[str, Callable[[int, int, int], Any]]:
    """Row -> the generator of its kernel for M, N and K."""
    from warploom.kernels import matmul_multistage, matmul_warp_specialised

    return {
        "multistage": lambda *shape: matmul_multistage(*shape, **CHOICES),
        "warp-specialised": lambda *shape: matmul_warp_specialised(*shape, **CHOICES),
        "warp-specialised, 40/232 registers": lambda *shape: matmul_warp_specialised(
            *shape, registers=(40, 232), **CHOICES
        ),
    }


def compile_rows(shape: GemmShape) -> dict[str, Competitor]:
    """All rows as kernels of one module."""
    import tvm

    from warploom.target import cuda_target

    functions = {row: make(shape.m, shape.n, shape.k) for row, make in kernels().items()}
    names = {row: str(func.attrs["global_symbol"]) for row, func in functions.items()}
    module = tvm.IRModule({names[row]: func for row, func in functions.items()})
    compiled = tvm.compile(module, cuda_target("sm_90a"), tir_pipeline="tirx")

    def competitor(name: str) -> Competitor:
        kernel = compiled[name]
        return lambda o: kernel(o.a, o.b, o.c)

    return {row: competitor(name) for row, name in names.items()}


def cublas(torch: Any) -> Competitor:
    """cuBLAS with a float32 result, through PyTorch 2.8 or later."""
    return lambda o: torch.mm(o.a, o.b.T, out_dtype=torch.float32, out=o.c)


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit status is explained above."""
    parser = Parser(prog="warploom bench generated", description=__doc__)
    parser.add_argument("--size", type=positive, default=4096, help="M, N and K (default: 4096)")
    parser.add_argument("--rounds", type=positive, default=15, help="samples (default: 15)")
    parser.add_argument("--out", type=output_folder, help="folder for ladder.json and ladder.md")
    options = parser.parse_args(arguments)
    torch, size = import_torch(), options.size
    shape = Float32Result("generated", size, size, size, "float16")
    results = ladder.of_shape(torch, shape, compile_rows(shape), options.rounds, cublas(torch))
    print(ladder.table(results))
    if options.out:
        ladder.write(results, environment(["generated", *arguments]), options.out)
    return EXIT_RIGHT if all(result.is_right for result in results) else EXIT_WRONG

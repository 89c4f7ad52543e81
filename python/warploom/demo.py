"""``warploom demo``: compile a GEMM, run it on random matrices, check it against numpy.

Where there is no GPU the emulator runs it, unless ``WARPLOOM_EMULATOR=0``; the report says so.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from warploom.command_line import Parser, natural, positive
from warploom.target.dtypes import is_float8

if TYPE_CHECKING:
    from warploom.compiler.compile_report import CompileReport
    from warploom.decide import Config, GemmProblem

#: Largest ||C - AB|| / ||AB|| that rounding of the result explains, by its dtype.
TOLERANCE = {"float16": 5e-4, "bfloat16": 4e-3}
#: The tensor core keeps about 14 bits of a sum of float8 products.
FLOAT8_TOLERANCE = 2e-2
#: Rows and columns of the matrices unless others are asked for.
GPU_SIZE, EMULATED_SIZE = 4096, 512
#: Rows of C that are compared: a matmul in float64 takes the CPU a second for every few hundred.
CHECKED_ROWS = 64


@dataclass(frozen=True)
class Run:
    """The result of an execution: seconds of one launch, and ||C - AB|| / ||AB|| of ``rows`` rows.

    ``emulated`` says that the seconds are those of a CPU.
    """

    device: str
    seconds: float
    error: float
    rows: int
    emulated: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    for letter, meaning in (("m", "rows of A and C"), ("n", "columns of C"), ("k", "columns of A")):
        parser.add_argument(
            f"-{letter}",
            type=positive,
            help=f"{meaning} ({GPU_SIZE}, on the emulator {EMULATED_SIZE})",
        )
    parser.add_argument("--dtype", default="float16", help="of A and B (float16)")
    parser.add_argument("--out-dtype", default=None, help="of C (that of A, bfloat16 for float8)")
    parser.add_argument("--layout", default="NT", help="NT: B is [N, K]; NN: B is [K, N] (NT)")
    parser.add_argument("--seed", type=natural, default=0, help="of the random matrices (0)")


def tolerance(dtype: str, out_dtype: str) -> float:
    """Largest relative error of a correct kernel."""
    rounding = TOLERANCE[out_dtype]
    return max(rounding, FLOAT8_TOLERANCE) if is_float8(dtype) else rounding


def sampled_error(
    c: np.ndarray, a: np.ndarray, b: np.ndarray, layout: str, rng: np.random.Generator
) -> tuple[float, int]:
    """Relative error of some rows of ``c``, and how many.

    Parameters
    ----------
    c, a, b : numpy.ndarray
        ``[M, N]``, ``[M, K]`` and ``[N, K]`` or ``[K, N]``, in any float dtype.
    """
    count = min(CHECKED_ROWS, len(c))
    rows = rng.choice(len(c), count, replace=False)
    wide = b.astype(np.float64)
    expected = a[rows].astype(np.float64) @ (wide.T if layout == "NT" else wide)
    difference = c[rows].astype(np.float64) - expected
    return float(np.linalg.norm(difference) / np.linalg.norm(expected)), count


def describe(config: Config, report: CompileReport, seconds: float) -> list[tuple[str, str]]:
    """Rows of the report that need no GPU."""
    (kernel,) = report.kernels
    kind = "B A^T (few rows)" if config.swap_ab else "A B"
    tile = f"{config.tile_m} x {config.tile_n} x {config.tile_k}"
    cluster = f"{config.cluster_m} x {config.cluster_n}"
    spilled = (kernel.spill_store_bytes or 0) + (kernel.spill_load_bytes or 0)
    rows = [
        ("kernel", f"{kind}, tile {tile}, {config.stages} stages, cluster {cluster}"),
        ("warpgroups", f"1 producer, {config.consumers} consumers"),
        ("registers", f"{kernel.info.registers} a thread, {spilled} bytes spilled"),
        ("shared memory", f"{kernel.dynamic_shared_bytes} bytes"),
        ("compile time", f"{seconds:.2f} s, for {report.arch}"),
    ]
    if kernel.sass is not None:
        shown = ("HGMMA", "QGMMA", "UTMALDG", "UTMASTG", "STSM")
        counts = {name: sum(n for op, n in kernel.sass.items() if op.split(".")[0] == name)
                  for name in shown}  # fmt: skip
        text = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
        rows.insert(-1, ("instructions", text))
    rows += [("to repair", str(problem)) for problem in report.problems]
    return rows


def describe_run(run: Run, shape: tuple[int, int, int], limit: float) -> list[tuple[str, str]]:
    """Rows of the report about an execution."""
    m, n, k = shape
    verdict = "correct" if run.error <= limit else "WRONG"
    time_taken = f"{run.seconds * 1e6:.1f} us, {2 * m * n * k / run.seconds / 1e12:.1f} TFLOP/s"
    if run.emulated:
        time_taken = f"{run.seconds * 1e3:.0f} ms of a CPU, which say nothing about a GPU"
    return [
        ("device", run.device),
        ("time", time_taken),
        (
            "error",
            f"{run.error:.2e} of the norm in {run.rows} rows against numpy in float64: {verdict} "
            f"(limit {limit:.0e})",
        ),
    ]


def execute(executable, problem: GemmProblem, seed: int) -> Run:
    """Run the kernel on random normal matrices, on the first device."""
    import ml_dtypes
    import tvm

    from warploom import emulator

    m, n, k, layout = problem.m, problem.n, problem.k, problem.layout
    rng, device = np.random.default_rng(seed), tvm.cuda(0)

    def dtype_of(name: str) -> np.dtype:
        return np.dtype(getattr(ml_dtypes, name, None) or name)

    def normal(*extents: int) -> np.ndarray:
        return rng.standard_normal(extents, np.float32).astype(dtype_of(problem.a_dtype))

    a, b = normal(m, k), normal(*((n, k) if layout == "NT" else (k, n)))
    poisoned = np.full((m, n), np.nan, dtype_of(problem.outputs[0]))
    arrays = [a, b, *(np.ones(1, np.float32) for _ in problem.inputs), poisoned]
    tensors = [tvm.runtime.tensor(array, device) for array in arrays]
    executable(*tensors)
    error, rows = sampled_error(tensors[-1].numpy(), a, b, layout, rng)
    emulated = emulator.is_enabled()
    number, repeat = (1, 1) if emulated else (10, 7)
    timer = executable.jit().time_evaluator("main", device, number=number, repeat=repeat)
    return Run(device.device_name, timer(*tensors).median, error, rows, emulated)


def main(arguments: list[str]) -> int:
    """Run the command.

    Returns
    -------
    int
        0, or 1 if the result was wrong.
    """
    parser = Parser("warploom demo", description=__doc__.splitlines()[0])
    add_arguments(parser)
    options = parser.parse_args(arguments)

    import tvm
    from rich.console import Console
    from rich.table import Table

    from warploom import emulator
    from warploom.compiler.report import compile_report
    from warploom.decide import choose, plain_gemm
    from warploom.programs import compile_gemm
    from warploom.target import default_target

    emulated = emulator.enable_without_gpu()
    size = EMULATED_SIZE if emulated else GPU_SIZE
    shape = tuple(size if given is None else given for given in (options.m, options.n, options.k))
    kind = (options.dtype, options.out_dtype, options.layout)
    problem, (target, _) = plain_gemm(*shape, *kind), default_target()
    config, (out_dtype,) = choose(problem), problem.outputs
    start = time.perf_counter()
    executable = compile_gemm(*shape, *kind, config, target)
    seconds = time.perf_counter() - start

    size = " x ".join(map(str, shape))
    rows = describe(config, compile_report(executable, target), seconds)
    limit, run = tolerance(options.dtype, out_dtype), None
    if tvm.cuda(0).exist:
        run = execute(executable, problem, options.seed)
        rows += describe_run(run, shape, limit)
    table = Table.grid(padding=(0, 2))
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False)
    console.print(f"GEMM {size}, {options.dtype} to {out_dtype}, layout {options.layout}")
    console.print(table)
    if run is None:
        console.print(
            "Nothing was executed: this machine has no CUDA GPU, and the emulator is not enabled."
        )
        return 0
    return 0 if run.error <= limit else 1

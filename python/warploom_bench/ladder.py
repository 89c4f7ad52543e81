"""``warploom bench ladder``: every step of the Hopper ladder against cuBLAS, checked and timed.

Exit status: 0 if every result is right, 1 if one is wrong.
"""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from warploom.command_line import Parser, input_file, output_folder, positive
from warploom.errors import WarploomError, reading
from warploom.gemm_shape import GemmShape
from warploom_bench import operands as ops
from warploom_bench.backends import Competitor, torch_gemm
from warploom_bench.check import Deviation
from warploom_bench.compete import compare_competitors
from warploom_bench.environment import environment
from warploom_bench.report import EXIT_RIGHT, EXIT_WRONG, Comparison, markdown_table
from warploom_bench.run import import_torch

#: The library that every step is compared with, through PyTorch.
CUBLAS = "cuBLAS"
#: Rows and columns of the only tile that the first steps compute.
TILE = 128
#: K of the only tile of the first step.
TILE_K = 64
#: Input sets of GEMMs that are smaller than the caches, which no number of sets keeps out.
_FEW_SETS = 8
#: The paragraph that :func:`paste` writes, and the heading behind which it stands.
_HEADING = "# ## Result\n#\n"
_PARAGRAPH = re.compile(r"# \*\*Measured\*\*(?:[^\n]*\n)(?:# [^\n]+\n)*#\n")


@dataclass(frozen=True)
class Measured:
    """The result of one step.

    Attributes
    ----------
    step : str
        Name of its file, without ``.py``.
    m, n, k : int
    seconds : float
        Median of an execution.
    cublas_seconds : float
        The same for cuBLAS.
    error, element_error, allowed_error : float
        Relative error of the result, that of its worst element, and the bound of the first.
    """

    step: str
    m: int
    n: int
    k: int
    seconds: float
    cublas_seconds: float
    error: float
    element_error: float
    allowed_error: float

    @property
    def is_right(self) -> bool:
        """False also if an error is NaN: an element was not written."""
        deviation = Deviation(self.error, self.element_error)
        return deviation.is_within(self.allowed_error)

    @property
    def tflops(self) -> float:
        return 2 * self.m * self.n * self.k / self.seconds / 1e12

    @property
    def ratio(self) -> float:
        """Speed relative to cuBLAS."""
        return self.cublas_seconds / self.seconds


def find_steps(folder: Path) -> list[Path]:
    """The steps of a ladder, in order.

    Raises
    ------
    WarploomError
        If the folder has none.
    """
    steps = sorted(folder.glob("v[0-9][0-9]_*.py"))
    if not steps:
        raise WarploomError(
            f"{folder} has no steps of a ladder; run in a checkout of warploom, or name the "
            "folder with --steps."
        )
    return steps


def shape_of(step: str, size: int) -> GemmShape:
    """Return the GEMM of a step: the first two steps compute one tile of C, the others all of C."""
    number = int(step[1:3])
    m, n, k = (TILE, TILE, TILE_K if number == 1 else size) if number <= 2 else (size,) * 3
    return GemmShape("ladder", m, n, k, "float16")


def measure(torch: Any, steps: Iterable[Path], size: int, rounds: int) -> list[Measured]:
    """Compile, check and time the steps; those of one shape are interleaved."""
    by_shape: dict[GemmShape, dict[str, Path]] = {}
    for path in steps:
        by_shape.setdefault(shape_of(path.stem, size), {})[path.stem] = path
    results = []
    for shape, paths in by_shape.items():
        competitors = {name: compile_step(path, shape) for name, path in paths.items()}
        results += of_shape(torch, shape, competitors, rounds)
        print("\n".join(map(_line, results[-len(paths) :])), flush=True)
    return results


def compile_step(path: Path, shape: GemmShape) -> Competitor:
    """The kernel of a step for one shape."""
    import tvm

    from warploom.target import cuda_target

    make: Callable[..., tvm.tirx.PrimFunc] = runpy.run_path(str(path))["gemm"]
    module = tvm.IRModule({"main": make(shape.m, shape.n, shape.k)})
    competitor = tvm.compile(module, cuda_target("sm_90a"), tir_pipeline="tirx")["main"]
    return lambda o: competitor(o.a, o.b, o.c)


def of_shape(
    torch: Any,
    shape: GemmShape,
    competitors: dict[str, Competitor],
    rounds: int,
    library: Competitor | None = None,
) -> list[Measured]:
    """Check and time kernels of one shape, interleaved with cuBLAS (by default PyTorch's call)."""
    sets = [
        ops.make_operands(torch, shape, seed)
        for seed in range(min(_FEW_SETS, ops.input_sets(shape)))
    ]

    def check(operands: ops.Operands) -> Deviation:
        return ops.check(torch, shape, operands)

    libraries = {CUBLAS: library or torch_gemm(torch, shape, sets)}
    comparison = compare_competitors(
        torch, shape, competitors | libraries, sets, check, ops.allowed_error(shape), rounds, True
    )
    return _read(comparison, shape, CUBLAS)


def _read(comparison: Comparison, shape: GemmShape, library: str) -> list[Measured]:
    protocol = comparison.protocols[0]
    medians = {entry.name: entry.times[protocol].median for entry in comparison.entries}
    return [
        Measured(
            e.name, shape.m, shape.n, shape.k, medians[e.name], medians[library],
            e.deviation.relative, e.deviation.element, e.allowed_error,
        )
        for e in comparison.entries
        if e.name != library
    ]  # fmt: skip


def _line(result: Measured) -> str:
    deviation = Deviation(result.error, result.element_error)
    right = "" if result.is_right else f", WRONG: error {deviation}"
    return f"{result.step}: {_number(result.tflops)} TFLOP/s, {result.ratio:.3f} of cuBLAS{right}"


def _number(value: float) -> str:
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(results: Sequence[Measured]) -> str:
    """Markdown: a row for each step."""
    return markdown_table(
        ["step", "shape MxNxK", "median us", "TFLOP/s", "ratio to cuBLAS", "error"],
        [
            [
                r.step,
                f"{r.m}x{r.n}x{r.k}",
                f"{r.seconds * 1e6:.1f}",
                _number(r.tflops),
                f"{r.ratio:.3f}",
                f"{r.error:.1e}" if r.is_right else f"WRONG {r.error:.1e}",
            ]
            for r in results
        ],
    )


def write(results: Sequence[Measured], facts: dict, folder: Path) -> None:
    """Write ``ladder.json`` and ``ladder.md`` into ``folder``, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {"environment": facts, "steps": [asdict(result) for result in results]}
    (folder / "ladder.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    gpu = ", ".join(f"{key} {value}" for key, value in facts["gpu"].items())
    head = f"- date: {facts['date']}\n- command: `{facts['command']}`\n- GPU: {gpu or 'unknown'}\n"
    (folder / "ladder.md").write_text(f"{head}\n{table(results)}\n", encoding="utf-8")


def paste(data: dict, steps: Iterable[Path]) -> None:
    """Write the measurements into the steps' results, in the place of earlier ones.

    Parameters
    ----------
    data : dict
        Of a ``ladder.json``.
    steps : iterable of Path

    Raises
    ------
    WarploomError
        If a step has no result to write to.
    """
    facts = data["environment"]
    name = facts["gpu"].get("name", "").removeprefix("NVIDIA ")
    gpu = f"an {name}" if name else "a GPU"
    by_step = {step["step"]: Measured(**step) for step in data["steps"]}
    for path in steps:
        result = by_step.get(path.stem)
        if result is None:
            continue
        text = path.read_text(encoding="utf-8")
        if text.count(_HEADING) != 1:
            raise WarploomError(f"{path} has no cell that begins with '## Result'.")
        paragraph = (
            f"# **Measured** on {gpu} ({facts['date'][:10]}, `warploom bench ladder`): "
            f"{_number(result.tflops)} TFLOP/s,\n"
            f"# {result.ratio:.3f} of cuBLAS, for C[{result.m}, {result.n}] and K = {result.k}.\n"
            "#\n"
        )
        text = _PARAGRAPH.sub("", text)
        path.write_text(text.replace(_HEADING, _HEADING + paragraph), encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit status is explained above."""
    parser = Parser(prog="warploom bench ladder", description=__doc__)
    parser.add_argument(
        "--steps", type=Path, default=Path("tutorials/ladder_hopper"),
        help="folder of the steps (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--size", type=positive, default=4096, help="M, N and K (default: 4096)")
    parser.add_argument("--rounds", type=positive, default=15, help="samples (default: 15)")
    parser.add_argument("--out", type=output_folder, help="folder for ladder.json and ladder.md")
    parser.add_argument(
        "--paste", type=input_file, metavar="JSON",
        help="measure nothing; write the results of an earlier run into the steps",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    steps = find_steps(options.steps)
    if options.paste:
        with reading(options.paste, "ladder.json of an earlier run"):
            paste(json.loads(options.paste.read_text(encoding="utf-8")), steps)
        return EXIT_RIGHT
    results = measure(import_torch(), steps, options.size, options.rounds)
    facts = environment(["ladder", *arguments])
    print("\n" + table(results))
    if options.out:
        write(results, facts, options.out)
    return EXIT_RIGHT if all(r.is_right for r in results) else EXIT_WRONG

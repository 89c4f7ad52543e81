"""``python -m warploom_bench compile``: how long it takes from TVMScript to a cubin.

Nothing comes from a cache. The first compilation of a process also pays for what Python and TVM
load on first use; it is reported apart from the median of the others.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields

import tvm

from warploom import environ
from warploom.command_line import Parser, duration, output_folder, positive
from warploom.compiler.lowering import observe
from warploom_bench.environment import environment
from warploom_bench.report import markdown_table


@dataclass(frozen=True)
class Stages:
    """Seconds of each stage of one compilation.

    Attributes
    ----------
    parse : float
        Building the prim_func from TVMScript.
    lower : float
        TVM's passes.
    codegen : float
        CUDA source and host code.
    cuda : float
        NVRTC, or nvcc: CUDA source to cubin.
    """

    parse: float
    lower: float
    codegen: float
    cuda: float

    @property
    def total(self) -> float:
        return self.parse + self.lower + self.codegen + self.cuda


def compile_once(
    make: Callable[[], tvm.tirx.PrimFunc],
    target: tvm.target.Target,
) -> Stages:
    """Build and compile one function, without the cubin cache.

    Parameters
    ----------
    make : callable
        Returns the prim_func; its time is the parsing time.
    target : Target
    """
    with environ.variable("WARPLOOM_CACHE", "0"):
        start = time.perf_counter()
        function = make()
        parsed = time.perf_counter()
        module = tvm.IRModule({"main": function})
        with target:
            lowered = observe(lambda: tvm.compile(module, target, tir_pipeline="tirx"))
    cuda = sum(compilation.seconds for compilation in lowered.compilations)
    return Stages(parsed - start, lowered.lower_seconds, lowered.codegen_seconds, cuda)


def table(runs: Sequence[Stages]) -> str:
    """First, median, least and largest time of each stage, in milliseconds."""
    later = runs[1:] or runs
    rows = []
    for stage in (*(field.name for field in fields(Stages)), "total"):
        values = [getattr(run, stage) for run in later]
        figures = (getattr(runs[0], stage), statistics.median(values), min(values), max(values))
        rows.append([stage, *(f"{1e3 * value:.0f}" for value in figures)])
    return markdown_table(["stage", "first ms", "median ms", "min ms", "max ms"], rows)


def main(arguments: Sequence[str]) -> int:
    """Run the command; exit status 0, or 2 if the median exceeds ``--limit``."""
    parser = Parser(prog="warploom bench compile", description=__doc__)
    parser.add_argument("--dtype", default="float16", help="(default: %(default)s)")
    parser.add_argument("--repeat", type=positive, default=7, help="compilations (default: 7)")
    parser.add_argument("--limit", type=duration, help="largest acceptable median, in seconds")
    parser.add_argument("--out", type=output_folder, help="folder for compile-DTYPE.json")
    options = parser.parse_args(arguments)
    from warploom.decide import choose, plain_gemm
    from warploom.programs import gemm
    from warploom.target import cuda_target

    target = cuda_target("h200")
    config = choose(plain_gemm(4096, 4096, 4096, options.dtype))
    runs = [
        compile_once(lambda: gemm(config, 4096, 4096, 4096, options.dtype), target)
        for _ in range(max(1, options.repeat))
    ]
    facts = environment(["compile", *arguments]) | {"cpus": len(os.sched_getaffinity(0))}
    print(f"{options.dtype} GEMM, 4096 x 4096 x 4096, {facts['cpus']} CPUs, no cache\n")
    print(table(runs))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        content = {"environment": facts, "runs": [asdict(run) for run in runs]}
        path = options.out / f"compile-{options.dtype}.json"
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    median = statistics.median(run.total for run in runs[1:] or runs)
    return 2 if options.limit is not None and median > options.limit else 0

"""``python -m warploom_bench cold``: how soon a new process has its first result.

Each row is a process of its own. The first fills an empty cache and exports its kernels.
The others find neither a compiler nor a pipeline of TVM, so that their kernels come from the cache
or from the exported library.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from warploom.command_line import Parser, duration, output_folder, positive, require_gpu
from warploom.errors import WarploomError
from warploom_bench.environment import environment
from warploom_bench.report import markdown_table

#: Stages of a process, each with its wall time and its CPU time, in seconds. The first includes the
#: random matrices, the last the copies of all three.
STAGES = ("import", "compile or load", "first result")

#: Arguments: size, library to write or empty, library to load or empty, whether to compile nothing.
_SCRIPT = """
import json, sys, time
stamps = []
def stamp(): stamps.append((time.perf_counter(), time.process_time()))
size, exported, loaded, cold = json.loads(sys.argv[1])
stamp()
if cold:
    sys.modules["cuda.bindings.nvrtc"] = None
import numpy as np
import tvm
from warploom.programs import compile_gemm
if cold:
    def fail(*_): raise AssertionError("nothing is lowered")
    tvm.tirx.get_tir_pipeline = fail
rng = np.random.default_rng(0)
a, b = (rng.standard_normal((size, size), "float32").astype("float16") for _ in range(2))
arrays = (a, b, np.full((size, size), np.nan, "float16"))
stamp()
gemm = tvm.runtime.load_module(loaded) if loaded else compile_gemm(None, size, size)
stamp()
tensors = [tvm.runtime.tensor(array, tvm.cuda(0)) for array in arrays]
gemm["main"](*tensors)
c = tensors[2].numpy()
stamp()
error = np.abs(c - a.astype("float32") @ b.astype("float32").T).max()
assert error < 4e-3 * size**0.5, f"wrong by {error}"
if exported:
    gemm.export_library(exported)
print(json.dumps([[b - a for a, b in zip(*pair)] for pair in zip(stamps, stamps[1:])]))
"""


def run_process(
    environ: Mapping[str, str],
    size: int,
    exported: str = "",
    loaded: str = "",
    cold: bool = True,
) -> dict[str, tuple[float, float]]:
    """Compile or load a float16 GEMM in a new process, run it and check its result.

    Parameters
    ----------
    environ : mapping
        Its environment; without ``PATH`` if ``cold``.
    size : int
        Rows and columns of all matrices.
    exported, loaded : str
        Library to write, and library to load in the place of compiling.
    cold : bool
        Hide all compilers, and let TVM lower nothing.

    Returns
    -------
    dict
        Stage -> seconds of wall time, seconds of CPU time.

    Raises
    ------
    WarploomError
        If the process fails.
    """
    arguments = json.dumps([size, exported, loaded, cold])
    hidden = {"PATH": "", "CUDA_PATH": "/nowhere"} if cold else {}
    result = subprocess.run(
        [sys.executable, "-c", _SCRIPT, arguments],
        env={**environ, **hidden},
        capture_output=True,
        text=True,
        timeout=300,
    )
    if result.returncode != 0:
        raise WarploomError(f"A process that runs a GEMM failed: {result.stderr.strip()[-500:]}")
    seconds = json.loads(result.stdout.splitlines()[-1])
    return {stage: (wall, cpu) for stage, (wall, cpu) in zip(STAGES, seconds, strict=True)}


def measure(size: int, repeat: int) -> dict[str, dict[str, tuple[float, float]]]:
    """The rows of the table, by what the process has; of several, the soonest at its result."""
    with tempfile.TemporaryDirectory() as folder:
        environ = {
            **{k: v for k, v in os.environ.items() if k != "WARPLOOM_MODULE_CACHE"},
            "WARPLOOM_CACHE_DIR": str(Path(folder, "cache")),
        }
        library = str(Path(folder, "gemm.so")) if shutil.which("g++") else ""
        rows = {"nothing, with a compiler": run_process(environ, size, library, cold=False)}

        def soonest(**options: str) -> dict[str, tuple[float, float]]:
            runs = [run_process(environ, size, **options) for _ in range(repeat)]
            return min(runs, key=lambda run: sum(run[stage][0] for stage in STAGES[1:]))

        rows["the cache, no compiler"] = soonest()
        if library:
            rows["an exported library, no compiler"] = soonest(loaded=library)
    return rows


def table(rows: Mapping[str, Mapping[str, tuple[float, float]]]) -> str:
    """Wall and CPU milliseconds of each stage, and from the end of the imports to the result."""
    lines = []
    for name, stages in rows.items():
        total = tuple(sum(stages[stage][i] for stage in STAGES[1:]) for i in range(2))
        cells = [*(stages[stage] for stage in STAGES), total]
        lines.append([name, *(f"{1e3 * wall:.0f} ({1e3 * cpu:.0f})" for wall, cpu in cells)])
    return markdown_table(["ms, wall (CPU)", *STAGES, "after import"], lines)


def main(arguments: Sequence[str]) -> int:
    """Run the command; exit status 0, or 2 if the result from the cache comes after ``--limit``."""
    parser = Parser(prog="warploom bench cold", description=__doc__)
    parser.add_argument(
        "--size", type=positive, default=4096, help="of the matrices (default: 4096)"
    )
    parser.add_argument("--repeat", type=positive, default=3, help="processes a row (default: 3)")
    parser.add_argument("--limit", type=duration, help="seconds of wall time after the imports")
    parser.add_argument("--out", type=output_folder, help="folder for cold.json")
    options = parser.parse_args(arguments)
    require_gpu("benchmarks measure one")
    rows = measure(options.size, max(1, options.repeat))
    print(table(rows))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        content = {"environment": environment(["cold", *arguments]), "rows": rows}
        text = json.dumps(content, indent=1) + "\n"
        (options.out / "cold.json").write_text(text, encoding="utf-8")
    cached = rows["the cache, no compiler"]
    seconds = sum(cached[stage][0] for stage in STAGES[1:])
    return 2 if options.limit is not None and seconds > options.limit else 0

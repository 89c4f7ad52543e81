"""``python -m warploom_bench machine``: the constants of this GPU, by microbenchmarks.

Each of them is a kernel that does one thing between two reads of the clock, and whose results are
checked. A reading that no Hopper can have is marked as implausible, and no constant follows from
it. A whole run takes less than a minute and writes the file of this GPU, which warploom reads
from then on: the facts of a GPU that it does not know, and constants of its cost model.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from warploom.command_line import Parser, output_file
from warploom.errors import WarploomError
from warploom.target.measured import machine_file
from warploom_bench.environment import environment
from warploom_bench.kernels import Kernels
from warploom_bench.machine.device import RuntimeMemory, find_gpu
from warploom_bench.machine.measurement import Measurement, Reading, readings
from warploom_bench.machine.probe import Probe
from warploom_bench.machine.report import Result
from warploom_bench.machine.rig import FILL, QUICK, USUAL, Rig
from warploom_bench.machine.table import MEASUREMENTS, kernel_of
from warploom_bench.options import kernel_options
from warploom_bench.report import EXIT_RIGHT, EXIT_WRONG


def measure(measurements: Sequence[Measurement], rig: Rig) -> tuple[list[Reading], dict[str, str]]:
    """Readings, and why measurements have none: one that fails costs only itself."""
    found: list[Reading] = []
    failed: dict[str, str] = {}
    for one in measurements:
        start = time.monotonic()
        try:
            found += readings(one, rig)
            print(f"{one.name}: {time.monotonic() - start:.1f} s", flush=True)
        except (WarploomError, RuntimeError) as error:  # errors of CUDA are the latter
            failed[one.name] = str(error).splitlines()[0]
            print(f"{one.name}: FAILED: {failed[one.name]}", flush=True)
    return found, failed


def _measurement(text: str) -> str:
    if text not in MEASUREMENTS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no measurement; allowed are {', '.join(MEASUREMENTS)}"
        )
    return text


def _parser() -> Parser:
    parser = Parser(prog="warploom bench machine", description=__doc__, parents=[kernel_options()])
    parser.add_argument(
        "--only", type=_measurement, action="append", default=[], metavar="NAME",
        help="only this measurement; repeatable. The GPU's file is not written then",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="3 samples of each instead of 9")
    parser.add_argument(
        "--json", type=output_file, help="file to write in place of that of the GPU"
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run the command; exit status 0, or 1 if a measurement failed."""
    options = _parser().parse_args(arguments)
    wanted = [MEASUREMENTS[name] for name in dict.fromkeys(options.only)] or [
        *MEASUREMENTS.values()
    ]
    probes = dict.fromkeys([FILL, *(probe for one in wanted for probe in one.probes)])
    kernels = Kernels(options.kernels, options.workers)
    if options.compile_only:
        if not options.kernels:
            raise WarploomError("--compile-only needs --kernels DIR, the folder to fill.")
        failed = kernels.compile(kernel_of(probe) for probe in probes)
        kernels.add_runtime()
        return EXIT_WRONG if failed else EXIT_RIGHT
    gpu = find_gpu(kernels.folder)
    kernels.compile(kernel_of(probe) for probe in probes)
    functions: dict[Probe, Any] = {}

    def load(probe: Probe) -> Any:
        if probe not in functions:
            functions[probe] = kernels.function(kernel_of(probe))
        return functions[probe]

    effort = QUICK if options.quick else USUAL
    rig = Rig(load, RuntimeMemory(), gpu.sms, gpu.l2_bytes, effort)
    facts = environment(["machine", *arguments])
    found, failed = measure(wanted, rig)
    result = Result(gpu.name, gpu.sms, gpu.l2_bytes, tuple(found), failed, facts)
    print(f"\n{result.tables()}")
    # Without facts, warploom would refuse the file.
    partial = options.only or failed or result.facts() is None
    path = options.json or (None if partial else machine_file(gpu.name))
    if path is not None:
        result.write(path)
        print(f"\n{path} is written.")
    return EXIT_WRONG if failed else EXIT_RIGHT

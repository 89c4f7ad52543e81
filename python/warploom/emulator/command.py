"""``warploom emulate``: run a script or a program with the emulator in the place of the GPU.

A Python script runs in a process of its own, where ``tvm.cuda(0)`` is the emulated device even if
the machine has a driver. So does an executable, such as a program of nvcc with PTX in it. Of a file
with PTX the kernels are loaded and listed, which finds whatever the emulator does not know.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from warploom.command_line import Parser, natural, output_file
from warploom.emulator import binding, clients, run_ptx
from warploom.emulator.run_program import child_environment
from warploom.emulator.settings import SCHEDULES, Settings
from warploom.errors import WarploomError, reading
from warploom.runtime.emulator_libraries import ARCHS, FIRST_ARCH


def _parser() -> argparse.ArgumentParser:
    parser = Parser("warploom emulate", description=__doc__.splitlines()[0])
    parser.add_argument("file", help="a Python script, a program, or a file *.ptx or *.fatbin")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of it")
    parser.add_argument("--arch", choices=ARCHS, help=f"of tvm.cuda(0) ({ARCHS[0]})")
    parser.add_argument("--seed", type=natural, default=1, help="of the schedule (1)")
    parser.add_argument("--schedule", choices=SCHEDULES, default="random", help="(random)")
    parser.add_argument(
        "--explore", type=natural, default=0, metavar="N", help="schedules a launch"
    )
    parser.add_argument("--report", action="store_true", help="count operations of the launches")
    parser.add_argument(
        "--html", type=output_file, metavar="FILE", help="write what is found, with the sources"
    )
    parser.add_argument("--no-checks", action="store_true", help="do not look for races")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Entry of ``warploom emulate``; the exit status is that of the script."""
    options = _parser().parse_args(arguments)
    file = Path(options.file)
    if not file.is_file():
        raise WarploomError(
            f"There is no file {file}; name a Python script, a program or a file *.ptx."
        )
    if file.suffix in (".ptx", ".fatbin"):
        with reading(file, "PTX"):
            image = run_ptx.read_image(file)
        return _list_kernels(image, options.arch)
    settings = Settings(
        checks=not options.no_checks,
        seed=options.seed,
        schedule=options.schedule,
        report=options.report,
        explore=options.explore,
    )
    with tempfile.TemporaryDirectory(prefix="warploom-emulate-") as folder:
        if clients.is_program(file):
            if options.html is not None:
                raise WarploomError("--html is for Python scripts; leave it out.")
            environ = clients.program_environment(Path(folder), settings, options.arch)
            command = [str(file.resolve())]
        else:
            environ = clients.environment(Path(folder), child_environment())
            if options.arch:
                environ[FIRST_ARCH] = options.arch
            chosen = json.dumps(dataclasses.asdict(settings))
            page = "" if options.html is None else str(options.html.resolve())
            command = [sys.executable, "-m", "warploom.emulator.script", chosen, page, str(file)]
        return subprocess.run([*command, *options.arguments], env=environ).returncode


def _list_kernels(image: str | bytes, arch: str | None) -> int:
    device = binding.call("find_arch", (arch or run_ptx.arch_of(image)).encode())
    with binding.device_kept(), binding.Module(image, device) as module:
        for name in module.kernels():
            sizes = ", ".join(str(size) for size, _ in module.parameters(name)) or "none"
            print(f"{name}: can be executed; parameters of {sizes} bytes")
    return 0

"""``warploom doctor``: reports the parts of this installation and their faults.

:mod:`warploom.doctor_checks` has the checks.
"""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from warploom._version import __version__
from warploom.command_line import Parser
from warploom.doctor_checks import (
    Device,
    Row,
    check_cache,
    check_compiler,
    check_device,
    check_distribution,
    check_driver,
    check_emulator,
    check_headers,
    check_native,
    check_optional_tool,
    check_python,
    check_tvm,
)
from warploom.runtime.toolchain import find_toolchain, prepare_environment

if TYPE_CHECKING:
    from warploom.runtime.driver import Driver


def find_device() -> Device | None:
    """The GPU that TVM sees first, or None."""
    import tvm

    device = tvm.cuda(0)
    if not device.exist:
        return None
    return Device(str(device.device_name), str(device.compute_version))


def _start_tvm() -> tuple[Driver | None, Device | None]:
    """Register with TVM and look for a GPU; a failure is the business of other rows."""
    from warploom import plugin

    return plugin.register(), find_device()


def examine(environ: Mapping[str, str] = os.environ) -> list[Row]:
    """All checks, on this machine."""
    from warploom import emulator
    from warploom.runtime import native
    from warploom.runtime.emulator_libraries import find_libraries

    driver = None
    tvm = check_tvm()
    rows = [check_python(), Row("warploom", "ok", __version__), tvm]
    rows += [check_distribution(name) for name in ("numpy", "cuda-bindings")]
    rows += [
        check_distribution(
            "xgboost", needed=False, others=("xgboost-cpu",), install="'warploom[tune]'"
        ),
        check_distribution("psutil", needed=False),
        check_distribution("matplotlib", needed=False, install="'warploom[plot]'"),
        check_cache(environ),
    ]
    rows.append(check_native(native.library))
    prepare_environment()
    toolchain = find_toolchain(environ)
    rows += [check_compiler(toolchain), check_headers(toolchain)]
    rows += [
        check_optional_tool(toolchain, "nvcc", "Not needed; NVRTC compiles."),
        check_optional_tool(
            toolchain, "nvdisasm", "SASS cannot be listed; run: pip install nvidia-cuda-nvdisasm"
        ),
    ]
    if tvm.state == "ok":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            driver, device = _start_tvm()
        rows += [check_driver(driver), check_device(device)]
    rows.append(check_emulator(driver, emulator.is_requested(environ), find_libraries))
    return rows


def exit_status(rows: Sequence[Row]) -> int:
    """0 if kernels can be compiled, 1 if not."""
    return int(any(row.state == "fail" for row in rows))


def render(rows: Sequence[Row]) -> None:
    """Print the rows as a table, and one sentence that sums them up."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    colours = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    for row in rows:
        # Text objects, since rich would read "[...]" in a path as markup.
        table.add_row(Text(row.state, style=colours[row.state]), row.name, Text(row.finding))
        if row.fix:
            table.add_row("", "", Text(row.fix, style="italic"))
    console = Console()
    console.print(table)
    failed = [row.name for row in rows if row.state == "fail"]
    verdict = f"Cannot work: {', '.join(failed)}." if failed else "Kernels can be compiled."
    console.print(verdict, style="bold")


def main(arguments: Sequence[str]) -> int:
    """Entry of ``warploom doctor``."""
    parser = Parser(
        prog="warploom doctor",
        description="Check this installation; the exit status is 0 if kernels can be compiled.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    rows = examine()
    if options.json:
        print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
    else:
        render(rows)
    return exit_status(rows)

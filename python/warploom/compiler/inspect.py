"""``warploom inspect cubin FILE``: report on the kernels of a binary."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from warploom.command_line import Parser
from warploom.compiler import sass
from warploom.compiler.cubin import find_cubins
from warploom.compiler.report import report_binary
from warploom.errors import WarploomError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("file", type=Path, help="a cubin, or a library that export_library wrote")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--sass", action="store_true", help="print the machine code as well")


def main(arguments: Sequence[str]) -> int:
    """Print a report on each cubin in a file.

    Returns
    -------
    int
        0, or 1 if a kernel uses local memory.

    Raises
    ------
    WarploomError
        If the file cannot be read or contains no cubin.
    """
    parser = Parser(
        prog="warploom inspect cubin", description="Report on the kernels of a binary."
    )
    add_arguments(parser)
    options = parser.parse_args(arguments)
    try:
        data = options.file.read_bytes()
    except OSError as error:
        raise WarploomError(f"{options.file} cannot be read: {error.strerror}.") from error
    cubins = find_cubins(data)
    if not cubins:
        raise WarploomError(
            f"{options.file} contains no cubin; allowed are cubins and files that embed them "
            "uncompressed, such as a library that export_library wrote with NVRTC."
        )
    reports = [report_binary(cubin) for cubin in cubins]
    if options.json:
        print(json.dumps([report.to_dict() for report in reports], indent=2))
        return int(any(report.problems for report in reports))
    for cubin, report in zip(cubins, reports, strict=True):
        print(report)
        if options.sass:
            print(sass.listing(cubin))
    return int(any(report.problems for report in reports))

"""``warploom inspect program FILE.py:NAME``: the roles, barriers and memory of a kernel.

Prints what the passes make of a tile program; draws it as well.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from tvm.tirx import PrimFunc

from warploom import pictures
from warploom.command_line import Parser, load_object, output_file, positive
from warploom.diagram.read import read_kernel
from warploom.errors import WarploomError
from warploom.runtime.emulator_libraries import ARCHS


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = Parser(
        prog="warploom inspect program", description="The roles, barriers, registers and shared "
        "memory of a kernel that the passes make of a tile program.",
    )  # fmt: skip
    parser.add_argument(
        "program", metavar="FILE.py:NAME", help="a tile program, or a function that returns one"
    )
    parser.add_argument("sizes", nargs="*", type=positive, help="arguments of the function")
    parser.add_argument("--arch", choices=ARCHS, default=ARCHS[0], help="(%(default)s)")
    parser.add_argument("--svg", type=output_file, metavar="FILE", help="draw")
    parser.add_argument("--png", type=output_file, metavar="FILE", help="draw, by matplotlib")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--decisions", action="store_true", help="also what the passes have chosen")
    parser.add_argument(
        "--no-compile", action="store_true", help="leave out what the CUDA compiler has to tell"
    )
    options = parser.parse_args(arguments)
    files = [file for file in (options.svg, options.png) if file]
    for file in files:
        pictures.suffix_of(file)
    program, called = load_object(options.program, (PrimFunc,), options.sizes)
    if options.sizes and not called:
        raise WarploomError(f"{options.program} is a program already; leave the sizes out.")
    parts = read_kernel(program, options.arch, not options.no_compile)
    if options.json:
        print(json.dumps(parts.to_dict(), indent=2))
    else:
        print(parts)
        if options.decisions:
            print("\ndecisions", *parts.decisions, sep="\n  ")
    for file in files:
        parts.plot(file)
    return 0

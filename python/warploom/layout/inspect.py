"""``warploom inspect layout``: print or draw where the elements of a tile lie.

The tables are made from the TVM layouts themselves, by applying them to coordinates, so that they
show what a kernel gets. The functions that build them are pure; only :func:`main` prints.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group
from rich.measure import Measurement
from tvm.tirx.layout import Layout

from warploom import pictures
from warploom.command_line import Parser, load_object, output_file, positive
from warploom.errors import IllegalCombination
from warploom.layout.fragment import mma_accumulator, wgmma_accumulator, wgmma_register_a
from warploom.layout.picture import draw_fragment, draw_offsets, draw_shared
from warploom.layout.smem_matrix import SharedMatrix
from warploom.layout.tables import Fragment, chunk_map, descriptor_table, fragment_map, thread_map
from warploom.target.dtypes import bits_of
from warploom.target.spelling import read_swizzle
from warploom.target.swizzle import Major, Swizzle
from warploom.target.wgmma import WGMMA_KINDS

_OPERANDS = sorted({kind.a for kind in WGMMA_KINDS})
_ACCUMULATORS = sorted({kind.d for kind in WGMMA_KINDS})
#: Columns of a map without ``--columns``: as many as fit on a screen.
_COLUMNS = 16


def _wgmma_d(options: argparse.Namespace) -> Fragment:
    title = f"wgmma D {options.m} x {options.n} {options.dtype}"
    layout = wgmma_accumulator(options.m, options.n)
    return Fragment(title, options.dtype, (options.m, options.n), layout)


def _wgmma_a(options: argparse.Namespace) -> Fragment:
    k = options.k or 256 // bits_of(options.dtype)
    title = f"wgmma A in registers, {options.m} x {k} {options.dtype}"
    layout = wgmma_register_a(options.dtype, k, options.m)
    return Fragment(title, options.dtype, (options.m, k), layout)


def _mma_d(options: argparse.Namespace) -> Fragment:
    title = f"mma.sync D {options.m} x {options.n} {options.dtype}"
    layout = mma_accumulator(options.m, options.n)
    return Fragment(title, options.dtype, (options.m, options.n), layout)


@dataclass(frozen=True)
class _Kind:
    """A subcommand for a fragment: its help, default rows, and whether it has N or K columns."""

    help: str
    rows: int
    columns: str
    make: Callable[[argparse.Namespace], Fragment]


_FRAGMENTS = {
    "wgmma-d": _Kind("accumulator of wgmma", 64, "n", _wgmma_d),
    "wgmma-a": _Kind("A operand of wgmma in registers", 64, "k", _wgmma_a),
    "mma-d": _Kind("accumulator of mma.sync.m16n8", 16, "n", _mma_d),
}


def _shape(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)x(\d+)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no shape, write for instance 64x128")
    return int(match[1]), int(match[2])


def _lane(text: str) -> int:
    if not text.isdecimal() or int(text) > 31:
        raise argparse.ArgumentTypeError(f"{text!r} is no lane, allowed are 0 to 31")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    layouts = parser.add_subparsers(dest="layout", required=True, metavar="LAYOUT")
    for name, kind in _FRAGMENTS.items():
        sub = layouts.add_parser(name, help=kind.help)
        sub.add_argument("--m", type=positive, default=kind.rows, help="rows (%(default)s)")
        if kind.columns == "n":
            sub.add_argument("--n", type=positive, default=8, help="columns (%(default)s)")
            sub.add_argument("--dtype", choices=_ACCUMULATORS, default="float32")
        else:
            sub.add_argument("--k", type=positive, help="columns (those of one instruction)")
            sub.add_argument("--dtype", choices=_OPERANDS, default="float16")
        sub.add_argument("--lane", type=_lane, default=0, help="lane to list (%(default)s)")
        sub.add_argument(
            "--columns", type=positive, default=_COLUMNS, help="columns to print (%(default)s)"
        )
    smem = layouts.add_parser("smem", help="wgmma operand in shared memory")
    smem.add_argument("--dtype", choices=_OPERANDS, default="float16")
    smem.add_argument("--major", choices=[m.value for m in Major], default="K")
    smem.add_argument(
        "--swizzle", type=_swizzle, default="128B", help="none, 32B, 64B or 128B (%(default)s)"
    )
    smem.add_argument(
        "--shape", type=_shape, default=(64, 64), help="rows x columns of the buffer (64x64)"
    )
    own = layouts.add_parser("of", help="a layout of your own, FILE.py:NAME; it is only drawn")
    own.add_argument("place", metavar="FILE.py:NAME", help="a TVM layout, or what returns one")
    own.add_argument("--dtype", default="float16", help="of its elements (%(default)s)")
    own.add_argument("--shape", type=_shape, required=True, help="rows x columns")
    for sub in layouts.choices.values():
        sub.add_argument("--json", action="store_true", help="print JSON instead of tables")
        sub.add_argument("--svg", type=output_file, metavar="FILE", help="draw")
        sub.add_argument("--png", type=output_file, metavar="FILE", help="draw, by matplotlib")


def _swizzle(text: str) -> Swizzle:
    try:
        return read_swizzle("swizzle", int(text) if text.isdigit() else text)
    except IllegalCombination as error:
        raise argparse.ArgumentTypeError(str(error).rstrip(".")) from error


@dataclass(frozen=True)
class _Memory:
    """A layout of a user's own, of elements in memory."""

    title: str
    dtype: str
    shape: tuple[int, int]
    layout: Layout


def _own(options: argparse.Namespace) -> _Memory | Fragment:
    layout, _ = load_object(options.place, (Layout,))
    rows, columns = options.shape
    axes = {str(axis) for axis in layout.apply(0, 0, shape=[rows, columns])}
    kind = Fragment if "laneid" in axes else _Memory
    title = f"{options.place}, {rows} x {columns} {options.dtype}"
    return kind(title, options.dtype, options.shape, layout)


def _subject(options: argparse.Namespace) -> SharedMatrix | Fragment | _Memory:
    """What the arguments name.

    Raises
    ------
    IllegalCombination
        If the hardware has no such fragment or operand.
    """
    if options.layout == "of":
        return _own(options)
    if options.layout != "smem":
        return _FRAGMENTS[options.layout].make(options)
    major = Major(options.major)
    if not any(kind.a == options.dtype and major in kind.majors for kind in WGMMA_KINDS):
        raise IllegalCombination(
            f"wgmma: {options.dtype} operands are K-major only, got {major.value}-major."
        )
    rows, columns = options.shape
    mn, k = (rows, columns) if major is Major.K else (columns, rows)
    return SharedMatrix(options.dtype, major, options.swizzle, mn, k)


def render(options: argparse.Namespace) -> Group:
    """Return the text that the command prints for parsed arguments.

    Raises
    ------
    IllegalCombination
        If the hardware has no such fragment or operand.
    """
    subject = _subject(options)
    if isinstance(subject, SharedMatrix):
        return Group(descriptor_table(subject), chunk_map(subject))
    return Group(fragment_map(subject, options.columns), thread_map(subject, options.lane))


def picture(options: argparse.Namespace) -> pictures.Picture:
    """The picture that ``--svg`` and ``--png`` write; errors are those of :func:`render`."""
    subject = _subject(options)
    if isinstance(subject, SharedMatrix):
        return draw_shared(subject)
    if isinstance(subject, _Memory):
        return draw_offsets(subject.title, subject.dtype, subject.shape, subject.layout)
    return draw_fragment(subject)


def as_json(options: argparse.Namespace) -> dict[str, Any]:
    """What ``--json`` prints: the places of all elements, row by row.

    Of registers a place is warp, lane and element of the thread; of memory a byte.
    """
    subject = _subject(options)
    rows, columns = subject.shape
    found: dict[str, Any] = {"dtype": subject.dtype, "shape": [rows, columns]}
    if isinstance(subject, Fragment):
        place: Callable[[int, int], Any] = subject.place
        found["place"] = ["warp", "lane", "element"]
    else:
        layout = subject.layout() if isinstance(subject, SharedMatrix) else subject.layout
        bits = bits_of(subject.dtype)
        found["place"] = "byte"
        if isinstance(subject, SharedMatrix):
            found["descriptor"] = subject.descriptor

        def place(row: int, column: int) -> int:
            return int(layout.apply(row, column, shape=[rows, columns])["m"]) * bits // 8

    found["places"] = [[place(row, column) for column in range(columns)] for row in range(rows)]
    return found


def main(arguments: list[str]) -> int:
    """Print a layout, or draw it; returns the exit status."""
    parser = Parser(
        prog="warploom inspect layout", description="Print where the elements of a tile lie."
    )
    add_arguments(parser)
    options = parser.parse_args(arguments)
    files = [file for file in (options.svg, options.png) if file]
    for file in files:
        pictures.write(picture(options), file)
        print(file)
    if files:
        return 0
    if options.json:
        print(json.dumps(as_json(options)))
        return 0
    if options.layout == "of":
        parser.error("a layout of your own is drawn only; add --svg FILE, --png FILE or --json")
    tables = render(options)
    console = Console()
    # A table wider than the terminal would lose columns: let the terminal wrap its lines instead.
    unlimited = console.options.update(max_width=1 << 16)
    needed = max(Measurement.get(console, unlimited, t).maximum for t in tables.renderables)
    console.width = max(console.width, needed)
    console.print(tables)
    return 0

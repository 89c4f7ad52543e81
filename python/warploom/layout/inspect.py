"""``warploom inspect layout``: print where the elements of a tile lie.

The tables are made from the TVM layouts themselves, by applying them to coordinates, so that they
show what a kernel gets. The functions that build them are pure; only :func:`main` prints.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.measure import Measurement
from rich.table import Table
from tvm.tirx.layout import Layout

from warploom.command_line import Parser, positive
from warploom.errors import IllegalCombination
from warploom.layout.fragment import mma_accumulator, wgmma_accumulator, wgmma_register_a
from warploom.layout.smem_matrix import ATOM_ROWS, CHUNK_BYTES, SharedMatrix
from warploom.target.dtypes import bits_of
from warploom.target.spelling import read_swizzle
from warploom.target.swizzle import Major, Swizzle
from warploom.target.wgmma import WGMMA_KINDS

_OPERANDS = sorted({kind.a for kind in WGMMA_KINDS})
_ACCUMULATORS = sorted({kind.d for kind in WGMMA_KINDS})
#: Rows that one warp holds of a wgmma or mma.sync tile.
_WARP_ROWS = 16
#: Columns of a map without ``--columns``: as many as fit on a screen.
_COLUMNS = 16


@dataclass(frozen=True)
class Fragment:
    """A register tile to print: ``(rows, columns)`` of ``dtype`` laid out by ``layout``."""

    title: str
    dtype: str
    shape: tuple[int, int]
    layout: Layout

    def place(self, row: int, column: int) -> tuple[int, int, int]:
        """Warp, lane and element of the thread."""
        axes = self.layout.apply(row, column, shape=list(self.shape))
        values = {str(axis): int(value) for axis, value in axes.items()}
        return values.get("wid_in_wg", 0), values.get("laneid", 0), values.get("m", 0)


@dataclass(frozen=True)
class _Run:
    """Neighbouring elements of a row that one thread holds in consecutive places."""

    row: int
    column: int
    lane: int
    element: int
    length: int

    def columns(self) -> str:
        return _span(self.column, self.length)

    def registers(self, bits: int) -> str:
        first = self.element * bits // 32
        return "r" + _span(first, (self.element + self.length - 1) * bits // 32 - first + 1)


def _span(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


def _runs(fragment: Fragment, row: int, columns: int) -> list[_Run]:
    """The runs of the first ``columns`` columns of a row."""
    runs: list[_Run] = []
    for column in range(columns):
        _, lane, element = fragment.place(row, column)
        last = runs[-1] if runs else None
        if last and (last.lane, last.element + last.length) == (lane, element):
            runs[-1] = _Run(row, last.column, lane, last.element, last.length + 1)
        else:
            runs.append(_Run(row, column, lane, element, 1))
    return runs


def _table(title: str, caption: str | None = None, padding: int = 1) -> Table:
    """A plain table; without padding, 16 columns of float32 fit into 80 characters."""
    return Table(
        title=title,
        caption=caption,
        title_justify="left",
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, padding, 0, 0),
        pad_edge=False,
    )


def fragment_map(fragment: Fragment, columns: int) -> Table:
    """Rows of the first warp against columns; a cell names the lane and its registers."""
    shown = min(columns, fragment.shape[1])
    table = _table(f"{fragment.title}, warp 0", padding=0)
    rows = [_runs(fragment, row, shown) for row in range(_WARP_ROWS)]
    table.add_column("row", justify="right")
    for run in rows[0]:
        table.add_column(run.columns(), no_wrap=True)
    bits = bits_of(fragment.dtype)
    for row, runs in enumerate(rows):
        cells = (f"T{run.lane}:{run.registers(bits)}" for run in runs)
        table.add_row(str(row), *cells, end_section=row == ATOM_ROWS - 1)
    table.caption = "T: lane, r: its 32-bit registers"
    if shown < fragment.shape[1]:
        table.caption += f"; --columns {fragment.shape[1]} shows all columns"
    return table


def thread_map(fragment: Fragment, lane: int) -> Table:
    """Everything that one lane of the first warp holds, in the order of its registers."""
    table = _table(f"Lane {lane} of warp 0")
    for heading in ("registers", "row", "columns"):
        table.add_column(heading, justify="right")
    bits = bits_of(fragment.dtype)
    runs = [
        run
        for row in range(fragment.shape[0])
        if fragment.place(row, 0)[0] == 0
        for run in _runs(fragment, row, fragment.shape[1])
        if run.lane == lane
    ]
    for run in sorted(runs, key=lambda run: run.element):
        table.add_row(run.registers(bits), str(run.row), run.columns())
    return table


def descriptor_table(matrix: SharedMatrix) -> Table:
    """The fields of the wgmma descriptor of a buffer at address 0."""
    value = matrix.descriptor
    table = _table(
        f"wgmma descriptor {value:#018x}",
        caption=f"tcgen05 descriptor {matrix.tcgen05_descriptor:#018x}",
    )
    for heading in ("bits", "field", "value", "means"):
        table.add_column(heading)
    leading, stride = value >> 16 & 0x3FFF, value >> 32 & 0x3FFF
    unread = matrix.major is Major.K and matrix.swizzle is not Swizzle.NONE
    table.add_row("0-13", "start address", "0", "add address >> 4")
    table.add_row(
        "16-29",
        "leading dimension byte offset (LBO)",
        str(leading),
        f"{leading * CHUNK_BYTES} bytes" + ", not read" * unread,
    )
    table.add_row(
        "32-45", "stride dimension byte offset (SBO)", str(stride), f"{stride * CHUNK_BYTES} bytes"
    )
    table.add_row("62-63", "swizzle", str(value >> 62), matrix.swizzle.name)
    return table


def chunk_map(matrix: SharedMatrix) -> Table:
    """Byte offset of each 16-byte chunk in the first rows of a shared-memory operand."""
    rows, columns = matrix.shape
    per_chunk = CHUNK_BYTES // matrix.element_bytes
    shown = min(columns // per_chunk, ATOM_ROWS)
    names = ("MN", "K") if matrix.major is Major.K else ("K", "MN")
    table = _table(
        f"{rows} x {columns} {matrix.dtype}, byte offsets of 16-byte chunks",
        caption=f"an operand starts at multiples of {matrix.mn_align} (MN), {matrix.k_align} (K)",
    )
    table.add_column(f"{names[0]} \\ {names[1]}", justify="right")
    for chunk in range(shown):
        table.add_column(_span(chunk * per_chunk, per_chunk), justify="right")
    layout = matrix.layout()
    for row in range(min(rows, 2 * ATOM_ROWS)):
        elements = (
            int(layout.apply(row, chunk * per_chunk, shape=[rows, columns])["m"])
            for chunk in range(shown)
        )
        cells = (str(element * matrix.element_bytes) for element in elements)
        table.add_row(str(row), *cells, end_section=row % ATOM_ROWS == ATOM_ROWS - 1)
    return table


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
    what = parser.add_subparsers(dest="what", required=True, metavar="LAYOUT")
    for name, kind in _FRAGMENTS.items():
        sub = what.add_parser(name, help=kind.help)
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
    smem = what.add_parser("smem", help="wgmma operand in shared memory")
    smem.add_argument("--dtype", choices=_OPERANDS, default="float16")
    smem.add_argument("--major", choices=[m.value for m in Major], default="K")
    smem.add_argument(
        "--swizzle", type=_swizzle, default="128B", help="none, 32B, 64B or 128B (%(default)s)"
    )
    smem.add_argument(
        "--shape", type=_shape, default=(64, 64), help="rows x columns of the buffer (64x64)"
    )


def _swizzle(text: str) -> Swizzle:
    try:
        return read_swizzle("swizzle", int(text) if text.isdigit() else text)
    except IllegalCombination as error:
        raise argparse.ArgumentTypeError(str(error).rstrip(".")) from error


def render(options: argparse.Namespace) -> Group:
    """Return the text that the command prints for parsed arguments.

    Raises
    ------
    IllegalCombination
        If the hardware has no such fragment or operand.
    """
    if options.what == "smem":
        major = Major(options.major)
        if not any(kind.a == options.dtype and major in kind.majors for kind in WGMMA_KINDS):
            raise IllegalCombination(
                f"wgmma: {options.dtype} operands are K-major only, got {major.value}-major."
            )
        rows, columns = options.shape
        mn, k = (rows, columns) if major is Major.K else (columns, rows)
        matrix = SharedMatrix(options.dtype, major, options.swizzle, mn, k)
        return Group(descriptor_table(matrix), chunk_map(matrix))
    fragment = _FRAGMENTS[options.what].make(options)
    return Group(fragment_map(fragment, options.columns), thread_map(fragment, options.lane))


def main(arguments: list[str]) -> int:
    """Print a layout; returns the exit status."""
    parser = Parser(
        prog="warploom inspect layout", description="Print where the elements of a tile lie."
    )
    add_arguments(parser)
    tables = render(parser.parse_args(arguments))
    console = Console()
    # A table wider than the terminal would lose columns: let the terminal wrap its lines instead.
    unlimited = console.options.update(max_width=1 << 16)
    needed = max(Measurement.get(console, unlimited, t).maximum for t in tables.renderables)
    console.width = max(console.width, needed)
    console.print(tables)
    return 0

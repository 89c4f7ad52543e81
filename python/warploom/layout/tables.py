"""Tables that show where the elements of a tile lie, made by applying its layout to coordinates."""

from __future__ import annotations

from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table
from tvm.tirx.layout import Layout

from warploom.layout.smem_matrix import ATOM_ROWS, CHUNK_BYTES, SharedMatrix
from warploom.target.dtypes import bits_of
from warploom.target.swizzle import Major, Swizzle

#: Rows that one warp holds of a wgmma or mma.sync tile.
_WARP_ROWS = 16


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

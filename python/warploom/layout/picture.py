"""Layouts as pictures: which thread holds which element, and where bytes of a tile lie.

A register fragment is a grid of its elements, coloured by lane, with the lane and the register in
each; a shared-memory operand is the grid of its 16-byte chunks, coloured by the group of banks that
they lie in, so that a swizzle shows as colours that shift from row to row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm.tirx.layout import Layout

from warploom.errors import IllegalCombination
from warploom.layout.smem_matrix import ATOM_ROWS, CHUNK_BYTES, SharedMatrix
from warploom.layout.tables import Fragment
from warploom.pictures import Line, Picture, Rect, Words
from warploom.pictures.palette import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PINK,
    RED,
    SKY,
    WHITE,
    YELLOW,
    ink_on,
    tint,
)
from warploom.pictures.shapes import LARGE, TINY
from warploom.target.dtypes import bits_of
from warploom.target.swizzle import Major

#: A colour for each of eight: lanes of a quad pair, groups of banks.
_EIGHT = (BLUE, SKY, GREEN, YELLOW, ORANGE, RED, PINK, GREY)
#: Most columns and rows of a grid; pixels of its margins.
MOST_COLUMNS, MOST_ROWS = 32, 16
_LEFT, _TOP, _MARGIN = 58, 92, 16
#: Bytes of all 32 banks, and of a bank.
_BANKS_BYTES, _BANK_BYTES = 128, 4


@dataclass(frozen=True)
class _Cell:
    words: tuple[str, ...]
    colour: str
    tip: str = ""


@dataclass(frozen=True)
class _Grid:
    """A grid of cells: ``cell(row, column)``; lines after every ``bands`` rows."""

    title: str
    subtitle: str
    down: str
    across: str
    rows: int
    columns: int
    cell: Callable[[int, int], _Cell]
    heads: tuple[str, ...]
    width: int
    height: int
    bands: int
    footer: str = ""


def draw_fragment(fragment: Fragment, columns: int = MOST_COLUMNS) -> Picture:
    """A register tile: the lane and the 32-bit register of each element.

    Parameters
    ----------
    fragment : Fragment
    columns : int
        Columns that are drawn, the first ones.
    """
    rows, shown = min(fragment.shape[0], MOST_ROWS), min(columns, fragment.shape[1])
    bits = bits_of(fragment.dtype)

    def cell(row: int, column: int) -> _Cell:
        warp, lane, element = fragment.place(row, column)
        register = element * bits // 32
        part = f", bits {element * bits % 32} to {element * bits % 32 + bits - 1}"
        colour = tint(_EIGHT[lane // 4 % 8], 0.25 + 0.2 * (lane % 4))
        tip = f"element ({row}, {column}): warp {warp}, lane {lane}, register {register}"
        return _Cell((f"T{lane}", f"r{register}"), colour, tip + (part if bits < 32 else ""))

    of = f", the first {shown} columns" if shown < fragment.shape[1] else ""
    about = f"T: lane, r: its 32-bit register; the first {rows} of {fragment.shape[0]} rows{of}"
    return _draw(_Grid(
        fragment.title, about, "row", "column", rows, shown, cell,
        tuple(map(str, range(shown))), 40, 26, ATOM_ROWS,
        "four lanes of one colour share a row; the darker, the later of them",
    ))  # fmt: skip


def draw_offsets(title: str, dtype: str, shape: tuple[int, int], layout: Layout) -> Picture:
    """A layout of memory: the byte offset of each element, coloured by the banks of it.

    Parameters
    ----------
    title : str
    dtype : str
        Of the elements.
    shape : (int, int)
        Rows and columns, of which the first 16 and 32 are drawn.
    layout : Layout
        From coordinates to the axis ``m``.

    Raises
    ------
    IllegalCombination
        If the layout has another axis.
    """
    rows, columns = (min(a, b) for a, b in zip(shape, (MOST_ROWS, MOST_COLUMNS), strict=True))
    bits = bits_of(dtype)

    def cell(row: int, column: int) -> _Cell:
        axes = {str(name): int(at) for name, at in layout.apply(row, column, shape=shape).items()}
        if axes.keys() != {"m"}:
            raise IllegalCombination(
                f"The layout has the axes {', '.join(sorted(axes))}; those of threads have laneid, "
                "those of memory only m."
            )
        byte = axes["m"] * bits // 8
        bank = byte % _BANKS_BYTES // _BANK_BYTES
        colour = tint(_EIGHT[bank // 4], 0.55)
        tip = f"element ({row}, {column}): byte {byte}, bank {bank}"
        return _Cell((str(byte), f"bank {bank}"), colour, tip)

    of = f"the first {rows} x {columns} of {shape[0]} x {shape[1]} elements"
    return _draw(_Grid(
        title, f"byte offset and bank of each element; {of}", "row", "column", rows, columns, cell,
        tuple(map(str, range(columns))), 46, 28, ATOM_ROWS,
        "one colour: the same four banks, 16 bytes of a row of all banks",
    ))  # fmt: skip


def draw_shared(matrix: SharedMatrix) -> Picture:
    """A shared-memory operand: the byte offset of each chunk of 16 bytes, coloured by its banks."""
    rows, columns = matrix.shape
    per_chunk = CHUNK_BYTES // matrix.element_bytes
    shown = min(columns // per_chunk, ATOM_ROWS * 2)
    layout, most = matrix.layout(), min(rows, 2 * ATOM_ROWS)

    def offset(row: int, chunk: int) -> int:
        at = layout.apply(row, chunk * per_chunk, shape=[rows, columns])["m"]
        return int(at) * matrix.element_bytes

    def cell(row: int, chunk: int) -> _Cell:
        at = offset(row, chunk)
        first = at % _BANKS_BYTES // _BANK_BYTES
        banks = f"banks {first}-{first + CHUNK_BYTES // _BANK_BYTES - 1}"
        colour = tint(_EIGHT[at % _BANKS_BYTES // CHUNK_BYTES], 0.55)
        return _Cell((str(at), banks), colour, f"row {row}, chunk {chunk}: byte {at}, {banks}")

    names = ("MN", "K") if matrix.major is Major.K else ("K", "MN")
    heads = tuple(f"{c * per_chunk}-{(c + 1) * per_chunk - 1}" for c in range(shown))
    ways = max(
        _conflicts([offset(row, chunk) for row in range(min(most, ATOM_ROWS))])
        for chunk in range(shown)
    )
    reads = "no bank is read twice" if ways == 1 else f"a bank is read {ways} times"
    return _draw(_Grid(
        f"{rows} x {columns} {matrix.dtype}, {matrix.major.value}-major, "
        f"swizzle {matrix.swizzle.name}",
        f"byte offset and banks of each 16-byte chunk; the first {most} of {rows} rows",
        names[0], names[1], most, shown, cell, heads, 84, 32, ATOM_ROWS,
        f"eight rows of a column at once, as an MMA or ldmatrix reads them: {reads}",
    ))  # fmt: skip


def _conflicts(offsets: list[int]) -> int:
    """How often the bank that is read most often is read."""
    groups = [offset % _BANKS_BYTES // CHUNK_BYTES for offset in offsets]
    return max(map(groups.count, groups))


def _draw(grid: _Grid) -> Picture:
    width = max(_LEFT + grid.columns * grid.width + _MARGIN, 640)
    made = Picture(width, _TOP + grid.rows * grid.height + 46, grid.title)
    made.add(Words(_MARGIN, 22, grid.title, size=LARGE, bold=True))
    made.add(Words(_MARGIN, 43, grid.subtitle, GREY))
    made.add(Words(_LEFT + grid.columns * grid.width / 2, 64, grid.across, anchor="middle"))
    made.add(Words(_MARGIN, _TOP + grid.rows * grid.height / 2, grid.down, anchor="middle",
                   upright=True))  # fmt: skip
    for column, head in enumerate(grid.heads):
        x = _LEFT + (column + 0.5) * grid.width
        made.add(Words(x, _TOP - 11, head, GREY, "middle", TINY + 1))
    for row in range(grid.rows):
        y = _TOP + row * grid.height
        made.add(Words(_LEFT - 8, y + grid.height / 2, str(row), GREY, "end", TINY + 1))
        for column in range(grid.columns):
            _cell(made, grid, grid.cell(row, column), _LEFT + column * grid.width, y)
    right = _LEFT + grid.columns * grid.width
    for row in range(0, grid.rows + 1, grid.bands):
        y = _TOP + row * grid.height
        made.add(Line(((_LEFT, y), (right, y)), INK, 1.4))
    made.add(Words(_MARGIN, made.height - 20, grid.footer, GREY))
    return made


def _cell(made: Picture, grid: _Grid, cell: _Cell, x: float, y: float) -> None:
    made.add(Rect(x, y, grid.width, grid.height, cell.colour, WHITE, tip=cell.tip))
    colour, middle = ink_on(cell.colour), x + grid.width / 2
    first, second = cell.words
    made.add(Words(middle, y + 0.32 * grid.height, first, colour, "middle", TINY + 1, bold=True))
    made.add(Words(middle, y + 0.72 * grid.height, second, colour, "middle", TINY - 0.5))

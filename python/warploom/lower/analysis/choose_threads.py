"""How tiles in registers are spread over the threads of a CTA where no MMA prescribes it.

The layout follows from the program: threads move as many neighbours of a row at a time as memory
allows, a row has as many threads as its length is worth, and a CTA has as many warpgroups as keep
its tiles in registers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, Var
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import Decline
from warploom.layout.thread_grid import ThreadGrid
from warploom.lower.analysis.budget import ctas_per_sm
from warploom.lower.analysis.layouts import has_layout
from warploom.target import ARCHS
from warploom.target.dtypes import bits_of
from warploom.tile import ir
from warploom.tile.primitives import op_name
from warploom.tile.program import TileProgram, allocations
from warploom.tile.scopes import TILE_SCOPES, is_global, is_single
from warploom.tile.statement import Nest, Reduction, walk
from warploom.tile_primitives import POSITIONS

#: Warpgroups of a CTA: up to 1024 threads.
_WARPGROUPS = (1, 2, 4, 8)
_VECTOR_BYTES, _MOST_NEIGHBOURS = 16, 8
_WORD_BITS = 32
#: Warpgroups of a CTA that holds no tile in registers.
_WITHOUT_TILES = 2
#: Words of tiles that a thread holds with ease: then several CTAs share an SM.
_EASY_WORDS = 32
#: Registers of a thread beside its tiles: addresses, values on the way.
_OTHER_REGISTERS = 32
_LOG_LANES = 5


@dataclass(frozen=True)
class _Access:
    """An access of a nest to memory or a tile in registers: its extents along rows and columns.

    Attributes
    ----------
    buffer : Buffer
    column : int
        Extent of the loop that counts its last index; 0 if none does.
    start : Expr
        The last index less the variable of that loop.
    """

    buffer: Buffer
    column: int
    start: Any


def is_free(program: TileProgram) -> bool:
    """Whether tiles in registers may be spread over threads in any way.

    So it is where no MMA reads or writes registers and no hint wants warps of their own to load.
    Reductions of shared tiles take copies in registers, and positions of extremes are reductions.
    """
    if program.has_mmas or program.by_hand or program.hints.specialise is not None:
        return False
    if any(tile.scope() in TILE_SCOPES for tile in allocations(program.body)):
        return True
    return any(
        isinstance(statement, Reduction)
        or (isinstance(statement.raw, TilePrimitiveCall) and op_name(statement.raw) in POSITIONS)
        for statement in walk(program.block)
    )


def choose_threads(program: TileProgram) -> ThreadGrid:
    """The grid of threads of a program without MMAs.

    Raises
    ------
    Decline
        If a tile has a layout of its own or more than two dimensions.
    """
    for tile in _registers_of(program):
        if has_layout(tile):
            raise Decline(
                f"The tile {tile.name} has a layout of its own, which says what each thread of a "
                "warpgroup holds."
            )
        if not 1 <= len(tile.shape) <= 2:
            raise Decline(
                f"The tile {tile.name} has {len(tile.shape)} dimensions; a tile in registers has "
                "one or two."
            )
    shapes = _shapes(program)
    if not shapes:  # elements are computed where they are stored, each by any thread
        warpgroups = program.hints.consumers or _WITHOUT_TILES
        return ThreadGrid(1, warpgroups * ARCHS[program.arch].warpgroup, 1)
    accesses = list(_accesses(program))
    width = _vector(program, shapes, accesses)
    rows = max(rows for rows, _ in shapes.values())
    grids = [grid for grid in _grids(program, width) if grid.down < 2 * rows]
    if not grids:
        raise Decline(
            f"{program.hints.consumers} warpgroups are no power of two, as they are where a row "
            "may lie with all of them."
        )

    together = _live_together(program, shapes)

    def cost(grid: ThreadGrid) -> Any:
        return _cost(grid, together, program)

    best = min(grids, key=cost)
    # Elements of other threads come through shared memory; that is worth little more registers.
    fitting = [g for g in grids if _fits(g, accesses) and cost(g)[:2] <= cost(best)[:2]]
    return min(fitting or grids, key=cost)


def excess(grid: ThreadGrid, program: TileProgram) -> int:
    """Registers that a thread lacks for the tiles that it holds at a time."""
    return _cost(grid, _live_together(program, _shapes(program)), program)[0]


def _registers_of(program: TileProgram) -> list[Buffer]:
    return [tile for tile in allocations(program.body) if tile.scope() in TILE_SCOPES]


def _shapes(program: TileProgram) -> dict[Buffer, tuple[int, int]]:
    """Rows and columns of the tiles that decide: the matrices, or vectors where there are none."""
    tiles = _registers_of(program)
    tiles = [tile for tile in tiles if not is_single(tile)] or tiles
    matrices = [tile for tile in tiles if len(tile.shape) == 2]
    return {
        tile: (int(tile.shape[0]) if matrices else 1, int(tile.shape[-1]))
        for tile in matrices or tiles
    }


def _accesses(program: TileProgram) -> Iterator[_Access]:
    """All accesses of nests to registers and global memory."""
    analyzer, found = Analyzer(), list[_Access]()
    for nest in walk(program.block):
        if not isinstance(nest, Nest):
            continue
        extents = {loop.loop_var: int(loop.extent) for loop in nest.loops}

        def add(node: Any, extents: dict[Var, int] = extents) -> None:
            buffer = node.buffer if isinstance(node, tirx.BufferStore) else node.source
            if not ir.is_buffer(buffer) or not len(node.indices):
                return
            if buffer.scope() not in TILE_SCOPES and not is_global(buffer):
                return
            last = node.indices[-1]
            columns = [var for var in ir.uses(last) if extents.get(var, 1) > 1]
            if len(columns) == 1:
                start = analyzer.simplify(last - columns[0])
                if columns[0] not in ir.uses(start):
                    found.append(_Access(buffer, extents[columns[0]], start))

        tvm_ffi.structural_walk(nest.raw, [((tirx.BufferStore, TensorLoad), add)])
    return iter(found)


def _vector(
    program: TileProgram, shapes: dict[Buffer, tuple[int, int]], accesses: list[_Access]
) -> int:
    """Neighbours of a row that a thread holds: those of 16 bytes of the narrowest memory."""
    rows, columns = max(shapes.values(), key=math.prod)
    bits = [bits_of(str(tile.dtype)) for tile, shape in shapes.items() if shape[1] == columns]
    rows_of_memory = [columns]
    for access in accesses:
        # Beside a matrix, a buffer of one dimension has an element for each row, or is short.
        decides = is_global(access.buffer) and (rows == 1 or len(access.buffer.shape) > 1)
        if decides and access.column == columns:
            bits.append(bits_of(str(access.buffer.dtype)))
            pitch = access.buffer.shape[-1]
            rows_of_memory.append(int(pitch) if isinstance(pitch, tirx.IntImm) else 1)
    width = min(_VECTOR_BYTES * 8 // max(min(bits), 8), _MOST_NEIGHBOURS)
    # No more than each thread of a warpgroup has.
    width = min(width, max(1, rows * columns // ARCHS[program.arch].warpgroup))
    width = 1 << (width.bit_length() - 1)
    return math.gcd(width, *rows_of_memory)


def _grids(program: TileProgram, vector: int) -> Iterator[ThreadGrid]:
    wanted = program.hints.consumers
    counts = _WARPGROUPS if wanted is None else [w for w in _WARPGROUPS if w == wanted]
    for count in counts:
        threads = count * ARCHS[program.arch].warpgroup
        for log in range(threads.bit_length()):
            yield ThreadGrid(threads >> log, 1 << log, vector)


def _fits(grid: ThreadGrid, accesses: list[_Access]) -> bool:
    """Whether places of a row that nests use together lie with the same thread."""
    starts = [
        access.start for access in accesses
        if access.buffer.scope() in TILE_SCOPES and isinstance(access.start, tirx.IntImm)
    ]  # fmt: skip
    return all(int(start) % grid.columns == 0 for start in starts)


def _words(grid: ThreadGrid, tile: Buffer, shape: tuple[int, int]) -> int:
    """Words of 32 bits that each thread holds of a tile."""
    elements = math.prod(grid.padded(*shape)) // grid.threads
    return -(-elements * bits_of(str(tile.dtype)) // _WORD_BITS)


def _registers(grid: ThreadGrid, program: TileProgram) -> int:
    """Registers that a thread of the grid has for tiles."""
    arch = ARCHS[program.arch]
    threads = grid.threads * ctas_per_sm(program)
    return min(arch.registers_per_thread, arch.registers_per_sm // threads) - _OTHER_REGISTERS


def _live_together(
    program: TileProgram, shapes: dict[Buffer, tuple[int, int]]
) -> list[dict[Buffer, tuple[int, int]]]:
    """For each statement the tiles that hold values before, in or after it, with their shapes."""
    used = [ir.uses(raw) & shapes.keys() for raw in program.body if not _allocates(raw)]
    spans = {
        tile: [number for number, tiles in enumerate(used) if tile in tiles] for tile in shapes
    }
    return [
        {tile: shapes[tile] for tile, at in spans.items() if at and at[0] <= number <= at[-1]}
        for number in range(len(used))
    ]


def _allocates(raw: Any) -> bool:
    return isinstance(raw, tirx.AllocBuffer)


def _cost(
    grid: ThreadGrid, together: list[dict[Buffer, tuple[int, int]]], program: TileProgram
) -> Any:
    """What is better is less: no spills, few words, few warpgroups, a warp for each row."""
    words = max(
        (sum(itertools.starmap(partial(_words, grid), tiles.items())) for tiles in together),
        default=0,
    )
    spills = max(0, words - _registers(grid, program))
    to_warp = abs(grid.across.bit_length() - 1 - _LOG_LANES)
    return spills, max(words, _EASY_WORDS), grid.threads, words, to_warp


def require_room(grid: ThreadGrid, program: TileProgram) -> None:
    """Check that the registers of a CTA hold each tile.

    Raises
    ------
    Decline
        If there is one that they do not hold.
    """
    shapes = _shapes(program)
    if not shapes:
        return
    tile = max(shapes, key=lambda tile: _words(grid, tile, shapes[tile]))
    words, room = _words(grid, tile, shapes[tile]), _registers(grid, program)
    if words > room:
        rows, columns = shapes[tile]
        raise Decline(
            f"The tile {tile.name} of {rows} x {columns} {tile.dtype} takes {words} registers of "
            f"each of {grid.threads} threads, which have {room} for tiles; use fewer rows, a "
            "narrower dtype, or a loop over parts of a row that reads them again."
        )

"""Gives every tile a layout, from how it is used; a layout that the author wrote stays.

* Shared tiles that an MMA reads get the widest swizzle that their contiguous dimension fills;
  other shared tiles stay row-major.
* Tiles in registers get the fragment of the accumulator: 64 rows for each warpgroup and block.
  Vectors along its rows or columns get the matching vector of it; which of the two, the nests and
  reductions tell that use them. Transposed tiles (:mod:`warploom.lower.analysis.transposed`) get
  the transpose of it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.tirx import Buffer

from warploom.errors import Decline, IllegalCombination
from warploom.layout.fragment import single_fragment
from warploom.layout.smem_matrix import SharedMatrix
from warploom.lower.analysis.consumers import wanted_consumers, warpgroups_for
from warploom.lower.analysis.fragments import (
    SM100_ROWS,
    Fragments,
    byte_operands_of,
    fragments,
    rows_of,
)
from warploom.lower.analysis.layouts import (
    Axis,
    has_layout,
    operand_layout,
    operand_uses,
    vector_axes,
    word_layouts,
)
from warploom.lower.analysis.transposed import transposed_tiles
from warploom.target import SM90A, Major, Swizzle
from warploom.target.wgmma import WGMMA_M
from warploom.tile import ir
from warploom.tile.program import TileProgram, allocations
from warploom.tile.scopes import TILE_SCOPES, is_shared, is_single
from warploom.tile.statement import Block, ForLoader, Load, walk

#: Bits of the elements of an operand that wgmma reads along M or N (PTX ISA, wgmma, imm-trans).
MN_MAJOR_BITS = 16


def infer_layouts(program: TileProgram, warpgroups: int | None = None) -> TileProgram:
    """Allocate every tile with a layout.

    Parameters
    ----------
    warpgroups : int, optional
        Warpgroups that share each tile by rows; without it as many as its rows allow, up to three.

    Raises
    ------
    Decline
        If uses of a tile want different layouts, or a shape has none.
    """
    tiles = list(allocations(program.body))
    registers = [tile for tile in tiles if tile.scope() in TILE_SCOPES]
    matrices = [tile for tile in registers if len(tile.shape) == 2 and not is_single(tile)]
    wanted = warpgroups or wanted_consumers(program.hints)
    turned = transposed_tiles(program.block)
    shared_out = {tile: int(tile.shape[tile in turned]) for tile in matrices}
    if not program.tensor_memory:
        count = warpgroups_for(shared_out, wanted)
    else:
        # What no MMA writes may have several blocks of 64 rows, as on Hopper.
        blocks = {tile for tile in matrices if tile.scope() == "fragment" and tile not in turned}
        count = _tensor_memory_warpgroups(shared_out, blocks, wanted)
    heights = {tile: size // count for tile, size in shared_out.items()}
    rows = sorted(set(heights.values()))
    bytes_of_a = frozenset() if program.tensor_memory else byte_operands_of(program.block)
    axes = vector_axes(program.block)
    if program.tensor_memory:
        _require_one_kind(registers, axes, {rows_of(tile, heights, count) for tile in matrices})
    across = {tile for tile, axis in axes.items() if axis.along == "column"} - set(heights)
    kinds = {
        tile: dataclasses.replace(
            fragments(program.tensor_memory, rows_of(tile, heights, count, tile in across)),
            transposed=tile in turned,
            operand=str(tile.dtype) if tile in bytes_of_a else "",
        )
        for tile in registers
    }
    operands = operand_uses(program.block)
    if program.arch == SM90A.name:
        _require_majors(operands)
    words = word_layouts(program.block)
    loaded = loaded_tiles(program.block)
    table: dict[Buffer, Buffer] = {}
    for tile in tiles:
        if has_layout(tile):
            wanted_layout = None
            if tile.scope() in TILE_SCOPES:
                wanted_layout = _fragment(tile, count, axes, kinds[tile])
            _check_explicit(tile, wanted_layout, operands.get(tile, {}), count)
            continue
        if tile.scope() in TILE_SCOPES:
            layout = _fragment(tile, count, axes, kinds[tile])
        elif is_shared(tile) and tile in operands:
            layout = operand_layout(tile, operands[tile])
        elif tile in words:
            layout = words[tile]
        elif is_shared(tile) and tile in loaded and (layout := spread_over_banks(tile)) is not None:
            pass
        else:
            continue
        table[tile] = tirx.decl_buffer(
            tile.shape, str(tile.dtype), tile.name, scope=tile.scope(), layout=layout
        )
    body = tuple(ir.substitute(statement, table) for statement in program.body)
    changed = program.replace(body=body, hints=dataclasses.replace(program.hints, consumers=count))
    return changed.decided(
        f"consumers: {count} warpgroups, each {' or '.join(map(str, rows)) or 'no'} rows of a tile",
        *(
            f"operand {tile.name}: {major.name}-major, as {use} wants"
            for tile in table for major, use in operands.get(tile, {}).items()
        ),
    )  # fmt: skip


def _check_explicit(tile: Buffer, wanted: Any, uses: dict[Major, str], count: int) -> None:
    """A layout that the author wrote stays, unless a use of the tile does not allow it."""
    if wanted is not None and not tvm_ffi.structural_equal(
        tile.layout.canonicalize(), wanted.canonicalize()
    ):
        raise Decline(
            f"The tile {tile.name} has a layout of its own; {count} consumer warpgroups hold it as "
            "MMAs leave it, so leave layout= out, or define ids of threads and orchestrate "
            "the whole kernel."
        )
    for major, use in uses.items():
        try:
            SharedMatrix.from_buffer(tile, major)
        except IllegalCombination as error:
            raise Decline(f"The tile {tile.name}, {use}: {error}") from error


def _tensor_memory_warpgroups(
    shared_out: dict[Buffer, int], blocks: set[Buffer], wanted: int | None
) -> int:
    """As :func:`_warpgroups` where accumulators lie in tensor memory.

    A warpgroup reads an accumulator of its own, of as many rows as one instruction computes.
    """
    if not shared_out:
        return wanted or 1
    written = [size for tile, size in shared_out.items() if tile.scope() == "accumulator"]

    def fits(tile: Buffer, count: int) -> bool:
        block, rows = WGMMA_M * count, shared_out[tile]
        several = tile in blocks and min(written, default=0) == block and rows % block == 0
        return several or rows in [each * count for each in SM100_ROWS]

    allowed = [count for count in (1, 2) if all(fits(tile, count) for tile in shared_out)]
    if wanted is not None and wanted in allowed:
        return int(wanted)
    if not allowed:
        names = ", ".join(f"{tile.name} {count}" for tile, count in shared_out.items())
        raise Decline(
            f"Rows of the tiles in registers and accumulators are {names}; tensor memory holds "
            f"{' or '.join(map(str, SM100_ROWS))} for each of at most 2 consumer warpgroups, and "
            f"fragments beside {WGMMA_M} several times as many, so choose such numbers. "
            "Accumulators of fewer rows need such numbers of columns, operands in shared memory, "
            "and no reduction of rows."
        )
    return allowed[0]


def _require_one_kind(tiles: list[Buffer], axes: dict[Buffer, Axis], rows: set[int]) -> None:
    """A vector along columns is held as rows of tiles are, which must then be held alike."""
    for tile in tiles:
        along_columns = tile in axes and axes[tile].along == "column" and len(tile.shape) == 1
        if along_columns and len(rows) > 1:
            raise Decline(
                f"The vector {tile.name} lies along the columns of tiles, and warpgroups hold "
                f"{' and '.join(map(str, sorted(rows)))} rows of those of this program; read its "
                "elements from shared or global memory, or give all tiles as many rows."
            )


def _require_majors(operands: dict[Buffer, dict[Major, str]]) -> None:
    """wgmma reads operands whose rows lie along M or N of 16-bit elements alone."""
    for tile, uses in operands.items():
        if Major.MN in uses and tvm.DataType(str(tile.dtype)).bits != MN_MAJOR_BITS:
            raise Decline(
                f"The tile {tile.name}, {uses[Major.MN]}, is {tile.dtype} and MN-major; "
                f"{SM90A.name} reads only {MN_MAJOR_BITS}-bit operands MN-major, so store it "
                "K-major."
            )


def loaded_tiles(body: Block) -> set[Buffer]:
    """Shared tiles that loads fill."""
    return {
        statement.raw.args[0].source
        for statement in walk(body)
        if isinstance(statement, Load) or (isinstance(statement, ForLoader) and statement.copies)
    }


def spread_over_banks(tile: Buffer) -> Any:
    """A swizzle for a tile that threads read: they hold other rows, whose banks would collide."""
    if len(tile.shape) != 2:
        return None
    rows, columns = (int(extent) for extent in tile.shape)
    width = columns * tvm.DataType(str(tile.dtype)).bits // 8
    fitting = [s for s in Swizzle if s is not Swizzle.NONE and width % s.row_bytes == 0]
    try:
        swizzle = max(fitting, key=lambda s: s.row_bytes)
        return SharedMatrix(str(tile.dtype), Major.K, swizzle, rows, columns).layout()
    except (IllegalCombination, ValueError):
        return None


def _fragment(tile: Buffer, warpgroups: int, axes: dict[Buffer, Axis], kinds: Fragments) -> Any:
    shape = [int(extent) for extent in tile.shape]
    try:
        if is_single(tile):
            return single_fragment(warpgroups)
        if len(shape) == 2:
            return kinds.matrix(*shape, warpgroups=warpgroups)
        if len(shape) == 1:
            along = axes[tile].along if tile in axes else "row"
            rows = kinds.rows * warpgroups
            if along == "row" and shape[0] % rows:
                raise Decline(
                    f"The vector {tile.name} has {shape[0]} elements along the rows of tiles, and "
                    f"{warpgroups} warpgroups hold multiples of {rows} rows; give it as many as "
                    "the tiles have."
                )
            make = kinds.along_rows if along == "row" else kinds.along_columns
            return make(shape[0], warpgroups=warpgroups)
    except IllegalCombination as error:
        raise Decline(f"The tile {tile.name}: {error}") from error
    raise Decline(
        f"The tile {tile.name} has {len(shape)} dimensions; a tile in registers has one or two."
    )

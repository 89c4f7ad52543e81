"""Brings scales into the blocks that Blackwell's tensor core reads, for MMAs with scales.

A block has 128 rows by 4 scales (:mod:`warploom.target.scaled_formats`). Scales in rows are
reordered by threads, from the tile that is loaded into a tile of blocks; rows and scales that an
operand does not have are zeros there. Scales that lie in blocks from the start are not touched.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import tirx
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var

from warploom.errors import Decline, IllegalCombination
from warploom.lower.analysis import scales as analysis
from warploom.lower.emit.filled_tiles import ScaledOperands
from warploom.target import SM100A
from warploom.target.scaled_formats import SCALE_COLUMNS, SCALE_ROWS, ScaledFormat
from warploom.target.scaled_formats import scale_blocks as blocks_of
from warploom.tile import ir
from warploom.tile.primitives import tile_call
from warploom.tile.program import TileProgram, allocations
from warploom.tile.statement import Mma


def scale_blocks(program: TileProgram) -> TileProgram:
    """Give every MMA with scales blocks of them.

    Raises
    ------
    Decline
        If Blackwell has no such MMA.
    """
    return _Blocks(program).run()


def _warpgroups(program: TileProgram) -> int:
    """Computing warpgroups: as few as can hold the rows of all tiles, unless a hint says it."""
    rows = [
        int(tile.shape[0])
        for tile in allocations(program.body) if tile.scope() in ("accumulator", "tmem")
    ]  # fmt: skip
    return program.hints.consumers or -(-max(rows) // SM100A.warpgroup)


class _Blocks(ScaledOperands):
    def scaled(self, row: ScaledFormat, mma: Mma) -> tuple[list[Stmt], Stmt]:
        self._require_instruction(row, mma)
        nests: list[Stmt] = []
        regions: list[TensorRegion] = []
        for operand, scales in zip(mma.operands, mma.scales, strict=True):
            if analysis.is_in_blocks(row, operand, scales):
                regions.append(scales)
                continue
            pair = operand, scales
            tile, made = self.filled(pair, partial(self._fill, row, *pair))
            nests += made
            regions.append(ir.whole(tile))
        self.decided.append(f"MMA into {mma.d.name}: {row.name}, kind {row.kind}")
        return nests, tile_call(mma.raw, *mma.raw.args[:3], *regions, *mma.raw.args[5:])

    def _require_instruction(self, row: ScaledFormat, mma: Mma) -> None:
        """Check that the tensor core has this MMA."""
        rows, columns = (int(extent) for _, extent in ir.ranges(mma.raw.args[0]))
        name, kind, warpgroups = mma.d.name, row.instruction, _warpgroups(self.program)
        if rows != warpgroups * SM100A.warpgroup:
            raise Decline(
                f"The MMA into {name} has {rows} rows and scales; an instruction with scales has "
                f"{SM100A.warpgroup} for each of {warpgroups} computing warpgroups, so give "
                "the tile as many rows."
            )
        try:
            kind.check_shape(SM100A.warpgroup, columns)
        except IllegalCombination as error:
            raise Decline(f"The MMA into {name}: {error}") from error
        k = int(ir.ranges(mma.operands[0])[-1][1]) * row.packed
        if k % kind.k:
            raise Decline(
                f"The MMA into {name} has K = {k}; an instruction of {row.name} has {kind.k}, so "
                "give the tiles a multiple."
            )

    def _fill(
        self, row: ScaledFormat, operand: TensorRegion, scales: TensorRegion
    ) -> tuple[Buffer, Stmt]:
        rows, count = analysis.rows_and_scales(row, operand)
        shape = blocks_of(rows, count)
        source = scales.source
        tile = tirx.decl_buffer(shape, str(source.dtype), f"{source.name}_blocks", scope="shared")
        counters = [Var(name, "int32") for name in ("block", "step", "lane", "byte")]
        block, step, lane, byte = counters
        r = block * SCALE_ROWS + T.truncdiv(byte, SCALE_COLUMNS) * (SCALE_ROWS // 4) + lane
        s = step * SCALE_COLUMNS + T.truncmod(byte, SCALE_COLUMNS)
        value = _or_zero(analysis.scale_at(row, operand, scales, r, s), r, rows, s, count)
        store = tirx.BufferStore(tile, value, counters)
        self.decided.append(
            f"scales {source.name}: by threads into {tile.name}, blocks of {SCALE_ROWS} rows by "
            f"{SCALE_COLUMNS}"
        )
        # Lanes first: computing warpgroups share out the iterations of the outermost loop.
        order = (2, 0, 1, 3)
        return tile, ir.nest([counters[d] for d in order], [shape[d] for d in order], [store])


def _or_zero(element: Any, r: Any, rows: int, s: Any, count: int) -> Any:
    """An element, or zero where there is none."""
    inside = []
    if rows % SCALE_ROWS:
        inside.append(r < rows)
    if count % SCALE_COLUMNS:
        inside.append(s < count)
    if not inside:
        return element
    zero = tirx.const(0, str(element.ty.dtype))
    return T.if_then_else(tirx.all(*inside), element, zero)

"""Gives every accumulator its columns of tensor memory, two sets where there is room.

With two sets the tensor core fills one while threads read the other. Each consumer warpgroup has
an accumulator of its own in each set. Operands that threads write to tensor memory are tiles like
accumulators here, of narrower elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Call, Op, PointerType, PrimType, TensorRegion
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var
from tvm.tirx.layout import tmem_datapath_layout

from warploom.errors import Decline, IllegalCombination
from warploom.layout.tensor_memory import TensorMemoryPlan, columns_of, plan_columns
from warploom.target import SM100A
from warploom.tile import ir

_REINTERPRET = Op.get("tirx.reinterpret")

#: What the thread that multiplies copies to tensor memory, in columns behind the last tile.
COPIES = ("scales", "metadata")
#: Places of a tile that may change them.
SETS = 2


@dataclass(frozen=True)
class TensorTile:
    """An accumulator in tensor memory.

    Attributes
    ----------
    buffer : Buffer
        All its columns: of each set, those of each consumer warpgroup.
    columns : int
        Columns of one warpgroup's tile, of an element each.
    warpgroups, sets : int
        Warpgroups that have one, and how many each has.
    """

    buffer: Buffer
    columns: int
    warpgroups: int
    sets: int

    @property
    def cells(self) -> int:
        """Columns of 32 bits of one warpgroup's tile."""
        return columns_of(str(self.buffer.dtype), self.columns)

    def place(self, region: TensorRegion, chosen: Any, warpgroup: Any) -> TensorRegion:
        """A region of a warpgroup's accumulator, in the chosen set."""
        rows, (start, width) = ir.ranges(region)
        first = (chosen * self.warpgroups + warpgroup) * self.columns + start
        return ir.region(self.buffer, rows, (first, width))


@dataclass(frozen=True)
class TensorMemory:
    """The tensor memory of a CTA: its tiles and the statements that allocate and free it.

    Where ``ctas`` is 2, both CTAs of a pair execute them, and have the same columns.
    """

    tiles: dict[Buffer, TensorTile]
    plan: TensorMemoryPlan
    address: Buffer
    base: Var
    ctas: int = 1

    @property
    def copies(self) -> Any:
        """The first column for scales or metadata of MMAs; those behind the last tile."""
        return self.base + T.uint32(self.plan.buffers[-1].start)

    def describe(self) -> list[str]:
        """Where accumulators are, one sentence each."""
        lines = [
            f"tensor memory: {tile.name} in {placed.sets} x {placed.warpgroups} x "
            f"{placed.cells} columns"
            for tile, placed in self.tiles.items()
        ]
        if (last := self.plan.buffers[-1]).name in COPIES:
            lines.append(f"tensor memory: {last.name} in {last.columns} columns")
        return [*lines, f"tensor memory: {self.plan.allocation} columns allocated"]

    def allocate(self) -> list[Stmt]:
        """By one warp, before a synchronisation of the CTA."""
        alloc = T.ptx[f"tcgen05.alloc.cta_group::{self.ctas}.sync.aligned.shared::cta.b32"]
        permit = T.ptx[f"tcgen05.relinquish_alloc_permit.cta_group::{self.ctas}.sync.aligned"]
        return [
            ir.evaluate(alloc(ir.address(self.address, 0), T.uint32(self.plan.allocation))),
            ir.evaluate(permit()),
            before_sync(),
        ]

    def open(self) -> list[Stmt]:
        """By all threads, after that synchronisation."""
        return [
            after_sync(),
            tirx.Bind(self.base, self.address[0]),
            *(_declare(tile.buffer) for tile in self.tiles.values()),
        ]

    def free(self) -> list[Stmt]:
        """By one warp, when nothing uses it any more."""
        dealloc = T.ptx[f"tcgen05.dealloc.cta_group::{self.ctas}.sync.aligned.b32"]
        return [after_sync(), ir.evaluate(dealloc(self.base, T.uint32(self.plan.allocation)))]


def _declare(buffer: Buffer) -> Stmt:
    (address,) = buffer.allocated_addr
    kind = PointerType(PrimType(str(buffer.dtype)), "tmem")
    # As TVM's builder has it: the scripts of programs have the address alone.
    return tirx.DeclBuffer(buffer, data=Call(_REINTERPRET, [address], ret_ty=kind))


def before_sync() -> Stmt:
    """Tensor memory operations of this thread come before a synchronisation that follows."""
    return ir.evaluate(T.ptx.tcgen05.fence__before_thread_sync())


def after_sync() -> Stmt:
    """Tensor memory operations of this thread come after the synchronisation before."""
    return ir.evaluate(T.ptx.tcgen05.fence__after_thread_sync())


def plan_tensor_memory(
    tiles: dict[Buffer, bool], warpgroups: int, ctas: int = 1, per_sm: int = 1,
    copies: tuple[str, int] = (COPIES[0], 0),
) -> TensorMemory:  # fmt: skip
    """Place accumulators.

    Parameters
    ----------
    tiles : dict
        Each warpgroup's part of each accumulator, and whether it may have two places: its contents
        never flow from threads back to the tensor core.
    warpgroups : int
        Consumer warpgroups.
    ctas : int
        CTAs that compute MMAs together.
    per_sm : int
        CTAs that share an SM's tensor memory.
    copies : tuple of (str, int)
        One of :data:`COPIES`, and its columns.

    Raises
    ------
    Decline
        If they do not fit; the message is the budget.
    """
    what, copied = copies
    # An allocation is a power of two.
    capacity = (1 << ((SM100A.tensor_memory.columns // per_sm).bit_length() - 1)) - copied
    widths = {t: columns_of(str(t.dtype), int(t.shape[1])) * warpgroups for t in tiles}
    sets = dict.fromkeys(tiles, 1)
    for tile, moves in tiles.items():
        if (
            moves
            and sum(widths[t] * sets[t] for t in tiles) + widths[tile] * (SETS - 1) <= capacity
        ):
            sets[tile] = SETS
    names = {tile: f"{tile.name}_{number}" for number, tile in enumerate(tiles)}
    columns = {names[tile]: widths[tile] * sets[tile] for tile in tiles}
    if copied:
        # Copies begin at multiples of 4 columns.
        columns[what] = copied
    try:
        plan = plan_columns(per_sm, **columns)
    except IllegalCombination as error:
        raise Decline(f"{error} Use smaller tiles.") from error
    base = Var("tensor_memory", "uint32")
    address = tirx.decl_buffer((1,), "uint32", "tensor_memory_at", scope="shared", data_alignment=4)
    placed = {}
    for tile in tiles:
        rows, columns = int(tile.shape[0]), int(tile.shape[1]) * warpgroups * sets[tile]
        layout = tmem_datapath_layout("D" if rows == SM100A.warpgroup else "F", rows, columns)
        buffer = tirx.decl_buffer(
            (rows, columns), str(tile.dtype), tile.name, scope="tmem", layout=layout
        ).with_allocated_addr([base + T.uint32(plan[names[tile]].start)])
        placed[tile] = TensorTile(buffer, int(tile.shape[1]), warpgroups, sets[tile])
    return TensorMemory(placed, plan, address, base, ctas)

"""Scopes of the dialect in a kernel that its author has orchestrated, threads and all.

Nothing but places is decided here; a layout that the author wrote stays.

* Accumulators are those of one warpgroup: registers on Hopper, tensor memory on Blackwell.
* Tiles of tensor memory share one allocation, made where the first of them is allocated and freed
  at the end of the kernel, with a synchronisation of the CTA each.
* Matrix descriptors are 64-bit registers. Shared tiles that MMAs read get the layout of an
  operand.
* Mbarriers and shared tiles get their place from :mod:`warploom.lower.passes.allocate_shared`.
* The first thread initialises the mbarriers of ``wl.alloc_barrier``, and all threads wait for it:
  :mod:`warploom.lower.emit.own_barriers`.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var
from tvm.tirx.layout import tmem_datapath_layout

from warploom.errors import Decline, IllegalCombination
from warploom.layout.tensor_memory import columns_of, plan_columns
from warploom.lower.analysis.fragments import SM100_ROWS, fragments
from warploom.lower.analysis.layouts import has_layout, operand_layout, operand_uses, vector_axes
from warploom.lower.blackwell.plan_tensor_memory import TensorMemory, TensorTile, before_sync
from warploom.lower.emit.own_barriers import initialised_by_one_thread
from warploom.target import SM90A, SM100A
from warploom.tile import ir
from warploom.tile.annotations import PIPELINED
from warploom.tile.program import TileProgram, allocations
from warploom.tile.scopes import is_shared, needs_place

_WARP = SM100A.warpgroup // 4


def resolve_by_hand(program: TileProgram) -> TileProgram:
    """Give every tile of a scope that TVM does not know one that it does.

    Raises
    ------
    Decline
        If a tile has no layout and none is obvious, tensor memory is too small or not there, or
        the kernel has a hint or a pipelined loop, which need a program without threads.
    """
    _require_no_wishes(program)
    operands = operand_uses(program.block)
    axes = vector_axes(program.block)
    table: dict[Buffer, Buffer] = {}
    in_tensor_memory: list[Buffer] = []
    for tile in allocations(program.body):
        if tile.scope() == "wgmma.descriptor":
            table[tile] = _descriptor(tile)
        elif needs_place(tile) and _home(tile, program.arch) == "tmem":
            in_tensor_memory.append(tile)
        elif tile.scope() in ("accumulator", "fragment"):
            along = axes[tile].along if tile in axes else None
            layout = tile.layout if has_layout(tile) else _layout(tile, along, program.arch)
            table[tile] = _declared(tile, "local", layout)
        elif is_shared(tile) and tile in operands and not has_layout(tile):
            table[tile] = _declared(tile, tile.scope(), operand_layout(tile, operands[tile]))
    body = initialised_by_one_thread(program.block)
    decided: list[str] = []
    if in_tensor_memory:
        memory = _place(in_tensor_memory)
        table |= {tile: placed.buffer for tile, placed in memory.tiles.items()}
        body = _allocated(body, memory)
        decided = memory.describe()
    changed = program.replace(body=tuple(ir.substitute(statement, table) for statement in body))
    return changed.decided("roles: orchestrated by the author", *decided)


def _require_no_wishes(program: TileProgram) -> None:
    loops: list[Var] = []

    def visit(loop: tirx.For) -> None:
        if PIPELINED in loop.annotations:
            loops.append(loop.loop_var)

    for statement in program.body:
        tvm_ffi.structural_walk(statement, (tirx.For, visit))
    wishes = [f"the pipelined loop over {var.name}" for var in loops]
    wishes += [f"the hint {key}" for key in program.hints.attributes()]
    if wishes:
        raise Decline(
            f"The kernel defines ids of threads and has {wishes[0]}, which passes follow where "
            "they orchestrate the threads; leave out either."
        )


def _home(tile: Buffer, arch: str) -> str:
    """``"tmem"``, ``"local"``, or the tile's own scope."""
    if tile.scope() == "tmem" and arch == SM90A.name:
        raise Decline(
            f"{tile.name} lies in tensor memory, which {arch} does not have; give it the scope "
            "accumulator."
        )
    if tile.scope() == "accumulator":
        return "local" if arch == SM90A.name else "tmem"
    return tile.scope()


def _declared(tile: Buffer, scope: str, layout: Any) -> Buffer:
    return tirx.decl_buffer(tile.shape, str(tile.dtype), tile.name, scope=scope, layout=layout)


def _descriptor(tile: Buffer) -> Buffer:
    if str(tile.dtype) != "uint64":
        raise Decline(f"The matrix descriptor {tile.name} is {tile.dtype}; it must be uint64.")
    return _declared(tile, "local", "default")


def _layout(tile: Buffer, along: str | None, arch: str) -> Any:
    """The layout of a tile that one warpgroup holds in registers."""
    shape = [int(extent) for extent in tile.shape]
    kinds = fragments(arch != SM90A.name, shape[0])
    try:
        if len(shape) == 2:
            return kinds.matrix(*shape)
        if len(shape) == 1 and along is not None:
            return (kinds.along_rows if along == "row" else kinds.along_columns)(shape[0])
    except IllegalCombination as error:
        raise Decline(f"The tile {tile.name}: {error}") from error
    raise Decline(
        f"The tile {tile.name} of shape {tuple(shape)} has no layout, and its uses tell none; "
        "write layout=."
    )


def _place(tiles: list[Buffer]) -> TensorMemory:
    """Columns for every tile of tensor memory, in the order of the program."""
    try:
        counts = {
            f"{tile.name}_{i}": columns_of(str(tile.dtype), _width(tile))
            for i, tile in enumerate(tiles)
        }
        plan = plan_columns(**counts)
    except IllegalCombination as error:
        raise Decline(f"{error} Use smaller tiles.") from error
    base = Var("tensor_memory", "uint32")
    address = tirx.decl_buffer((1,), "uint32", "tensor_memory_at", scope="shared")
    placed = {}
    for tile, name in zip(tiles, counts, strict=True):
        buffer = _declared(tile, "tmem", tile.layout if has_layout(tile) else _datapath(tile))
        start = base + T.uint32(plan[name].start)
        buffer = buffer.with_allocated_addr([start])
        placed[tile] = TensorTile(buffer, plan[name].columns, 1, 1)
    return TensorMemory(placed, plan, address, base)


def _width(tile: Buffer) -> int:
    """Elements of a tile in one lane."""
    if has_layout(tile):
        return int(tile.layout.span("TCol"))
    return int(tile.shape[-1])


def _datapath(tile: Buffer) -> Any:
    shape = [int(extent) for extent in tile.shape]
    if len(shape) != 2 or shape[0] not in SM100_ROWS:
        raise Decline(
            f"The tile {tile.name} of tensor memory has shape {tuple(shape)}; without layout= it "
            f"has {' or '.join(map(str, SM100_ROWS))} rows, those of an MMA, and columns."
        )
    return tmem_datapath_layout("D" if shape[0] == SM100A.warpgroup else "F", *shape)


def _allocated(body: list[Stmt], memory: TensorMemory) -> list[Stmt]:
    """The body with the allocation where the first tile is allocated, and freed at the end."""
    tiles = set(memory.tiles)
    at = [i for i, statement in enumerate(body) if isinstance(statement, tirx.AllocBuffer)
          and statement.buffer in tiles]  # fmt: skip
    if len(at) != len(tiles):
        raise Decline(
            f"Tensor memory is allocated in a loop or branch ({next(iter(tiles)).name} or another "
            "tile); allocate it outside of them, where all threads come."
        )
    sync = ir.evaluate(T.cuda.cta_sync())
    chosen = T.truncdiv(T.cuda.thread_rank(), _WARP) == 0
    start = [
        tirx.AllocBuffer(memory.address),
        ir.when(chosen, memory.allocate()),
        sync,
        *memory.open(),
    ]
    rest = [statement for i, statement in enumerate(body) if i > at[0] and i not in at]
    return [*body[: at[0]], *start, *rest, before_sync(), sync, ir.when(chosen, memory.free())]

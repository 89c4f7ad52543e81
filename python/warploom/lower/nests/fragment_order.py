"""Moves registers to memory and back in the order in which threads hold them.

Where only threads with the same registers read the stored values, rows and columns do not
matter: register r of thread t goes to place (r / 4, t, r % 4). A thread then moves 16 bytes at a
time, and a warp 512 that lie together.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script import tirx as T
from tvm.tirx import Buffer, ForKind, Stmt, Var
from tvm.tirx.layout import S, TileLayout

from warploom.lower.nests.elements import WARPGROUP, NestContext
from warploom.ops.register_tile import LANES
from warploom.tile import ir
from warploom.tile.hints import PREFIX
from warploom.tile.nest import ElementStore
from warploom.tile.scopes import is_global, is_shared
from warploom.tile.statement import Nest

#: Annotation of a nest of two loops between a tile in registers and a buffer that a warpgroup
#: stores, or adds: any order of elements will do, as long as all use the same.
ANY_ORDER = PREFIX + "any_order"
#: Threads that a nest runs on.
_THREADS = WARPGROUP.warps * LANES
#: Suffixes of PTX by type.
_TYPES = {"float32": "f32", "int32": "s32"}


def in_fragment_order(nest: Nest, context: NestContext) -> Stmt:
    """A nest of one statement, ``memory[...] = tile[y, x]`` or ``tile[y, x] += memory[...]``."""
    (store,) = nest.parts
    adds = store.buffer.scope() == "local"
    memory, indices = _memory(store) if adds else (store.buffer, store.indices)
    space = "global" if is_global(memory) else "shared::cluster" if adds else "shared"
    tile = store.buffer if adds else store.value.source
    held = context.tile(tile).registers
    width = next(w for w in (4, 2, 1) if held % w == 0)
    registers = context.registers(tile)
    # The part of this warpgroup and of these columns, all of it one after the other.
    start = {loop.loop_var: loop.min for loop in nest.loops}
    *slot, row, column = (ir.substitute(index, start) for index in indices)
    group = Var("r", "int32")
    place = column * int(nest.loops[0].extent) + (group * _THREADS + context.thread) * width
    where = ir.address(memory, *slot, row, place)
    mine = [registers[group * width + i] for i in range(width)]
    kind = (f"v{width}." if width > 1 else "") + _TYPES[str(tile.dtype)]
    if adds:
        theirs = tirx.decl_buffer(
            (width,), str(tile.dtype), "theirs", scope="local", layout=TileLayout(S[(width,)])
        )
        load = T.ptx[f"ld.{space}.{kind}"](*(theirs[i] for i in range(width)), where)
        moved = [
            tirx.AllocBuffer(theirs),
            ir.evaluate(load),
            *(
                tirx.BufferStore(registers, mine[i] + theirs[i], [group * width + i])
                for i in range(width)
            ),
        ]
    else:
        moved = [ir.evaluate(T.ptx[f"st.{space}.{kind}"](where, *mine))]
    return ir.loop(group, held // width, moved, kind=ForKind.UNROLLED)


def _memory(store: ElementStore) -> tuple[Buffer, Any]:
    """The buffer that a store adds from, and where."""
    loads: list[TensorLoad] = []
    tvm_ffi.structural_walk(store.value, (TensorLoad, loads.append))
    (load,) = (load for load in loads if is_global(load.source) or is_shared(load.source))
    return load.source, load.indices

"""16-bit tiles in shared memory that threads compute from registers: computed in registers first.

A nest that stores such a tile element by element needs an address for each element, and threads
compute between the two places where they meet around the store. Here the nest computes a fragment,
and a second nest copies it, which ``stmatrix`` does (:mod:`warploom.lower.nests.matrix_stores`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.tirx import Buffer, Stmt, Var

from warploom.target import SM90A
from warploom.target.wgmma import WGMMA_M
from warploom.tile import ir
from warploom.tile.nest import AtomicUpdate, ElementStore
from warploom.tile.program import TileProgram
from warploom.tile.scopes import TILE_SCOPES, is_shared
from warploom.tile.statement import Nest, Statement

_BITS = 16
#: Columns of a fragment that one instruction stores.
_COLUMNS = 16


def through_registers(program: TileProgram) -> TileProgram:
    """Part the nests that compute 16-bit elements of shared tiles from tiles of MMAs."""
    if program.arch != SM90A.name:
        return program
    return program.replace(body=tuple(map(_statement, program.block)))


def _statement(statement: Statement) -> Stmt:
    if statement.blocks:
        return statement.with_each(_statement)
    return _parted(statement) if isinstance(statement, Nest) else statement.raw


def _parted(nest: Nest) -> Stmt:
    """A nest, or a nest that computes fragments and the copies of these."""
    places = _places(nest)
    if places is None:
        return nest.raw
    allocations: list[Stmt] = []
    parts: list[Stmt] = []
    copies: list[Stmt] = []
    for part in nest.parts:
        if not (isinstance(part, ElementStore) and _is_stored(part, nest)):
            parts.append(part.raw)
            continue
        extents = {loop.loop_var: int(loop.extent) for loop in nest.loops}
        shape, dtype = [extents[place] for place in places], str(part.buffer.dtype)
        made = tirx.decl_buffer(shape, dtype, f"{part.buffer.name}_computed", scope="fragment")
        allocations.append(tirx.AllocBuffer(made))
        parts.append(tirx.BufferStore(made, part.value, places, part.raw.span))
        own = {loop.loop_var: Var(loop.loop_var.name, "int32") for loop in nest.loops}
        store = tirx.BufferStore(part.buffer, made[tuple(places)], part.indices, part.raw.span)
        counters = [own[loop.loop_var] for loop in nest.loops]
        copies.append(ir.nest(counters, list(extents.values()), [ir.substitute(store, own)]))
    if not copies:
        return nest.raw
    computed: Any = ir.seq(parts)
    for loop in reversed(nest.loops):
        computed = ir.with_body(loop, [computed])
    return ir.seq([*allocations, computed, *copies])


def _places(nest: Nest) -> list[Var] | None:
    """The variables of a nest in the order in which they are indices of a tile of registers."""
    variables = [loop.loop_var for loop in nest.loops]
    if len(variables) != 2 or not all(
        isinstance(loop.extent, tirx.IntImm) and ir.is_constant(loop.min, 0) for loop in nest.loops
    ):
        return None
    extents = {loop.loop_var: int(loop.extent) for loop in nest.loops}
    for tile, indices in _register_tiles(nest):
        pairs = zip(indices, tile.shape, strict=True)
        covers = all(extents.get(index) == int(extent) for index, extent in pairs)
        rows, columns = map(int, tile.shape)
        if covers and indices[0] is not indices[1] and not (rows % WGMMA_M or columns % _COLUMNS):
            return list(indices)
    return None


def _register_tiles(nest: Nest) -> Iterator[tuple[Buffer, list[Any]]]:
    """The matrices in registers that a nest touches, with the indices."""
    found: list[tuple[Buffer, list[Any]]] = []

    def add(buffer: Any, indices: Any) -> None:
        if ir.is_buffer(buffer) and buffer.scope() in TILE_SCOPES and len(buffer.shape) == 2:
            found.append((buffer, list(indices)))

    callbacks = [
        (TensorLoad, lambda node: add(node.source, node.indices)),
        (tirx.BufferStore, lambda node: add(node.buffer, node.indices)),
    ]
    for part in nest.parts:
        tvm_ffi.structural_walk(part.raw, callbacks)
    return iter(found)


def _is_stored(store: ElementStore, nest: Nest) -> bool:
    """Whether a statement computes elements of 16 bits in shared memory, each once."""
    to, value = store.buffer, store.value
    if isinstance(store, AtomicUpdate) or not is_shared(to):
        return False
    if tvm.DataType(str(to.dtype)).bits != _BITS or len(to.shape) < 2:
        return False
    in_registers = isinstance(value, TensorLoad) and ir.is_buffer(value.source)
    if in_registers and value.source.scope() in TILE_SCOPES and str(value.source.dtype) == str(
        to.dtype
    ):
        return False
    read = any(to in ir.uses(part.value) for part in nest.stores)
    variables = [loop.loop_var for loop in nest.loops]
    both = all(any(v in ir.uses(index) for index in store.indices) for v in variables)
    return both and not read

"""Stores of some elements of a tile in registers, as nests over all of it with a guard.

Threads hold a tile by its rows and columns, which loops have to count: ``out[5, j] = x`` is the
nest ``for j, row: if row == 5: out[row, j] = x``.
"""

from __future__ import annotations

import functools

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script import tirx as T
from tvm.tirx import Stmt, Var

from warploom.tile import ir
from warploom.tile.nest import AtomicUpdate
from warploom.tile.scopes import TILE_SCOPES
from warploom.tile.statement import Nest, view


def every_place_counted(statement: Stmt) -> Stmt:
    """A nest that counts all dimensions of the tile in registers that it stores.

    Parameters
    ----------
    statement : Stmt
        Of any kind. It is left as it is if it is no nest, if it has several stores, or if the tile
        is stored at a place that a loop's variable is part of.
    """
    nest = view(statement) if isinstance(statement, tirx.For) else None
    if not isinstance(nest, Nest) or len(nest.stores) != 1:
        return statement
    (store,) = nest.stores
    if isinstance(store, AtomicUpdate) or store.buffer.scope() not in TILE_SCOPES:
        return statement
    single = {loop.loop_var: tirx.const(0, str(loop.loop_var.ty.dtype))
              for loop in nest.loops if ir.is_constant(loop.extent, 1)}  # fmt: skip
    counting = {loop.loop_var for loop in nest.loops} - single.keys()
    places, added = [], []
    for dimension, (index, extent) in enumerate(
        zip(store.indices, store.buffer.shape, strict=True)
    ):
        if int(extent) == 1 or index in counting:
            places.append(index)
            continue
        place = ir.substitute(index, single)
        if ir.uses(place) & counting:
            return statement
        counter = Var(f"place_{dimension}", "int32")
        added.append((counter, extent, place))
        places.append(counter)
    if not added:
        return statement
    here = functools.reduce(T.And, (T.EQ(counter, place) for counter, _, place in added))

    def read(load: TensorLoad) -> TensorLoad:
        """An element at the place of the store, where threads hold the tile in the same way."""
        held = ir.is_buffer(load.source) and load.source.scope() in TILE_SCOPES
        if not held or not tvm_ffi.structural_equal(load.source.shape, store.buffer.shape):
            return load
        same = all(map(tvm_ffi.structural_equal, load.indices, store.indices))
        return load.source[tuple(places)] if same else load

    def guarded(old: tirx.BufferStore) -> Stmt:
        return ir.when(here, [tirx.BufferStore(old.buffer, old.value, places, old.span)])

    changes = [(TensorLoad, read), (tirx.BufferStore, guarded)]
    parts = [tvm_ffi.structural_map(part.raw, changes, order="post") for part in nest.parts]
    kept = [loop for loop in nest.loops if loop.loop_var in counting]
    return ir.nest(
        [*(loop.loop_var for loop in kept), *(counter for counter, *_ in added)],
        [*(loop.extent for loop in kept), *(extent for _, extent, _ in added)],
        [ir.substitute(part, single) for part in parts],
        dict(nest.loops[0].annotations),
    )

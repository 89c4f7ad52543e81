"""``copy`` between a register tile and shared or global memory, with ragged edges.

Stock TVM's copies are right and fast for 16-bit tiles in shared memory (``ldmatrix`` and
``stmatrix``) and for tiles that lie inside a global matrix. This variant covers the rest:

- tiles of 8- and 32-bit elements in shared memory, which stock hands to ``stmatrix`` although it
  moves pairs of 16-bit elements;
- a global region that may reach beyond the matrix: a store leaves the outside alone, a load
  returns zero for it, as TMA does;
- tiles that several threads hold copies of (one value for each row or column).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import PrimFunc
from tvm.tirx.layout import ComposeLayout, TileLayout
from tvm.tirx.operator.tile_primitive import fail
from tvm.tirx.tile_primitive import DispatchContext, TilePrimitiveCall

from warploom.ops.register_tile import RegisterTile, Threads, read_register_tile
from warploom.ops.schedule import Schedule

#: Bytes moved by one instruction -> suffix of ``ld`` / ``st``, its registers, their dtype.
WIDTHS = {
    16: ("v4.u32", 4, "uint32"),
    8: ("v2.u32", 2, "uint32"),
    4: ("u32", 1, "uint32"),
    2: ("u16", 1, "uint16"),
    1: ("u8", 1, "uint8"),
}


@dataclass(frozen=True)
class Plan:
    """A copy, reduced to the constants of its emission.

    Attributes
    ----------
    tile : RegisterTile
        The registers.
    memory : TensorRegion
        The other side.
    dims : tuple of int or None
        For each dimension of the memory region, the one of the tile that moves along it.
    vector : int
        Elements that one instruction moves.
    bounds : tuple of (int, Expr)
        Dimensions of the memory region that may reach beyond the buffer, and the extent there.
    to_memory : bool
        Direction.
    """

    tile: RegisterTile
    memory: TensorRegion
    dims: tuple[int | None, ...]
    vector: int
    bounds: tuple[tuple[int, Any], ...]
    to_memory: bool

    @property
    def instruction(self) -> tuple[str, int, str]:
        """PTX instruction, its 32-bit (or narrower) registers and their dtype."""
        suffix, count, word = WIDTHS[self.vector * tvm.DataType(self.tile.dtype).bits // 8]
        space = "global" if self.memory.source.scope() == "global" else "shared"
        return f"{'st' if self.to_memory else 'ld'}.{space}.{suffix}", count, word


def _pair_dimensions(tile: RegisterTile, extents: list[int]) -> tuple[int | None, ...]:
    """Match dimensions in order, passing over those of extent 1 on either side."""
    of_tile = [d for d, extent in enumerate(tile.shape) if extent > 1]
    of_memory = [d for d, extent in enumerate(extents) if extent > 1]
    if [tile.shape[d] for d in of_tile] != [extents[d] for d in of_memory]:
        fail(f"the tile has extents {tile.shape}, the memory region {tuple(extents)}.")
    pairs = dict(zip(of_memory, of_tile, strict=True))
    return tuple(pairs.get(d) for d in range(len(extents)))


def _bounds(region: TensorRegion, analyzer: Analyzer) -> tuple[tuple[int, Any], ...]:
    """Dimensions in which the region is not provably inside its buffer."""
    extents = enumerate(zip(region.region, region.source.shape, strict=True))
    return tuple(
        (d, extent)
        for d, (r, extent) in extents
        if not analyzer.can_prove(r.min + r.extent <= extent)
    )


def _strides_allow(region: TensorRegion, vector: int, analyzer: Analyzer) -> bool:
    """Whether ``vector`` elements of the last dimension are neighbours, on aligned addresses."""
    layout = region.source.layout
    limit = None
    if isinstance(layout, ComposeLayout):
        limit, layout = 1 << int(layout.per_element), layout.tile_layout
    if not isinstance(layout, TileLayout) or (limit is not None and vector > limit):
        return False

    def multiple(value: Any) -> bool:
        return analyzer.can_prove_equal(tvm.tirx.floormod(value, vector), 0)

    *outer, last = [it for it in layout.shard if not analyzer.can_prove_equal(it.extent, 1)]
    contiguous = analyzer.can_prove_equal(last.stride, 1) and multiple(last.extent)
    starts = [region.region[-1].min, *layout.offset.values(), region.source.elem_offset]
    return contiguous and all(multiple(v) for v in [*(it.stride for it in outer), *starts])


def _registers_allow(tile: RegisterTile, inner: int, vector: int) -> bool:
    """Whether every ``vector`` registers in a row hold neighbours along dimension ``inner``."""
    if tile.registers % vector:
        return False
    offsets = np.array(tile.offsets).reshape(-1, vector)
    position = np.array(np.unravel_index(tile.table, tile.shape))
    runs = position.reshape(*position.shape[:-1], -1, vector)
    steps = np.zeros((len(tile.shape), vector), int)
    steps[inner] = np.arange(vector)
    in_order = (offsets == offsets[:, :1] + np.arange(vector)).all()
    neighbours = (runs == runs[..., :1] + steps[:, None, None, :]).all()
    aligned = not (offsets[:, 0] % vector).any() and not (runs[inner, ..., 0] % vector).any()
    return bool(in_order and neighbours and aligned)


def _vector(
    tile: RegisterTile,
    memory: TensorRegion,
    dims: tuple[int | None, ...],
    bounds: tuple[tuple[int, Any], ...],
    analyzer: Analyzer,
) -> int:
    """The most elements that one instruction can move."""
    if dims[-1] is None:
        return 1
    bits = tvm.DataType(tile.dtype).bits
    # A run must not straddle the edge of the matrix.
    starts = [tile.start, *(extent for d, extent in bounds if d == len(dims) - 1)]
    for vector in (128 // bits >> i for i in range((128 // bits).bit_length() - 1)):
        even = all(analyzer.can_prove_equal(tvm.tirx.floormod(v, vector), 0) for v in starts)
        if (
            even
            and _registers_allow(tile, dims[-1], vector)
            and _strides_allow(memory, vector, analyzer)
        ):
            return vector
    return 1


def _read_plan(call: TilePrimitiveCall, context: DispatchContext) -> Plan:
    dst, src = call.args[0], call.args[1]
    to_memory = src.source.scope() == "local"
    registers, memory = (src, dst) if to_memory else (dst, src)
    analyzer = Analyzer()
    for variable, bounds in context.var_range_map.items():
        analyzer.bind(variable, bounds)
    if str(dst.source.dtype) != str(src.source.dtype):
        fail(f"copy from {src.source.dtype} to {dst.source.dtype} converts; use Tx.wg.cast.")
    tile = read_register_tile(registers, "the register tile", Threads.of(context), analyzer)
    extents = [analyzer.simplify(r.extent) for r in memory.region]
    if any(not isinstance(e, tvm.tirx.IntImm) for e in extents):
        fail(f"the extents of the memory region must be constant, got {extents}.")
    dims = _pair_dimensions(tile, [int(e) for e in extents])
    bounds = _bounds(memory, analyzer)
    vector = _vector(tile, memory, dims, bounds, analyzer)
    return Plan(tile, memory, dims, vector, bounds, to_memory)


def _guarded(condition: Any, emit: Any) -> None:
    if condition is None:
        emit()
        return
    with T.If(condition), T.Then():
        emit()


def _emit(plan: Plan, axes: dict[str, Any], words: Any) -> None:
    chain, count, word = plan.instruction
    tile, region = plan.tile, plan.memory.region
    bits = tvm.DataType(tile.dtype).bits
    per_word = tvm.DataType(word).bits // bits
    once = tile.is_first_copy(axes) if plan.to_memory else None
    for offset in tile.offsets[:: plan.vector]:
        position = tile.coordinates(axes, offset)
        index = [
            r.min if d is None else r.min + position[d]
            for r, d in zip(region, plan.dims, strict=True)
        ]
        first = T.truncdiv(tile.start + offset, per_word)
        values = [words[first + i] for i in range(count)]
        conditions = [index[d] < extent for d, extent in plan.bounds]
        conditions += [] if once is None else [once]
        if plan.bounds and not plan.to_memory:
            for i in range(count):
                T.buffer_store(words, tvm.tirx.const(0, word), [first + i])

        def move(values=values, index=index):
            address = plan.memory.source.ptr_to(index)
            operands = [address, *values] if plan.to_memory else [*values, address]
            T.evaluate(T.ptx[chain](*operands))

        _guarded(tvm.tirx.all(*conditions) if conditions else None, move)


def copy_fragment(call: TilePrimitiveCall, context: DispatchContext) -> PrimFunc:
    """Copy a register tile to or from memory, one unrolled instruction for each run of elements.

    Notes
    -----
    Extents are paired in order, those of 1 passed over. A region of a global buffer may begin
    inside the buffer and end outside; regions of shared buffers must lie inside.
    """
    plan = _read_plan(call, context)
    declare, view = plan.tile.threads.declare, plan.tile.view
    word = plan.instruction[2]

    @T.prim_func(check_well_formed=False)
    def impl():
        axes = T.meta_var(declare())
        words = T.meta_var(view(word))
        _emit(plan, axes, words)

    return impl


def is_register_memory_copy(call: TilePrimitiveCall, context: DispatchContext) -> tuple[bool, str]:
    """Predicate: one side is in registers, the other is memory that stock does not serve well."""
    scopes = [region.source.scope() for region in call.args[:2]]
    if scopes.count("local") != 1:
        return False, f"one side must be in registers (scope 'local'), got {' and '.join(scopes)}."
    memory = call.args[scopes.index("local") ^ 1].source
    registers = call.args[scopes.index("local")].source
    shared = memory.scope().startswith("shared")
    if not shared and memory.scope() != "global":
        return False, f"the other side must be shared or global memory, got '{memory.scope()}'."
    if call.config:
        return False, f"options {', '.join(sorted(map(str, call.config)))} are those of stock."
    replicated = bool(getattr(registers.layout, "replica", ()))
    if shared and tvm.DataType(str(memory.dtype)).bits == 16 and not replicated:
        return False, "tiles of 16-bit elements in shared memory are stock's variant ldstmatrix."
    Threads.of(context)
    return True, ""


SCHEDULES = (
    Schedule(
        op="copy",
        variant="fragment",
        priority=20,
        when=(("register_memory_copy", is_register_memory_copy),),
        impl=copy_fragment,
    ),
)

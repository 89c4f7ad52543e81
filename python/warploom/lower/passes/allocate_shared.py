"""Gives every shared buffer and every mbarrier its place in one block of dynamic shared memory."""

from __future__ import annotations

import math
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt

from warploom.errors import NoSharedMemory
from warploom.lower.analysis.budget import shared_bytes
from warploom.lower.analysis.own_pool import DYNAMIC_BYTES, OwnPool, own_pool
from warploom.lower.analysis.shared_tiles import span_bytes, tile_bytes
from warploom.target.swizzle import Swizzle
from warploom.tile import ir
from warploom.tile.program import TileProgram, allocations
from warploom.tile.scopes import is_shared

#: Of an mbarrier, and the fewest of a bulk copy.
_MBARRIER_BYTES, _LEAST_COPY = 8, 16
#: Bytes of the widest access. Compilers join reads of small buffers to such a one, and read what is
#: between and behind them as well.
_WIDEST = 16
_ADDRESS_OF = Op.get("tirx.address_of")
#: Buffers that a message about too little memory names.
_SHOWN = 3


def allocate_shared(program: TileProgram, capacity: int | None = None) -> TileProgram:
    """Replace allocations of shared memory and mbarriers by places in one allocation.

    Where the author has a pool of his own (``T.SMEMPool``), they follow its contents.

    Parameters
    ----------
    capacity : int, optional
        Bytes that a CTA may have; without it its part of an SM.

    Raises
    ------
    NoSharedMemory
        If they do not fit; the message names the largest.
    """
    capacity = shared_bytes(program) if capacity is None else capacity
    own = own_pool(program)
    buffers = [b for b in allocations(program.body) if is_shared(b) or b.scope() == "mbarrier"]
    buffers = [b for b in buffers if own is None or not b.same_as(own.buffer)]
    # Largest alignment first leaves no gaps.
    buffers.sort(key=_is_small)
    pool = tirx.decl_buffer((0,), "uint8", "shared_memory", scope="shared.dyn")
    offset, end, lines = 0, 0, []
    if own is not None:
        pool, offset = own.buffer, own.size
        lines.append(f"  {pool.name}: {own.size} bytes of the author's")
    table: dict[Buffer, Buffer] = {}
    for buffer in buffers:
        align = _MBARRIER_BYTES if _is_small(buffer) else Swizzle.B128.atom_bytes
        offset = -(-offset // align) * align
        size = tile_bytes(buffer)
        element = size // max(1, math.prod(int(extent) for extent in buffer.shape))
        table[buffer] = tirx.decl_buffer(
            buffer.shape, str(buffer.dtype), buffer.name, elem_offset=offset // element,
            scope="shared.dyn", data_alignment=align,
            layout=buffer.layout if buffer.layout is not None else "default",
        )  # fmt: skip
        shape = " x ".join(str(extent) for extent in buffer.shape)
        lines.append(f"  {buffer.name}: {shape} {buffer.dtype}, {size} bytes")
        offset += span_bytes(buffer)
        if buffer.scope() != "mbarrier":
            end = -(-offset // _WIDEST) * _WIDEST
    offset = max(offset, end)
    if offset > capacity:
        raise NoSharedMemory(
            f"The kernel needs {offset} bytes of shared memory and a CTA has {capacity}; use fewer "
            f"stages or smaller tiles: {_largest(lines, buffers)}."
        )

    def drop(allocation: tirx.AllocBuffer) -> Stmt:
        return tirx.Evaluate(0) if allocation.buffer in table else allocation

    body = [
        tvm_ffi.structural_map(statement, (tirx.AllocBuffer, drop), order="pre")
        for statement in program.body
    ]
    body = [ir.map_nodes(statement, {Call: _typed_address}, table) for statement in body]
    if own is not None:
        body = [_without_size(statement, own) for statement in body]
    declared: list[Any] = [tirx.AllocBuffer(pool)]
    declared += [tirx.DeclBuffer(new, data=pool.data) for new in table.values()]
    size = tirx.IntImm("int64", offset)
    declared.append(tirx.AttrStmt(0, DYNAMIC_BYTES, size, tirx.Evaluate(0)))
    whole = tuple(statement for statement in [*declared, *body] if not _is_nothing(statement))
    return program.replace(body=whole).decided(
        f"shared memory: {offset} of {capacity} bytes", *(line.strip() for line in lines)
    )


def _typed_address(call: Call) -> Any:
    """A call, whose type has the scope of its buffer if it takes an address."""
    return T.address_of(*call.args) if call.op.same_as(_ADDRESS_OF) else call


def _largest(lines: list[str], buffers: list[Buffer]) -> str:
    """The budget in one line: the largest buffers, and the sum of the others."""
    own = lines[: len(lines) - len(buffers)]
    order = sorted(range(len(buffers)), key=lambda i: -tile_bytes(buffers[i]))
    shown = [line.strip() for line in own]
    shown += [lines[len(own) + i].strip() for i in order[:_SHOWN]]
    if rest := order[_SHOWN:]:
        shown.append(f"others: {sum(tile_bytes(buffers[i]) for i in rest)} bytes")
    return "; ".join(shown)


def _without_size(statement: Stmt, pool: OwnPool) -> Stmt:
    """A statement without the allocation of the author's pool and the size that it had."""

    def attr(attribute: tirx.AttrStmt) -> Stmt:
        return attribute.body if attribute.attr_key == DYNAMIC_BYTES else attribute

    def alloc(allocation: tirx.AllocBuffer) -> Stmt:
        return tirx.Evaluate(0) if allocation.buffer.same_as(pool.buffer) else allocation

    callbacks = [(tirx.AttrStmt, attr), (tirx.AllocBuffer, alloc)]
    return tvm_ffi.structural_map(statement, callbacks, order="post")


def _is_small(buffer: Buffer) -> bool:
    """Whether a buffer needs no more alignment than an mbarrier: no engine copies to it."""
    return buffer.scope() == "mbarrier" or tile_bytes(buffer) < _LEAST_COPY


def _is_nothing(statement: Stmt) -> bool:
    return isinstance(statement, tirx.Evaluate) and isinstance(statement.value, tirx.IntImm)

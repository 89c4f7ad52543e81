"""Takes a PrimFunc apart into a tile program, and tells which PrimFuncs are one."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.tirx import ForKind, PrimFunc, Stmt
from tvm.tirx.tile_primitive import TilePrimitiveCall

from warploom.errors import Decline
from warploom.target import SM90A
from warploom.tile import ir
from warploom.tile.entries import device_entries
from warploom.tile.hint_attributes import read_hints
from warploom.tile.hints import DEVICE_ENTRY, HINT_KEYS, PREFIX
from warploom.tile.ids import KINDS, Id, id_of, parent_and_child
from warploom.tile.mbarriers import INITIALISED
from warploom.tile.program import TileProgram, device_entry
from warploom.tile.scopes import needs_place
from warploom.tile.spans import span_name
from warploom.tile.state import STATE, read_state
from warploom.tile.updates import read_update


def is_tile_program(func: PrimFunc) -> bool:
    """Whether a function is written in this dialect.

    It has a hint, a pipelined loop, an atomic update or a scope of the dialect; or it has
    primitives of a CTA, and says nothing of threads, without which TVM lowers none of them. Spans
    alone leave a kernel as it is.
    """
    marked = False

    def attr(attribute: tirx.AttrStmt) -> None:
        nonlocal marked
        marked |= attribute.attr_key.startswith(PREFIX) and span_name(attribute) is None

    def for_loop(loop: tirx.For) -> None:
        nonlocal marked
        marked |= any(key.startswith(PREFIX) for key in loop.annotations)

    def alloc(allocation: tirx.AllocBuffer) -> None:
        nonlocal marked
        marked |= needs_place(allocation.buffer)

    def store(node: tirx.BufferStore) -> None:
        nonlocal marked
        marked |= read_update(node) is not None

    entries = device_entries(func)
    for part in entries or [func.body]:  # the check of the program says that the entry is missing
        tvm_ffi.structural_walk(
            part,
            [
                (tirx.AttrStmt, attr), (tirx.For, for_loop), (tirx.AllocBuffer, alloc),
                (tirx.BufferStore, store),
            ],
        )  # fmt: skip
    return marked or any(map(_is_of_ctas_alone, entries))


def _is_of_ctas_alone(entry: Stmt) -> bool:
    """Whether a kernel has primitives of a CTA, and neither ids of threads nor loops over them."""
    of_ctas = threads = False

    def call(primitive: TilePrimitiveCall) -> None:
        nonlocal of_ctas
        of_ctas |= primitive.scope.name == "cta"

    def attr(attribute: tirx.AttrStmt) -> None:
        nonlocal threads
        threads |= attribute.attr_key == "thread_extent"

    def for_loop(loop: tirx.For) -> None:
        nonlocal threads
        threads |= loop.kind == ForKind.THREAD_BINDING

    tvm_ffi.structural_walk(
        entry, [(TilePrimitiveCall, call), (tirx.AttrStmt, attr), (tirx.For, for_loop)]
    )
    return of_ctas and not threads and not _defines_threads(entry)


def read(func: PrimFunc, arch: str = SM90A.name) -> TileProgram:
    """Take a function apart, also between two passes.

    Parameters
    ----------
    arch : str
        The architecture to lower it for, if no pass has begun to.

    Raises
    ------
    Decline
        If it has no device part, several, or no ``T.cta_id``.
    """
    func, host = _parted(func)
    entry = device_entry(func)
    state = read_state(func) or {"arch": arch, "by_hand": _defines_threads(entry)}
    by_hand = state["by_hand"]
    ids: list[Id] = []
    attrs: list[tuple[str, Any]] = []
    body: list[Stmt] = []

    def take(statement: Stmt) -> None:
        for node in ir.flatten(statement):
            key = str(node.attr_key) if isinstance(node, tirx.AttrStmt) else ""
            is_hint, is_ours = key in HINT_KEYS, key.startswith(PREFIX)
            if key == INITIALISED:
                # Passes that part the roles choose the thread; by hand, there are only threads.
                body.extend([node] if by_hand else ir.flatten(node.body))
            elif key and key != DEVICE_ENTRY and not body and (is_hint or not is_ours):
                if not is_ours:
                    attrs.append((node.attr_key, node.value))
                take(node.body)
            elif isinstance(node, tirx.ScopeIdDefStmt) and not by_hand:
                ids.append(id_of(getattr(node, "def")))
            else:
                body.append(node)

    take(entry.body)
    if not by_hand and not any(scope_id.kind == "cta" for scope_id in ids):
        raise Decline("The kernel does not say how many CTAs it has; write T.cta_id([...]).")
    parts = (tuple(ids), read_hints(func), tuple(attrs), tuple(body))
    return TileProgram(func, *parts, host=host, **state)


def _parted(func: PrimFunc) -> tuple[PrimFunc, tuple[Stmt, ...]]:
    """A function that passes have begun to lower, without its host statements; and these."""
    if STATE not in (func.attrs or {}):
        return func, ()
    entry, statements = device_entry(func), ir.flatten(func.body)
    number = next((i for i, statement in enumerate(statements) if statement.same_as(entry)), 0)
    body = ir.seq(statements[number:])
    kernel = PrimFunc(func.params, body, func.ret_type, func.attrs, func.span)
    return kernel, tuple(statements[:number])


def is_by_hand(func: PrimFunc) -> bool:
    """Whether a kernel defines ids of threads: its author has orchestrated all of it."""
    return any(map(_defines_threads, device_entries(func)))


def _defines_threads(entry: Stmt) -> bool:
    """Whether a kernel tells more apart than CTAs."""
    defines = False

    def visit(definition: tirx.ScopeIdDefStmt) -> None:
        nonlocal defines
        defines |= parent_and_child(getattr(definition, "def")) != KINDS["cta"]

    tvm_ffi.structural_walk(entry, (tirx.ScopeIdDefStmt, visit))
    return defines

"""The parts of a tile program, taken from a PrimFunc and put back.

A tile program is a PrimFunc whose device part is the program of one thread block (CTA), one
statement after the other: tile primitives of scope ``cta``, nests of element-wise stores, loops and
branches that all threads take alike. Passes work on :class:`TileProgram` and return another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.tirx import Buffer, PrimFunc, Stmt, Var

from warploom.errors import Decline
from warploom.target import SM90A, SM100A
from warploom.tile import ir
from warploom.tile.annotations import Tiles
from warploom.tile.entries import device_entries
from warploom.tile.hints import DEVICE_ENTRY, Hints
from warploom.tile.ids import Id
from warploom.tile.roles import ThreadRole
from warploom.tile.scopes import is_global
from warploom.tile.state import STATE, state_of
from warploom.tile.statement import Block, Loop, Mma, block, walk


@dataclass(frozen=True)
class TileProgram:
    """A kernel in parts.

    Attributes
    ----------
    func : PrimFunc
        Where it comes from: parameters, host code, attributes.
    ids : tuple of Id
        The ids of CTAs, and in later passes of warps and threads.
    hints : Hints
        Hints of the author, and choices of passes where there is no hint.
    attrs : tuple of (str, Any)
        Other attributes of the kernel, such as ``tirx.launch_bounds_min_blocks_per_sm``.
    body : tuple of Stmt
        The statements of a CTA.
    host : tuple of Stmt
        Statements of passes before the kernel: workspaces, and kernels that prepare them.
    decisions : tuple of str
        Choices of passes so far, with reasons: one sentence each.
    arch : str
        The architecture it is lowered for.
    by_hand : bool
        Whether it defines ids of threads: then the author has orchestrated all of it, its body is
        that of a thread, and the passes only give its tiles and barriers a place.
    roles : tuple of ThreadRole
        The roles that execute the statements, once a pass has parted and marked them.
    ignored : tuple of (str, str, Span or None)
        Hints that no pass follows, why, and where they are if that is known: a warning each.
    threads : (int, int, int) or None
        How tiles in registers are spread over threads, where no MMA prescribes it: the parts of a
        :class:`~warploom.layout.thread_grid.ThreadGrid`.
    passes : bool
        Whether passes have begun to lower it: then the function has the notes of passes for each
        other (:mod:`warploom.tile.state`), until the last pass leaves a plain function.
    in_place : tuple of str
        Buffers in global memory that a CTA reads only where it stores them, and before.
    """

    func: PrimFunc
    ids: tuple[Id, ...]
    hints: Hints
    attrs: tuple[tuple[str, Any], ...]
    body: tuple[Stmt, ...]
    decisions: tuple[str, ...] = ()
    arch: str = SM90A.name
    by_hand: bool = False
    host: tuple[Stmt, ...] = ()
    roles: tuple[ThreadRole, ...] = ()
    ignored: tuple[tuple[str, str, Any], ...] = ()
    threads: tuple[int, int, int] | None = None
    passes: bool = False
    in_place: tuple[str, ...] = ()

    @cached_property
    def block(self) -> Block:
        """Views of the statements of ``body``."""
        return block(self.body)

    @cached_property
    def _tiles(self) -> Tiles | None:
        loops = (loop for loop in walk(self.block) if isinstance(loop, Loop) and loop.over_tiles)
        return next((loop.tiles for loop in loops), None)

    @cached_property
    def has_mmas(self) -> bool:
        """Whether the tensor core multiplies; asked before the roles part."""
        return any(isinstance(statement, Mma) for statement in walk(self.block))

    @property
    def tensor_memory(self) -> bool:
        """Whether accumulators lie in tensor memory: on Blackwell, where there are MMAs."""
        return self.arch == SM100A.name and self.has_mmas

    @property
    def cluster(self) -> tuple[tuple[Buffer, int], ...]:
        """How the CTAs of a cluster share out tiles, before the roles part.

        For each dimension of the grid along which they differ: the scalar that holds the place
        there, and how many CTAs. Ranks in the cluster count the first fastest.
        """
        return () if self._tiles is None else self._tiles.cluster

    @property
    def stores(self) -> Any:
        """Whether this CTA stores its results; None if it always does."""
        return None if self._tiles is None else self._tiles.stores

    @cached_property
    def workspaces(self) -> frozenset[Buffer]:
        """Buffers that the function allocates outside of the kernel."""
        before = (self.func.body, *self.host)
        return frozenset(filter(is_global, allocations(before)))

    def id(self, kind: str) -> Id | None:
        """The id of that kind, if there is one."""
        return next((scope_id for scope_id in self.ids if scope_id.kind == kind), None)

    def var(self, kind: str) -> Var:
        """The variable of an id of one dimension."""
        (var,) = self.id(kind).vars
        return var

    def replace(self, **changes: Any) -> TileProgram:
        """The program with other parts."""
        return dataclasses.replace(self, **changes)

    def decided(self, *sentences: str) -> TileProgram:
        """The program with more decisions."""
        return self.replace(decisions=(*self.decisions, *sentences))

    def not_followed(self, hint: str, reason: str, span: Any = None) -> TileProgram:
        """The program with a note that no pass follows a hint; ``reason`` says why, and the fix."""
        noted = self.replace(ignored=(*self.ignored, (hint, reason, span)))
        return noted.decided(f"{hint}: not followed, {reason}")

    def to_func(self) -> PrimFunc:
        """The PrimFunc again."""
        body = ir.seq([*(scope_id.statement() for scope_id in self.ids), *self.body])
        body = ir.with_plain_extents(body)
        hints = self.hints.attributes().items()
        for key, value in reversed([(DEVICE_ENTRY, True), *self.attrs, *hints]):
            body = tirx.AttrStmt(0, key, _attr_value(value), body)
        old = device_entry(self.func)
        whole = _replace(self.func.body, old, ir.seq([*self.host, body]))
        func = PrimFunc(
            self.func.params, whole, self.func.ret_type, self.func.attrs, self.func.span
        )
        if not self.passes:
            return func.without_attr(STATE) if STATE in (func.attrs or {}) else func
        return func.with_attr(
            STATE,
            state_of(
                self.arch, self.by_hand, self.decisions, self.ignored, self.roles, self.threads,
                self.in_place,
            ),
        )


def _attr_value(value: Any) -> Any:
    return tirx.const(value, "bool") if isinstance(value, bool) else ir.as_expr(value)


def device_entry(func: PrimFunc) -> tirx.AttrStmt:
    """The device part of a function that has one."""
    entries = device_entries(func)
    if STATE in (func.attrs or {}):  # kernels that prepare a workspace come before
        entries = entries[-1:]
    if len(entries) != 1:
        raise Decline(
            f"The function has {len(entries)} device entries; a tile program has one, so give each "
            "kernel a function of its own."
        )
    return entries[0]


def _replace(tree: Stmt, old: Stmt, new: Stmt) -> Stmt:
    if tree.same_as(old):
        return new
    return tvm_ffi.structural_map(
        tree,
        (tirx.AttrStmt, lambda attribute: new if attribute.same_as(old) else attribute),
        order="pre",
    )


def allocations(body: tuple[Stmt, ...]) -> Iterator[Buffer]:
    """All buffers that statements allocate, at any depth."""
    buffers: list[Buffer] = []
    for statement in body:
        tvm_ffi.structural_walk(
            statement,
            (tirx.AllocBuffer, lambda allocation: buffers.append(allocation.buffer)),
            order="pre",
        )
    return iter(buffers)

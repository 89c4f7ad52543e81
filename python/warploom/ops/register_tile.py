"""Register tiles: which thread holds which element of a ``local`` buffer region, as a table.

A schedule for tiles in registers must know, for every register of every thread, which element of
the tile it is, and must name registers by constants: a register cannot be indexed at run time.
:class:`RegisterTile` answers that for any layout whose thread axes are those of a warpgroup or of
a block, by enumeration instead of by matching patterns. It backs elementwise operations,
reductions and copies alike.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer
from tvm.tirx.layout import S, TileLayout
from tvm.tirx.operator.tile_primitive import fail
from tvm.tirx.tile_primitive import DispatchContext

LANES = 32
_WARP_AXIS = {"warpgroup": "wid_in_wg", "cta": "warpid"}
_THREAD_AXIS = {"warpgroup": "tid_in_wg", "cta": "tx"}


@dataclass(frozen=True)
class Threads:
    """The threads that execute a call: whole, consecutive warps of one scope.

    Attributes
    ----------
    scope : str
        ``"warpgroup"`` or ``"cta"``; warps are numbered within it.
    first_warp, warps : int
        The warps that take part.
    """

    scope: str
    first_warp: int
    warps: int

    @classmethod
    def of(cls, context: DispatchContext) -> Threads:
        """The threads of a call, or a decline."""
        scope = context.scope_kind
        if scope not in _WARP_AXIS:
            fail(
                f"a register tile belongs to a warpgroup or a block, the call has scope "
                f"'{scope}'; write Tx.wg or Tx.cta."
            )
        lanes, warps = (context.intra.get(axis) for axis in ("laneid", _WARP_AXIS[scope]))
        if lanes is None or warps is None or (int(lanes[0]), int(lanes[1])) != (LANES, 0):
            fail("all 32 lanes of a warp must take part; move the call out of the lane branch.")
        if scope == "warpgroup" and int(warps[0]) != 4:
            fail("all 4 warps of the warpgroup must take part; move the call out of the branch.")
        return cls(scope, int(warps[1]), int(warps[0]))

    def axes(self, lane: Any, warp: Any) -> dict[str, Any]:
        """Values of all thread axes of the scope, given lane and warp (numbers or expressions)."""
        scope = self.scope
        return {
            "laneid": lane,
            _WARP_AXIS[scope]: warp,
            _THREAD_AXIS[scope]: lane + LANES * warp,
        }

    def table(self) -> dict[str, np.ndarray]:
        """The same values for every thread, as columns of shape ``(threads, 1)``."""
        warp, lane = np.divmod(np.arange(self.warps * LANES)[:, None], LANES)
        return self.axes(lane, warp + self.first_warp)

    def declare(self) -> dict[str, Any]:
        """The same values in the kernel; to be called while a PrimFunc is being built."""
        # TVM can infer the extent of this id from any others that the kernel declares.
        thread = T.thread_id()
        warp = T.truncdiv(thread, LANES)
        if self.scope == "warpgroup":
            warp = T.truncmod(warp, 4)
        return self.axes(T.truncmod(thread, LANES), warp)


@dataclass(frozen=True)
class Digit:
    """An iterator of a layout: ``extent`` steps of ``stride`` along ``axis``."""

    extent: int
    stride: int
    axis: str

    def of(self, axes: Mapping[str, Any]) -> Any:
        """Which step an axis value stands for."""
        value = axes[self.axis]
        if isinstance(value, (int, np.ndarray)):
            return value // self.stride % self.extent
        value = T.truncdiv(value, self.stride) if self.stride > 1 else value
        return T.truncmod(value, self.extent)


@dataclass(frozen=True)
class RegisterTile:
    """A region of a ``local`` buffer and its distribution over threads.

    Attributes
    ----------
    buffer : Buffer
        The whole register buffer.
    threads : Threads
        The threads that execute the call.
    shape : tuple of int
        Extents of the region.
    dims : tuple of tuple of Digit
        Iterators of each dimension, outermost first.
    replica : tuple of Digit
        Iterators over the threads that hold copies of one element.
    origin : dict
        Value of each thread axis at the region's first element.
    start : Expr or int
        Register of the region's first element; may depend on loop variables.
    """

    buffer: Buffer
    threads: Threads
    shape: tuple[int, ...]
    dims: tuple[tuple[Digit, ...], ...]
    replica: tuple[Digit, ...]
    origin: dict[str, int]
    start: Any

    @property
    def dtype(self) -> str:
        """Element type."""
        return str(self.buffer.dtype)

    @property
    def size(self) -> int:
        """Elements of the region."""
        return math.prod(self.shape)

    @functools.cached_property
    def registers(self) -> int:
        """Elements of the region that one thread holds."""
        own = [d.extent for dim in self.dims for d in dim if d.axis == "m"]
        return math.prod(own)

    @functools.cached_property
    def offsets(self) -> tuple[int, ...]:
        """Distance of each of these from :attr:`start`, ascending."""
        offsets = np.zeros(1, int)
        for digit in (d for dim in self.dims for d in dim if d.axis == "m"):
            offsets = np.add.outer(offsets, np.arange(digit.extent) * digit.stride).ravel()
        return tuple(sorted(int(o) for o in offsets))

    def coordinates(self, axes: Mapping[str, Any], register: Any) -> tuple[Any, ...]:
        """Position in the region of the element at distance ``register`` from :attr:`start`."""
        axes = {name: value - self.origin.get(name, 0) for name, value in axes.items()}
        axes["m"] = register
        result = []
        for dim in self.dims:
            position = 0
            for digit in dim:
                position = position * digit.extent + digit.of(axes)
            result.append(position)
        return tuple(result)

    @functools.cached_property
    def table(self) -> np.ndarray:
        """Row-major index of each thread's elements, shape ``(threads, registers)``."""
        position = self.coordinates(self.threads.table(), np.array(self.offsets)[None, :])
        shape = (self.threads.warps * LANES, self.registers)
        return np.ravel_multi_index([np.broadcast_to(p, shape) for p in position], self.shape)

    def is_first_copy(self, axes: Mapping[str, Any]) -> Any:
        """Condition that holds on exactly one thread for each element; None if all are single."""
        axes = {name: value - self.origin.get(name, 0) for name, value in axes.items()}
        zeros = [digit.of(axes) == 0 for digit in self.replica]
        return functools.reduce(tvm.tirx.all, zeros) if zeros else None

    def view(self, dtype: str | None = None) -> Any:
        """The thread's registers as a flat buffer, as words of ``dtype`` if given."""
        total = int(self.buffer.layout.storage().span("m"))
        flat = self.buffer.local(total, layout=TileLayout(S[(total,)]))
        return flat.view(dtype) if dtype else flat


def read_register_tile(
    region: TensorRegion, name: str, threads: Threads, analyzer: Analyzer
) -> RegisterTile:
    """Describe the operand ``name`` of a call, or decline with the reason."""
    buffer = region.source
    if buffer.scope() != "local":
        fail(f"{name} must be in registers (scope 'local'), got scope '{buffer.scope()}'.")
    if not isinstance(buffer.layout, TileLayout):
        fail(f"{name} has no tile layout; allocate it with one of warploom.layout.fragment.")
    extents = [analyzer.simplify(r.extent) for r in region.region]
    if any(not isinstance(e, tvm.tirx.IntImm) for e in extents):
        fail(f"the extents of {name} must be constant, got {extents}; slice it statically.")
    shape = tuple(int(e) for e in extents)
    bounds = [(r.min, r.min + e) for r, e in zip(region.region, extents, strict=True)]
    sliced = buffer.layout.slice(list(buffer.shape), bounds)
    if sliced is None:
        fail(f"{name} is cut through an iterator of its layout; slice it at multiples of 8.")
    try:
        grouped, ends = sliced.group(list(shape))
    except Exception:
        fail(f"the layout of {name} does not split into its extents {shape}; slice it otherwise.")

    def digits(iters) -> tuple[Digit, ...]:
        all_digits = (Digit(int(i.extent), int(i.stride), i.axis.name) for i in iters)
        return tuple(d for d in all_digits if d.extent > 1)

    dims = tuple(digits(grouped.shard[a:b]) for a, b in itertools.pairwise(ends))
    offset = {axis.name: analyzer.simplify(value) for axis, value in grouped.offset.items()}
    start = offset.pop("m", 0)
    if any(not isinstance(value, tvm.tirx.IntImm) for value in offset.values()):
        fail(f"{name} starts at a thread known only at run time; slice it at constant rows.")
    origin = {axis: int(value) for axis, value in offset.items()}
    tile = RegisterTile(buffer, threads, shape, dims, digits(grouped.replica), origin, start)
    _require_whole(tile, name)
    return tile


def _require_whole(tile: RegisterTile, name: str) -> None:
    """Decline unless each element of the tile lies with the threads of the call, none twice."""
    digits = [d for dim in (*tile.dims, tile.replica) for d in dim]
    known = {"m", *tile.threads.table()}
    if foreign := sorted({d.axis for d in digits} - known):
        fail(
            f"{name} is spread over {', '.join(foreign)}, a {tile.threads.scope} call reaches "
            f"{', '.join(sorted(known))}; use the scope that owns the tile."
        )
    count = math.prod(d.extent for d in digits if d.axis != "m")
    if count != tile.threads.warps * LANES:
        fail(
            f"{name} is held by {count} threads, the {tile.threads.scope} call runs on "
            f"{tile.threads.warps * LANES}; slice no rows that other threads hold."
        )
    if any(d.stride <= 0 for d in digits) or not _holds_all(tile):
        fail(f"the layout of {name} does not hold each element once for a set of threads.")


def _holds_all(tile: RegisterTile) -> bool:
    return bool(np.bincount(tile.table.ravel(), minlength=tile.size).all())

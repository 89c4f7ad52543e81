"""Where the tile of a CTA lies in the tensors of a function: axes, regions, copies."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from tvm import tirx
from tvm.ir import TensorRegion
from tvm.ir.expr import TensorLoad
from tvm.script import tirx as T
from tvm.script.ir_builder import IRBuilder
from tvm.script.tirx import tile as Tx
from tvm.tirx import Buffer, Var

from warploom.decide.config import Config
from warploom.decide.problem import ALIGN
from warploom.errors import Decline
from warploom.gemm.equations import simplify
from warploom.gemm.pixels import step_of
from warploom.gemm.problem import Axis, GemmFunction
from warploom.ops.copy_strided import CACHE_HINT, STEPS
from warploom.target.dtypes import bits_of
from warploom.tile import ir
from warploom.tile.choices import POLICIES


class TilePlaces:
    """The tile of a CTA; its methods write statements of the program that is being built.

    Attributes
    ----------
    table : dict
        What variables and buffers of the function are in the program.
    extents : dict from Var to int
        Elements of the tile along the axes that it extends along.
    starts : dict from Var to Expr
        Where it begins along them.
    """

    def __init__(self, gemm: GemmFunction, config: Config, table: Mapping[Var, Any]) -> None:
        self.gemm, self.config, self.table = gemm, config, dict(table)
        self.extents = dict(zip((a.var for a in gemm.row_axes), self._box(), strict=True))
        self.extents[gemm.columns.var] = config.tile_n
        self.extents[gemm.summed[-1].var] = config.tile_k
        self.starts: dict[Var, Any] = {}

    def open_grid(self) -> None:
        """Define the CTAs, and where the tile of each begins."""
        gemm, config = self.gemm, self.config
        counts = [_tiles(axis, self.extents[axis.var]) for axis in gemm.row_axes]
        grid = [functools.reduce(lambda x, y: x * y, counts), _tiles(gemm.columns, config.tile_n)]
        ids = T.cta_id([*grid, *(axis.extent for axis in gemm.batch)])
        for name, var in zip("ij", ids, strict=False):
            IRBuilder.name(name, var)
        self.starts = {gemm.columns.var: ids[1] * config.tile_n}
        rest = ids[0]
        for axis, count in list(zip(gemm.row_axes, counts, strict=True))[:0:-1]:
            self._start(axis, T.truncmod(rest, count))
            rest = T.truncdiv(rest, count)
        self._start(gemm.row_axes[0], rest)
        for axis, var in zip(gemm.batch, ids[2:], strict=True):
            self.table[axis.var] = IRBuilder.name(axis.var.name, var)

    def _box(self) -> tuple[int, ...]:
        """Extents of a tile along the axes of the rows."""
        gemm, config = self.gemm, self.config
        if not gemm.pixels:
            return (config.tile_m,)
        box = config.box(gemm.problem)
        assert box is not None, "the config was checked"
        return box

    def _start(self, axis: Axis, number: Any) -> None:
        """Where the tile of that number along an axis begins."""
        start = number * self.extents[axis.var]
        if self.gemm.pixels:
            scalar = T.alloc_buffer((1,), "int32", scope="local")
            T.buffer_store(IRBuilder.name(f"{axis.var.name}_0", scalar), start, [0])
            start = scalar[0]
        self.starts[axis.var] = start

    def shared(self, load: TensorLoad, number: int, piece: int | None = None) -> Buffer:
        """A tile of a parameter in shared memory, in the order of its dimensions in memory.

        ``piece`` is what of rows it has; see :meth:`piece`.
        """
        extents = [size for var, size in self.dimensions(load) if var is not None]
        if piece is not None:
            extents[-1] = piece
        pixels = {axis.var for axis in self.gemm.pixels}
        own = sum(var in pixels for var, _ in self.dimensions(load) if var is not None)
        if own:  # they come before what the sum is over
            extents[:own] = [self.config.tile_m]
        made = T.alloc_buffer(extents, str(load.source.dtype), scope="shared")
        return IRBuilder.name(f"{load.source.name}_s{number or ''}", made)

    def load(
        self, shared: Buffer | TensorRegion, load: TensorLoad, piece: int | None = None
    ) -> None:
        """A copy of a tile of a parameter, into a tile or a part of one.

        Of pixels, perhaps of every few; of ``piece`` elements of rows, if that is not None.
        """
        found = [
            (var, step_of(index, var)) if var is not None else (None, 1)
            for index, (var, _) in zip(load.indices, self.dimensions(load), strict=True)
        ]
        pixels = {axis.var for axis in self.gemm.pixels}
        options: dict[str, Any] = {}
        if any(var in pixels for var, _ in found if var is not None):
            options["dispatch"] = "tma_auto"  # as TVM compares the extents of other copies
            steps = [step for _, step in found]
            if any(step != 1 for step in steps):
                options[STEPS] = steps
        of_b = any(self.gemm.columns.var.same_as(var) for var, _ in self.dimensions(load))
        policy = POLICIES[self.config.l2_policy][of_b]
        if policy is not None:
            options[CACHE_HINT] = policy
        to = shared if isinstance(shared, TensorRegion) else ir.whole(shared)
        Tx.cta.copy_async(to, self.region(load, piece=piece), **options)

    def can_copy(self, load: TensorLoad) -> bool:
        """Whether TMA can load the tile: whole units of 16 bytes, in memory and in the tile."""
        if not load.indices:
            return False  # a single number
        var, size = self.dimensions(load)[-1]
        width = bits_of(str(load.source.dtype))
        pitch = load.source.shape[-1]
        fits = isinstance(pitch, tirx.IntImm) and int(pitch) * width % (8 * ALIGN) == 0
        return var is not None and fits and size * width % (8 * ALIGN) == 0

    def piece(self, load: TensorLoad) -> int | None:
        """Elements of the 16 bytes of a row, at a multiple of these, in which a tile's part lies.

        TMA loads no less. None if the part is larger, or may be in two of them, or if TMA cannot
        load rows of the parameter at all.
        """
        if not load.indices:
            return None
        (var, size), index = self.dimensions(load)[-1], load.indices[-1]
        pitch, unit = load.source.shape[-1], 8 * ALIGN // bits_of(str(load.source.dtype))
        if var is None or not isinstance(pitch, tirx.IntImm) or int(pitch) % unit:
            return None
        # Tiles begin at multiples of what they have.
        in_order = index.same_as(var) or isinstance(index, tirx.FloorDiv)
        return unit if in_order and unit % size == 0 else None

    def dimensions(self, load: TensorLoad) -> list[tuple[Any, int]]:
        """(variable of the tile or None, extent) of each dimension of a load."""
        found = []
        for index in load.indices:
            mine = [var for var in self.extents if var in ir.uses(index)]
            size = self._extent(index, mine[0]) if len(mine) == 1 else None
            if mine and size is None:
                raise Decline(
                    f"{load.source.name} is read at {index}; a tile needs one axis a dimension, "
                    "with a factor of 1 or divided by a divisor or a multiple of the tile."
                )
            found.append((mine[0], size) if mine else (None, 1))
        return found

    def _extent(self, index: Any, var: Var) -> int | None:
        """How many values of an index a tile has; None if they do not follow each other."""
        size = self.extents[var]
        if _is_shift(index, var) or any(axis.var.same_as(var) for axis in self.gemm.pixels):
            return size
        if isinstance(index, tirx.FloorDiv) and index.a.same_as(var):
            divisor = int(index.b) if isinstance(index.b, tirx.IntImm) else 0
            if divisor and size % divisor == 0:
                return size // divisor
            return 1 if divisor and divisor % size == 0 else None
        return None

    def region(
        self,
        load: TensorLoad,
        more: Mapping[Var, Any] | None = None,
        piece: int | None = None,
    ) -> Any:
        """The region of a parameter that a tile has; ``more`` are values of other variables."""
        parts = []
        for index, (var, size) in zip(load.indices, self.dimensions(load), strict=True):
            own = {} if var is None else {var: self.starts[var]}
            start = self.at(index, {**(more or {}), **own})
            parts.append((start, size) if var is not None else start)
        if piece is not None:
            start, _ = parts[-1]
            parts[-1] = simplify(T.floordiv(start, piece) * piece), piece
        return ir.region(self.table[load.source], *parts)

    def at(self, expression: Any, more: Mapping[Var, Any]) -> Any:
        """An expression of the function in terms of the program."""
        return simplify(ir.substitute(expression, {**self.table, **more}))

    def row_places(self, row: Any) -> dict[Var, Any]:
        """Values of the row axes in a row of the tile."""
        axes, found = self.gemm.row_axes, {}
        for axis in axes[:0:-1]:
            extent = self.extents[axis.var]
            found[axis.var] = self.starts[axis.var] + T.truncmod(row, extent)
            row = T.truncdiv(row, extent)
        found[axes[0].var] = self.starts[axes[0].var] + row
        return found



def _tiles(axis: Axis, size: int) -> Any:
    return simplify(T.truncdiv(axis.extent + (size - 1), size))


def _is_shift(index: Any, var: Var) -> bool:
    return var not in ir.uses(simplify(index - var))

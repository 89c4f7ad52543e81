"""The end of a GEMV: sums of all warps meet in shared memory, and results are stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var

from warploom.decide.config import Config
from warploom.decide.gemv_rules import warps_of
from warploom.gemm.gemv.lanes import Lanes
from warploom.gemm.problem import GemmFunction
from warploom.intrin.coherent import coherent
from warploom.intrin.mma_sync import MMA_N, MMA_SUMS
from warploom.tile import ir
from warploom.tile.scopes import is_global

#: Chains of MMAs of a block of rows, which do not wait for each other.
CHAINS = 2
_WARP = 32


class Place(NamedTuple):
    """Where a thread is: ids, the first row of its CTA, and the number of its tile of columns."""

    thread: Var
    warp: Var
    group: Var
    quad: Var
    row: Var
    tile: Var


@dataclass(frozen=True)
class Results:
    """The results of a CTA.

    Attributes
    ----------
    gemm : GemmFunction
    config : Config
    lanes : Lanes
        Which rows of the weights the lanes have sums of.
    table : mapping
        The kernel's parameters, by those of the function.
    """

    gemm: GemmFunction
    config: Config
    lanes: Lanes
    table: Mapping[Var, Any]

    def statements(self, sums: Buffer, place: Place) -> Iterator[Stmt]:
        """Each thread gives its sums, and then adds and stores those of some elements.

        Parameters
        ----------
        sums : Buffer
            Of a thread: products, blocks of rows, chains, and the registers of an MMA.
        place : Place
        """
        products, width = len(self.gemm.products), self.config.tile_n
        warps = warps_of(self.config)
        shared = tirx.decl_buffer(
            (warps, products, MMA_N, width), "float32", "sums_of_warps", scope="shared"
        )
        yield tirx.AllocBuffer(shared)
        for product in range(products):
            for slot in range(self.lanes.rows):
                block, half = divmod(slot, 2)
                for column in range(2):
                    numbers = [
                        ((product * self.lanes.blocks + block) * CHAINS + chain) * MMA_SUMS
                        + 2 * half + column
                        for chain in range(CHAINS)
                    ]  # fmt: skip
                    total = reduce(lambda x, y: x + y, (sums[number] for number in numbers))
                    at = [place.warp, product, place.quad * 2 + column,
                          self.lanes.row(slot, place.group)]  # fmt: skip
                    yield tirx.BufferStore(shared, total, at)
        yield ir.evaluate(T.cuda.cta_sync())
        for first in range(0, width * MMA_N, warps * _WARP):
            yield from self._element(shared, place, first)

    def _element(self, shared: Buffer, place: Place, first: int) -> Iterator[Stmt]:
        """The element of a thread: its sums, and the results."""
        width, warps = self.config.tile_n, warps_of(self.config)
        number, row, column = (Var(name, "int32") for name in ("element", "row", "column"))
        inside = row < self.gemm.rows.extent
        if first + warps * _WARP > width * MMA_N:
            inside = T.And(number < width * MMA_N, inside)
        yield tirx.Bind(number, place.thread + first)
        yield tirx.Bind(row, place.row + T.truncdiv(number, width))
        yield tirx.Bind(column, T.truncmod(number, width))
        table: dict[Var, Any] = {
            **self.table,
            self.gemm.rows.var: row, self.gemm.columns.var: place.tile * width + column,
        }  # fmt: skip
        statements: list[Stmt] = []
        for index, product in enumerate(self.gemm.products):
            parts = [
                shared[warp, index, T.truncdiv(number, width), column] for warp in range(warps)
            ]
            total = Var("total", "float32")
            statements.append(tirx.Bind(total, _folded(parts)))
            table[product.accumulator] = total
        for output in self.gemm.outputs:
            indices = [ir.substitute(one, table) for one in output.indices]
            value = ir.map_nodes(output.value, {TensorLoad: _coherent}, table)
            statements.append(tirx.BufferStore(table[output.buffer], value, indices))
        yield ir.when(inside, statements)


def _coherent(load: TensorLoad) -> Any:
    """A load of what the epilogue adds, behind the wait."""
    if not (ir.is_buffer(load.source) and is_global(load.source)):
        return load
    return coherent(ir.address(load.source, *load.indices), str(load.source.dtype))


def _folded(values: list[Any]) -> Any:
    """The sum in a tree, so that no chain is long."""
    while len(values) > 1:
        pairs = [x + y for x, y in zip(values[::2], values[1::2], strict=False)]
        values = [*pairs, *values[2 * len(pairs) :]]
    return values[0]

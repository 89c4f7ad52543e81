"""What a tile stores and reads of its size: stores, nests that store, epilogue inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable

import tvm_ffi
from tvm.ir import TensorLoad
from tvm.tirx import Buffer

from warploom.decide.price.chunks import alignment, store_lines
from warploom.decide.price.matrices import Part
from warploom.decide.price.visits import Visit, Visits, as_rows
from warploom.decide.price.work import CHUNK_COLUMNS, LINE_BYTES, TileOut
from warploom.lower.analysis.transposed import transposed_tiles
from warploom.tile import ir
from warploom.tile import statement as views
from warploom.tile.scopes import TILE_SCOPES, is_global, is_shared


def results(
    visits: Visits, executed: Iterable[Visit], step: list[Visit], late: list[Part]
) -> tuple[TileOut, ...]:
    """The stores of a tile, then what it reads of its size.

    Parameters
    ----------
    visits : Visits
        All of the program.
    executed : iterable of Visit
        Its statements.
    step : list of Visit
        Those of steps, whose reads are no epilogue inputs.
    late : list of Part
        Regions that are loaded after the last step.
    """
    return _Results(visits).of(list(executed), step, late)


class _Results:
    def __init__(self, visits: Visits) -> None:
        self.visits = visits
        self.turned = set(transposed_tiles(visits.program.block))
        self.turned |= _turned_in_shared(visits)
        self.chunk = visits.program.hints.store_columns or CHUNK_COLUMNS

    def of(self, executed: list[Visit], step: list[Visit], late: list[Part]) -> tuple[TileOut, ...]:
        stored: list[TileOut] = []
        inputs: dict[tuple, TileOut] = {}
        for visit in executed:
            statement = visit.statement
            if isinstance(statement, views.Copy) and is_global(statement.to.source):
                source = statement.source
                extents = [int(extent) for _, extent in ir.ranges(source)]
                scattered = isinstance(statement, views.Scatter)
                to = as_rows(statement) if scattered else statement.to
                part = Part.of(to, self.visits)
                stored.append(self._stored(part, extents, source.source, visit.times))
            elif isinstance(statement, views.Nest):
                stored += self._stores_of(visit)
                if visit not in step:
                    inputs |= self._inputs_of(visit)
        for number, part in enumerate(late):
            rows, columns = part.elements(part.outer), part.extents[-1]
            inputs[number,] = self._tile(part, rows, columns, False)._replace(stored=False)
        return (*stored, *inputs.values())

    def _stored(self, part: Part, extents: list[int], tile: Buffer | None, times: float) -> TileOut:
        rows, columns = (*[e for e in extents if e > 1], 1, 1)[:2]
        turned = tile is not None and tile in self.turned
        made = self._tile(part, rows, columns, turned)._replace(whole=turned and is_shared(tile))
        # Several stores of a tile store parts of the matrix.
        most = math.prod(self.visits.grid()) * rows * columns
        return made._replace(times=times, elements=min(made.elements, most))

    def _tile(self, part: Part, rows: int, columns: int, turned: bool) -> TileOut:
        lines = store_lines(columns, part.size, self.chunk, part.pitch)
        down, across = (columns, rows) if turned else (rows, columns)
        elements = min(part.bytes_of(part.moving) / part.size, math.prod(part.shape))
        return TileOut(
            down, across, part.size, turned, self.chunk, lines, alignment(part.pitch),
            elements,
        )  # fmt: skip

    def _stores_of(self, visit: Visit) -> list[TileOut]:
        """Stores of a nest to global memory."""
        nest, found = visit.statement, []
        loops = self._loops(visit)
        for store in nest.stores:
            if is_global(store.buffer):
                part = Part.of_elements(store.buffer, store.indices, loops, self.visits)
                tile = next((tile for tile in _tiles_read(store.value)), None)
                found.append(self._stored(part, list(loops.values()), tile, visit.times))
        return found

    def _inputs_of(self, visit: Visit) -> dict[tuple, TileOut]:
        """What a nest reads of memory for each element of a tile, by dtype."""
        loops, found = self._loops(visit), {}
        stored = next((store.buffer for store in visit.statement.stores), None)
        nodes: list[TensorLoad] = []
        tvm_ffi.structural_walk(visit.statement.raw, (TensorLoad, nodes.append))
        for node in nodes:
            used = {var for index in node.indices if not isinstance(index, int)
                    for var in ir.uses(index)} & loops.keys()  # fmt: skip
            if not is_global(node.source) or len(used) < 2:
                continue
            part = Part.of_elements(node.source, node.indices, loops, self.visits)
            rows, columns = (*loops.values(), 1)[:2]
            made = self._tile(part, rows, columns, stored in self.turned)
            found[str(node.source.dtype),] = made._replace(
                lines=1.0, aligned=LINE_BYTES, stored=False
            )
        return found

    def _loops(self, visit: Visit) -> dict:
        values = self.visits.values
        return {loop.loop_var: values.number(loop.extent) or 1 for loop in visit.statement.loops}


def _tiles_read(value: object) -> list[Buffer]:
    """Tiles that an expression reads."""
    nodes: list[TensorLoad] = []
    if isinstance(value, tvm_ffi.Object):
        tvm_ffi.structural_walk(value, (TensorLoad, nodes.append))
    return [node.source for node in nodes if not is_global(node.source)]


def _turned_in_shared(visits: Visits) -> set[Buffer]:
    """Shared tiles that nests fill with the transpose of a tile in registers."""
    found = set()
    for statement in views.walk(visits.program.block):
        if not isinstance(statement, views.Nest):
            continue
        for store in statement.stores:
            if not is_shared(store.buffer) or len(store.indices) != 2:
                continue
            nodes: list[TensorLoad] = []
            if isinstance(store.value, tvm_ffi.Object):
                tvm_ffi.structural_walk(store.value, (TensorLoad, nodes.append))
            if any(
                node.source.scope() in TILE_SCOPES and len(node.indices) == 2
                and node.indices[0].same_as(store.indices[1])
                for node in nodes
            ):  # fmt: skip
                found.add(store.buffer)
    return found

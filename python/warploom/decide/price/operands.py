"""The loads of a step: which operand each is for, and what lies around it in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator

import tvm_ffi
from tvm.ir import TensorLoad, TensorRegion
from tvm.tirx import Buffer

from warploom.decide.price.matrices import Part, shared_by
from warploom.decide.price.visits import Visit, Visits, copied, loaded
from warploom.decide.price.work import (
    Load,
    cut_rows,
    lines_of_packed,
    lines_of_taps,
    lines_touched,
)
from warploom.ops.copy_strided import CACHE_HINT
from warploom.tile import ir
from warploom.tile import statement as views
from warploom.tile.scopes import is_global, is_shared
from warploom.tile.statement import Loop


def plain_load(
    part: Part, visits: Visits, cluster: tuple[int, int], steps: float, times: float,
    tma: bool = True,
) -> Load:  # fmt: skip
    """A load of no operand of an MMA: its rows are those that it has in memory."""
    return _load(part, part.outer, visits, cluster, steps, times, tma)


def _load(
    part: Part, rows: tuple[int, ...], visits: Visits, cluster: tuple[int, int], steps: float,
    times: float, tma: bool = True,
) -> Load:  # fmt: skip
    """A load whose rows are some dimensions of the region."""
    bytes_ = math.prod(part.extents) * part.size
    height = part.elements(rows)
    loops = part.moving - set(visits.ids)
    along = part.along(visits.ids)
    # CTAs load parts of the first dimension, with all of the others: of pixels whole rows.
    first, *others = part.outer or (len(part.extents) - 1,)
    count = math.prod(ctas for moves, ctas in zip(along, cluster, strict=True) if not moves)
    atoms = part.elements((first, *others)) if part.extents[first] % count == 0 else 1
    return Load(
        height,
        bytes_ / height,
        part.reach(rows),
        along,
        shared_by(along, cluster, atoms),
        lines_touched(part.extents[-1] * part.size, part.pitch),
        min(part.bytes_of(loops), steps * times * bytes_),
        part.bytes_of(part.moving),
        tma,
        times,
    )


class StepLoads:
    """What a step loads.

    Parameters
    ----------
    visits : Visits
        All of the program.
    step : list of Visit
        Statements of steps.
    mmas : list of Visit
        MMAs of the program.
    loops : list of Loop
        The loops whose iterations are steps.
    steps : float
        Iterations of these, all together.
    cluster : (int, int)
        CTAs that can load for each other.

    Attributes
    ----------
    dequantising : list of Visit
        Nests that compute an operand of what the step has loaded.
    """

    def __init__(
        self, visits: Visits, step: list[Visit], mmas: list[Visit], loops: list[Loop],
        steps: float, cluster: tuple[int, int],
    ) -> None:  # fmt: skip
        self.visits, self.step, self.steps, self.cluster = visits, step, steps, cluster
        self.loops = frozenset(loop.var for loop in loops)
        #: Operand -> whether K is its last dimension, and the operands that it multiplies.
        self.operands: dict[Buffer, tuple[bool, set[Buffer]]] = {}
        self.sides: dict[Buffer, int] = {}
        for mma in (visit.statement for visit in mmas):
            pair = [region.source for region in mma.operands]
            for side, (tile, other) in enumerate(zip(pair, pair[::-1], strict=True)):
                _, others = self.operands.setdefault(tile, (not mma.transposed[side], set()))
                others.add(other)
                self.sides[tile] = side
        #: Operands of which steps add to what earlier ones have computed.
        self.summed = {
            region.source
            for visit in mmas if visit.statement.accumulates is not False
            for region in visit.statement.operands
        }  # fmt: skip
        #: Tile -> a region of memory that it is loaded from, and the L2 eviction policy.
        self.loaded: dict[Buffer, TensorRegion] = {}
        self.policies: dict[Buffer, str] = {}
        for visit in step:
            if (regions := loaded(visit.statement)) is not None:
                self.loaded[regions[0].source] = regions[1]
                self.policies[regions[0].source] = policy_of(visit)
        self.dequantising = [visit for visit in step if self._dequantises(visit)]

    def merged(self) -> tuple[Load, ...]:
        """All loads; those of operands that multiply the same operand are one."""
        sources = {tile for visit in self.dequantising for tile in _read(visit)}
        found: dict[tuple, tuple[Load, set[Buffer]]] = {}
        for visit in self.step:
            statement, times = visit.statement, visit.times / self.steps
            if (regions := loaded(statement)) is not None:
                to, source = regions
                if to.source not in sources:
                    key, load = self._of_tile(to.source, source, visit, times)
                    _add(found, key, load, {source.source})
            elif (source := copied(statement)) is not None:
                part = Part.of(source, self.visits)
                load = plain_load(part, self.visits, (1, 1), self.steps, times, tma=False)
                _add(found, (id(visit),), load, {source.source})
        for visit in self.dequantising:
            _add(found, *self._dequantised(visit))
        loads = [load for load, _ in found.values()]
        return tuple(sorted(loads, key=lambda load: not load.along[0]))

    def _of_tile(
        self, tile: Buffer, source: TensorRegion, visit: Visit, times: float
    ) -> tuple[tuple, Load]:
        """A load into a shared tile."""
        part = Part.of(source, self.visits)
        if tile not in self.operands:
            load = plain_load(part, self.visits, self.cluster, self.steps, times)
            return (id(visit),), load._replace(policy=policy_of(visit))
        rows = self._rows(tile, part)
        load = _load(part, rows, self.visits, self.cluster, self.steps, times)
        by_tma = not isinstance(visit.statement, views.Gather)
        load = self._at_taps(load, tile, part)._replace(policy=policy_of(visit), tma=by_tma)
        if load.of_taps or part.moves[-1] & self.loops:
            row, step = part.shape[-1] * part.size, part.extents[-1] * part.size
            load = load._replace(cut=cut_rows(row, step))
        return self._key(tile, load), load

    def _at_taps(self, load: Load, tile: Buffer, part: Part) -> Load:
        """A load, as one of taps if a sum over steps moves it along more than channels."""
        k_last, _ = self.operands[tile]
        taps = any(moves & self.loops for moves in part.moves[:-1])
        if not (k_last and taps and tile in self.summed):
            return load
        return load._replace(lines=lines_of_taps(part.pitch), of_taps=True)

    def _rows(self, tile: Buffer, part: Part) -> tuple[int, ...]:
        """The dimensions of a matrix along which an operand has M or N."""
        k_last, _ = self.operands[tile]
        return part.outer if k_last else (len(part.extents) - 1,)

    def _key(self, tile: Buffer, load: Load) -> tuple:
        _, others = self.operands[tile]
        alike = load._replace(rows=0, extent=0, tile_bytes=0.0, total=0.0)
        return self.sides[tile], frozenset(others), alike

    def _dequantises(self, visit: Visit) -> bool:
        """Whether a nest computes an operand of what lies in memory."""
        if not isinstance(visit.statement, views.Nest):
            return False
        stored = {store.buffer for store in visit.statement.stores}
        made = any(tile in self.operands and not is_shared(tile) for tile in stored)
        return made and any(tile in self.loaded or is_global(tile) for tile in _read(visit))

    def _dequantised(self, visit: Visit) -> tuple[tuple, Load, set[Buffer]]:
        """The load of an operand that a nest computes: of all that it reads, together."""
        store = visit.statement.stores[0]
        tile, times = store.buffer, visit.times / self.steps
        rows, depth = (int(extent) for extent in tile.shape)
        sources = self._sources(visit)
        parts = list(sources.values())
        deep = self._sum_of(tile, depth)
        row_bytes = widest = 0.0  # of one element along K, with its scale and without
        for part in parts:
            along = [d for d, moves in enumerate(part.moves) if moves & self.loops]
            of_part = part.size * part.shape[along[-1]] / deep if along else 0.0
            row_bytes += of_part
            widest = max(widest, of_part)
        first = parts[0]
        ids = set(self.visits.ids)
        extent = next(
            (size for size, part, moves in zip(first.shape, first.extents, first.moves, strict=True)
             if part > 1 and moves & ids), rows,
        )  # fmt: skip
        along = first.along(self.visits.ids)
        load = Load(
            rows, depth * row_bytes, extent, along, shared_by(along, self.cluster, rows),
            lines_of_packed(depth * widest, deep * widest), rows * (deep * row_bytes),
            sum(part.bytes_of(part.moving) for part in parts), True, times,
            next((self.policies[tile] for tile in _read(visit) if tile in self.policies), ""),
            # What has no row of its own for each, such as scales along rows, is a few lines.
            pieces=max(1, sum(bool(part.moves[-1] & self.loops) for part in parts)),
        )  # fmt: skip
        return self._key(tile, load), load, set(sources)

    def _sources(self, visit: Visit) -> dict[Buffer, Part]:
        """What a nest reads of memory: through the tiles that are loaded, or itself."""
        loops = {
            loop.loop_var: self.visits.values.number(loop.extent) or 1
            for loop in visit.statement.loops
        }
        found: dict[Buffer, Part] = {}
        for node in _element_loads(visit):
            source = node.source
            if source in self.loaded:
                region = self.loaded[source]
                found[region.source] = Part.of(region, self.visits)
            elif is_global(source):
                found[source] = Part.of_elements(source, node.indices, loops, self.visits)
        return found

    def _sum_of(self, tile: Buffer, depth: int) -> float:
        """Elements along K that an operand has in all steps: as many as what it multiplies."""
        for other in self.operands[tile][1]:
            if other in self.loaded:
                part = Part.of(self.loaded[other], self.visits)
                rows = self._rows(other, part)
                return part.reach([d for d in range(len(part.shape))
                                   if d not in rows and part.moves[d] & self.loops])  # fmt: skip
        return depth * self.steps


def policy_of(visit: Visit) -> str:
    """The L2 eviction policy of a load; empty for none."""
    return str(visit.statement.raw.config.get(CACHE_HINT, ""))


def _element_loads(visit: Visit) -> Iterator[TensorLoad]:
    """Elements that a nest reads."""
    found: list[TensorLoad] = []
    tvm_ffi.structural_walk(visit.statement.raw, (TensorLoad, found.append))
    return iter(found)


def _read(visit: Visit) -> set[Buffer]:
    return {node.source for node in _element_loads(visit) if ir.is_buffer(node.source)}


def _add(
    found: dict[tuple, tuple[Load, set[Buffer]]], key: tuple, load: Load, sources: set[Buffer]
) -> None:
    """One more load, or more rows of one that there is, perhaps of the same matrix."""
    if key in found:
        before, others = found[key]
        more = (0, 0.0) if sources <= others else (load.extent, load.total)
        load = load._replace(
            rows=before.rows + load.rows, extent=before.extent + more[0],
            tile_bytes=before.tile_bytes + load.tile_bytes, total=before.total + more[1],
        )  # fmt: skip
        sources = sources | others
    found[key] = load, sources

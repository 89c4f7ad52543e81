"""The work of a tile program, as its statements say: milliseconds a program.

A program is read as its author wrote it, with the choices of the passes where it says nothing. What
symbols stand for, the caller says; what memory decides is taken to happen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from tvm.ir import TensorRegion
from tvm.tirx import Buffer, PrimFunc

from warploom.decide.price import instructions
from warploom.decide.price.finish import finish_of
from warploom.decide.price.matrices import Part
from warploom.decide.price.operands import StepLoads, plain_load, policy_of
from warploom.decide.price.results import results
from warploom.decide.price.visits import Visit, Visits, copied, loaded
from warploom.decide.price.waits import rounds_of, waits_of
from warploom.decide.price.work import Load, Mma, Nest, Work
from warploom.errors import Decline
from warploom.lower.analysis.consumers import computing_warpgroups
from warploom.lower.analysis.own_barriers import own_barriers
from warploom.lower.analysis.room_for_stages import stages_by_room
from warploom.lower.grid.persistent import DEFAULT_GROUP
from warploom.lower.passes.canonicalize import canonicalize
from warploom.lower.passes.dequantise_scaled import dequantise_scaled
from warploom.lower.passes.squeeze_vectors import squeeze_vectors
from warploom.target import SM90A, wgmma_kind
from warploom.target.dtypes import bits_of
from warploom.tile import ir
from warploom.tile import statement as views
from warploom.tile.annotations import SIZES
from warploom.tile.program import TileProgram
from warploom.tile.read import read as take_apart
from warploom.tile.scopes import is_shared
from warploom.tile.statement import Loop


def read(func: PrimFunc, arch: str = SM90A.name, sizes: Mapping[str, int] | None = None) -> Work:
    """The work of a tile program.

    Parameters
    ----------
    func : PrimFunc
        The program.
    arch : str
        The architecture that it is compiled for.
    sizes : mapping of str to int, optional
        Values of symbolic sizes, by name; others count as ``UNKNOWN_EXTENT``.

    Raises
    ------
    Decline
        If the author orchestrates the threads, if memory decides how many tiles are computed, or
        if there are no constants of the architecture. The message names the statement.
    """
    if arch != SM90A.name:
        raise Decline(
            f"There are no measured constants of {arch}; the model prices programs for "
            f"{SM90A.name}."
        )
    program = take_apart(func, arch)
    if program.by_hand:
        raise Decline(
            f"The kernel {_name(func)} defines ids of threads, so its statements are those of a "
            "thread; the model prices what a CTA executes as a whole. Leave out the ids, or "
            "measure the kernel."
        )
    if program.passes:
        raise Decline(
            f"Passes have begun to lower {_name(func)}; the model prices programs as their authors "
            "write them."
        )
    known = {str(k): int(v) for k, v in dict((func.attrs or {}).get(SIZES, {})).items()}
    plain = squeeze_vectors(canonicalize(dequantise_scaled(program)))
    return _Reader(plain, {**known, **(sizes or {})}).work()


def _name(func: PrimFunc) -> str:
    return str((func.attrs or {}).get("global_symbol", "") or "of the program")


class _Reader:
    """Reads one program."""

    def __init__(self, program: TileProgram, sizes: Mapping[str, int]) -> None:
        self.program = program
        self.visits = Visits.of(program, sizes)
        every = (self.visits.found.get(id(one)) for one in views.walk(program.block))
        executed = [visit for visit in every if visit is not None and visit.times]
        loops = _step_loops(executed)
        self.loops: list[Loop] = list(loops.values())
        self.steps = sum(self.visits.iterations[key] for key in loops) or 1.0
        self.apart = 0.0  # steps beside their loop
        if not loops:  # a single step, whose nests are those of the epilogue
            self.step = list(filter(_is_of_steps, executed))
            self.before, self.after = [], [v for v in executed if not _is_of_steps(v)]
            return
        first = next(i for i, visit in enumerate(executed) if id(visit.loop) in loops)
        self.step = [visit for visit in executed if id(visit.loop) in loops]
        self.before = executed[:first]
        self.after = [visit for visit in executed[first:] if id(visit.loop) not in loops]
        self._take_steps_apart()

    def _take_steps_apart(self) -> None:
        """Count the steps beside their loop: they load tiles that its steps load, too."""
        tiles = {tile for visit in self.step if (tile := _loaded_tile(visit)) is not None}
        first, last = (
            [i for i, visit in enumerate(visits) if _loaded_tile(visit) in tiles]
            for visits in (self.before, self.after)
        )
        if not first and not last:
            return
        begin = first[0] if first else len(self.before)
        end = 1 + max((i for i, v in enumerate(self.after) if last and _is_of_steps(v)), default=-1)
        apart = [*self.before[begin:], *self.after[:end]]
        times: dict[Buffer, float] = {}
        for visit in apart:
            if (tile := _loaded_tile(visit)) is not None:
                times[tile] = times.get(tile, 0.0) + visit.times
        self.apart = max(times.values())
        self.steps += self.apart
        self.step = [*self.before[begin:], *self.step, *self.after[:end]]
        self.before, self.after = self.before[:begin], self.after[end:]

    def work(self) -> Work:
        """All that there is to price."""
        hints, grid = self.program.hints, (*self.visits.grid(), 1)
        shares = bool(hints.stream_k or (hints.split_k or 1) > 1)
        in_cluster = hints.reduce_through == "cluster" and shares
        # A persistent CTA would initialise mbarriers of the author anew for each tile.
        persistent = hints.persistent is not False and not own_barriers(self.program)
        specialise = hints.specialise is not False
        cluster = (1, 1) if in_cluster or not persistent else hints.cluster or (1, 1)
        cluster = (cluster[0], cluster[1] if len(self.visits.ids) > 1 else 1)
        rasters = {"rows": 1, "columns": grid[0]}
        mmas = [visit for visit in (*self.before, *self.step, *self.after) if _is_mma(visit)]
        loads = StepLoads(self.visits, self.step, mmas, self.loops, self.steps,
                          cluster if specialise else (1, 1))  # fmt: skip
        prologue, late = self._around()
        whole = self.steps == int(self.steps)
        return Work(
            (grid[0], grid[1]),
            math.prod(grid[2:]),
            int(self.steps) if whole else self.steps,
            loads.merged(),
            self._mmas(mmas),
            results(self.visits, (*self.step, *self.before, *self.after), self.step, late),
            nest=self._nest(loads.dequantising),
            dequantised=float(sum(
                math.prod(int(loop.extent) for loop in visit.statement.loops) * visit.times
                for visit in loads.dequantising
            ) / self.steps),
            prologue=prologue,
            finish=finish_of(self.visits, self.after),
            sum_bytes=_sum_bytes(mmas),
            stages=self._stages(persistent),
            consumers=computing_warpgroups(self.program),
            slice_k=hints.slice_k or 1,
            specialise=specialise,
            ping_pong=bool(hints.ping_pong),
            persistent=persistent,
            cluster=cluster,
            ctas=hints.ctas,
            ctas_per_sm=hints.ctas_per_sm or 1,
            group=rasters.get(hints.raster, hints.group or DEFAULT_GROUP),
            split_k=hints.split_k or 1,
            in_cluster=in_cluster,
            stream_k=bool(hints.stream_k),
            order_mmas=bool(hints.order_mmas),
            pdl=hints.pdl is not False,
            prefetch_l2=bool(hints.prefetch_l2),
            waits=waits_of(self.step, loads.dequantising, self.steps),
            rounds=rounds_of(self.step),
            lengths=self._lengths(grid[1]),
        )  # fmt: skip

    def _lengths(self, count: int) -> tuple[float, ...]:
        """Steps of tiles along the second dimension, if tiles differ along that one alone."""
        places = self.visits.places
        moving = [d for d in range(len(self.visits.ids)) if len({at[d] for at, _ in places}) > 1]
        if moving != [1]:
            return ()
        keys = [id(loop) for loop in self.loops]
        steps = [self.apart + sum(own.get(key, 0.0) for key in keys) for _, own in places]
        if min(steps) == max(steps):
            return ()
        return tuple(map(float, np.interp(range(count), [at[1] for at, _ in places], steps)))

    def _mmas(self, visits: list[Visit]) -> tuple[Mma, ...]:
        """MMAs of a step, equal ones together."""
        found: dict[Mma, float] = {}
        for visit in visits:
            mma = visit.statement
            a, b = mma.operands
            rows, columns = (int(extent) for _, extent in ir.ranges(mma.raw.args[0])[-2:])
            deep = ir.ranges(b)[-2 if mma.transposed[1] else -1][1]
            dtypes = str(a.source.dtype), str(b.source.dtype), str(mma.d.dtype)
            kind = wgmma_kind(*dtypes, sparse=mma.metadata is not None)
            made = Mma(kind, rows, columns, int(deep), not is_shared(a.source))
            found[made] = found.get(made, 0.0) + visit.times / self.steps
        return tuple(mma._replace(times=times) for mma, times in found.items())

    def _nest(self, dequantising: list[Visit]) -> Nest:
        """What computing warpgroups do in a step beside multiplying."""
        nests = []
        for visit in self.step:
            statement, times = visit.statement, visit.times / self.steps
            if isinstance(statement, views.Nest) and visit not in dequantising:
                extents = {
                    loop.loop_var: float(self.visits.values.number(loop.extent) or 1)
                    for loop in statement.loops
                }
                nests.append((instructions.of_nest(statement, extents), times))
            elif isinstance(statement, views.Reduction):
                tile = statement.raw.args[1]
                elements = math.prod(float(int(extent)) for _, extent in ir.ranges(tile))
                nests.append((instructions.of_reduction(statement.raw, elements), times))
        return instructions.together(nests)

    def _around(self) -> tuple[tuple[Load, ...], list[Part]]:
        """Loads before the first step, and regions that are loaded after it."""
        prologue, late = [], []
        for visits, is_late in ((self.before, False), (self.after, True)):
            for visit in visits:
                regions = loaded(visit.statement)
                source = copied(visit.statement) if regions is None else regions[1]
                if source is None:
                    continue
                part = Part.of(source, self.visits)
                if is_late:
                    late.append(part)
                    continue
                tma = regions is not None
                load = plain_load(part, self.visits, (1, 1), 1.0, visit.times, tma)
                prologue.append(load._replace(policy=policy_of(visit) if tma else ""))
        return tuple(prologue), late

    def _stages(self, persistent: bool) -> int:
        """Stages of the loops that load; one where nothing runs ahead."""
        for loop in self.loops:
            if loop.pipelined and any(v.loop is loop and _is_load(v) for v in self.step):
                said = loop.stages or self.program.hints.stages
                return said or stages_by_room(self.program, persistent)[0]
        own = [regions[0] for visit in self.step if (regions := loaded(visit.statement))]
        return max((_own_stages(to) for to in own), default=1)


def _own_stages(to: TensorRegion) -> int:
    """Stages of a tile that the author loads himself, one part of it at a time."""
    leading = list(zip(to.source.shape, ir.ranges(to), strict=True))[:-2]
    return math.prod(int(size) for size, (_, extent) in leading if ir.is_constant(extent, 1))


def _step_loops(executed: list[Visit]) -> dict[int, Loop]:
    """The loops whose iterations are steps, by the ids of their views.

    Those that multiply, or load what they use; if there are none, those that load.
    """
    using = {
        id(visit.loop) for visit in executed
        if isinstance(visit.statement, (views.Nest, views.Reduction, views.Copy))
    }  # fmt: skip
    found = {
        id(visit.loop): visit.loop
        for visit in executed
        if visit.loop is not None and _is_of_steps(visit)
    }
    steps = {id(visit.loop) for visit in executed if _is_mma(visit)} | using
    return {key: loop for key, loop in found.items() if key in steps} or found


def _is_of_steps(visit: Visit) -> bool:
    return _is_mma(visit) or _is_load(visit)


def _loaded_tile(visit: Visit) -> Buffer | None:
    """The tile that a statement loads."""
    regions = loaded(visit.statement)
    return None if regions is None else regions[0].source


def _is_load(visit: Visit) -> bool:
    return loaded(visit.statement) is not None


def _is_mma(visit: Visit) -> bool:
    return isinstance(visit.statement, views.Mma)


def _sum_bytes(mmas: list[Visit]) -> float:
    """Bytes of all accumulators."""
    tiles = {visit.statement.d for visit in mmas}
    return sum(
        math.prod(int(extent) for extent in tile.shape) * bits_of(str(tile.dtype)) / 8
        for tile in tiles
    )

"""The grid of a kernel, as hints have it: persistent, a CTA for each tile, or shared tiles."""

from __future__ import annotations

import math

from warploom.errors import Decline
from warploom.lower.analysis.budget import ctas_per_sm
from warploom.lower.analysis.own_barriers import own_barriers
from warploom.lower.grid.join_dimensions import join_dimensions
from warploom.lower.grid.persistent import (
    DEFAULT_GROUP,
    cluster_shape,
    dynamic_schedule,
    persistent_grid,
    snake_schedule,
)
from warploom.lower.grid.resident import Resident
from warploom.lower.grid.split_tiles import split_tiles
from warploom.target import ARCHS, SM100A
from warploom.target.gpus import most_resident
from warploom.tile.program import TileProgram


def choose_grid(program: TileProgram) -> TileProgram:
    """Make the grid persistent, unless a hint or an mbarrier of the author forbids it.

    Raises
    ------
    Decline
        If hints contradict each other, the architecture or the program.
    """
    hints = program.hints
    shared = bool(hints.stream_k or (hints.split_k or 1) > 1)
    own = own_barriers(program)
    if own and hints.persistent:
        raise Decline(
            f"A persistent CTA would initialise the mbarrier {own[0].name} anew for each tile, "
            "while phases go on; leave the hint out."
        )
    several = program.threads is not None and hints.persistent is None
    if own or several or hints.persistent is False:
        why = "as the program initialises mbarriers" if own else "as the hint says"
        why = "as an SM holds several" if several and not own else why
        return _one_for_each_tile(program, why, shared)
    cluster = hints.cluster or (1, 1)
    group = {"rows": 1, "columns": None}.get(hints.raster, hints.group or DEFAULT_GROUP)
    if hints.scheduler == "clc":
        return _handed_out(program, group, cluster, shared)
    size = math.prod(cluster_shape(program, cluster))
    size *= hints.split_k if hints.reduce_through == "cluster" else 1
    arch, per_sm = ARCHS[program.arch], ctas_per_sm(program)
    ctas = hints.ctas or Resident(arch, size, per_sm)
    if not shared:
        if hints.scheduler == "counter":
            return _drawn(program, ctas, group, cluster, size)
        if hints.scheduler != "snake":
            return persistent_grid(program, ctas, group, cluster)
        program = persistent_grid(program, ctas, group, cluster, snake_schedule)
        return program.decided("every other round of tiles goes backwards")
    if hints.scheduler in ("snake", "counter"):
        raise Decline(
            f"scheduler={hints.scheduler!r} gives out whole tiles; leave it out, or split_k and "
            "stream_k."
        )
    most = most_resident(arch, size, per_sm)
    if isinstance(ctas, int) and ctas > most:
        raise Decline(
            f"{ctas} CTAs that share tiles wait for each other, and no GPU holds more than {most} "
            "at a time; ask for fewer, or leave out split_k and stream_k."
        )
    return split_tiles(program, ctas, group, cluster)


def _one_for_each_tile(program: TileProgram, why: str, shared: bool) -> TileProgram:
    """The program as it is; hints that only a persistent grid can follow are noted."""
    if shared:
        raise Decline(
            "CTAs that share tiles wait for each other, so all must be on the GPU at a time, "
            f"and the grid has a CTA for each tile, {why}; leave out split_k and stream_k."
        )
    program = join_dimensions(program).decided(f"grid: a CTA for each tile, {why}")
    for name in ("cluster", "scheduler", "raster", "group", "ctas"):
        if getattr(program.hints, name) not in (None, (1, 1)):
            program = program.not_followed(
                name, f"the grid has a CTA for each tile, {why}; leave out one of them"
            )
    return program


def _drawn(
    program: TileProgram, ctas: int | Resident, group: int | None, cluster: tuple[int, int],
    size: int,
) -> TileProgram:  # fmt: skip
    """A persistent grid whose CTAs draw tiles from a counter as the kernel runs."""
    if size > 1:
        raise Decline(
            f"scheduler='counter': each CTA draws tiles of its own, and clusters have {size} "
            "CTAs; leave out the hint, or cluster."
        )
    return persistent_grid(program, ctas, group, cluster, dynamic_schedule)


def _handed_out(
    program: TileProgram, group: int | None, cluster: tuple[int, int], shared: bool
) -> TileProgram:
    """A grid whose tiles cluster launch control hands out as the kernel runs."""
    if program.arch != SM100A.name:
        raise Decline(
            f"scheduler='clc': {program.arch} has no cluster launch control; leave the hint "
            f"out, or compile for {SM100A.name}."
        )
    if not program.has_mmas:
        raise Decline(
            "scheduler='clc': a warp asks for tiles beside the warp that multiplies, and the "
            "program has no MMA; leave the hint out."
        )
    if shared:
        raise Decline(
            "scheduler='clc' hands out whole tiles; leave it out, or split_k and stream_k."
        )
    if program.hints.ctas is not None:
        program = program.not_followed(
            "ctas", "with scheduler='clc' the grid has a CTA for each tile; leave out either"
        )
    return persistent_grid(program, None, group, cluster)

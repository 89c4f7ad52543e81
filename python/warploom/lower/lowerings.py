"""From a tile program to an orchestrated kernel: the passes of each lowering, in order.

The first passes keep the sequential meaning of the program; from the roles on, barriers carry it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import tvm
from tvm.tirx import PrimFunc

from warploom.errors import Decline, WarploomError
from warploom.lower import tvm_passes as transform
from warploom.lower.analysis.choose_threads import is_free
from warploom.lower.any_rows import for_any_rows
from warploom.lower.capture_scalars import capture_scalars
from warploom.lower.grid.skip_empty import skip_empty
from warploom.lower.options import added_passes
from warploom.lower.several_kernels import (
    has_several_kernels,
    host_statements,
    lower_each,
)
from warploom.lower.smaller_choices import smaller_choice, with_choice
from warploom.lower.tvm_passes import CheckProgram, Factory
from warploom.lower.warn_of_lowering import warn_of_lowering
from warploom.messages.blame import with_place, without_place
from warploom.target import SM90A, SM100A
from warploom.tile.program import TileProgram
from warploom.tile.read import read
from warploom.tile.state import read_state
from warploom.tile.statement import Mma, walk

_BEFORE_GRID: tuple[Factory, ...] = (
    transform.DequantiseScaled, transform.Canonicalize, transform.CheckBarriers,
)  # fmt: skip
_HOPPER_OPERANDS: tuple[Factory, ...] = (
    transform.MetadataRows, transform.KMajorOperands, transform.AlternateOperands,
)  # fmt: skip
_BEFORE_ROLES: tuple[Factory, ...] = (
    transform.InferLayouts, transform.ResolveScopes, transform.ReduceSplits, transform.StageStores,
    transform.PlanPipeline,
)  # fmt: skip
_LAST: tuple[Factory, ...] = (
    transform.LowerNests, transform.AllocateShared, transform.StripAnnotations, transform.Verify,
)  # fmt: skip
SPREAD = "tiles spread over threads"
WARP_SPECIALISED, MULTISTAGE = "warp specialisation", "multistage"
TENSOR_MEMORY, BY_HAND = "tensor memory", "orchestrated by hand"
#: By MMAs with scales; by others, where there are none, of operands that are dequantised.
SCALED = "MMAs with scales"
#: The lowerings: their passes, all of them behind ``CheckProgram``.
LOWERINGS: dict[str, tuple[Factory, ...]] = {
    SPREAD: (
        *_BEFORE_GRID, transform.PlanThreads, transform.IgnoreRoleHints, transform.ChooseGrid,
        transform.SpreadTiles, transform.StageStores, transform.PlanPipeline, transform.Multistage,
        *_LAST,
    ),
    WARP_SPECIALISED: (
        *_BEFORE_GRID, *_HOPPER_OPERANDS, transform.SqueezeVectors, transform.ChooseGrid,
        *_BEFORE_ROLES, transform.OrderMmas, transform.SliceK, transform.PingPong,
        transform.SpecializeWarps, *_LAST,
    ),
    MULTISTAGE: (
        *_BEFORE_GRID, *_HOPPER_OPERANDS, transform.SqueezeVectors, transform.IgnoreRoleHints,
        transform.ChooseGrid, *_BEFORE_ROLES, transform.Multistage, *_LAST,
    ),
    TENSOR_MEMORY: (
        *_BEFORE_GRID, transform.SparseOperands, transform.ShareOperands,
        transform.SqueezeVectors, transform.ChooseGrid, transform.PairCTAs, *_BEFORE_ROLES,
        transform.IgnoreRoleHints, transform.ResolveTensorMemory, transform.SpecializeWarps, *_LAST,
    ),
    BY_HAND: (transform.ResolveByHand, *_LAST[1:]),
}  # fmt: skip
LOWERINGS[SCALED] = (transform.ScaleBlocks, *LOWERINGS[TENSOR_MEMORY][1:])
#: What an author writes who means a lowering that is not the first choice.
_IF_MEANT = {MULTISTAGE: "If that is meant, write wl.hints(specialise=False)."}
#: The passes after which roles have parted, and tiles have no place in registers yet.
PARTED = ("SpecializeWarps", "Multistage", "ResolveByHand")


def lower(
    func: PrimFunc,
    arch: str | None = None,
    added: Mapping[str, tvm.transform.Pass] | None = None,
    quiet: bool = False,
) -> PrimFunc:
    """The kernel of a tile program, by the first lowering that takes it.

    A function with several kernels is lowered kernel by kernel: see
    :mod:`warploom.lower.several_kernels`.

    Parameters
    ----------
    arch : str, optional
        ``"sm_90a"`` or ``"sm_100a"``; without it that of the function's target, or of the target
        in whose scope this is called, or sm_90a.
    added : mapping, optional
        Name of a pass -> a pass to run after it; with any, ``wl.span`` stays until the end.
    quiet : bool
        Whether warnings of hints that no pass follows are off.

    Raises
    ------
    TileProgramError
        If the program breaks a rule of the language; :func:`warploom.language.interpret` refuses
        it with the same sentence.
    Decline
        If no lowering takes it; the message says why, one line for each lowering.
    """
    if has_several_kernels(func):
        return lower_each(func, lambda kernel: lower(kernel, arch, added, quiet))
    added = dict(added or {})
    try:
        start = _apply(CheckProgram(arch, keep_spans=bool(added), every=True), func)
        for lowering_pass in added_passes("CheckProgram"):
            start = _apply(lowering_pass, start)
        of_host = host_statements(func)

        def lowered(program: PrimFunc, quiet: bool) -> PrimFunc:
            return _lower_checked(program, func, added, quiet, of_host)

        if read(start).by_hand:
            return lowered(start, quiet)
        return for_any_rows(start, lowered, of_host, quiet)
    except WarploomError as error:
        raise type(error)(with_place(str(error), func)) from error


def _lower_checked(
    start: PrimFunc, func: PrimFunc, added: Mapping[str, tvm.transform.Pass], quiet: bool,
    of_host: int,
) -> PrimFunc:  # fmt: skip
    """The kernel of ``func`` by the first lowering that takes it, from ``start`` on."""
    program = read(start)
    reasons: dict[str, str] = {}
    for lowering in _candidates(program):
        try:
            lowered, state = _lower_by(lowering, start, added)
        except Decline as reason:
            reasons[lowering] = without_place(str(reason))
            note = f"{lowering} declines: {reasons[lowering]}"
            start = read(start).decided(note).to_func()
            continue
        if not quiet:
            # Fragments of the tensor core are as good a place for tiles of their size.
            others = {name: why for name, why in reasons.items() if name != SPREAD}
            advice = _IF_MEANT.get(lowering, "")
            warn_of_lowering(func, state["ignored"], lowering, others, advice)
        return capture_scalars(skip_empty(lowered, program, of_host))
    raise Decline(_together(reasons))


def _lower_by(
    lowering: str, func: PrimFunc, added: Mapping[str, tvm.transform.Pass]
) -> tuple[PrimFunc, dict]:
    """The kernel by one lowering, and the state that the passes had left at last.

    Where choices that nobody has made need too much, the passes begin again with smaller ones.

    Raises
    ------
    Decline
        If a pass does; the reason is that of the first try.
    """
    first: Decline | None = None
    start = func
    while True:
        state = read_state(start)
        reached = start
        try:
            for factory in LOWERINGS[lowering]:
                name = factory.__name__
                passes = (factory(), *added_passes(name), *filter(None, [added.get(name)]))
                for lowering_pass in passes:
                    reached = _apply(lowering_pass, reached)
                state = read_state(reached) or state
        except Decline as reason:
            first = first or reason
            tried = read(start)
            choice = smaller_choice(read(func), tried, read(reached), reason, first)
            if choice is None:
                raise first from None
            chosen = ", ".join(f"{name}={value}" for name, value in choice.items())
            note = f"{lowering} begins again with {chosen}: {without_place(str(reason))}"
            start = with_choice(tried, choice).decided(note).to_func()
            continue
        return reached, state


def _apply(lowering_pass: tvm.transform.Pass, func: PrimFunc) -> PrimFunc:
    return lowering_pass(tvm.IRModule({"main": func}))["main"]


def _together(reasons: dict[str, str]) -> str:
    """Why each lowering declined; once, if the reasons differ in nothing but numbers."""
    first = next(iter(reasons.values()))
    if len({re.sub(r"\d+", "0", reason) for reason in reasons.values()}) == 1:
        return first
    return "\n".join(f"{name}: {reason}" for name, reason in reasons.items())


def _candidates(program: TileProgram) -> list[str]:
    """The lowerings to try for an architecture, the preferred one first."""
    if program.by_hand:
        return [BY_HAND]
    if program.tensor_memory:
        scaled = any(isinstance(mma, Mma) and mma.scales for mma in walk(program.block))
        return [SCALED, TENSOR_MEMORY] if scaled else [TENSOR_MEMORY]
    if program.arch not in (SM90A.name, SM100A.name):
        raise Decline(
            f"There is no lowering of tile programs for {program.arch}; compile for {SM90A.name} "
            f"or {SM100A.name}."
        )
    wanted = program.hints.specialise
    if is_free(program):
        return [SPREAD, WARP_SPECIALISED, MULTISTAGE]
    if wanted is None:
        return [WARP_SPECIALISED, MULTISTAGE]
    return [WARP_SPECIALISED if wanted else MULTISTAGE]
